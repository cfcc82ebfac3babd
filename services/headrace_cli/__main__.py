"""The command `headrace`. A Tab is answered before anything of the commands is imported: a person waits for every import."""

from __future__ import annotations

# ruff: noqa: E402
import signal

#: Unless whoever starts us has it ignored, Ctrl-C ends us without a word while all of this is imported, and when all is done.
_ON_INTERRUPT = signal.getsignal(signal.SIGINT)
if _ON_INTERRUPT is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)

import atexit
import gc
import os
import sys
from typing import Final

from headrace.errors import BadInput, HeadraceError
from headrace_cli.exit_statuses import Exit

_STDERR: Final = 2
#: Else the collector would look for garbage in all that is imported, again and again while it is.
_COLLECTED_AT: Final = 100_000
#: The word that the scripts of `headrace completion` begin with. It is no command for people, so help is silent about it.
_TAB: Final = "complete"
#: The names by which people know what `sys.platform` says.
_OTHER_SYSTEMS: Final = {"darwin": "macOS", "win32": "Windows"}


def _check_system(platform: str) -> None:
    """Ends the process with one sentence where Headrace does not run, before anything is imported that is not there."""
    if platform != "linux":
        system = _OTHER_SYSTEMS.get(platform, platform)
        print(
            f"Headrace runs on Linux, and this is {system}: use a host or a virtual machine with Linux"
            f"{', such as WSL 2' if platform == 'win32' else ''}.",
            file=sys.stderr,
        )
        sys.exit(Exit.REFUSED)


def _open_streams() -> None:
    """Opens the streams that our caller has closed, so that no connection takes their place."""
    while (opened := os.open(os.devnull, os.O_RDWR)) <= _STDERR:
        pass
    os.close(opened)
    sys.stdout = sys.stdout or os.fdopen(1, "w")
    sys.stderr = sys.stderr or os.fdopen(_STDERR, "w")


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
    """Runs the command line, and ends the process with an exit status of `headrace_cli.exit_statuses`."""
    _check_system(sys.platform)
    gc.set_threshold(_COLLECTED_AT)
    atexit.register(gc.freeze)  # and again at the end, for a fifth of all that a short command costs
    _open_streams()
    at_rest = signal.signal(signal.SIGINT, _ON_INTERRUPT)
    try:
        sys.exit(_run(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(Exit.INTERRUPTED)
    except BrokenPipeError:
        # Whoever read our output has gone, as `head` does.
        sys.stderr.close()
        sys.exit(Exit.DONE)
    except (HeadraceError, OSError, BaseExceptionGroup) as error:
        from headrace_cli.session import complain

        sys.exit(complain(error))
    finally:
        signal.signal(signal.SIGINT, at_rest)


if __name__ == "__main__":
    main()
