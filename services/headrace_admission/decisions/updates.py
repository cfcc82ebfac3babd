"""What people change of operations that are not over: they end, halt and move them."""

from __future__ import annotations

import msgspec

from headrace.ids import OperationId, PoolName, TreeName
from headrace.pools import Right
from headrace.wire import operations as wire
from headrace.wire.log import (
    OperationPlaced,
    OperationSuspended,
    ParametersChanged,
    StateCause,
)
from headrace.wire.placements import TreePlacement
from headrace.wire.refusals import (
    BadRequest,
    NotAllowed,
    OverLimit,
    Refusal,
    WrongState,
)
from headrace_admission.decisions.limits import Asked, unfit_pool
from headrace_admission.decisions.moves import limit_on_move
from headrace_admission.decisions.rights import holds, kept_out
from headrace_admission.decisions.starts import StartEngine
from headrace_admission.decisions.target_pool import Target, target_pool
from headrace_admission.decisions.transaction import Decision
from headrace_admission.queries import Queues
from headrace_admission.state.life import is_ending, is_final, may_change_parameters
from headrace_admission.state.operation import Operation

__all__ = ["UpdateEngine"]


class UpdateEngine(StartEngine):
    """Decides on changes."""

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

    # --- weight and pool ------------------------------------------------------------------------------------------

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


def _asked_pool(request: wire.UpdateOperation, tree: TreeName) -> PoolName | None:
    """What is said for a tree hides what is said for the whole, even where it names no pool."""
    said = request.scheduling_options_per_pool_tree.get(tree)
    return (said.pool or None) if said is not None else request.pool
