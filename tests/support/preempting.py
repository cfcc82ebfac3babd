"""Hosts full of jobs, with the real allocator and the real fair share over them: who starves takes from whom has too much.

Hosts obey or miss what they are told; interrupted jobs end soon and run again; shares follow usage. Time is simulated.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any, Final

import msgspec

from headrace.ids import AllocationId, NodeName, OperationId, PoolName
from headrace.pools import Pool, Tree, TreeOptions
from headrace.resources import ZERO, Resources
from headrace.wire.heartbeat import (
    AllocationReport,
    AllocationState,
    JobEnd,
    JobResult,
    JobSlot,
    Orders,
    Retry,
    RunningJob,
)
from headrace.wire.ledger import LiveOperation
from headrace.wire.log import JobsEnded, LoggedEnd
from headrace.wire.preemption import PreemptionRecord
from headrace.wire.version import Version
from headrace_allocator.effects import Effect, Report
from headrace_allocator.facts.pool_tree import ShareSnapshot
from headrace_fair_share.engine import EngineOptions, FairShareEngine
from headrace_fair_share.facts.usage import UsageChange
from headrace_fair_share.update.updater import Updater
from tests.support.allocating import TREE, Desk
from tests.support.fair_share import stored, updated

__all__ = ["Fleet"]

_UPDATE_S: Final = 2.0


class _Place(msgspec.Struct):
    """An allocation as its host has it."""

    id: AllocationId
    operation: OperationId
    resources: Resources
    slots: list[JobSlot]
    job: RunningJob | None = None
    ends_s: float = 0.0
    is_closing: bool = False
    has_ended: bool = False
    interrupted: bool = False
    preemption: PreemptionRecord | None = None
    jobs_ended: int = 0

    def report(self) -> AllocationReport:
        state = AllocationState.RUNNING if self.job is not None else AllocationState.WAITING
        if self.has_ended:
            state = AllocationState.ENDED
        elif self.is_closing:
            state = AllocationState.CLOSING
        return AllocationReport(
            self.id,
            self.operation,
            state,
            self.resources,
            self.job,
            list(self.slots),
            self.jobs_ended,
            preemption=self.preemption,
        )


class Fleet(Desk):
    """Hosts and their jobs. `job_s` says for how long a job of an operation runs."""

    def __init__(
        self, random: Random, hosts: dict[str, Resources], pools: Sequence[Pool], options: TreeOptions
    ) -> None:
        super().__init__(hosts, shares_count_for_s=10.0, allowed_overcommit_s=3.0)
        self.random = random
        self.places: dict[str, dict[AllocationId, _Place]] = {name: {} for name in hosts}
        self.ends: dict[str, dict[tuple[str, int, int], JobEnd]] = {name: {} for name in hosts}
        self.live: dict[OperationId, LiveOperation] = {}
        self.job_s: dict[OperationId, float] = {}
        #: Seconds from the signal to the end of a job, at most until it is killed; None: it ends at any moment until then.
        self.saves_s: float | None = None
        #: By job: how often it was interrupted for others.
        self.preempted: dict[tuple[str, int], int] = {}
        self._fair_share = FairShareEngine(TREE, 1, EngineOptions())
        self._updater = Updater()
        self._epoch = 0
        #: Preemptions, by allocation and moment, that were told in answers that were lost.
        self._lost: set[tuple[AllocationId, int]] = set()
        #: By host: False if its last answer was lost.
        self._obeyed: dict[str, bool] = {}
        self._update_s = 0.0
        self._fair_share.on_stored_tree(stored(Tree(TREE, list(pools), options), 1), self.now)

    def begin(self, live: LiveOperation, job_s: float) -> None:
        """An operation starts."""
        self.live[live.operation] = live
        self.job_s[live.operation] = job_s
        self.engine.on_operations(self.live.values(), self.now)
        self._fair_share.on_operations(self.live.values(), self.now)
        self.refresh()

    def reconfigure(self, pools: Sequence[Pool], options: TreeOptions, revision: int) -> None:
        """The pools are others from now on."""
        self._fair_share.on_stored_tree(stored(Tree(TREE, list(pools), options), revision), self.now)

    def pass_time(self, seconds: float) -> None:
        """Jobs end, those that wait start, and shares are computed anew."""
        self.now_s += seconds
        for host in self.nodes:
            self._run_jobs(host)
        if self.now_s >= self._update_s:
            self._update_s = self.now_s + _UPDATE_S
            self.update_shares()

    def update_shares(self) -> None:
        """fair_share hears of the usage, and the allocator of the shares."""
        cut = self.cut_usage()
        self._epoch += 1
        gone = frozenset(cut.gone)
        self._fair_share.on_usage(UsageChange(Version(1, self._epoch), cut.frame, cut.items, gone), self.now)
        update = updated(self._fair_share, self._updater, self.now)
        items = self._fair_share.items
        changed = [item.key for item in update.changed]
        told = ShareSnapshot(items, changed, update.removed, update.frame.total, update.frame.options)
        self.engine.on_shares(told, self.now)
        self.refresh()

    def hear(self, host: str, *, answered: bool = True, **changes: Any) -> Orders:
        """A heartbeat. The orders are obeyed unless the answer is lost."""
        last_was_obeyed = self._obeyed.get(host, True)
        ends, pictures = list(self.ends[host].values()), self.shown(host)
        shown: dict[str, Any] = {"allocations": pictures, "ends": ends, "boottime_ms": self.boottime_ms, **changes}
        orders, effects = self.beat(host, obeyed=last_was_obeyed, **shown)
        self._perform(effects)
        # A record without a moment is no decision: a host that errs made it up, and hears it again until it shows it.
        records = [(one.allocation, one.preemption) for one in orders.take_back if one.preemption is not None]
        told = {
            (name, record.decided_at_ms)
            for name, record in records
            if record.decided_at_ms and not self.is_told_again(record)
        }
        # A host that errs may show a job as preempted of whose order it never heard. It is believed, and the order stands.
        claimed = {one.id for one in pictures if one.preemption is not None}
        undone = {one for one in self._lost if one[0] not in claimed}
        assert not told & undone, "an answer that was lost is taken back as a whole"
        self._obeyed[host] = answered
        if answered:
            self._obey(host, orders)
        else:
            known = {place.id for place in self.places[host].values() if place.preemption is not None}
            self._lost |= {one for one in told if one[0] not in known}
        return orders

    @property
    def boottime_ms(self) -> int:
        """CLOCK_BOOTTIME of all hosts."""
        return int(self.now_s * 1000) - 50_000

    def forget_answer(self, host: str) -> None:
        """The agent of a host begins anew, and obeyed nothing yet."""
        self._obeyed[host] = False

    def shown(self, host: str) -> list[AllocationReport]:
        """All that a host says of its allocations."""
        return [place.report() for place in self.places[host].values()]

    def is_told_again(self, record: PreemptionRecord) -> bool:
        """True for an order that stands though the answer that told it was lost."""
        return False

    # --- hosts ------------------------------------------------------------------------------------------------------

    def _obey(self, host: str, orders: Orders) -> None:
        places, ends = self.places[host], self.ends[host]
        for key in orders.forget.ends:
            ends.pop((key.operation, key.index, key.attempt), None)
        for name in orders.forget.allocations:
            places.pop(name, None)
        for order in orders.take_back:
            place = places.get(order.allocation)
            if place is None or place.has_ended:
                continue
            place.preemption = order.preemption or place.preemption
            place.is_closing = True
            if place.job is None:
                place.has_ended = True
                if not place.jobs_ended:
                    self._note_preempted(place, place.slots[0].index)
            elif order.timeout_ms is not None and not place.interrupted:
                place.interrupted = True
                timeout_s = order.timeout_ms / 1000
                saves_s = self.random.random() * timeout_s if self.saves_s is None else min(self.saves_s, timeout_s)
                place.ends_s = min(place.ends_s, self.now_s + saves_s)
        for extend in orders.extend:
            places[extend.allocation].slots += extend.slots
        for start in orders.start:
            places[start.allocation] = _Place(start.allocation, start.operation, start.resources, list(start.slots))
        self._run_jobs(host)

    def _run_jobs(self, host: str) -> None:
        for place in list(self.places[host].values()):
            while place.job is not None and place.ends_s <= self.now_s:
                self._end_job(host, place)
        used = Resources.sum(place.resources for place in self.places[host].values() if place.job is not None)
        for place in self.places[host].values():
            if (
                place.job is None
                and not (place.is_closing or place.has_ended)
                and self.nodes[host].dominates(used + place.resources)
            ):
                self._next_job(place)
                used = used + place.resources

    def _next_job(self, place: _Place) -> None:
        slot = place.slots.pop(0)
        place.job = RunningJob(slot.index, slot.attempt, int(self.now_s * 1000), self.boottime_ms)
        place.ends_s = self.now_s + self.job_s[place.operation]

    def _end_job(self, host: str, place: _Place) -> None:
        job = place.job
        assert job is not None
        result = JobResult.ABORTED if place.interrupted else JobResult.COMPLETED
        end = JobEnd(
            place.operation, job.index, job.attempt, place.id, result,
            started_at_ms=job.started_at_ms, ended_at_ms=max(job.started_at_ms, int(place.ends_s * 1000)),
        )  # fmt: skip
        if place.interrupted:
            self._note_preempted(place, job.index)
        self.ends[host][place.operation, job.index, job.attempt] = end
        place.job = None
        place.jobs_ended += 1
        if place.slots and not place.is_closing:
            self._next_job(place)
        else:
            place.has_ended = True

    def _note_preempted(self, place: _Place, index: int) -> None:
        """A job lost its place, be it before it began."""
        if place.preemption is not None:
            key = (place.operation, index)
            self.preempted[key] = self.preempted.get(key, 0) + 1

    # --- the ledger -------------------------------------------------------------------------------------------------

    def _perform(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Report):
                for reported in effect.ends:
                    self._record(reported.end, reported.node)
                self.engine.on_recorded(effect.ends, self.now)

    def _record(self, end: JobEnd, node: NodeName) -> None:
        retry = None if end.result is JobResult.COMPLETED else Retry(end.index, end.attempt + 1)
        self.learn(JobsEnded(end.operation, [LoggedEnd(end, node, retry)], int(self.now_s * 1000)))

    # --- sums -------------------------------------------------------------------------------------------------------

    def check_sums(self) -> None:
        """Every sum, from the operations up to the root and the nodes, is that of the allocations."""
        facts = self.facts
        for node in facts.nodes.values():
            assert node.used == Resources.sum(one.usage for one in node.allocations.values())
        everything = [one for node in facts.nodes.values() for one in node.allocations.values()]
        assert facts.used == Resources.sum(one.usage for one in everything)
        for operation in facts.operations.values():
            mine = [one for one in everything if one.operation == operation.id]
            assert operation.held == Resources.sum(one.usage for one in mine)
            assert operation.precommit == Resources.sum(one.usage for one in mine if not one.confirmed)
        for name in facts.pools.known:
            pool = facts.pools.pool(PoolName(name))
            below = [one for one in facts.operations.values() if pool in facts.pools.pool(one.spec.pool).path()]
            assert pool.used == Resources.sum(
                (one.held for one in below),
            )
        assert facts.used.dominates(ZERO)
