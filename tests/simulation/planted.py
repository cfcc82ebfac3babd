"""Faults that are put into the product while it runs, to see that the simulation finds them.

Each one undoes a rule on which the promises rest. One that no seed finds says that the world is too kind.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, Final
from unittest import mock

import anyio
import msgspec

from headrace.bus import BusError
from headrace.bus.group_commit import GroupAppender
from headrace.ids import TreeName
from headrace.runtime.engine import Outcome
from headrace.runtime.feeds import SnapshotFeed
from headrace.runtime.role import Deposition, Role
from headrace.runtime.terms import TermBook
from headrace.wire.codec import BadMessage
from headrace.wire.heartbeat import Forget
from headrace.wire.log import AllocatorAttached, IndexRun
from headrace_admission.decisions import ends_and_retries, index_leases
from headrace_admission.decisions.transaction import Transaction
from headrace_admission.state.index_owners import IndexOwners
from headrace_admission.state.state import Restored, State
from headrace_agent import engine as agent_engine
from headrace_agent import void_orders
from headrace_agent.adoption import Adoption
from headrace_agent.runner.engine import RunnerEngine
from headrace_agent.runner.protocol import NodeLease
from headrace_allocator.decision import ranking, view
from headrace_allocator.decision.least_satisfied import entry_of
from headrace_allocator.decision.pool_order import Entry
from headrace_allocator.engine import AllocatorEngine
from headrace_allocator.facts.allocations import Allocation
from headrace_allocator.facts.reconcile import _Reconciliation
from headrace_allocator.facts.recovery import Recovery
from headrace_allocator.links import ledger_link
from headrace_allocator.preemption import stages
from headrace_allocator.preemption.victims import keep_order

__all__ = ["PLANTED", "planted"]

Patches = list[contextlib.AbstractContextManager[Any]]


def _replaced(owner: Any, name: str, by: Any) -> contextlib.AbstractContextManager[Any]:
    return mock.patch.object(owner, name, by)


def no_in_doubt_rule() -> Patches:
    """A new allocator gives out at once what its predecessor may have given out."""

    begin = Recovery.begin
    return [_replaced(Recovery, "begin", lambda self, enrolled: begin(self, ()))]


def no_term_check() -> Patches:
    """Nobody refuses the word of a former leader, nor does one look whether it was succeeded."""
    on_heartbeat, refused_term = AllocatorEngine.on_heartbeat, index_leases.refused_term

    def refuses_nobody(transaction: Transaction, tree: TreeName, term: int) -> None:
        refused_term(transaction, tree, term)

    def obeyed_by_all(self: AllocatorEngine, heartbeat: Any, now: Any) -> Any:
        if heartbeat.term > self.facts.term:
            heartbeat = msgspec.structs.replace(heartbeat, term=self.facts.term)
        return on_heartbeat(self, heartbeat, now)

    async def believed(self: TermBook, bus: Any, role: str, term: int) -> bool:
        return True

    async def sure(self: Role) -> None:
        return

    return [
        _replaced(AllocatorEngine, "on_heartbeat", obeyed_by_all),
        _replaced(AllocatorEngine, "_judge_term", lambda self, drawn: []),
        _replaced(
            agent_engine,
            "why_orders_are_void",
            lambda orders, awaited, held: void_orders.why_orders_are_void(
                orders, msgspec.structs.replace(awaited, term=0), held
            ),
        ),
        _replaced(index_leases, "refused_term", refuses_nobody),
        _replaced(ends_and_retries, "refused_term", refuses_nobody),
        _replaced(TermBook, "believes", believed),
        _replaced(Role, "until_sure", sure),
    ]


def forget_before_append() -> Patches:
    """A node is told to forget ends before the ledger has them."""
    on_heartbeat = AllocatorEngine.on_heartbeat

    def forgetful(self: AllocatorEngine, heartbeat: Any, now: Any) -> Any:
        outcome = on_heartbeat(self, heartbeat, now)
        if outcome.answer is None:
            return outcome
        forget = Forget([end.key for end in heartbeat.ends], outcome.answer.forget.allocations)
        return Outcome(msgspec.structs.replace(outcome.answer, forget=forget), outcome.effects)

    return [_replaced(AllocatorEngine, "on_heartbeat", forgetful)]


def no_lease_at_the_runner() -> Patches:
    """A runner lets jobs run however long nobody hears of its node."""
    on_lease = RunnerEngine.on_lease
    return [_replaced(RunnerEngine, "on_lease", lambda self, lease, now: on_lease(self, NodeLease(2**62), now))]


def skipped_compare_and_set() -> Patches:
    """Whoever appends to the log takes its end for where it was itself."""

    async def commit(self: GroupAppender, entry: bytes) -> int:
        while True:
            try:
                _, last = await self._log.bounds()
                return await self._log.append(entry, expected_last=last, timeout_s=self._append_timeout_s)
            except BusError:
                await anyio.sleep(0.1)

    return [_replaced(GroupAppender, "_commit", commit)]


def swallowed_deposition() -> Patches:
    """A process that notices that another one leads goes on."""
    return [_replaced(Deposition, "depose", lambda self, reason: None)]


def volatile_attach() -> Patches:
    """Admission forgets with its life which allocators attached."""
    take_entry, restore = State.take_entry, State.restore

    def forgetful(self: State, events: Any, sequence: int) -> None:
        take_entry(self, [event for event in events if not isinstance(event, AllocatorAttached)], sequence)

    def without_terms(self: State, restored: Restored) -> None:
        restore(self, msgspec.structs.replace(restored, allocator_terms={}))

    return [_replaced(State, "take_entry", forgetful), _replaced(State, "restore", without_terms)]


def adoption_skipped() -> Patches:
    """An agent lets the jobs of its former life run and does not speak of them."""
    return [_replaced(Adoption, "_adopt", lambda self, kept: [])]


def adoption_skipped_by_the_allocator() -> Patches:
    """An allocator does not book the jobs that its predecessor added to an allocation."""
    return [_replaced(_Reconciliation, "_adopt_slots", lambda self, allocation, report: None)]


def budget_by_count() -> Patches:
    """Reports and events take any number of ends, however long they are."""
    modules = (ledger_link, ends_and_retries)
    return [_replaced(module, "runs_within", lambda items, most_bytes: iter([items])) for module in modules]


def event_of_a_feed_not_renewed() -> Patches:
    """A reader of snapshots that was woken once never sleeps again."""

    async def keep_whole(self: SnapshotFeed[Any, Any]) -> None:
        while True:
            with anyio.move_on_after(self._silence_s):
                await self._missing.wait()
            if not self.reader.needs_whole and self.age_s() < self._silence_s:
                continue
            self._missing = anyio.Event()
            with contextlib.suppress(BusError, BadMessage):
                await self._ask()

    return [_replaced(SnapshotFeed, "_keep_whole", keep_whole)]


def jobs_of_other_trees_drawn() -> Patches:
    """The ledger lets jobs out that another tree has."""
    return [_replaced(IndexOwners, "next_free", lambda self, most: [IndexRun(0, min(most, self._job_count))])]


def jobs_taken_however_young() -> Patches:
    """A job that has just begun makes room for others."""
    return [_replaced(Allocation, "exempt_ms", lambda self, exempt_time_ms, boottime_ms: 0)]


def oldest_jobs_preempted_first() -> Patches:
    """The jobs that are to be kept longest are preempted first."""
    return [_replaced(stages, "keep_order", lambda *of: keep_order(*of)[::-1])]


def later_operations_first() -> Patches:
    """Of two operations with the same satisfaction the operation that arrived later gets the allocation."""

    def turned(*of: Any) -> Entry:
        satisfied, excess, rank, arrival, name = entry_of(*of)
        return satisfied, excess, -rank, -arrival, name

    return [_replaced(module, "entry_of", turned) for module in (ranking, view)]


PLANTED: Final[dict[str, Callable[[], Patches]]] = {
    fault.__name__.replace("_", "-"): fault
    for fault in (
        no_in_doubt_rule,
        no_term_check,
        forget_before_append,
        no_lease_at_the_runner,
        skipped_compare_and_set,
        swallowed_deposition,
        volatile_attach,
        adoption_skipped,
        adoption_skipped_by_the_allocator,
        budget_by_count,
        event_of_a_feed_not_renewed,
        jobs_of_other_trees_drawn,
        jobs_taken_however_young,
        oldest_jobs_preempted_first,
        later_operations_first,
    )
}


@contextlib.contextmanager
def planted(name: str | None) -> Iterator[None]:
    """The product has this fault while the block lasts."""
    with contextlib.ExitStack() as patches:
        for patch in PLANTED[name]() if name else []:
            patches.enter_context(patch)
        yield
