"""The frame of every peer's program: `python of_NAME.py JOBS STARTS` prints one line of JSON. It needs nothing but Python and the peer.

Measured are so many processes that do nothing, given at once, from the request to all ends. Then single ones, from before the request to
the time that the program itself reads. Each peer has two places for jobs, and starts each as a process of its own.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable

PLACES = 2
TRUE = ["true"]
NOW = ["date", "+%s%N"]


def main(measure: Callable[[int, int], None]) -> None:
    """Runs a measurement with what the command line says."""
    measure(int(sys.argv[1]), int(sys.argv[2]))


def report(jobs_per_second: float, start_ms: list[float]) -> None:
    """Prints what came of it, as the last line."""
    print(json.dumps({"jobs_per_second": jobs_per_second, "start_ms": start_ms}), flush=True)
