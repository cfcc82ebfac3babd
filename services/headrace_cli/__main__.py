"""The command `headrace`.

When the user presses Tab, the shell asks this program for completions. They are printed before any command is imported, because the user
waits for every import.
"""

from __future__ import annotations

# ruff: noqa: E402
import signal

#: The SIGINT handler that the process started with. Unless this handler ignores SIGINT, Ctrl-C ends the process silently during the imports
#: below and after the command.
_ON_INTERRUPT = signal.getsignal(signal.SIGINT)
if _ON_INTERRUPT is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)

import atexit
import gc
import sys
from typing import Final

from headrace.errors import BadInput, HeadraceError, first_error
from headrace.files.standard_streams import open_streams
from headrace_cli.exit_statuses import Exit, end_without_reader

#: Threshold of the garbage collector, in objects. With the default the collector runs again and again during the imports.
_COLLECTED_AT: Final = 100_000
#: Values of `sys.platform` of systems on which clients run.
_CLIENT_SYSTEMS: Final = ("linux", "darwin")
#: The first word in calls by the scripts of `headrace completion`. Help does not list it, because users do not type it.
_TAB: Final = "complete"


def _check_system(platform: str) -> None:
    """End the process with one sentence if no command runs on this system.

    Call this before any module is imported that does not exist on other systems.
    """
    if platform not in _CLIENT_SYSTEMS:
        from headrace.installation.systems import system_name

        print(
            f"Headrace runs on Linux, and this is {system_name(platform)}: use a host or a virtual machine with Linux"
            f"{', such as WSL 2' if platform == 'win32' else ''}.",
            file=sys.stderr,
        )
        sys.exit(Exit.REFUSED)


def _check_words(words: list[str]) -> None:
    for word in words:
        if not word.isascii() and word != word.encode(errors="replace").decode():
            raise BadInput("command line", word, "words in UTF-8")


def _run(words: list[str]) -> int:
    match words:
        case [word, shell, *typed] if word == _TAB:
            from headrace_cli.completion.answer import answer

            answer(shell, typed[1:] if typed[:1] == ["--"] else typed)
            return Exit.DONE
        case _:
            from headrace_cli.command_line import run_command

            _check_words(words)
            return run_command(words)


def main() -> None:
    """Run the command line and end the process with an exit status of `headrace_cli.exit_statuses`."""
    _check_system(sys.platform)
    gc.set_threshold(_COLLECTED_AT)
    atexit.register(gc.freeze)  # a collection at exit takes a fifth of the time of a short command
    open_streams()
    at_rest = signal.signal(signal.SIGINT, _ON_INTERRUPT)
    try:
        status = _run(sys.argv[1:])
        # Write the remaining output here. Otherwise the interpreter would write it at exit, and would print an error if the reader has
        # exited.
        sys.stdout.flush()
        sys.exit(status)
    except KeyboardInterrupt:
        sys.exit(Exit.INTERRUPTED)
    except (HeadraceError, OSError, BaseExceptionGroup) as error:
        from headrace_cli.session import complain

        if isinstance(first_error(error), BrokenPipeError):
            end_without_reader()
        sys.exit(complain(error))
    finally:
        signal.signal(signal.SIGINT, at_rest)


if __name__ == "__main__":
    main()
