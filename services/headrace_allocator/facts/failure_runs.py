"""Runs of failures: when failures in a row are too many for chance, and when the next job may be tried.

The same rule decides whether a node is held back from one operation, or from all. A run is the failures in a row since the last completed
job. It is *too long* from `least_suspect(t)` failures on, where t is the number of jobs that ended before the run:

    least_suspect(t) = 4 + 2 * log10(1 + t)

From `least_suspect(t) - 2` failures on, the node is held back: one job at a time is tried after pauses of 30 s, 2 min, 8 min, 32 min and
then 1 h.

Bound of false alarms: let every job of a healthy node fail on its own with a probability of at most p, where p <= 0.1. A run that begins
after t jobs becomes too long with a probability of at most

    p ** least_suspect(t) <= p ** 4 * (1 + t) ** -2

The sum over all t is at most p ** 4 * pi ** 2 / 6. So between two starts of the allocator, at most N * p ** 4 * pi ** 2 / 6 of N healthy
nodes are found suspect on average, however many jobs they run. For N = 100 and p = 0.05 that is 0.001 nodes.
"""

from __future__ import annotations

import enum
import math
from typing import Final

#: Number of failures in a row after which a node is suspect if it completed nothing before them.
_LEAST: Final = 4
#: A node is held back once its run of failures is shorter by at most this number of failures than a run that is too long.
_HELD_BEFORE: Final = 2
#: Seconds of the pause after a failure on a node that has completed nothing yet: jobs that began at the same time as the failed job may
#: fail, too.
_DOUBT_S: Final = 1.0
#: Seconds of the first pause before a single job is tried.
FIRST_PAUSE_S: Final = 30.0
#: Factor by which the pause grows each time a single job is tried.
_GROWTH: Final = 4
#: Number of times that the pause grows. After that it has its longest length.
_MOST_GROWTHS: Final = 4
#: Seconds of the longest pause.
_LONGEST_PAUSE_S: Final = 3600.0


class Turn(enum.Enum):
    """The number of jobs that may start on the node now."""

    #: As many jobs as fit.
    ANY = "any"
    #: One job, which shows whether jobs still fail.
    SINGLE = "single"
    #: No job.
    NONE = "none"


def least_suspect(ended_before: int) -> float:
    """Return the number of failures in a row that are too many for chance, after this number of ended jobs."""
    return _LEAST + 2 * math.log10(1 + ended_before)


class FailureRun:
    """The failures in a row, of one operation on a node or of all operations on a node."""

    __slots__ = ("ended_before", "failures", "is_held", "tried", "until_s")

    def __init__(self) -> None:
        #: Number of jobs that ended before the first failure of the run.
        self.ended_before = 0
        self.failures = 0
        self.is_held = False
        #: Number of single jobs that were tried since the node was held back.
        self.tried = 0
        #: Time before which nothing starts (steady-clock seconds).
        self.until_s = 0.0

    def fail(self, now_s: float) -> None:
        """Add a failure."""
        self.failures += 1
        if not self.is_held and not self.ended_before:
            self.until_s = now_s + _DOUBT_S

    def complete(self) -> None:
        """End the run, because a job was completed."""
        self.ended_before += self.failures + 1
        self.failures = 0
        self.release()

    def judge(self, counted: int, now_s: float) -> None:
        """Begin or stop holding back the node. `counted` is the number of failures that count against it."""
        is_long = counted >= least_suspect(self.ended_before) - _HELD_BEFORE
        if is_long and not self.is_held:
            self.is_held, self.tried, self.until_s = True, 0, now_s + FIRST_PAUSE_S
        elif self.is_held and not is_long:
            self.release()

    def release(self) -> None:
        """Stop holding back the node, and end the pause."""
        self.is_held, self.tried, self.until_s = False, 0, 0.0

    def turn(self, now_s: float) -> Turn:
        """Return how many jobs may start now."""
        if now_s < self.until_s:
            return Turn.NONE
        return Turn.SINGLE if self.is_held else Turn.ANY

    def note_start(self, now_s: float) -> None:
        """Record that a job starts. While the node is held back, the next single job is tried only after a longer pause.

        A job starts within a pause only if no other node could take the job. Such a start does not count as a trial.
        """
        if self.is_held and now_s >= self.until_s:
            self.tried += 1
            self.until_s = now_s + min(FIRST_PAUSE_S * _GROWTH ** min(self.tried, _MOST_GROWTHS), _LONGEST_PAUSE_S)
