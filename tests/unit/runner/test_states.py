"""The table of a job's life: every pair of state and event."""

import itertools

import pytest

from headrace_agent.runner.job_states import TRANSITIONS, JobEvent, JobState, next_state

A, S, R, I, K, E = JobState  # noqa: E741
#: One row per state, one column per event, in the order of their definition.
GRID = {
    #    run started not_started interrupt deadline exited acknowledge
    A: (S, A, A, A, A, A, A),
    S: (S, R, E, S, S, S, S),
    R: (R, R, R, I, R, E, R),
    I: (I, I, I, I, K, E, I),
    K: (K, K, K, K, K, E, K),
    E: (E, E, E, E, E, E, A),
}


@pytest.mark.parametrize(("state", "event"), list(itertools.product(JobState, JobEvent)))
def test_every_pair_leads_where_the_grid_says(state: JobState, event: JobEvent) -> None:
    assert next_state(state, event) is GRID[state][list(JobEvent).index(event)]


def test_every_state_can_be_reached_and_left() -> None:
    assert set(TRANSITIONS.values()) == set(JobState)
    assert {before for before, _ in TRANSITIONS} == set(JobState)
