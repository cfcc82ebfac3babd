"""The operations of one tree, as admission reports them. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from operator import attrgetter
from typing import Any, Final

import msgspec

from headrace.ids import OperationId, PoolName, TreeName
from headrace.pools.amounts import NOTHING, PartialResources
from headrace.resources import ZERO, Resources
from headrace.wire.ledger import LiveOperation, started_in
from headrace.wire.log import (
    Event,
    IndexesReturned,
    OperationLeftTree,
    OperationPlaced,
    OperationStarted,
    OperationStateChanged,
    OperationSuspended,
    ParametersChanged,
)
from headrace.wire.operations import FINAL_STATES, OperationSpec, OperationState
from headrace.wire.placements import TreePlacement
from headrace.wire.snapshots import UsageItem
from headrace_fair_share.facts.changed_operations import News

# Members of the enumeration as constants. They are compared with the state of every operation, and looking a member up in the enumeration
# takes longer than the comparison.
_RUNNING: Final = OperationState.RUNNING
_WAITING: Final = (OperationState.STARTING, OperationState.PENDING)


class KnownOperation(msgspec.Struct, frozen=True):
    """One operation, as admission reports it."""

    operation: OperationId
    pool: PoolName
    weight: float
    state: OperationState
    suspended: bool
    job: Resources
    #: Jobs that were not finished when the operation became known. They are its demand until the allocator first reports it.
    initial_jobs: int
    started_at_ms: int = 0
    user: str = ""
    is_gang: bool = False
    is_vanilla: bool = False
    limits: PartialResources = NOTHING
    #: The operation's own formulas over tags, without the formulas of its pools.
    node_filters: tuple[str, ...] = ()
    of_several_trees: bool = False
    #: The operation's own starvation settings, without its command; None if it has none.
    wishes: OperationSpec | None = None

    @staticmethod
    def of(spec: OperationSpec, open_jobs: int, **known: Any) -> KnownOperation:
        """Return an operation with `open_jobs` unfinished jobs. `known` gives the fields that its spec does not contain."""
        return KnownOperation(
            pool=spec.pool,
            weight=spec.weight,
            job=spec.mean_job,
            initial_jobs=open_jobs,
            is_gang=spec.is_gang,
            is_vanilla=spec.is_vanilla,
            limits=spec.resource_limits,
            node_filters=spec.node_filters,
            wishes=_wishes(spec),
            **known,
        )

    @property
    def takes_part(self) -> bool:
        """True if the operation is running and not suspended. Only then may it get more than it has."""
        return self.state is _RUNNING and not self.suspended

    @property
    def waits(self) -> bool:
        """True if the operation has no running slot yet."""
        return self.state in _WAITING


class KnownOperations:
    """All operations of one tree that have not ended."""

    def __init__(self, tree: TreeName, news: News) -> None:
        self._tree, self._news = tree, news
        self.by_id: dict[OperationId, KnownOperation] = {}
        #: False until admission has reported all operations.
        self.are_known = False
        #: Operations on the pages received so far; empty again after the last page.
        self._gathered: dict[OperationId, KnownOperation] = {}

    def gather(self, page: Iterable[LiveOperation]) -> None:
        """Keep a page of live operations until the last page comes."""
        self._gathered.update((each.operation, _known(each)) for each in page if each.spec.tree == self._tree)

    def replace(self, last_page: Iterable[LiveOperation]) -> bool:
        """Replace all known operations by the operations of all pages received, of which `last_page` is the last. Return True if anything
        changed.
        """
        self.gather(last_page)
        before, self.by_id, self._gathered = self.by_id, self._gathered, {}
        self.are_known = True
        self._news.anything()
        return before != self.by_id

    def apply(self, event: Event) -> bool:
        """Apply an event of the log. Return True if it changed an operation; repeating an event changes nothing."""
        if isinstance(event, OperationStarted):
            return self._start(event)
        operation = getattr(event, "operation", None)
        known = self.by_id.get(operation) if operation is not None else None
        if known is None:
            return False
        self._news.changed([known.operation])
        match event:
            case OperationStateChanged() if event.state in FINAL_STATES:
                del self.by_id[known.operation]
                return True
            case OperationStateChanged(state=OperationState.RUNNING) if known.of_several_trees:
                # This event is not needed: for an operation in several trees, its placements say in which trees it runs.
                return False
            case OperationStateChanged():
                after = msgspec.structs.replace(known, state=event.state)
            case OperationPlaced(placement=placement) if placement.tree == self._tree:
                after = _placed(known, placement)
            case OperationLeftTree() if event.tree == self._tree:
                after = msgspec.structs.replace(known, state=OperationState.ABORTING)
            case IndexesReturned() if event.tree == self._tree and not event.runs:
                # The tree has released all jobs that it had of the operation (an empty `runs` means all jobs), so the operation has ended
                # in this tree.
                del self.by_id[known.operation]
                return True
            case OperationSuspended():
                after = msgspec.structs.replace(known, suspended=event.suspended)
            case ParametersChanged():
                after = msgspec.structs.replace(known, weight=event.weight_in(self._tree))
            case _:
                return False
        self.by_id[known.operation] = after
        return after != known

    def in_use(self) -> Mapping[PoolName, int]:
        """Return the number of operations in each pool."""
        return Counter(map(attrgetter("pool"), self.by_id.values()))

    def check(self) -> list[str]:
        """Return an error for each operation that is stored under another id than its own."""
        return [
            f"the entry of operation {key} holds operation {each.operation}"
            for key, each in self.by_id.items()
            if key != each.operation
        ]

    def _start(self, event: OperationStarted) -> bool:
        live = started_in(event, self._tree)
        if live is None or event.operation in self.by_id:
            return False
        self.by_id[event.operation] = _known(live)
        self._news.came(event.operation)
        return True


def _placed(known: KnownOperation, placement: TreePlacement) -> KnownOperation:
    """Return the operation in its new pool.

    The operation is running if it has a running slot in the new pool, else it is pending. An operation that is ending keeps its state.
    """
    state = known.state
    if known.waits or known.state is OperationState.RUNNING:
        state = OperationState.RUNNING if placement.blocked_by is None else OperationState.PENDING
    return msgspec.structs.replace(known, pool=placement.pool, state=state)


def _wishes(spec: OperationSpec) -> OperationSpec | None:
    if spec.fair_share_starvation_tolerance is None and spec.fair_share_starvation_timeout_ms is None:
        return None
    return msgspec.structs.replace(spec, argv=[], environment={}, tasks=[])


def _known(live: LiveOperation) -> KnownOperation:
    # If an operation runs in several trees, each tree counts the jobs that it has leased, and in addition the jobs that no tree has leased.
    undrawn = live.spec.job_count - live.block if live.free is None else live.free
    open_jobs = max(0, live.block + undrawn - int.from_bytes(live.done).bit_count())
    return KnownOperation.of(
        live.spec,
        open_jobs,
        operation=live.operation,
        state=live.state,
        suspended=live.suspended,
        started_at_ms=live.started_at_ms,
        user=live.user,
        of_several_trees=live.free is not None,
    )


class Demand(msgspec.Struct, frozen=True, gc=False):
    """The demand and usage of one operation, as amounts.

    As soon as the allocator reports the operation, the figures of the allocator are used. Until then, all jobs that admission reports as
    unfinished count as pending.
    """

    demand: Resources
    usage: Resources
    #: True if the operation runs and has pending jobs. Only then can jobs of it start.
    is_pending: bool
    #: Slots that the pending jobs need.
    needed_slots: int = 0
    #: Resources of the operation's smallest job.
    min_needed: Resources = ZERO


def demand_of(operation: KnownOperation, usage: UsageItem | None, *, was_named: bool) -> Demand:
    """Compute the demand of an operation. `usage` is its newest usage, or None if the allocator does not report the operation.

    If `usage` is None, `was_named` decides. If `was_named` is True, the allocator reported the operation before, so the operation has
    nothing now. If False, the allocator does not know the operation yet, and its unfinished jobs count as pending. A suspended operation,
    or one that is not running, demands only what it still uses.
    """
    if usage is None:
        if was_named or not operation.takes_part:
            return Demand(ZERO, ZERO, is_pending=False)
        initial = operation.job * operation.initial_jobs
        return Demand(initial, ZERO, operation.initial_jobs > 0, initial.user_slots, operation.job)
    if not operation.takes_part:
        return Demand(usage.usage, usage.usage, is_pending=False)
    demand, needed = usage.usage + usage.precommit + usage.pending, usage.pending.user_slots
    return Demand(demand, usage.usage, usage.pending_jobs > 0, needed, usage.min_needed)
