"""Other work on the machine while something is measured."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from headrace.errors import BadInput
from headrace.own_process import end_with_parent

__all__ = ["other_work"]


@contextmanager
def other_work() -> Iterator[None]:
    """With BUSY=1 in the environment, let one process for each core spin meanwhile.

    Each has a session of its own, as a job or a program of another person has, so the kernel gives it a share of its own.
    """
    wish = os.environ.get("BUSY", "")
    if wish not in ("", "0", "1"):
        raise BadInput("BUSY", wish, "0 or 1")
    spin = [sys.executable, "-c", "while True: pass"]
    count = len(os.sched_getaffinity(0)) if wish == "1" else 0
    processes = [subprocess.Popen(spin, start_new_session=True, preexec_fn=end_with_parent) for _ in range(count)]
    if count:
        print(f"beside {count} processes that spin", file=sys.stderr)
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()
