"""The table of states, walked over all pairs."""

from __future__ import annotations

from itertools import product

from headrace.wire.log import StateCause
from headrace.wire.operations import FINAL_STATES, OperationState
from headrace_admission.state.operation_states import TRANSITIONS, is_ending, is_final, next_state


def test_nothing_follows_a_final_state() -> None:
    for state, cause in product(FINAL_STATES, StateCause):
        assert next_state(state, cause) is None


def test_every_pair_outside_the_table_means_nothing() -> None:
    for state, cause in product(OperationState, StateCause):
        assert next_state(state, cause) == TRANSITIONS.get((state, cause))


def test_every_state_can_be_reached_from_the_first() -> None:
    reached, fresh = {OperationState.STARTING}, {OperationState.STARTING}
    while fresh:
        fresh = {then for (state, _), then in TRANSITIONS.items() if state in fresh} - reached
        reached |= fresh

    assert reached == set(OperationState)


def test_every_state_that_is_not_final_leads_to_a_final_one() -> None:
    leads = set(FINAL_STATES)
    for _ in OperationState:
        leads |= {state for (state, _), then in TRANSITIONS.items() if then in leads}

    assert leads == set(OperationState)


def test_an_operation_that_is_ending_can_only_end() -> None:
    for (state, _), then in TRANSITIONS.items():
        if is_ending(state):
            assert is_ending(then) or is_final(then)
