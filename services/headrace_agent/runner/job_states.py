"""The states of a job at the runner, as a table of transitions."""

from __future__ import annotations

import enum


class JobState(enum.Enum):
    """States of a job at the runner."""

    ABSENT = "absent"
    STARTING = "starting"
    RUNNING = "running"
    #: The job was asked to end, and will be killed at its deadline.
    INTERRUPTED = "interrupted"
    #: SIGKILL was sent.
    KILLED = "killed"
    #: The job has ended, and the agent has not acknowledged the end.
    ENDED = "ended"


class JobEvent(enum.Enum):
    """Events in the life of a job at the runner."""

    RUN = "run"
    STARTED = "started"
    NOT_STARTED = "not_started"
    INTERRUPT = "interrupt"
    #: The deadline has come at which an interrupted job is killed.
    DEADLINE = "deadline"
    EXITED = "exited"
    ACKNOWLEDGE = "acknowledge"


#: State after an event. A pair of state and event that is missing leaves the state unchanged.
TRANSITIONS: dict[tuple[JobState, JobEvent], JobState] = {
    (JobState.ABSENT, JobEvent.RUN): JobState.STARTING,
    (JobState.STARTING, JobEvent.STARTED): JobState.RUNNING,
    (JobState.STARTING, JobEvent.NOT_STARTED): JobState.ENDED,
    (JobState.RUNNING, JobEvent.INTERRUPT): JobState.INTERRUPTED,
    (JobState.RUNNING, JobEvent.EXITED): JobState.ENDED,
    (JobState.INTERRUPTED, JobEvent.DEADLINE): JobState.KILLED,
    (JobState.INTERRUPTED, JobEvent.EXITED): JobState.ENDED,
    (JobState.KILLED, JobEvent.EXITED): JobState.ENDED,
    (JobState.ENDED, JobEvent.ACKNOWLEDGE): JobState.ABSENT,
}


def next_state(state: JobState, event: JobEvent) -> JobState:
    """Return the state of a job after the event."""
    return TRANSITIONS.get((state, event), state)
