"""The states of an operation as a table of transitions. A transition that is not in the table cannot happen."""

from __future__ import annotations

from typing import Final

from headrace.wire.log import StateCause
from headrace.wire.operations import FINAL_STATES, OperationState

_S = OperationState
_C = StateCause

#: (state, cause) → next state.
TRANSITIONS: Final[dict[tuple[OperationState, StateCause], OperationState]] = {
    (_S.STARTING, _C.ADMITTED): _S.RUNNING,
    (_S.STARTING, _C.WAITING): _S.PENDING,
    (_S.PENDING, _C.ADMITTED): _S.RUNNING,
    # No job has run yet, so no node holds an allocation of the operation.
    (_S.PENDING, _C.ABORTED_BY_USER): _S.ABORTED,
    (_S.PENDING, _C.TREE_REMOVED): _S.ABORTED,
    (_S.PENDING, _C.UPSTREAM_FAILED): _S.FAILED,
    (_S.RUNNING, _C.JOBS_DONE): _S.COMPLETED,
    (_S.RUNNING, _C.COMPLETED_BY_USER): _S.COMPLETING,
    (_S.RUNNING, _C.TOO_MANY_FAILURES): _S.FAILING,
    (_S.RUNNING, _C.TIME_LIMIT): _S.FAILING,
    (_S.RUNNING, _C.ABORTED_BY_USER): _S.ABORTING,
    (_S.RUNNING, _C.TREE_REMOVED): _S.ABORTING,
    # Some jobs of the operation wait for jobs that will never complete.
    (_S.RUNNING, _C.UPSTREAM_FAILED): _S.FAILING,
    # An ending operation reaches its final state when no node holds an allocation of it.
    (_S.COMPLETING, _C.RELEASED): _S.COMPLETED,
    (_S.FAILING, _C.RELEASED): _S.FAILED,
    (_S.ABORTING, _C.RELEASED): _S.ABORTED,
    # All jobs may complete after a user asked to end the operation as completed.
    (_S.COMPLETING, _C.JOBS_DONE): _S.COMPLETED,
    (_S.COMPLETING, _C.ABORTED_BY_USER): _S.ABORTING,
    (_S.FAILING, _C.ABORTED_BY_USER): _S.ABORTING,
}


def next_state(state: OperationState, cause: StateCause) -> OperationState | None:
    """Return the next state, or None if the cause has no effect in this state."""
    return TRANSITIONS.get((state, cause))


def is_final(state: OperationState) -> bool:
    """True if the state is final."""
    return state in FINAL_STATES


def is_ending(state: OperationState) -> bool:
    """True if running jobs are being ended: no job of the operation starts or is retried any more."""
    return state in (OperationState.COMPLETING, OperationState.FAILING, OperationState.ABORTING)


#: States of YTsaurus between getting a slot and the first job. Here, getting a slot and beginning to run are one log entry, so no
#: operation is in these states.
_IN_TRANSIT: Final = frozenset({"materializing", "reviving_jobs"})


def may_change_parameters(state: str) -> bool:
    """True if weight and pool of an operation in this state may be changed."""
    ending = {state.value for state in OperationState if is_final(state) or is_ending(state)}
    return state not in _IN_TRANSIT and state not in ending
