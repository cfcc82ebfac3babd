"""Operations that wait for other operations (`run --after`, `run --after-each`): which starts are refused, and when the wait ends.

At its start, an operation names the operations that it waits for. They must exist already, and none are added later. So the only
possible cycle is an operation that names itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from headrace.ids import OperationId, TreeName
from headrace.wire.log import IndexesReturned, StateCause
from headrace.wire.operations import StartOperation
from headrace.wire.refusals import BadRequest, Refusal, WrongState
from headrace_admission import queries
from headrace_admission.decisions.operation_ends import end_and_offer_slots
from headrace_admission.decisions.promotion import admit
from headrace_admission.decisions.transaction import Transaction
from headrace_admission.state.index_owners import MOST_RUNS, runs_of
from headrace_admission.state.operation import Operation
from headrace_admission.state.operation_states import is_final
from headrace_admission.state.state import State
from headrace_admission.state.upstream import uncompleted, unmet

#: Upper bound of the live operations whose jobs follow the jobs of one operation. The bound exists because each completed job is
#: recorded in all of these operations.
MOST_FOLLOWERS: Final = 16
#: Upper bound of the followers that do not belong to the user of the followed operation. Other users thus cannot use up `MOST_FOLLOWERS`.
MOST_FOREIGN_FOLLOWERS: Final = 8
#: Upper bound of the ends that the live operations of one user wait for. All these ends may come at once, and other requests wait while
#: they are handled.
MOST_AWAITED_OF_A_USER: Final = 5_000
#: Value of `tree` in `IndexesReturned` when jobs need not wait for other jobs any more.
NO_TREE: Final = TreeName("")


class Standing(msgspec.Struct, frozen=True):
    """The state of the operations that a new operation waits for."""

    #: The operations that have not ended.
    awaits: list[OperationId]
    #: Why the operation can never complete; empty: it can.
    failure: str
    #: True if jobs of the operation follow jobs of an operation that has not ended.
    awaits_jobs: bool
    #: Number of jobs that need not wait for a job of another operation when the operation starts.
    free: int

    @property
    def holds_back(self) -> bool:
        """True if the operation neither runs nor joins a queue when it starts."""
        return bool(self.awaits or self.failure or not self.free)


def refused_upstream(state: State, request: StartOperation, user: str) -> Refusal | None:
    """Return the refusal of the operations that a user's new operation names to wait for, or None."""
    seen: set[OperationId] = set()
    for upstream in request.spec.after:
        name = upstream.operation
        if name == request.operation:
            return BadRequest.because("spec.after", f"operation {name} cannot wait for itself")
        if name in seen:
            return BadRequest.because("spec.after", f"operation {name} is named twice")
        if name not in state.operations:
            return queries.not_found(state, name)
        seen.add(name)
    awaited, more = state.upstream.awaited_of_user[user], sum(name in state.live for name in seen)
    if more and awaited + more > MOST_AWAITED_OF_A_USER:
        waits = f"waiting for {awaited} ends of operations, and this operation would wait for {more}"
        return WrongState("user", user, waits, f"at most {MOST_AWAITED_OF_A_USER} together")
    return _refused_jobs(state, request, user, seen) if request.spec.after_each is not None else None


def standing(state: State, request: StartOperation) -> Standing:
    """Return the state of the operations that a new operation waits for. Each of them must be known."""
    known = [(upstream, state.operations[upstream.operation]) for upstream in request.spec.after]
    awaits = [each.id for _, each in known if not is_final(each.state)]
    failures = [unmet(upstream, each.state) for upstream, each in known if is_final(each.state)]
    awaits_jobs, free, count = False, request.spec.job_count, request.spec.job_count
    if request.spec.after_each is not None:
        upstream = state.operations[request.spec.after_each]
        awaits_jobs = not is_final(upstream.state)
        if awaits_jobs:
            bits = int.from_bytes(upstream.ledger.completed_bits(), "little") & ((1 << count) - 1)
            free = bits.bit_count()
        else:
            failures.append(uncompleted(upstream, count))
    return Standing(awaits, next(filter(None, failures), ""), awaits_jobs, free)


def judge_held_back(transaction: Transaction) -> None:
    """Start the operations whose wait for other operations is over, and fail those that can never run."""
    due = transaction.state.upstream.due
    # When an operation fails here, the wait of further operations may be over. They are added to `due`.
    while due:
        operation = transaction.state.live[next(iter(due))]
        if operation.upstream_failure:
            # End the jobs that run already, since the operation cannot complete.
            end_and_offer_slots(transaction, operation, StateCause.UPSTREAM_FAILED, operation.upstream_failure)
        else:
            admit(transaction, operation)


def release_jobs(transaction: Transaction, operation: Operation, completed: Iterable[int]) -> None:
    """Let jobs of `operation` run whose followed jobs have completed. `completed` has the indexes of the completed jobs."""
    owners = operation.ledger.owners
    assert owners is not None, "only jobs with owners wait for other jobs"
    runs = runs_of(index for index in completed if owners.awaits(index))
    for start in range(0, len(runs), MOST_RUNS):
        piece = runs[start : start + MOST_RUNS]
        free = owners.free + sum(run.below - run.first for run in piece)
        transaction.record(IndexesReturned(operation.id, NO_TREE, owners.changes + 1, free, piece))


def _refused_jobs(state: State, request: StartOperation, user: str, seen: set[OperationId]) -> Refusal | None:
    """Return the refusal if the jobs of a new operation cannot follow the jobs of `spec.after_each`, else None."""
    spec, place, name = request.spec, "spec.after_each", request.spec.after_each
    assert name is not None, "called only if there is one"
    if name == request.operation or name in seen:
        return BadRequest(place, name, "an operation other than this one that `after` does not name")
    if name not in state.operations:
        return queries.not_found(state, name)
    upstream = state.operations[name]
    if spec.job_count > upstream.spec.job_count:
        return BadRequest(
            "spec.job_count", str(spec.job_count), f"at most {upstream.spec.job_count}, as many as {name} has"
        )
    if spec.is_gang and spec.job_count > 1:
        return BadRequest.because(
            place, f"the jobs of a gang start together and cannot follow the jobs of {name}. Use `after`"
        )
    if len([*spec.pool_trees, *spec.tentative_pool_trees]) > 1:
        return BadRequest(
            "spec.pool_trees", ", ".join(spec.pool_trees), "one tree for an operation that names `after_each`"
        )
    followers = state.upstream.waiting_for_jobs_of(name)
    foreign = sum(state.live[each].user != upstream.user for each in followers)
    if len(followers) >= MOST_FOLLOWERS or (user != upstream.user and foreign >= MOST_FOREIGN_FOLLOWERS):
        most = f"fewer than {MOST_FOLLOWERS}, of which fewer than {MOST_FOREIGN_FOLLOWERS} of other users"
        return WrongState("operation", name, f"followed job by job by {len(followers)} operations", most)
    return None
