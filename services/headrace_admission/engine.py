"""The decisions of admission: which operations start, run and wait, and how users and allocators change them.

Each `on_…` makes one `Transaction` and returns its events as effects. The events are part of the state already; the shell
records them in this order before it sends the answer. Questions that change nothing are functions of `queries`, which read
`state`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from typing import Concatenate, Final, Never, ParamSpec, TypeVar

import msgspec

from headrace.errors import HeadraceError
from headrace.ids import PoolName, TreeName
from headrace.runtime.engine import NS_PER_MS, Check, Figure, Moment, Outcome, by_label, counter, gauge, run_checks
from headrace.wire import ledger
from headrace.wire import operations as wire
from headrace.wire.log import ClockMoved, Event
from headrace.wire.operations import OperationState
from headrace.wire.refusals import not_allowed
from headrace_admission.decisions import (
    configuration,
    ends_and_retries,
    index_leases,
    job_sizes,
    operation_changes,
    promotion,
    starts,
    time_limits,
)
from headrace_admission.decisions.transaction import Transaction
from headrace_admission.state.book_checks import pools_to_check
from headrace_admission.state.operation import Operation
from headrace_admission.state.rules import GlobalRules, TreeRules
from headrace_admission.state.state import Page, Restored, State

#: If the wall clock and the steady clock drift apart by more milliseconds than this between two decisions, the wall clock was moved.
_CLOCK_MOVE_MS: Final = 1_000

A = TypeVar("A")
P = ParamSpec("P")
#: An answer that may be sent once its events are durable.
Decision = Outcome[msgspec.Struct, Event]


class HalfDecided(HeadraceError):
    """A decision failed after a part of it took effect. The state differs from the log, so the process must end."""


class AdmissionEngine:
    """Decides about all operations of all trees."""

    def __init__(
        self,
        everywhere: GlobalRules | None = None,
        *,
        keep_finished: int = 10_000,
        keep_finished_bytes: int = 128 * 1024 * 1024,
    ) -> None:
        self.state = State(everywhere, keep_finished=keep_finished, keep_finished_bytes=keep_finished_bytes)
        #: Term of the newest log entry. While this process leads, that is its own term, because a new leader writes its term to the
        #: log first.
        self._term = 0
        self._impossible_ends = 0
        #: Wall clock minus steady clock in milliseconds, as of the last decision; None before the first decision.
        self._clock_ms: int | None = None

    # --- from the log ----------------------------------------------------------------------------------------------

    def on_restored(self, part: Page | Restored | None, now: Moment) -> Outcome[None, Never]:
        """Load a part of a checkpoint: None first, which empties the state, then each page, then the rest."""
        match part:
            case None:
                self.state = self.state.emptied()
            case Page():
                self.state.restore_page(part)
            case Restored():
                self.state.restore(part)
        return Outcome(None)

    def on_entry(self, events: Iterable[Event], sequence: int, term: int, now: Moment) -> Outcome[None, Never]:
        """Apply an entry of the log, which `term` wrote, unless the entry is part of the state already."""
        self._term = term
        self.state.take_entry(events, sequence)
        return Outcome(None)

    def on_recorded(self, events: Collection[Event], sequence: int, now: Moment) -> Outcome[list[Operation], Event]:
        """Record that decided events are durable as the entry `sequence`. Return the operations that they change."""
        return Outcome(self.state.confirm(events, sequence))

    # --- users -----------------------------------------------------------------------------------------------------

    def on_start(self, request: wire.StartOperation, user: str, now: Moment) -> Outcome[msgspec.Struct, Event]:
        return self._decide(now, starts.start, request, user)

    def on_update(self, request: wire.UpdateOperation, user: str, now: Moment) -> Outcome[msgspec.Struct, Event]:
        return self._decide(now, operation_changes.update, request, user)

    def on_abort(self, request: wire.AbortOperation, user: str, now: Moment) -> Outcome[msgspec.Struct, Event]:
        return self._decide(now, operation_changes.abort, request, user)

    def on_complete(self, request: wire.CompleteOperation, user: str, now: Moment) -> Outcome[msgspec.Struct, Event]:
        return self._decide(now, operation_changes.complete, request, user)

    def on_suspend(self, request: wire.SuspendOperation, user: str, now: Moment) -> Outcome[msgspec.Struct, Event]:
        return self._decide(now, operation_changes.suspend, request, user)

    def on_resume(self, request: wire.ResumeOperation, user: str, now: Moment) -> Outcome[msgspec.Struct, Event]:
        return self._decide(now, operation_changes.resume, request, user)

    def on_scan_asked(self, _request: wire.ScanQueues, user: str, now: Moment) -> Outcome[msgspec.Struct, Event]:
        """Scan the queues now, outside of the usual period, for an administrator."""
        person = self.state.configuration.person(user)
        if not person.administrator:
            return Outcome(not_allowed(person, "start a scan of the queues"))
        before = self.state.waiting
        events = self.on_scan(now).effects
        waiting = self.state.waiting
        return Outcome(wire.Scanned(promoted=max(0, before - waiting), still_waiting=waiting), events)

    # --- allocators ------------------------------------------------------------------------------------------------

    def on_attach(self, request: ledger.Attach, now: Moment) -> Outcome[msgspec.Struct, Event]:
        return self._decide(now, index_leases.attach, request, self._term)

    def on_draw(self, request: ledger.DrawBlock, now: Moment) -> Outcome[msgspec.Struct, Event]:
        return self._decide(now, index_leases.draw, request)

    def on_return(self, request: ledger.ReturnIndexes, now: Moment) -> Outcome[msgspec.Struct, Event]:
        return self._decide(now, index_leases.return_indexes, request)

    def on_allocator_gone(self, tree: TreeName, now: Moment) -> Outcome[None, Event]:
        """Record the jobs of a tree as lost, because its nodes had no allocator for longer than their lease."""
        return self._decide(now, ends_and_retries.lose_indexes, tree)

    def on_report(self, request: ledger.ReportEnds, now: Moment) -> Outcome[msgspec.Struct, Event]:
        outcome = self._decide(now, ends_and_retries.report, request)
        answer, impossible = outcome.answer
        self._impossible_ends += impossible
        return Outcome(answer, outcome.effects)

    def on_released(self, request: ledger.Released, now: Moment) -> Outcome[msgspec.Struct, Event]:
        return self._decide(now, ends_and_retries.release, request)

    # --- configuration and time ------------------------------------------------------------------------------------

    def on_configuration(self, tree: TreeName, rules: TreeRules | None, now: Moment) -> Outcome[None, Event]:
        """Apply the present rules of a tree. None: the tree is not configured any more."""
        if rules is None:
            return self._decide(now, ends_and_retries.remove_tree, tree)
        return self._decide(now, configuration.take_rules, tree, rules)

    def on_commands_dropped(self, now: Moment) -> Outcome[None, Event]:
        """Abort the operations whose command was too large to be loaded from the log."""
        return self._decide(now, ends_and_retries.abort_without_command)

    def on_retries_due(self, now: Moment) -> Outcome[None, Event]:
        """Retry the failed jobs whose back-off is over."""
        return self._decide(now, ends_and_retries.retry_due)

    def on_time_limits_due(self, now: Moment) -> Outcome[None, Event]:
        """Let the operations fail whose time limit is reached."""
        return self._decide(now, time_limits.end_overdue)

    def on_scan(self, now: Moment) -> Outcome[None, Event]:
        """Scan all queues and start every waiting operation that may run. Let operations fail that can never fit their pools."""

        def scan(transaction: Transaction) -> None:
            job_sizes.fail_never_fitting(transaction, now.steady_ns // NS_PER_MS)
            promotion.scan(transaction)

        return self._decide(now, scan)

    def on_takeover(self, now: Moment) -> Outcome[None, Event]:
        """Complete decisions that a former process recorded only in part. The rules of all trees must be known."""
        return self._decide(now, ends_and_retries.complete_decisions)

    # --- checks and metrics ----------------------------------------------------------------------------------------

    def checks(self) -> Iterator[Check]:
        """Yield one check for the groups, for each operation, and for each pool of each configured tree.

        Pools of a removed tree are not checked: after a restart the parents of its ephemeral pools are not known any more.
        """
        yield lambda: list(self.state.configuration.groups.check())
        for operation in list(self.state.operations):
            yield partial(self.state.check_operation, operation)
        for tree in list(self.state.configuration.trees):
            for pool in pools_to_check(self.state.books[tree]):
                yield partial(self._check_pool, tree, pool)

    def check(self) -> list[str]:
        return run_checks(self.checks())

    def figures(self) -> list[Figure]:
        state = self.state
        states = Counter(operation.state for operation in state.operations.values())
        ephemeral = sum(len(book.ephemeral.by_name) for book in state.books.values())
        found = gauge("operations_by_state", "operations", 0, "Operations that admission keeps, by state.")
        return [
            *by_label(found, "operations", "state", {each.value: states[each] for each in OperationState}),
            gauge(
                "waiting",
                "queue positions",
                state.waiting,
                "Operations that wait in the queues of pools, counted once for each tree.",
            ),
            gauge(
                "held_back_operations",
                "operations",
                sum(operation.is_held_back for operation in state.live.values()),
                "Operations in no queue, because they wait for other operations.",
            ),
            gauge(
                "retrying_operations",
                "operations",
                len(state.pausing),
                "Operations with a failed job that waits for its retry.",
            ),
            gauge(
                "live_operation_bytes",
                "bytes",
                state.bytes.live,
                "Memory of live operations as the quota counts it: commands, environments and results of jobs.",
            ),
            gauge(
                "finished_operation_bytes",
                "bytes",
                state.bytes.finished,
                "Memory of finished operations, counted in the same way.",
            ),
            gauge("ephemeral_pools", "pools", ephemeral, "Ephemeral pools: each exists as long as it has operations."),
            gauge(
                "held_back_configurations",
                "trees",
                len(state.configuration.held_back),
                "Trees with a new configuration that cannot be applied yet.",
            ),
            counter("impossible_ends", "ends", self._impossible_ends, "Reported ends of jobs that had not started."),
        ]

    # --- within ----------------------------------------------------------------------------------------------------

    def _decide(
        self, now: Moment, decide: Callable[Concatenate[Transaction, P], A], *args: P.args, **kwargs: P.kwargs
    ) -> Outcome[A, Event]:
        transaction = Transaction(self.state, now)
        self._follow_clock(transaction, now)
        try:
            answer = decide(transaction, *args, **kwargs)
        except Exception as error:
            if transaction.events:
                raise HalfDecided from error
            raise
        return Outcome(answer, transaction.events)

    def _follow_clock(self, transaction: Transaction, now: Moment) -> None:
        """Record a move of the wall clock, so that no operation ends early or late because the clock was set.

        A move of the clock while no process leads is not noticed. So for the time without a leader, the wall clock counts.
        """
        clock_ms = now.wall_ms - now.steady_ns // NS_PER_MS
        moved_ms = 0 if self._clock_ms is None else clock_ms - self._clock_ms
        if self._clock_ms is None or abs(moved_ms) > _CLOCK_MOVE_MS:
            self._clock_ms = clock_ms
            if moved_ms and self.state.limited:
                transaction.record(ClockMoved(self.state.clock_moved_ms + moved_ms, now.wall_ms))

    def _check_pool(self, tree: TreeName, pool: PoolName) -> list[str]:
        broken = self.state.check_pool(tree, pool)
        rules = self.state.configuration.trees.get(tree)
        if rules is not None and not rules.promote_only_on_scan:
            broken += [f"tree {tree}: {words}" for words in promotion.check_settled(self.state.books[tree], pool)]
        return broken
