"""The guard: a small process that ends what `headrace up` started if `up` is killed before it can do that itself.

The guard waits until its standard input is closed; the kernel closes it no matter how `up` dies. If `up` stopped everything before, the
guard finds nothing to end. The guard also holds the lock of the state folder (it inherits the descriptor), so the next `up` waits until the
guard is done.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from headrace_cli.up.process_marks import end_leftovers

#: Message from `up` to the guard: leave runners and jobs running.
LEAVE_JOBS = b"L"


def main() -> None:
    """Run `python -m headrace_cli.up.guard STATE SECONDS`. SECONDS is the time that leftover agents get to end their jobs."""
    state, agents_time_s = Path(sys.argv[1]), float(sys.argv[2])
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    told = b""
    while True:
        data = os.read(0, 64)
        if not data:
            break
        told += data
    end_leftovers(state, leave_jobs=LEAVE_JOBS in told, agents_time_s=agents_time_s)


if __name__ == "__main__":
    main()
