"""All operations of all trees, as the log describes them.

The same events give the same state, whatever the present configuration is. A log entry that is applied again changes nothing, so
entries that a checkpoint covers may be read after the checkpoint. Invariants (`check_operation`, `check_pool`):

* An operation is in `live` exactly while its state is not final.
* An operation is pending exactly while it waits in all its trees, unless it lost a tree in which it ran.
* The members of a tree's book are the live operations in that tree.
* The invariants of every ledger and every book hold.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import assert_never

import msgspec

from headrace.ids import ROOT_POOL, OperationId, PoolName, TreeName
from headrace.runtime.engine import Figure
from headrace.wire.log import (
    AllocatorAttached,
    BlockDrawn,
    ClockMoved,
    EphemeralPoolAdopted,
    EphemeralPoolSet,
    Event,
    IndexesReturned,
    IndexRun,
    JobsEnded,
    JobsRetried,
    OperationEvent,
    OperationLeftTree,
    OperationPlaced,
    OperationStarted,
    OperationStateChanged,
    OperationSuspended,
    ParametersChanged,
    SessionNoted,
    concerned,
)
from headrace.wire.operations import OperationState
from headrace.wire.placements import TreePlacement
from headrace_admission.consumption.facts import (
    MOST_FORMER_POOLS,
    Consumer,
    ConsumptionFacts,
    EndedRun,
    FormerPool,
    PoolChain,
)
from headrace_admission.lost_work import LostWorkBook, LostWorkRow
from headrace_admission.state.book_checks import check_pool, holds
from headrace_admission.state.ephemeral_pools import TreePools
from headrace_admission.state.finished_operations import FinishedOperations
from headrace_admission.state.groups import GroupBook
from headrace_admission.state.index_owners import IndexOwners
from headrace_admission.state.ledger import Ledger, Verdict
from headrace_admission.state.operation import Operation, OperationBytes, OperationRecord
from headrace_admission.state.operation_states import is_final
from headrace_admission.state.rules import Configuration, GlobalRules, HeldBack, TreeRules
from headrace_admission.state.spec_size import spec_bytes, without_command
from headrace_admission.state.tree_book import TreeBook
from headrace_admission.state.upstream import UpstreamBook


class Page(msgspec.Struct, frozen=True):
    """A page of a checkpoint: some of the operations, of the ephemeral pools, or of the lost work."""

    operations: list[OperationRecord]
    pools: list[TreePools] = []
    lost_work: list[LostWorkRow] = []


class Restored(msgspec.Struct, frozen=True):
    """The rest of a checkpoint, which is read after its pages."""

    #: Sequence of the last log entry that the checkpoint covers.
    sequence: int = 0
    allocator_terms: dict[TreeName, int] = {}
    clock_moved_ms: int = 0


class State:
    """Operations, books of trees, and the present configuration."""

    def __init__(
        self,
        everywhere: GlobalRules | None = None,
        *,
        keep_finished: int = 10_000,
        keep_finished_bytes: int = 128 * 1024 * 1024,
        groups: GroupBook | None = None,
    ) -> None:
        self._keep_finished = keep_finished
        self._keep_finished_bytes = keep_finished_bytes
        #: All operations in the order of their starts.
        self.operations: dict[OperationId, Operation] = {}
        self.live: dict[OperationId, Operation] = {}
        #: Number of live operations of each user.
        self.live_of_user: Counter[str] = Counter()
        self.finished = FinishedOperations(keep_finished, keep_finished_bytes)
        self.bytes = OperationBytes()
        #: Live operations whose command was not loaded from the log, because it would take too many bytes. They cannot run.
        self.without_command: dict[OperationId, None] = {}
        self.books: dict[TreeName, TreeBook] = {}
        #: Live operations that wait for other operations to end.
        self.upstream = UpstreamBook()
        #: Live operations with a failed job that waits for its retry.
        self.pausing: set[OperationId] = set()
        #: Live operations with a time limit for the whole operation.
        self.limited: set[OperationId] = set()
        #: By operation whose jobs are larger than the limits of a pool: steady time in milliseconds at which that was first seen. Not
        #: in the log.
        self.too_large_since_ms: dict[OperationId, int] = {}
        #: Sum of all recorded moves of the wall clock, in milliseconds.
        self.clock_moved_ms = 0
        #: The term of each tree's newest allocator.
        self.allocator_terms: dict[TreeName, int] = {}
        self.lost_work = LostWorkBook()
        self.consumption = ConsumptionFacts()
        #: Function that is called with an operation right before the operation changes; None while no checkpoint is being written.
        self.before_change: Callable[[Operation], None] | None = None
        self.configuration = Configuration(everywhere or GlobalRules(), groups)
        #: Sequence of the last log entry that is part of the state.
        self.sequence = 0

    def emptied(self) -> State:
        """Return an empty state with the same bounds and groups."""
        return State(
            self.configuration.everywhere,
            keep_finished=self._keep_finished,
            keep_finished_bytes=self._keep_finished_bytes,
            groups=self.configuration.groups,
        )

    # --- from the log ----------------------------------------------------------------------------------------------

    def apply(self, event: Event, sequence: int = 0) -> None:
        """Apply an event that was decided now or recorded in the entry `sequence`.

        Applying the same event again, before any other event, changes nothing.
        """
        match event:
            case EphemeralPoolSet():
                self._book(event.tree).set_ephemeral(event.pool)
                self._flag(event.tree, event.pool.name, ephemeral=True)
            case EphemeralPoolAdopted():
                self._book(event.tree).adopt(event.pool)
                self._flag(event.tree, event.pool, ephemeral=False)
            case AllocatorAttached():
                self.allocator_terms[event.tree] = event.term
            case ClockMoved():
                self._move_clock(event.total_ms)
            case _:
                operation = self._apply_to_operation(event, sequence)
                if operation is not None:
                    if sequence:
                        operation.note_entry(sequence)
                    self.bytes.count(operation)
                    if is_final(operation.state):
                        self.finished.note(operation)
                        self._forget_finished()

    def take_entry(self, events: Iterable[Event], sequence: int) -> None:
        """Apply a log entry, unless it is part of the state already."""
        if sequence > self.sequence:
            self.sequence = sequence
            for event in events:
                self.apply(event, sequence)

    def confirm(self, events: Collection[Event], sequence: int) -> list[Operation]:
        """Record that the log entry `sequence` holds events that were applied before. Return the operations that the events concern."""
        self.sequence = sequence
        names = dict.fromkeys(concerned(event) for event in events)
        touched = [self.operations[name] for name in names if name in self.operations]
        for operation in touched:
            operation.note_entry(sequence)
        for event in events:
            if isinstance(event, JobsEnded):
                self.consumption.confirm(event, sequence)
        return touched

    def restore_page(self, page: Page) -> None:
        """Load a page of a checkpoint. Operations come in the order of their starts; `restore` later adds them to the books."""
        self.lost_work.restore(page.lost_work)
        for tree in page.pools:
            for pool in tree.pools:
                self._book(tree.tree).set_ephemeral(pool)
        for record in page.operations:
            operation = self._weighed(Operation.from_record(record))
            self.operations[operation.id] = operation
            self.bytes.count(operation)

    def restore(self, restored: Restored) -> None:
        """Load the rest of the checkpoint, after its pages."""
        self.sequence = restored.sequence
        self.allocator_terms.update(restored.allocator_terms)
        self.clock_moved_ms = restored.clock_moved_ms
        waiting: list[tuple[int, Operation, TreePlacement]] = []
        finished: list[Operation] = []
        for operation in self.operations.values():
            if is_final(operation.state):
                finished.append(operation)
            else:
                self.live[operation.id] = operation
                self._count(operation, 1)
                self._note_pause(operation)
                self._note_limit(operation)
                waiting += [(each.ticket, operation, each) for each in operation.placements.values()]
        for _, operation, placement in sorted(waiting, key=lambda each: each[0]):
            self._place(operation, placement)
        for operation in self.live.values():
            self.upstream.add(operation)
        # The last log entry about a finished operation is its end, so this is the order in which the operations ended. The operation
        # that ended first is forgotten first.
        for operation in sorted(finished, key=lambda each: each.sequence):
            self.finished.note(operation)
        self._forget_finished()

    # --- not from the log ------------------------------------------------------------------------------------------

    def configure(self, tree: TreeName, rules: TreeRules | HeldBack | None) -> None:
        """Set the present rules of a tree, or rules that are held back. None: the tree is not configured any more."""
        self.configuration.held_back.pop(tree, None)
        match rules:
            case TreeRules():
                self.configuration.trees[tree] = rules
                self._book(tree).configure(rules)
            case HeldBack():
                self.configuration.held_back[tree] = rules
            case None:
                self.configuration.trees.pop(tree, None)

    # --- questions -------------------------------------------------------------------------------------------------

    @property
    def waiting(self) -> int:
        """Return the sum of the lengths of all queues of all trees."""
        return sum(len(queue) for book in self.books.values() for queue in book.queues.values())

    def owning_trees(self) -> list[TreeName]:
        """Return the trees that hold job indexes of live operations with several trees."""
        if len(self.books) < 2:
            return []
        owners = [each.ledger.owners for each in self.live.values() if each.spec.after_each is None]
        return sorted({tree for each in owners if each is not None for tree in each.owning_trees()})

    def lost_work_picture(self) -> Callable[[], Iterator[Figure]]:
        """Copy the sums of the work that preemption cost. The returned function makes metrics of the copy, in any thread."""
        return self.lost_work.picture(self.books)

    def path(self, chain: PoolChain) -> str:
        """Return the path of a pool from the top of its tree, such as `research/vision`."""
        return "/".join(reversed(self._completed(chain).pools))

    def ephemeral_pools(self) -> list[TreePools]:
        """Return the ephemeral pools of all trees, for a checkpoint."""
        pools = {tree: list(book.ephemeral.by_name.values()) for tree, book in self.books.items()}
        return [TreePools(tree, some) for tree, some in pools.items() if some]

    def check_operation(self, name: OperationId) -> list[str]:
        """Return a description of each broken invariant of one operation; empty if the operation is not known."""
        operation = self.operations.get(name)
        if operation is None:
            return []
        broken = [f"{name}: {words}" for words in operation.ledger.check()]
        if operation.counted_bytes != operation.size_bytes:
            broken.append(f"{name} is counted with {operation.counted_bytes} bytes, but takes {operation.size_bytes}")
        if (name in self.live) == is_final(operation.state):
            broken.append(f"{name} is {operation.state} and {'' if name in self.live else 'not '}in live")
        for tree, placement in operation.placements.items():
            if name in self.live and not holds(self.books[tree], name, placement):
                broken.append(f"{name} is not in tree {tree} as its placement says: {placement}")
        waits = all(placement.blocked_by is not None for placement in operation.placements.values())
        is_pending = operation.state is OperationState.PENDING
        if name in self.live:
            broken += self.upstream.check(operation, self.live)
        if name in self.live and waits != is_pending and not (waits and operation.ledger.owners is not None):
            broken.append(f"{name} is {operation.state} with {list(operation.placements.values())}")
        return broken

    def check_pool(self, tree: TreeName, pool: PoolName) -> list[str]:
        """Return a description of each broken invariant of one pool in a tree's book."""
        book = self.books[tree]
        broken = [f"tree {tree}: {words}" for words in check_pool(book, pool)]
        return broken + [
            f"tree {tree}: {name} is in {pool}, but is not a live operation of the tree"
            for name in book.in_pool.get(pool, ())
            if name not in self.live or tree not in self.live[name].placements
        ]

    # --- within ----------------------------------------------------------------------------------------------------

    def _apply_to_operation(self, event: OperationEvent, sequence: int) -> Operation | None:
        operation = self.operations.get(event.operation)
        if operation is not None:
            self._announce_change(operation)
        if isinstance(event, OperationStarted):
            return self._start(operation, event)
        if operation is None:
            return None
        match event:
            case OperationStateChanged():
                self._change_state(operation, event)
            case OperationPlaced():
                if operation.id in self.live:
                    self._note_move(operation, event)
                    self._place(operation, event.placement)
            case OperationLeftTree():
                if operation.placements.pop(event.tree, None) is not None:
                    self.books[event.tree].remove(operation.id)
                    self._choose_tree(operation)
            case BlockDrawn():
                operation.ledger.draw_in(event.tree or operation.spec.tree, event.runs, event.below, event.term)
            case IndexesReturned():
                if operation.ledger.owners is not None and event.tree:
                    operation.ledger.owners.give_back(event.tree, event.runs)
                elif operation.ledger.owners is not None:
                    operation.ledger.owners.release(event.runs)
                    self.upstream.judge(operation)
            case JobsEnded():
                self._record_ends(operation, event, sequence)
                self._note_pause(operation)
            case JobsRetried():
                for slot in event.slots:
                    operation.ledger.retry(slot)
                self._note_pause(operation)
            case OperationSuspended():
                operation.suspended, operation.ends_running_jobs = event.suspended, event.abort_running_jobs
                operation.suspended_for = event.reason
            case SessionNoted():
                operation.note_session(event)
            case ParametersChanged():
                _change_parameters(operation, event)
                self._note_limit(operation)
            case _:
                assert_never(event)
        return operation

    def _record_ends(self, operation: Operation, event: JobsEnded, sequence: int) -> None:
        owners, spec = operation.ledger.owners, operation.spec
        runs: list[EndedRun] = []
        chains: dict[tuple[TreeName, PoolName], PoolChain] = {}
        for one in event.ends:
            if operation.ledger.judge(one.end) is Verdict.NEW:
                tree = (owners.owner(one.end.index) if owners is not None else None) or spec.tree
                placement = operation.placements.get(tree)
                pool = spec.pool if placement is None else placement.pool
                size = operation.size_of_run(one.end)
                self.lost_work.note(tree, pool, one.end, size, event.at_ms)
                task = spec.task_of(one.end.index)
                number = None if task is None else task.number
                operation.ledger.record(one.end, one.node, one.retry, one.retry_at_ms, number)
                if (tree, pool) not in chains:
                    chains[tree, pool] = self._completed(self._chain(tree, pool))
                runs.append(EndedRun(one.end, size, chains[tree, pool]))
        former = [FormerPool(self._completed(each.chain), each.until_ms) for each in operation.former_pools]
        consumer = Consumer(operation.id, operation.user, operation.started_at_ms, former)
        self.consumption.note(event, sequence, consumer, runs)

    def _note_move(self, operation: Operation, event: OperationPlaced) -> None:
        """Record the pool that an operation leaves: runs that began before the move are counted in that pool up to the move.

        Log entries of former versions do not say when an operation moved, so nothing is recorded for these moves.
        """
        known, placement = operation.placements.get(event.placement.tree), event.placement
        if known is None or not event.at_ms or placement.pool == known.pool or placement.ticket < known.ticket:
            return
        left = FormerPool(self._chain(placement.tree, known.pool), event.at_ms)
        operation.former_pools = [*operation.former_pools[1 - MOST_FORMER_POOLS :], left]

    def _chain(self, tree: TreeName, pool: PoolName) -> PoolChain:
        """Return a pool and the pools above it, up to the first pool that is not ephemeral.

        These pools can be read from the log. The configured pools above them are not in the log; `_completed` adds them.
        """
        ephemeral, pools = self._book(tree).ephemeral.by_name, [pool]
        while (found := ephemeral.get(pools[-1])) is not None and found.parent not in (ROOT_POOL, *pools):
            pools.append(found.parent)
        return PoolChain(tree, tuple(pools))

    def _completed(self, chain: PoolChain) -> PoolChain:
        """Return the chain extended to the top of the tree by the present configuration; unchanged while the configuration is not known."""
        if chain.is_whole or chain.tree not in self.configuration.trees:
            return chain
        above = tuple(self._book(chain.tree).upwards(chain.pools[-1]))[1:-1]
        return PoolChain(chain.tree, chain.pools + above, is_whole=True)

    def _note_pause(self, operation: Operation) -> None:
        if operation.ledger.pausing and operation.id in self.live:
            self.pausing.add(operation.id)
        else:
            self.pausing.discard(operation.id)

    def _note_limit(self, operation: Operation) -> None:
        if operation.spec.operation_time_limit_ms is not None and operation.id in self.live:
            self.limited.add(operation.id)
        else:
            self.limited.discard(operation.id)

    def _move_clock(self, total_ms: int) -> None:
        by_ms, self.clock_moved_ms = total_ms - self.clock_moved_ms, total_ms
        for operation in self.live.values():
            if operation.runs_since_ms and by_ms:
                self._announce_change(operation)
                operation.runs_since_ms = max(1, operation.runs_since_ms + by_ms)

    def _flag(self, tree: TreeName, pool: PoolName, *, ephemeral: bool) -> None:
        """Record in all operations of a pool whether the pool is ephemeral."""
        for name in self._book(tree).in_pool.get(pool, ()):
            operation = self.live[name]
            if operation.spec.tree == tree:
                self._announce_change(operation)
                operation.ephemeral_pool = ephemeral

    def _announce_change(self, operation: Operation) -> None:
        if self.before_change is not None:
            self.before_change(operation)

    def _start(self, known: Operation | None, event: OperationStarted) -> Operation:
        if known is not None and is_final(known.state):
            # The admission that wrote the entry kept fewer finished operations: it had forgotten the operation whose id is used again.
            self._forget(known)
            known = None
        if known is not None:
            if known.ledger.owners is not None and known.spec.tree != event.spec.tree:
                drawn = IndexRun(0, known.ledger.block)
                known.ledger.owners.give_back(known.spec.tree)
                known.ledger.owners.give(event.spec.tree, [drawn])
            known.spec = msgspec.structs.replace(known.spec, tree=event.spec.tree, pool=event.spec.pool)
            known.ephemeral_pool = event.ephemeral_pool
            return known
        # An entry from before there were limits on operations has no placements: then the operation runs in the tree that its spec names.
        placements = event.placements or [TreePlacement(event.spec.tree, event.spec.pool, ticket=0)]
        owners = self._owners(event) if len(placements) > 1 or event.spec.after_each is not None else None
        operation = Operation(
            id=event.operation,
            user=event.user,
            spec=event.spec,
            state=event.state,
            started_at_ms=event.at_ms,
            ephemeral_pool=event.ephemeral_pool,
            ledger=Ledger(event.spec.job_count, owners),
            awaits=event.awaits,
            upstream_failure=event.upstream_failure,
            awaits_jobs=event.awaits_jobs,
            runs_since_ms=event.at_ms if event.state is OperationState.RUNNING else 0,
        )
        if event.block:
            operation.ledger.draw_in(event.spec.tree, [], event.block, event.block_term)
        self._weighed(operation)
        self.operations[operation.id] = operation
        self.live[operation.id] = operation
        self._count(operation, 1)
        self._note_limit(operation)
        for placement in placements:
            self._place(operation, placement)
        self.upstream.add(operation)
        return operation

    def _owners(self, event: OperationStarted) -> IndexOwners:
        """Return the owners of the indexes of a new operation. A job may run if the job that it follows has completed."""
        count, upstream = event.spec.job_count, event.spec.after_each
        if upstream is None or not event.awaits_jobs:
            return IndexOwners(count)
        # The followed operation had not ended when this operation started, so it is in `operations` at this point of the log.
        return IndexOwners(count, self.operations[upstream].ledger.completed_bits())

    def _count(self, operation: Operation, by: int) -> None:
        self.live_of_user[operation.user] += by
        if not self.live_of_user[operation.user]:
            del self.live_of_user[operation.user]

    def _place(self, operation: Operation, placement: TreePlacement) -> None:
        known = operation.placements.get(placement.tree)
        if known is not None and placement.ticket < known.ticket:
            return
        book = self._book(placement.tree)
        book.place(operation.id, operation.user, operation.is_vanilla, placement)
        slot_index = book.members[operation.id].slot_index
        # If an operation stays in its pool, for example when it gets a slot after a wait, its new placement names no placement rule.
        # The rule of the former placement is kept.
        rule = known.rule if known is not None and known.pool == placement.pool else placement.rule
        operation.placements[placement.tree] = msgspec.structs.replace(placement, slot_index=slot_index, rule=rule)
        self.upstream.judge(operation)
        if placement.tree == operation.spec.tree and placement.pool != operation.spec.pool:
            self._show_in(operation, placement)

    def _choose_tree(self, operation: Operation) -> None:
        """Choose the tree that users see as the operation's tree: the first of its trees in which it has a slot, or else its first tree."""
        placements = list(operation.placements.values())
        placement = next((each for each in placements if each.blocked_by is None), placements[0])
        if placement.tree != operation.spec.tree:
            self._show_in(operation, placement)

    def _show_in(self, operation: Operation, placement: TreePlacement) -> None:
        operation.spec = msgspec.structs.replace(operation.spec, tree=placement.tree, pool=placement.pool)
        operation.ephemeral_pool = self._book(placement.tree).is_ephemeral(placement.pool)

    def _change_state(self, operation: Operation, event: OperationStateChanged) -> None:
        if is_final(operation.state):
            return
        operation.state = event.state
        operation.reason = event.reason
        self.upstream.judge(operation)
        if event.state is OperationState.RUNNING:
            operation.runs_since_ms = operation.runs_since_ms or event.at_ms
            self._choose_tree(operation)
        if is_final(event.state):
            operation.ended_at_ms = event.at_ms
            del self.live[operation.id]
            self.pausing.discard(operation.id)
            self.limited.discard(operation.id)
            self._count(operation, -1)
            for tree in operation.placements:
                self.books[tree].remove(operation.id)
            self.without_command.pop(operation.id, None)
            self._end_upstream(operation)

    def _end_upstream(self, ended: Operation) -> None:
        """Record the end of an operation in each operation that waits for it. The ended operation itself waits for nothing any more."""
        self.upstream.remove(ended)
        ended.awaits, ended.awaits_jobs = [], False
        for name in self.upstream.waiting_for(ended.id):
            operation = self.live[name]
            self._announce_change(operation)
            self.upstream.end(ended, operation)

    def _forget_finished(self) -> None:
        """Forget finished operations until their number and their bytes are within the bounds."""
        while (name := self.finished.next_to_forget()) is not None:
            self._forget(self.operations[name])

    def _forget(self, finished: Operation) -> None:
        self.finished.drop(finished)
        self.bytes.forget(self.operations.pop(finished.id))

    def _weighed(self, operation: Operation) -> Operation:
        """Measure the size of an operation that is new here, and drop its command if live operations would take too many bytes with it."""
        operation.spec_bytes = spec_bytes(operation.spec)
        most = self.configuration.everywhere.largest_replayed_bytes
        if not is_final(operation.state) and self.bytes.live + operation.spec_bytes > most:
            operation.spec = without_command(operation.spec)
            operation.spec_bytes = spec_bytes(operation.spec)
            self.without_command[operation.id] = None
        return operation

    def _book(self, tree: TreeName) -> TreeBook:
        book = self.books.get(tree)
        if book is None:
            book = self.books[tree] = TreeBook()
        return book


def _change_parameters(operation: Operation, event: ParametersChanged) -> None:
    per_tree = operation.spec.scheduling_options_per_pool_tree if event.per_tree is None else event.per_tree
    limit_ms = operation.spec.operation_time_limit_ms
    if event.operation_time_limit_ms is not None:
        limit_ms = event.operation_time_limit_ms or None
    operation.spec = msgspec.structs.replace(
        operation.spec,
        pool=event.pool,
        weight=event.weight,
        scheduling_options_per_pool_tree=per_tree,
        operation_time_limit_ms=limit_ms,
    )
    operation.spec_bytes = spec_bytes(operation.spec)
    operation.ephemeral_pool = event.ephemeral_pool
