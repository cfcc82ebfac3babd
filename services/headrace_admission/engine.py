"""The decisions of admission: which operations start, run and wait, and what people change while they do.

Every `on_…` looks at the state, decides on events, and has taken each of them into the state (`AdmissionState`) before it decides on
the next; it returns them with the answer. The shell records the events, and only then lets the answer out.
"""

from __future__ import annotations

from typing import Final

import msgspec

from headrace.errors import BadInput
from headrace.ids import OperationId, PoolName, TreeName, operation_id
from headrace.near import near
from headrace.pools import EVERYBODY, Person, Right, person_of
from headrace.resources import RESOURCE_NAMES
from headrace.wire import operations as wire
from headrace.wire.log import (
    FIRST_BLOCK,
    EphemeralPoolSet,
    Event,
    OperationLeftTree,
    OperationPlaced,
    OperationStarted,
    OperationSuspended,
    ParametersChanged,
    StateCause,
)
from headrace.wire.nodes import Enrol, NodeRecord
from headrace.wire.operations import OperationState
from headrace.wire.placements import TreePlacement
from headrace.wire.refusals import (
    BadRequest,
    Exists,
    LimitBroken,
    NotAllowed,
    NotFound,
    OverLimit,
    Refusal,
    WrongState,
)
from headrace_admission.deciding import Decision
from headrace_admission.ledger_engine import LedgerEngine
from headrace_admission.limits import promotion
from headrace_admission.limits.checks import Asked, unfit_pool
from headrace_admission.limits.ephemeral import Target, target_pool
from headrace_admission.limits.moves import limit_on_move
from headrace_admission.limits.rights import holds, kept_out
from headrace_admission.limits.rules import TreeRules
from headrace_admission.limits.starts import StartPlan, plan_start
from headrace_admission.operation import Operation
from headrace_admission.queries import Queues, counted_pools, levels_of, list_operations
from headrace_admission.states import is_ending, is_final, may_change_parameters

__all__ = ["LARGEST_SPEC_BYTES", "AdmissionEngine", "Caps", "Decision"]

#: A spec travels in one event, which must fit into one entry of the log beside others.
LARGEST_SPEC_BYTES: Final = 128 * 1024


class Caps(msgspec.Struct, frozen=True):
    """What is set for all trees together."""

    max_operation_count: int = 5_000
    #: No operation makes an ephemeral pool by naming one.
    require_specified_pools_existence: bool = False
    #: Operations may be moved to another pool.
    pool_change_is_allowed: bool = True
    #: Users who may do everything; `*` is everybody.
    administrators: frozenset[str] = frozenset({EVERYBODY})

    def person(self, user: str) -> Person:
        """Who a user is to the rules."""
        return person_of(user, self.administrators)


class AdmissionEngine(LedgerEngine):
    """All operations, of all trees."""

    def __init__(self, *, keep_finished: int = 10_000, caps: Caps | None = None) -> None:
        super().__init__(keep_finished=keep_finished)
        self.caps = caps or Caps()

    # --- starting -------------------------------------------------------------------------------------------------

    def on_start(self, request: wire.StartOperation, user: str, now_ms: int) -> Decision:
        """Starts an operation, or repeats the answer that its id got before."""
        known = self.operations.get(request.operation)
        if known is not None:
            if known.user != user:
                return self._answer(Exists(what="operation", name=request.operation, where="of another user"))
            return self._answer(self._start_answer(known, repeated=True))
        self._begin(now_ms)
        plan = self._plan(request, user)
        if not isinstance(plan, StartPlan):
            return self._answer(plan)
        operation = self._start_planned(request, user, plan)
        return self._answer(self._start_answer(operation, erased=plan.erased))

    def _plan(self, request: wire.StartOperation, user: str) -> StartPlan | Refusal:
        refusal = _unusable(request)
        if refusal is not None:
            return refusal
        cap = self.caps.max_operation_count
        if len(self.live) >= cap:
            return OverLimit([LimitBroken("max_operation_count", cap, len(self.live))])
        books = {tree: self.books[tree] for tree in self.books if tree in self.configured}
        only_known = request.spec.require_specified_pools_existence or self.caps.require_specified_pools_existence
        return plan_start(books, request.spec, self.caps.person(user), specified_pools_only=only_known)

    def _start_planned(self, request: wire.StartOperation, user: str, plan: StartPlan) -> Operation:
        spec = request.spec
        placements = []
        for tree, target in plan.targets.items():
            self._make_pool(tree, target)
            book = self.books[tree]
            blocked_by = book.blocking_pool(target.pool, vanilla=spec.type == "vanilla")
            placements.append(TreePlacement(tree, target.pool, book.next_ticket(), blocked_by))
        runs = next((each for each in placements if each.blocked_by is None), None)
        where = runs or placements[0]
        weight = spec.scheduling_options_per_pool_tree.get(where.tree, wire.PerTree()).weight or spec.weight
        self._record(
            OperationStarted(
                operation=request.operation,
                user=user,
                spec=msgspec.structs.replace(spec, tree=where.tree, pool=where.pool, weight=weight),
                state=OperationState.RUNNING if runs else OperationState.PENDING,
                ephemeral_pool=self.books[where.tree].is_ephemeral(where.pool),
                block=min(FIRST_BLOCK, spec.job_count),
                block_term=self._allocator_terms.get(where.tree, 0),
                at_ms=self._now_ms,
                placements=placements,
            )
        )
        return self.operations[request.operation]

    def _make_pool(self, tree: TreeName, target: Target) -> None:
        if target.made is not None:
            self._record(EphemeralPoolSet(tree, target.made))

    def _start_answer(
        self, operation: Operation, *, repeated: bool = False, erased: list[TreeName] | None = None
    ) -> wire.StartAnswer:
        pool, tree = operation.spec.pool, operation.spec.tree
        book = self.books[tree]
        made = book.ephemeral.get(pool) if operation.ephemeral_pool else None
        return wire.StartAnswer(
            operation=operation.id,
            state=operation.state,
            pool=pool,
            ephemeral_pool=operation.ephemeral_pool,
            near=near(pool, book.rules.pools) if made is not None and not made.of_hub else [],
            repeated=repeated,
            warnings=self._warnings(operation),
            parent=made.parent if made is not None else PoolName(""),
            waiting=[] if repeated else Queues(self).waiting(operation),
            erased_trees=erased or [],
        )

    def _warnings(self, operation: Operation) -> list[str]:
        spec = operation.spec
        if not self.books[spec.tree].rules_of(spec.pool).lightweight:
            return []
        if not operation.is_vanilla:
            return [
                f"pool {spec.pool} is for lightweight operations; one of type {spec.type} is none and counts as any other"
            ]
        if spec.job_count > 1:
            return [
                f"pool {spec.pool} is for lightweight operations of one small job; this one has {spec.job_count} jobs"
            ]
        return []

    # --- what people ask ------------------------------------------------------------------------------------------

    def on_get(self, request: wire.GetOperation) -> wire.OperationView | Refusal:
        operation = self.operations.get(request.operation)
        return Queues(self).view(operation) if operation else self._no_operation(request.operation)

    def on_list(self, request: wire.ListOperations) -> wire.OperationList | Refusal:
        """Newest first; an unknown state is refused."""
        return list_operations(self, request)

    def on_explain(self, request: wire.ExplainOperation) -> wire.OperationExplanation | Refusal:
        """Every level that an operation's slot is counted at; none for one that is over."""
        operation = self.operations.get(request.operation)
        if operation is None:
            return self._no_operation(request.operation)
        over = is_final(operation.state)
        book = self.books[operation.spec.tree]
        return wire.OperationExplanation(
            view=Queues(self).view(operation),
            levels=[] if over else levels_of(self, operation),
            lightweight=not over and book.is_lightweight(operation.spec.pool, vanilla=operation.is_vanilla),
        )

    def on_counts(self, request: wire.CountPools) -> wire.PoolCounts | Refusal:
        """Pools of a tree by name, those that live by their operations included, with what their limits compare."""
        if request.tree not in self.configured:
            return NotFound("tree", request.tree, near=near(request.tree, self.configured))
        book = self.books[request.tree]
        if request.pool and not book.exists(request.pool):
            return NotFound("pool", request.pool, near=near(request.pool, [*book.rules.pools, *book.ephemeral]))
        return counted_pools(self, request)

    def on_jobs(self, request: wire.GetJobs) -> wire.JobPage | Refusal:
        operation = self.operations.get(request.operation)
        if operation is None:
            return self._no_operation(request.operation)
        rows = operation.ledger.rows(request.first, request.limit)
        return wire.JobPage(operation=operation.id, jobs=rows, job_count=operation.spec.job_count)

    # --- ending and halting ---------------------------------------------------------------------------------------

    def _managed(self, name: OperationId, user: str) -> Operation | Refusal:
        """The operation, if there is one that this user may change: an own one, or one in a pool of which they have `manage`."""
        operation = self.operations.get(name)
        if operation is None:
            return self._no_operation(name)
        if self._owns(operation, user) or self._manages_pools(operation, user):
            return operation
        return NotAllowed(
            who=user, what=f"change operation {name} of {operation.user}: `manage` on its pool is lacking"
        )

    def _owns(self, operation: Operation, user: str) -> bool:
        return user == operation.user or self.caps.person(user).administrator

    def _manages_pools(self, operation: Operation, user: str) -> bool:
        person = self.caps.person(user)
        return all(
            holds(self.books[tree], person, Right.MANAGE, placement.pool)
            for tree, placement in operation.placements.items()
        )

    def on_abort(self, request: wire.AbortOperation, user: str, now_ms: int) -> Decision:
        """Ends an operation; one that is ending or over is left as it is."""
        operation = self._managed(request.operation, user)
        if not isinstance(operation, Operation):
            return self._answer(operation)
        self._begin(now_ms)
        words = f"aborted by {user}" + (f": {request.reason}" if request.reason else "")
        self._change(operation, StateCause.ABORTED_BY_USER, words)
        return self._answer(Queues(self).view(operation))

    def on_complete(self, request: wire.CompleteOperation, user: str, now_ms: int) -> Decision:
        """Ends a running operation as completed; refused in any other state."""
        operation = self._managed(request.operation, user)
        if not isinstance(operation, Operation):
            return self._answer(operation)
        self._begin(now_ms)
        if not self._change(operation, StateCause.COMPLETED_BY_USER, f"completed by {user}"):
            return self._answer(WrongState("operation", operation.id, operation.state.value, "running"))
        return self._answer(Queues(self).view(operation))

    def on_suspend(self, request: wire.SuspendOperation, user: str, now_ms: int) -> Decision:
        """Suspends; a suspended one may be again, to end what still runs. Refused once it is ending."""
        operation = self._managed(request.operation, user)
        if not isinstance(operation, Operation):
            return self._answer(operation)
        if is_ending(operation.state) or is_final(operation.state):
            return self._answer(WrongState("operation", operation.id, operation.state.value, "pending or running"))
        if not operation.suspended or request.abort_running_jobs:
            self._record(
                OperationSuspended(
                    operation.id, suspended=True, at_ms=now_ms, abort_running_jobs=request.abort_running_jobs
                )
            )
        return self._answer(Queues(self).view(operation))

    def on_resume(self, request: wire.ResumeOperation, user: str, now_ms: int) -> Decision:
        """Lets a suspended operation go on; refused for one that is not."""
        operation = self._managed(request.operation, user)
        if not isinstance(operation, Operation):
            return self._answer(operation)
        if not operation.suspended or is_final(operation.state):
            state = operation.state.value if is_final(operation.state) else "not suspended"
            return self._answer(WrongState("operation", operation.id, state, "suspended"))
        self._record(OperationSuspended(operation.id, suspended=False, at_ms=now_ms))
        return self._answer(Queues(self).view(operation))

    # --- changing -------------------------------------------------------------------------------------------------

    def on_update(self, request: wire.UpdateOperation, user: str, now_ms: int) -> Decision:
        """Changes weight and pool; all that was asked for or nothing."""
        operation = self._managed(request.operation, user)
        if not isinstance(operation, Operation):
            return self._answer(operation)
        self._begin(now_ms)
        moves = self._moves(operation, request, user)
        if not isinstance(moves, dict):
            return self._answer(moves)
        before = {tree: list(self.books[tree].upwards(operation.placements[tree].pool)) for tree in moves}
        self._set_weights(operation, request)
        for tree, target in moves.items():
            self._make_pool(tree, target)
            ticket = self.books[tree].next_ticket()
            self._decide(OperationPlaced(operation.id, TreePlacement(tree, target.pool, ticket)))
        for tree, chain in before.items():
            if not self.books[tree].rules.promote_only_on_scan:
                self._offer(tree, chain)
            self._retry_rules(tree)
        return self._answer(Queues(self).view(operation))

    def _moves(
        self, operation: Operation, request: wire.UpdateOperation, user: str
    ) -> dict[TreeName, Target] | Refusal:
        """Where it is to go, in each tree whose pool changes; a refusal where one thing cannot be."""
        if not may_change_parameters(operation.state):
            return WrongState("operation", operation.id, operation.state.value, "pending or running")
        for tree in request.scheduling_options_per_pool_tree:
            if tree not in operation.placements:
                place = f"scheduling_options_per_pool_tree.{tree}"
                return BadRequest(place, tree, "a tree of the operation: " + ", ".join(operation.placements))
        targets: dict[TreeName, Target] = {}
        for tree, placement in operation.placements.items():
            pool = _asked_pool(request, tree)
            if pool is None:
                continue
            target = target_pool(self.books[tree], pool, operation.user)
            asked = Asked(tree, pool, operation.user, gang=operation.spec.is_gang)
            refusal = unfit_pool(self.books[tree], asked, target)
            refusal = refusal or kept_out(self.books[tree], self.caps.person(operation.user), target)
            if refusal is not None:
                return refusal
            if not self._owns(operation, user):
                # Who only manages its pool may change its weight and not take it away.
                return NotAllowed(who=user, what=f"move operation {operation.id} of {operation.user}")
            if target.pool != placement.pool or placement.blocked_by is not None:
                targets[tree] = target
        if not targets:
            return {}
        if not self.caps.pool_change_is_allowed:
            return WrongState("operation", operation.id, "in a pool", "another one: pool_change_is_allowed is off")
        return self._limit_of_moves(operation, targets) or targets

    def _limit_of_moves(self, operation: Operation, targets: dict[TreeName, Target]) -> OverLimit | None:
        """Asked in every tree of the operation, those whose pool stays included."""
        broken = []
        for tree, placement in operation.placements.items():
            book = self.books[tree]
            target = targets.get(tree, Target(placement.pool))
            limit = limit_on_move(tree, book, book.members[operation.id], target)
            if limit is not None:
                broken.append(limit)
        return OverLimit(broken) if broken else None

    def _set_weights(self, operation: Operation, request: wire.UpdateOperation) -> None:
        spec = operation.spec
        per_tree = dict(spec.scheduling_options_per_pool_tree)
        for tree, said in request.scheduling_options_per_pool_tree.items():
            known = per_tree.get(tree, wire.PerTree())
            per_tree[tree] = wire.PerTree(said.pool or known.pool, said.weight or known.weight)
        if request.weight is not None:
            # What is said for the whole holds in each tree.
            per_tree = {tree: msgspec.structs.replace(said, weight=None) for tree, said in per_tree.items()}
        said = request.scheduling_options_per_pool_tree.get(spec.tree, wire.PerTree())
        weight = request.weight or said.weight or spec.weight
        if weight != spec.weight or per_tree != spec.scheduling_options_per_pool_tree:
            self._record(
                ParametersChanged(
                    operation=operation.id,
                    pool=spec.pool,
                    weight=weight,
                    ephemeral_pool=operation.ephemeral_pool,
                    at_ms=self._now_ms,
                    per_tree=per_tree,
                )
            )

    # --- configuration, time, nodes -------------------------------------------------------------------------------

    def on_pools(self, tree: TreeName, rules: TreeRules, now_ms: int) -> list[Event]:
        """A tree's configuration, as it is now."""
        self._begin(now_ms)
        self._take_rules(tree, rules)
        return self._decided()

    def on_tree_removed(self, tree: TreeName, now_ms: int) -> list[Event]:
        """A tree is configured no more: operations lose it; those that ran there or have no other are aborted."""
        self._begin(now_ms)
        self.configured.discard(tree)
        for name in list(self.books[tree].members) if tree in self.books else []:
            operation = self.live[name]
            runs_here = operation.spec.tree == tree and operation.state is not OperationState.PENDING
            if runs_here or len(operation.placements) == 1:
                self._change(operation, StateCause.TREE_REMOVED, f"tree {tree} was removed")
            else:
                self._record(OperationLeftTree(name, tree))
        return self._decided()

    def on_scan_asked(self, user: str, now_ms: int) -> Decision:
        """A scan out of turn, for administrators."""
        if not self.caps.person(user).administrator:
            return self._answer(NotAllowed(who=user, what="have the queues judged anew; administrators may"))
        before = self.waiting
        events = self.on_scan(now_ms)
        return Decision(events, wire.Scanned(promoted=max(0, before - self.waiting), still_waiting=self.waiting))

    @property
    def waiting(self) -> int:
        """How many places in queues are taken, in all trees."""
        return sum(len(queue) for book in self.books.values() for queue in book.queues.values())

    def on_scan(self, now_ms: int) -> list[Event]:
        """Judges everybody anew who waits."""
        self._begin(now_ms)
        for tree in self.configured:
            promotion.scan(tree, self.books[tree], self._decide)
            if not self.books[tree].rules.promote_only_on_scan:
                promotion.settle(tree, self.books[tree], self._decide, moved=False)
        return self._decided()

    def on_enrol(self, request: Enrol, known: NodeRecord | None, now_ms: int) -> NodeRecord | Refusal:
        """The record to keep of a node; a node stays in its tree and keeps its drain."""
        if known is None:
            return NodeRecord(
                node=request.node, tree=request.tree, tags=sorted(set(request.tags)), enrolled_at_ms=now_ms
            )
        if known.tree != request.tree:
            return WrongState("node", request.node, f"in tree {known.tree}", f"a node of tree {request.tree}")
        return msgspec.structs.replace(known, tags=sorted(set(request.tags)))

    def knows_pool(self, tree: TreeName, pool: PoolName) -> bool:
        """True for a configured pool and for one that lives by its operations."""
        return tree in self.books and self.books[tree].exists(pool)

    def check(self) -> list[str]:
        """Broken invariants, in words; empty when all hold."""
        broken = super().check()
        for tree in self.configured:
            if not self.books[tree].rules.promote_only_on_scan:
                broken += [f"tree {tree}: {what}" for what in promotion.check_settled(self.books[tree])]
        return broken

    def statistics(self) -> dict[str, int]:
        return {
            "operations": len(self.operations),
            "live": len(self.live),
            "finished": len(self._finished),
            "waiting": self.waiting,
            "ephemeral_pools": sum(len(book.ephemeral) for book in self.books.values()),
            "impossible_ends": self.impossible_ends,
        }


def _unusable(request: wire.StartOperation) -> BadRequest | None:
    spec = request.spec
    try:
        operation_id(request.operation)
    except BadInput as error:
        return BadRequest(error.place, str(error.value), error.expected)
    if spec.resources.user_slots < 1:
        return BadRequest("spec.resources.user_slots", str(spec.resources.user_slots), "at least 1")
    if not any(spec.resources.as_tuple()[1:]):
        names = ", ".join(RESOURCE_NAMES[1:])
        return BadRequest("spec.resources", "none", f"some of {names} for each job")
    size = len(msgspec.msgpack.encode(spec))
    if size > LARGEST_SPEC_BYTES:
        return BadRequest("spec", f"{size} bytes", f"at most {LARGEST_SPEC_BYTES} (command and environment together)")
    return None


def _asked_pool(request: wire.UpdateOperation, tree: TreeName) -> PoolName | None:
    """What is said for a tree hides what is said for the whole, even where it names no pool."""
    said = request.scheduling_options_per_pool_tree.get(tree)
    return (said.pool or None) if said is not None else request.pool
