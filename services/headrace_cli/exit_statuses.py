"""Exit statuses of `headrace`, the same for every command. Scripts may rely on them."""

from __future__ import annotations

import enum
import os
import sys
from typing import NoReturn


class Exit(enum.IntEnum):
    """The meaning of an exit status."""

    #: Done. With `--wait`: the operation completed.
    DONE = 0
    #: Tried and failed: the operation failed or was aborted, `up` did not become ready, or the demo failed.
    FAILED = 1
    #: The command line is not usable.
    USAGE = 2
    #: Headrace is not running, or did not answer in time.
    NOT_RUNNING = 3
    #: Refused by Headrace, by this machine or by the user at a prompt: unknown name, name or port in use, not allowed.
    #: Nothing was done.
    REFUSED = 4
    #: Ended by Ctrl-C.
    INTERRUPTED = 130


EXIT_HELP = (
    "**Exit status** 0 done (with `--wait`: the operation completed), 1 it went wrong (the operation failed or was "
    "aborted), 2 unusable command line, 3 Headrace is not running or did not answer, 4 refused, 130 Ctrl-C."
)


def end_without_reader() -> NoReturn:
    """End the process as done, because the reader of its output, such as `head`, wants no more of it."""
    # Otherwise the interpreter would try to write the rest of the output, and end with exit status 120.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(Exit.DONE)
