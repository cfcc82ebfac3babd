"""The guard: one small process that ends what `headrace up` started, should `up` be killed before it could.

It waits for the other end of its standard input to close, which the kernel does however `up` dies. After an orderly stop nothing is
left to end. It holds the lock of the state folder too (the descriptor is inherited), so that the next `up` waits until it is done.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from headrace_cli.up.marks import end_leftovers

#: Written by `up` when it was told to leave runners and jobs running.
LEAVE_JOBS = b"L"


def main() -> None:
    """`python -m headrace_cli.up.guard STATE SECONDS`: agents that were left get so many to end their jobs."""
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
