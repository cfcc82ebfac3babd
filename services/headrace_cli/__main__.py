"""The command `headrace`."""

from __future__ import annotations

import sys
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed_version
from typing import Annotated

from cyclopts import App, CycloptsError, Parameter

from headrace.errors import HeadraceError
from headrace.obs.logging import configure
from headrace_cli.commands import node, op, pool, tree
from headrace_cli.commands.completion import Shell, answer, completion
from headrace_cli.commands.plan import plan
from headrace_cli.commands.run import run
from headrace_cli.demo.command import demo
from headrace_cli.exit_statuses import EXIT_HELP, Exit
from headrace_cli.session import complain
from headrace_cli.up.command import up

__all__ = ["app", "main"]


def _version() -> str:
    try:
        return installed_version("headrace")
    except PackageNotFoundError:  # run from a checkout
        return "0.1.0"


app = App(
    name="headrace",
    help="Share hosts between teams: pools own guarantees and weights, operations run their jobs in pools.",
    help_epilogue=EXIT_HELP,
    version=_version,
    default_parameter=Parameter(negative=()),
)
app.command(up)
app.command(run)
app.command(op.app)
app.command(pool.app)
app.command(tree.app)
app.command(node.app)
app.command(plan)
app.command(demo)
app.command(completion)


@app.command
def version() -> None:
    """Print the version."""
    print(_version())


@app.command(show=False)
def complete(shell: Shell, /, *words: Annotated[str, Parameter(allow_leading_hyphen=True)]) -> None:
    """Print what can stand at the cursor. Asked by the scripts of `headrace completion`."""
    answer(app, shell, words)


def main() -> None:
    """Runs the command line, and ends the process with an exit status of `headrace_cli.exit_statuses`."""
    configure("cli", "error")
    try:
        status = app(exit_on_error=False)
    except CycloptsError:
        sys.exit(Exit.USAGE)  # it has said what is wrong
    except KeyboardInterrupt:
        sys.exit(Exit.INTERRUPTED)
    except BrokenPipeError:
        # Whoever read our output has gone, as `head` does.
        sys.stderr.close()
        sys.exit(Exit.DONE)
    except (HeadraceError, OSError, BaseExceptionGroup) as error:
        sys.exit(complain(error))
    sys.exit(status if isinstance(status, int) else Exit.DONE)


if __name__ == "__main__":
    main()
