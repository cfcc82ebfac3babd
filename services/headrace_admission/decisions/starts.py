"""Whether, where and in which state an operation starts."""

from __future__ import annotations

from typing import Final

import msgspec

from headrace.errors import BadInput
from headrace.ids import PoolName, TreeName, operation_id
from headrace.near import near
from headrace.pools import EVERYBODY, Person, person_of
from headrace.resources import RESOURCE_NAMES
from headrace.wire import operations as wire
from headrace.wire.log import (
    FIRST_BLOCK,
    EphemeralPoolSet,
    OperationStarted,
)
from headrace.wire.operations import OperationState
from headrace.wire.placements import TreePlacement
from headrace.wire.refusals import (
    BadRequest,
    Exists,
    LimitBroken,
    OverLimit,
    Refusal,
)
from headrace_admission.decisions.ends_and_retries import LedgerEngine
from headrace_admission.decisions.start_plan import StartPlan, plan_start
from headrace_admission.decisions.target_pool import Target
from headrace_admission.decisions.transaction import Decision
from headrace_admission.queries import Queues
from headrace_admission.state.operation import Operation

__all__ = ["LARGEST_SPEC_BYTES", "Caps", "StartEngine"]

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


class StartEngine(LedgerEngine):
    """Decides on starts."""

    def __init__(self, *, keep_finished: int = 10_000, caps: Caps | None = None) -> None:
        super().__init__(keep_finished=keep_finished)
        self.caps = caps or Caps()

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
