"""The supervisor's decisions: restarts while running, the order and the patience of a stop."""

from __future__ import annotations

import signal
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.runtime.engine import Outcome
from headrace.wire.nodes import StopMode
from headrace_cli.up.restarts import (
    FIRST_PAUSE_S,
    GROUP_TIME_S,
    LONGEST_PAUSE_S,
    LONGEST_RENEWAL_PAUSE_S,
    RENEWAL_TIME_S,
    STEADY_AFTER_S,
    STOP_TIME_S,
    Effect,
    Ended,
    GiveUp,
    KillEverything,
    KillJobs,
    NotRecording,
    ProcessPlan,
    Recording,
    RenewBus,
    Restart,
    Signal,
    Start,
    StopGroup,
    SupervisorEngine,
)
from tests.support.clocks import at

PLANS = [
    ProcessPlan("nats-server", StopGroup.BUS),
    ProcessPlan("admission", StopGroup.ADMISSION),
    ProcessPlan("integral", StopGroup.INTEGRAL),
    ProcessPlan("fair_share", StopGroup.FAIR_SHARE),
    ProcessPlan("allocator", StopGroup.ALLOCATOR),
    ProcessPlan("agent-a", StopGroup.AGENTS),
    ProcessPlan("agent-b", StopGroup.AGENTS),
    ProcessPlan("web", StopGroup.WEB),
]
IN_STOP_ORDER = ["web", "allocator", "fair_share", "integral", "admission", "nats-server"]


def begun() -> SupervisorEngine:
    engine = SupervisorEngine(PLANS)
    engine.on_begin(at(0.0))
    return engine


def ended(engine: SupervisorEngine, name: str, status: int, now_s: float) -> list[Effect]:
    return effects_of(engine, engine.on_ended(Ended(name, status), at(now_s)))


def ticked(engine: SupervisorEngine, now_s: float) -> list[Effect]:
    return effects_of(engine, engine.on_tick(at(now_s)))


def stopped(engine: SupervisorEngine, mode: StopMode, now_s: float) -> list[Effect]:
    return effects_of(engine, engine.on_stop(mode, at(now_s)))


def effects_of(engine: SupervisorEngine, outcome: Outcome[None, Effect]) -> list[Effect]:
    assert engine.check() == []
    return list(outcome.effects)


def next_due_s(engine: SupervisorEngine) -> float | None:
    due_ns = engine.next_due_ns()
    return None if due_ns is None else due_ns / 1e9


def when_due(engine: SupervisorEngine) -> list[Effect]:
    return ticked(engine, next_due_s(engine) or 0.0)


def signals(effects: list[Effect]) -> list[tuple[str, int]]:
    return [(effect.name, effect.number) for effect in effects if isinstance(effect, Signal)]


def test_everything_starts_at_once() -> None:
    engine = SupervisorEngine(PLANS)

    assert [Start(plan.name) for plan in PLANS] == engine.on_begin(at(0.0)).effects
    assert next_due_s(engine) is None


def test_a_process_that_ends_is_started_again_after_a_pause() -> None:
    engine = begun()

    assert [Restart("allocator", 1, FIRST_PAUSE_S)] == ended(engine, "allocator", 1, 3.0)
    assert next_due_s(engine) == 3.0 + FIRST_PAUSE_S
    assert ticked(engine, 3.0) == []
    assert [Start("allocator")] == ticked(engine, 3.0 + FIRST_PAUSE_S)


def test_pauses_double_up_to_the_longest() -> None:
    engine = begun()
    pauses, now_s = [], 0.0
    for _ in range(7):
        effect = ended(engine, "allocator", 1, now_s)[0]
        assert isinstance(effect, Restart)
        pauses.append(effect.pause_s)
        now_s += effect.pause_s
        ticked(engine, now_s)

    assert pauses == [0.2, 0.4, 0.8, 1.6, 3.2, LONGEST_PAUSE_S, LONGEST_PAUSE_S]


def test_a_process_that_ran_long_enough_begins_with_the_first_pause_again() -> None:
    engine = begun()
    ended(engine, "allocator", 1, 0.0)
    ticked(engine, 1.0)

    assert [Restart("allocator", 1, FIRST_PAUSE_S)] == ended(engine, "allocator", 1, 1.0 + STEADY_AFTER_S)


def test_a_service_that_cannot_use_its_settings_stops_everything() -> None:
    engine = begun()

    effects = ended(engine, "fair_share", 2, 1.0)

    assert effects[0] == GiveUp("fair_share", 2)
    assert signals(effects) == [("agent-a", signal.SIGTERM), ("agent-b", signal.SIGTERM)]
    assert engine.stopping


@pytest.mark.parametrize(
    ("mode", "number"),
    [
        (StopMode.INTERRUPT, signal.SIGTERM),
        (StopMode.WAIT, signal.SIGUSR1),
        (StopMode.LEAVE, signal.SIGUSR2),
    ],
)
def test_agents_are_told_first_and_what_becomes_of_their_jobs(mode: StopMode, number: int) -> None:
    assert signals(stopped(begun(), mode, 1.0)) == [("agent-a", number), ("agent-b", number)]


def test_each_group_is_told_when_the_one_before_has_ended() -> None:
    engine = begun()
    stopped(engine, StopMode.INTERRUPT, 1.0)

    assert ended(engine, "agent-a", 0, 1.5) == []
    told = signals(ended(engine, "agent-b", 0, 2.0))
    for name in IN_STOP_ORDER[:-1]:
        told += signals(ended(engine, name, 0, 2.0))

    assert [(name, signal.SIGTERM) for name in IN_STOP_ORDER] == told
    assert ended(engine, "nats-server", 0, 2.1) == []
    assert engine.finished


def test_agents_that_do_not_end_are_killed_with_their_jobs() -> None:
    engine = begun()
    stopped(engine, StopMode.INTERRUPT, 0.0)
    ended(engine, "agent-a", 0, 1.0)

    effects = when_due(engine)

    assert [Signal("agent-b", signal.SIGKILL), KillJobs()] == effects


def test_jobs_that_are_to_stay_outlive_an_agent_that_is_killed() -> None:
    engine = begun()
    stopped(engine, StopMode.LEAVE, 0.0)

    assert KillJobs() not in when_due(engine)


def test_agents_that_wait_for_their_jobs_have_all_the_time() -> None:
    engine = begun()
    stopped(engine, StopMode.WAIT, 0.0)

    assert next_due_s(engine) is None
    ended(engine, "agent-a", 0, 5_000.0)
    assert signals(ended(engine, "agent-b", 0, 9_000.0)) == [("web", signal.SIGTERM)]
    assert next_due_s(engine) == 9_000.0 + GROUP_TIME_S


def test_asked_a_second_time_everything_is_killed() -> None:
    engine = begun()
    stopped(engine, StopMode.WAIT, 0.0)

    assert [KillEverything()] == stopped(engine, StopMode.WAIT, 0.1)
    assert stopped(engine, StopMode.WAIT, 0.2) == []
    for plan in PLANS:
        assert signals(ended(engine, plan.name, -9, 0.3)) == []
    assert engine.finished


def test_a_restart_that_was_due_is_forgotten_when_stopping() -> None:
    engine = begun()
    ended(engine, "web", 1, 1.0)
    stopped(engine, StopMode.INTERRUPT, 1.1)

    assert ticked(engine, 1.0 + FIRST_PAUSE_S) == []
    ended(engine, "agent-a", 0, 2.0)
    assert signals(ended(engine, "agent-b", 0, 2.0)) == [("allocator", signal.SIGTERM)]


def test_figures_count_what_runs_and_what_ended_unasked() -> None:
    engine = begun()
    ended(engine, "allocator", 1, 1.0)
    stopped(engine, StopMode.INTERRUPT, 1.1)
    ended(engine, "agent-a", 0, 2.0)

    found = {figure.name: figure.value for figure in engine.figures()}
    assert found == {"processes_running": 6, "processes_ended_unasked": 1}


def test_stopping_with_nothing_running_is_finished_at_once() -> None:
    engine = SupervisorEngine([PLANS[0]])
    engine.on_begin(at(0.0))
    ended(engine, "nats-server", 1, 1.0)

    assert stopped(engine, StopMode.INTERRUPT, 1.1) == []
    assert engine.finished


@given(
    st.sampled_from([StopMode.INTERRUPT, StopMode.LEAVE]),
    st.dictionaries(st.sampled_from([plan.name for plan in PLANS]), st.floats(0.0, 3.0)),
)
def test_always_over_in_time_whatever_obeys_and_whatever_does_not(
    mode: StopMode, obeys_after_s: dict[str, float]
) -> None:
    """Processes end some time after SIGTERM and the like, or never; SIGKILL always works, at once."""
    engine = begun()
    ends: dict[str, float] = {}
    effects, now_s = stopped(engine, mode, 0.0), 0.0
    while not engine.finished:
        for effect in effects:
            match effect:
                case Signal(name, signal.SIGKILL):
                    ends[name] = now_s
                case Signal(name) if name in obeys_after_s:
                    ends[name] = now_s + obeys_after_s[name]
                case KillEverything():
                    ends.update((name, now_s) for name in engine.running())
        due_s = next_due_s(engine)
        first = min(ends, key=lambda name: ends[name], default=None)
        if first is not None and (due_s is None or ends[first] <= due_s):
            now_s = max(now_s, ends.pop(first))
            effects = ended(engine, first, 0, now_s)
        else:
            assert due_s is not None
            now_s = max(now_s, due_s)
            effects = ticked(engine, now_s)

    assert now_s <= STOP_TIME_S


def health_seen(engine: SupervisorEngine, error: str, obstacle: str, now_s: float) -> list[Effect]:
    return effects_of(engine, engine.on_health(error, obstacle, at(now_s)))


def test_a_bus_that_could_not_write_is_started_again_once_its_folder_can_be_written() -> None:
    engine = begun()

    assert health_seen(engine, "", "", 1.0) == []
    assert health_seen(engine, "no space left", "No space left", 2.0) == [
        NotRecording("no space left", "No space left")
    ]
    assert health_seen(engine, "no space left", "No space left", 3.0) == []
    assert health_seen(engine, "no space left", "", 4.0) == [NotRecording("no space left", ""), RenewBus("nats-server")]
    assert ended(engine, "nats-server", 0, 4.1) == [Start("nats-server")]
    assert health_seen(engine, "", "", 5.0) == [Recording()]
    assert health_seen(engine, "", "", 6.0) == []


def test_a_bus_whose_folder_can_be_written_is_started_again_whatever_its_error_was() -> None:
    assert health_seen(begun(), "input/output error", "", 1.0) == [
        NotRecording("input/output error", ""),
        RenewBus("nats-server"),
    ]


def test_a_bus_that_fails_again_and_again_is_started_again_less_and_less_often() -> None:
    engine = begun()
    renewals = [now_s for now_s in range(1, 1000) if RenewBus("nats-server") in health_seen(engine, "quota", "", now_s)]
    gaps = [later - earlier for earlier, later in pairwise(renewals)]

    assert gaps == sorted(gaps)
    assert gaps[-1] == LONGEST_RENEWAL_PAUSE_S


def test_a_bus_that_does_not_end_is_killed() -> None:
    engine = begun()
    health_seen(engine, "input/output error", "", 1.0)

    assert engine.next_due_ns() == at(1.0 + RENEWAL_TIME_S).steady_ns
    assert effects_of(engine, engine.on_tick(at(1.0 + RENEWAL_TIME_S))) == [Signal("nats-server", signal.SIGKILL)]
    assert effects_of(engine, engine.on_tick(at(10.0))) == []
    assert ended(engine, "nats-server", -9, 10.1) == [Start("nats-server")]
    assert engine.next_due_ns() is None
    assert ended(engine, "nats-server", 1, 11.0) == [Restart("nats-server", 1, FIRST_PAUSE_S)]


def test_a_stop_is_left_alone_by_a_bus_that_records_nothing() -> None:
    engine = begun()
    health_seen(engine, "quota", "Disk quota exceeded", 1.0)
    stopped(engine, StopMode.INTERRUPT, 2.0)

    assert health_seen(engine, "quota", "", 3.0) == health_seen(engine, "", "", 4.0) == []
