"""The time limit of a job, without a process."""

import signal

import pytest

from headrace.wire.heartbeat import JobResult
from headrace_agent.runner.effects import JobExit, Keep, RunnerEffect, Signal, TellDeadline
from headrace_agent.runner.engine import RunnerEngine
from headrace_agent.runner.protocol import Interrupt, NodeLease, Run, RunAhead
from tests.unit.runner.builders import a_job, a_run, at

LIMIT_MS = 2_000
GRACE_MS = 500


def limited(index: int = 0, **changes: object) -> Run:
    return a_run(index, time_limit_ms=LIMIT_MS, interruption_timeout_ms=GRACE_MS, **changes)


def running(run: Run | None = None) -> RunnerEngine:
    run, engine = run or limited(), RunnerEngine()
    engine.on_lease(NodeLease(at(10**12).steady_ns), at(0))
    engine.on_run(run, at(0))
    engine.on_started(run.job, 100, at(0))
    return engine


def ended(effects: list[RunnerEffect]) -> tuple[JobResult, str]:
    assert isinstance(effects[0], Keep)
    return effects[0].end.result, effects[0].end.reason


def exited(engine: RunnerEngine, exit: JobExit, after_ms: int) -> tuple[JobResult, str]:
    return ended(list(engine.on_exited(a_job(), exit, at(after_ms)).effects))


def test_a_job_gets_its_signal_at_the_limit_and_is_killed_after_its_grace() -> None:
    engine = running()

    assert engine.next_wake_ns() == at(LIMIT_MS).steady_ns
    assert engine.on_time(at(LIMIT_MS - 1)).effects == []
    assert engine.on_time(at(LIMIT_MS)).effects == [Signal(a_job(), signal.SIGTERM)]
    assert engine.on_time(at(LIMIT_MS + GRACE_MS - 1)).effects == []
    assert engine.on_time(at(LIMIT_MS + GRACE_MS)).effects == [Signal(a_job(), signal.SIGKILL)]
    assert engine.check() == []
    killed = JobExit(signal=signal.SIGKILL)
    assert exited(engine, killed, 2_500) == (
        JobResult.TIMED_OUT,
        "time limit of 2s reached; killed, 0.5 s after the request to end",
    )


def test_the_limit_counts_from_the_start_of_the_program_and_not_while_it_is_starting() -> None:
    engine = RunnerEngine()
    engine.on_lease(NodeLease(at(10**12).steady_ns), at(0))
    engine.on_run(limited(), at(0))
    engine.on_started(a_job(), 100, at(1_500))

    assert engine.on_time(at(LIMIT_MS)).effects == []
    assert engine.on_time(at(1_500 + LIMIT_MS)).effects == [Signal(a_job(), signal.SIGTERM)]


def test_a_job_that_ends_before_its_limit_ends_as_without_a_limit() -> None:
    engine = running()

    assert exited(engine, JobExit(exit_code=0), LIMIT_MS - 1) == (JobResult.COMPLETED, "")
    assert engine.on_time(at(LIMIT_MS)).effects == []


@pytest.mark.parametrize(
    ("exit_code", "interruptible", "result"),
    [
        (0, False, JobResult.TIMED_OUT),
        (1, False, JobResult.TIMED_OUT),
        (0, True, JobResult.COMPLETED),
        (75, True, JobResult.ABORTED),
        (1, True, JobResult.TIMED_OUT),
    ],
)
def test_only_an_interruptible_job_says_by_its_exit_status_what_it_did(
    exit_code: int, interruptible: bool, result: JobResult
) -> None:
    engine = running(limited(interruptible=interruptible))
    engine.on_time(at(LIMIT_MS))

    assert exited(engine, JobExit(exit_code=exit_code), LIMIT_MS + 1)[0] is result


def test_a_job_with_a_deadline_file_is_told_when_it_is_killed() -> None:
    engine = running(limited(deadline_file="/x/deadline"))

    assert engine.on_time(at(LIMIT_MS)).effects == [
        TellDeadline("/x/deadline", at(LIMIT_MS + GRACE_MS).wall_ms),
        Signal(a_job(), signal.SIGTERM),
    ]


def test_a_preempted_job_that_reaches_its_limit_is_killed_earlier_and_was_preempted() -> None:
    engine = running()
    engine.on_interrupt(Interrupt(a_job(), 60_000, "preempted"), at(LIMIT_MS - 1))

    assert engine.on_time(at(LIMIT_MS)).effects == []
    assert engine.next_wake_ns() == at(LIMIT_MS + GRACE_MS).steady_ns
    assert exited(engine, JobExit(signal=15), LIMIT_MS + 1) == (JobResult.ABORTED, "preempted")


def test_a_timed_out_job_stays_timed_out_when_its_operation_is_aborted() -> None:
    engine = running()
    engine.on_time(at(LIMIT_MS))
    engine.on_interrupt(Interrupt(a_job(), 0, "aborted by ada"), at(LIMIT_MS + 1))

    assert exited(engine, JobExit(signal=9), LIMIT_MS + 2)[0] is JobResult.TIMED_OUT


def test_each_job_of_an_allocation_has_the_whole_limit() -> None:
    engine = running()
    engine.on_run_ahead(RunAhead(limited(1)), at(0))
    engine.on_exited(a_job(0), JobExit(exit_code=0), at(1_500))
    engine.on_started(a_job(1), 101, at(1_500))

    assert engine.on_time(at(LIMIT_MS)).effects == []
    assert engine.on_time(at(1_500 + LIMIT_MS)).effects == [Signal(a_job(1), signal.SIGTERM)]


def test_limits_of_jobs_that_ended_take_no_memory() -> None:
    engine = running()
    for index in range(1, 1_000):
        engine.on_run(limited(index, allocation=f"alloc-{index}"), at(0))
        engine.on_started(a_job(index), 100, at(0))
        engine.on_exited(a_job(index), JobExit(exit_code=0), at(0))

    assert len(engine._interruptions.awaited) <= 16
    assert engine.on_time(at(LIMIT_MS)).effects == [Signal(a_job(), signal.SIGTERM)]
