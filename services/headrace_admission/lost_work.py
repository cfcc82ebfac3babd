"""Work that preemption cost, by pool, reason and hour, computed from the log.

The lost work of an attempt is the resources of its job times its run time. That is an upper bound, because it is not known how much
of its work a job had saved. An attempt that completed lost nothing, and neither did an attempt whose exit code says that it saved its
state.

Hours are kept for a week, so that users can compare a day with the days before. The rows depend only on the log, so another process
computes the same rows.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

import msgspec

from headrace.ids import ROOT_POOL, PoolName, TreeName
from headrace.resources import Resources
from headrace.runtime.engine import Figure, FigureKind
from headrace.wire.heartbeat import EXIT_SAVED, JobEnd, JobResult
from headrace.wire.integral import LARGEST_CPU_VOLUME, Volume
from headrace.wire.lost_work import HOUR_MS, KEPT_HOURS, LostWork
from headrace.wire.preemption import PreemptionReason

#: Upper bound of the rows of single hours. Beyond it the rows of the oldest hours are dropped.
_MOST_ROWS: Final = 50_000
#: Upper bound of the number of sums. Beyond it the oldest sum is dropped.
_MOST_SUMS: Final = 10_000
#: Resources with a metric of lost work, and their units.
_UNITS: Final = {"cpu": "hundredths of a core-second", "gpu": "gpu-seconds", "memory": "byte-seconds"}
_NOTHING: Final = Volume()
_NOT_PREEMPTED: Final = (JobResult.COMPLETED, JobResult.TIMED_OUT)


class LostIn(NamedTuple):
    """The tree and pool in which work was lost, and the reason."""

    tree: TreeName
    pool: PoolName
    reason: PreemptionReason


class LostWorkRow(msgspec.Struct, frozen=True, array_like=True):
    """Lost work as a checkpoint stores it."""

    tree: TreeName
    pool: PoolName
    lost: LostWork
    #: True: all work that was ever lost in this pool for this reason; False: the work that was lost in one hour.
    is_sum: bool = False


class LostWorkBook:
    """Lost work of the last hours, and its sums since the beginning. Changed only by `State`."""

    def __init__(self) -> None:
        self._hours: dict[int, dict[LostIn, LostWork]] = {}
        self._ever: dict[LostIn, LostWork] = {}
        self._row_count = 0

    def note(self, tree: TreeName, pool: PoolName, end: JobEnd, given: Resources, at_ms: int) -> None:
        """Count the work of an attempt that ended by preemption. An attempt that completed, timed out or saved its state lost nothing."""
        if end.preemption is None or end.result in _NOT_PREEMPTED or end.exit_code == EXIT_SAVED:
            return
        ran_ms = max(0, end.ended_at_ms - end.started_at_ms) if end.started_at_ms else 0
        if ran_ms:
            where = LostIn(tree, pool, end.preemption.reason)
            lost = LostWork(at_ms - at_ms % HOUR_MS, where.reason, 1, _work(given, ran_ms), at_ms)
            self._add(where, lost)
            self._add_to_sum(where, lost)

    def restore(self, rows: Iterable[LostWorkRow]) -> None:
        """Load the rows of a checkpoint."""
        for row in rows:
            add = self._add_to_sum if row.is_sum else self._add
            add(LostIn(row.tree, row.pool, row.lost.reason), row.lost)

    def rows(self) -> list[LostWorkRow]:
        """Return all rows, for a checkpoint."""
        sums = [LostWorkRow(at.tree, at.pool, lost, is_sum=True) for at, lost in self._ever.items()]
        hours = self._hours.values()
        return sums + [LostWorkRow(at.tree, at.pool, lost) for hour in hours for at, lost in hour.items()]

    def told(self, tree: TreeName, pools: Container[PoolName] | None, since_ms: int, until_ms: int) -> list[LostWork]:
        """Return the work lost in these pools together (None: in all pools): a row for each hour and reason, in order of time."""
        found: dict[tuple[int, PreemptionReason], LostWork] = {}
        for hour_ms in sorted(hour for hour in self._hours if since_ms - HOUR_MS < hour < until_ms):
            for at, lost in self._hours[hour_ms].items():
                if at.tree == tree and (pools is None or at.pool in pools):
                    found[hour_ms, at.reason] = _sum(found.get((hour_ms, at.reason)), lost)
        return list(found.values())

    @property
    def kept_since_ms(self) -> int:
        """Return the beginning of the oldest hour with lost work that is kept, in milliseconds of Unix time; 0: no work was lost."""
        return min(self._hours, default=0)

    def picture(self, trees: Iterable[TreeName]) -> Callable[[], Iterator[Figure]]:
        """Copy the sums. The returned function makes metrics of the copy, in any thread.

        The root of each tree has metrics even before any work was lost.
        """
        reasons = [LostIn(tree, ROOT_POOL, reason) for tree in trees for reason in PreemptionReason]
        sums = {at: _NOTHING for at in reasons} | {at: lost.work for at, lost in self._ever.items()}
        return lambda: _figures(sums)

    def _add_to_sum(self, at: LostIn, lost: LostWork) -> None:
        if at not in self._ever and len(self._ever) >= _MOST_SUMS:
            del self._ever[next(iter(self._ever))]
        self._ever[at] = _sum(self._ever.get(at), lost)

    def _add(self, at: LostIn, lost: LostWork) -> None:
        hour = self._hours.setdefault(lost.hour_ms, {})
        self._row_count += at not in hour
        hour[at] = _sum(hour.get(at), lost)
        newest_ms = max(self._hours)
        while len(self._hours) > 1:
            oldest_ms = min(self._hours)
            if oldest_ms > newest_ms - KEPT_HOURS * HOUR_MS and self._row_count <= _MOST_ROWS:
                break
            self._row_count -= len(self._hours.pop(oldest_ms))


def _figures(sums: Mapping[LostIn, Volume]) -> Iterator[Figure]:
    for resource, unit in _UNITS.items():
        name = f"pool_lost_work_{resource}"
        says = f"Work lost in attempts that were preempted: their {resource}, times the time that they ran. Pools below do not count."
        for at, work in sums.items():
            # One admission process reports the metrics of all trees, so the tree is a label here.
            labels = {"tree": at.tree, "pool": at.pool, "reason": at.reason.value}
            key = f"{name}_{at.reason.value}_{at.tree}_{at.pool}"
            yield Figure(key, unit, FigureKind.COUNTER, getattr(work, resource), says, name, labels)


def _work(given: Resources, ran_ms: int) -> Volume:
    """Return the resources of an attempt times the seconds that it ran."""
    u, c, g, m, n = given.as_tuple()
    cpu = min(round(c * ran_ms / 1000), LARGEST_CPU_VOLUME)
    return Volume(u * ran_ms / 1000, cpu, g * ran_ms / 1000, m * ran_ms / 1000, n * ran_ms / 1000)


def _sum(one: LostWork | None, other: LostWork) -> LostWork:
    """Return the sum of two amounts of the same hour and reason."""
    if one is None:
        return other
    figures = zip(msgspec.structs.astuple(one.work), msgspec.structs.astuple(other.work), strict=True)
    user_slots, cpu, gpu, memory, network = (mine + theirs for mine, theirs in figures)
    work = Volume(user_slots, min(cpu, LARGEST_CPU_VOLUME), gpu, memory, network)
    return LostWork(one.hour_ms, one.reason, one.runs + other.runs, work, min(one.first_ms, other.first_ms))
