"""The life of a job at the runner, as a table."""

from __future__ import annotations

import enum

__all__ = ["TRANSITIONS", "Event", "State", "next_state"]


class State(enum.Enum):
    """Where a job stands."""

    ABSENT = "absent"
    STARTING = "starting"
    RUNNING = "running"
    #: SIGTERM was sent; a kill is due.
    INTERRUPTED = "interrupted"
    #: SIGKILL was sent.
    KILLED = "killed"
    #: Over, and not acknowledged yet.
    ENDED = "ended"


class Event(enum.Enum):
    """What can happen to a job."""

    RUN = "run"
    STARTED = "started"
    NOT_STARTED = "not_started"
    INTERRUPT = "interrupt"
    #: The kill of an interrupted job is due.
    DEADLINE = "deadline"
    EXITED = "exited"
    ACKNOWLEDGE = "acknowledge"


#: A pair that is missing leaves the state as it is.
TRANSITIONS: dict[tuple[State, Event], State] = {
    (State.ABSENT, Event.RUN): State.STARTING,
    (State.STARTING, Event.STARTED): State.RUNNING,
    (State.STARTING, Event.NOT_STARTED): State.ENDED,
    (State.RUNNING, Event.INTERRUPT): State.INTERRUPTED,
    (State.RUNNING, Event.EXITED): State.ENDED,
    (State.INTERRUPTED, Event.DEADLINE): State.KILLED,
    (State.INTERRUPTED, Event.EXITED): State.ENDED,
    (State.KILLED, Event.EXITED): State.ENDED,
    (State.ENDED, Event.ACKNOWLEDGE): State.ABSENT,
}


def next_state(state: State, event: Event) -> State:
    """Where a job stands after the event."""
    return TRANSITIONS.get((state, event), state)
