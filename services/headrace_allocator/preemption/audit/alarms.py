"""Alarms about preemption: jobs that are preempted again and again, and shares that are too old to decide about preemption.

The counts start at zero with each allocator process.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from typing import Final

from headrace.ids import OperationId
from headrace.runtime.engine import Figure, Moment, counter, gauge
from headrace.wire.heartbeat import JobKey
from headrace_allocator.effects import Alarm
from headrace_allocator.facts.facts import Facts

#: Number of preemptions of one job within `_WITHIN_S` seconds that raises an alarm.
_OFTEN: Final = 3
_WITHIN_S: Final = 3_600.0
#: Upper bound of the preemptions that are remembered; beyond it the oldest are forgotten, even if they are less than an hour old.
_MOST_REMEMBERED: Final = 100_000


class PreemptionAlarms:
    """The preemptions of the last hour, counted by operation and job index. All attempts of a job count together."""

    def __init__(self) -> None:
        self._recent: deque[tuple[float, tuple[OperationId, int]]] = deque()
        self._times: dict[OperationId, Counter[int]] = {}
        #: Number of preemptions of jobs that had already been preempted within the hour before.
        self.repeated = 0
        #: Number of alarms about jobs that were preempted `_OFTEN` times within an hour.
        self.alarmed = 0
        self._shares_old = False

    def on_preempted(self, jobs: list[JobKey], now: Moment) -> list[Alarm]:
        """Count jobs that were preempted. Return an alarm for each job that reached the limit of preemptions within an hour."""
        alarms = []
        for job in jobs:
            self._forget(now.steady_s - _WITHIN_S)
            key = (job.operation, job.index)
            self._recent.append((now.steady_s, key))
            times = self._times.setdefault(job.operation, Counter())
            times[job.index] += 1
            self.repeated += times[job.index] > 1
            if times[job.index] == _OFTEN:
                self.alarmed += 1
                said: dict[str, str | int | float] = {"operation": job.operation, "index": job.index}
                said |= {"times": _OFTEN, "within_s": _WITHIN_S}
                alarms.append(Alarm("job is preempted again and again", said))
        return alarms

    def of(self, operation: OperationId, now: Moment) -> Mapping[int, int]:
        """Return how often each job of an operation was preempted within the last hour, by job index."""
        self._forget(now.steady_s - _WITHIN_S)
        return self._times.get(operation, {})

    def on_tick(self, facts: Facts, now: Moment) -> list[Alarm]:
        """Check the age of the shares. Return an alarm if they became too old since the last tick."""
        before, self._shares_old = self._shares_old, facts.shares_heard_s is not None and facts.shares_are_old(now)
        if before or not self._shares_old:
            return []
        return [
            Alarm("fair_share publishes no shares: nothing is preempted", {"for_s": facts.timing.shares_count_for_s})
        ]

    def figures(self) -> list[Figure]:
        """Return the metrics of repeated preemptions, and a metric that says whether preemption is suspended because the shares are too
        old.
        """
        return [
            counter(
                "preempted_again",
                "jobs",
                self.repeated,
                "Preemptions of a job that was already preempted within the last hour.",
            ),
            counter(
                "preempted_again_and_again",
                "alarms",
                self.alarmed,
                "Jobs that were preempted three times within an hour.",
            ),
            gauge(
                "shares_are_old",
                "trees",
                int(self._shares_old),
                "1 while fair_share has published no shares for so long that nothing is preempted.",
            ),
        ]

    def _forget(self, before_s: float) -> None:
        while self._recent and (self._recent[0][0] < before_s or len(self._recent) >= _MOST_REMEMBERED):
            _, (operation, index) = self._recent.popleft()
            times = self._times[operation]
            times[index] -= 1
            if not times[index]:
                del times[index]
            if not times:
                del self._times[operation]
