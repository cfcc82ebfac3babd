"""A recorded workload: the jobs of a trace, and its nodes where the trace has them. Pure."""

from __future__ import annotations

from collections import Counter
from typing import Final

import msgspec

from headrace.resources import Resources

#: Upper bound of the damaged lines that are kept word by word. All of them are counted.
MOST_DAMAGED: Final = 20


class WorkloadJob(msgspec.Struct, frozen=True, gc=False):
    """A job of the trace. It becomes one operation with `count` jobs."""

    #: Name in the trace, such as the job number.
    name: str
    #: Time of submission in milliseconds since the Unix epoch, or since the beginning of a trace without dates.
    submitted_ms: int
    #: Length of the run in milliseconds.
    runs_ms: int
    count: int
    #: Resources of each of the `count` jobs. A memory of 0 is not known.
    size: Resources
    #: True if the `count` jobs run together or not at all.
    together: bool = False
    user: str = ""
    group: str = ""
    account: str = ""
    queue: str = ""
    #: Time limit of the run in milliseconds; 0: the trace has none.
    limit_ms: int = 0
    #: Milliseconds that the job waited according to the trace; -1: not known.
    waited_ms: int = -1
    #: True if the job failed by itself after its run.
    failed: bool = False


class WorkloadNode(msgspec.Struct, frozen=True):
    """Nodes of the same size. A memory of 0 is not known."""

    count: int
    size: Resources
    tags: list[str] = []


class Workload(msgspec.Struct):
    """What a reader found in a file."""

    #: Name of the format, such as `swf`.
    format: str
    jobs: list[WorkloadJob] = []
    #: Nodes of the trace; empty: the trace does not say them.
    nodes: list[WorkloadNode] = []
    #: What was assumed, one sentence each.
    notes: list[str] = []
    #: Number of jobs that were left out, by reason, such as `cancelled before the start`.
    left_out: Counter[str] = msgspec.field(default_factory=Counter)
    #: The first lines that could not be read: number of the line, and what is wrong.
    damaged: list[tuple[int, str]] = []
    damaged_count: int = 0

    def add_damaged(self, line: int, why: str) -> None:
        """Count a line that cannot be read, and keep the first ones."""
        self.damaged_count += 1
        if len(self.damaged) < MOST_DAMAGED:
            self.damaged.append((line, why))
