"""The runner's decisions, without a process."""

import signal
from collections.abc import Sequence

import msgspec
import pytest

from headrace.ids import OperationId
from headrace.wire.heartbeat import JobResult
from headrace.wire.preemption import InterruptSignal, PreemptionReason, PreemptionRecord
from headrace.wire.start_stages import StartRecord, StartStage
from headrace_agent.runner.effects import (
    About,
    Drop,
    EndRunner,
    JobExit,
    Keep,
    Launch,
    RunnerEffect,
    SendToAgent,
    Signal,
    TellDeadline,
)
from headrace_agent.runner.engine import RunnerEngine
from headrace_agent.runner.job_interruptions import KILL_TIMEOUT_MS
from headrace_agent.runner.job_states import JobState
from headrace_agent.runner.protocol import (
    EndAll,
    Ended,
    FullReport,
    Interrupt,
    NodeLease,
    Recall,
    Recalled,
    Run,
    RunAhead,
    Started,
)
from tests.unit.runner.builders import OPERATION, a_job, a_run, at


def leased(until_ms: int = 10**12, most_jobs: int = 100) -> RunnerEngine:
    """A runner that was told a lease, and nothing else yet."""
    engine = RunnerEngine(most_jobs)
    engine.on_lease(NodeLease(at(until_ms).steady_ns), at(0))
    return engine


def running(*indexes: int, engine: RunnerEngine | None = None) -> RunnerEngine:
    engine = engine or leased()
    for index in indexes or (0,):
        assert engine.on_run(a_run(index), at(0)).effects == [Launch(a_run(index))]
        engine.on_started(a_job(index), 100 + index, at(0))
        assert not engine.check()
    return engine


def the_end(effects: Sequence[RunnerEffect]) -> tuple[JobResult, str]:
    """What was kept, having checked that it was told after it was kept, and the same."""
    assert [type(effect) for effect in effects[:2]] == [Keep, SendToAgent]
    assert isinstance(effects[0], Keep)
    assert effects[1] in [SendToAgent(Ended(effects[0].end, is_host_fault)) for is_host_fault in (False, True)]
    return effects[0].end.result, effects[0].end.reason


def test_a_job_that_returns_0_has_completed() -> None:
    effects = running().on_exited(a_job(), JobExit(exit_code=0), at(7)).effects

    assert the_end(effects) == (JobResult.COMPLETED, "")


def test_a_job_that_returns_anything_else_has_failed_with_the_tail_of_its_stderr() -> None:
    effects = running().on_exited(a_job(), JobExit(exit_code=3, stderr_tail="no such table"), at(7)).effects

    assert the_end(effects) == (JobResult.FAILED, "")
    assert isinstance(effects[0], Keep)
    assert (effects[0].end.exit_code, effects[0].end.stderr_tail) == (3, "no such table")
    assert effects[0].end.ended_at_ms - effects[0].end.started_at_ms == 7


def test_a_job_that_somebody_else_killed_has_failed_and_the_signal_is_named() -> None:
    effects = running().on_exited(a_job(), JobExit(signal=11), at(7)).effects

    assert the_end(effects) == (JobResult.FAILED, "ended by SIGSEGV, which the runner did not send")


def test_out_of_memory_fails_a_job() -> None:
    effects = running().on_exited(a_job(), JobExit(signal=9, failure="out of memory: limit 512 MiB"), at(7)).effects

    assert the_end(effects) == (JobResult.FAILED, "out of memory: limit 512 MiB")


MIB = 1 << 20


@pytest.mark.parametrize(
    ("exit", "expected"),
    [
        (JobExit(signal=9, failure="said", out_of_memory=True, from_cgroup=True, max_rss_bytes=MIB), (True, "said")),
        (JobExit(signal=9, max_rss_bytes=MIB), (True, "out of memory: limit 1 MiB")),
        (JobExit(signal=9, max_rss_bytes=MIB - 1), (False, "ended by SIGKILL, which the runner did not send")),
        (JobExit(signal=9, max_rss_bytes=MIB, from_cgroup=True), (False, None)),
        (JobExit(signal=11, max_rss_bytes=MIB), (False, None)),
        (JobExit(exit_code=137, max_rss_bytes=MIB), (False, "")),
    ],
)
def test_an_end_is_out_of_memory_by_its_cgroup_or_if_killed_with_its_memory_at_the_limit(
    exit: JobExit, expected: tuple[bool, str | None]
) -> None:
    engine = leased()
    engine.on_run(a_run(memory_bytes=MIB), at(0))
    engine.on_started(a_job(), 1234, at(0))
    kept = engine.on_exited(a_job(), exit, at(7)).effects[0]

    assert isinstance(kept, Keep)
    assert kept.end.out_of_memory is expected[0]
    assert expected[1] in (kept.end.reason, None)


def test_a_job_that_was_interrupted_is_not_out_of_memory() -> None:
    engine = running()
    engine.on_interrupt(Interrupt(a_job(), 1000, "preempted"), at(1))
    kept = engine.on_exited(a_job(), JobExit(signal=9, failure="said", out_of_memory=True), at(2)).effects[0]

    assert isinstance(kept, Keep)
    assert (kept.end.result, kept.end.out_of_memory) == (JobResult.ABORTED, False)


@pytest.mark.parametrize("exit", [JobExit(exit_code=0), JobExit(exit_code=5), JobExit(signal=15)])
def test_an_interrupted_job_is_aborted_whatever_it_returns(exit: JobExit) -> None:
    engine = running()

    assert engine.on_interrupt(Interrupt(a_job(), 1000, "preempted"), at(1)).effects == [
        Signal(a_job(), signal.SIGTERM)
    ]
    assert the_end(engine.on_exited(a_job(), exit, at(2)).effects) == (JobResult.ABORTED, "preempted")


@pytest.mark.parametrize(
    ("exit", "counts"),
    [
        (JobExit(exit_code=0), (JobResult.COMPLETED, "")),
        (JobExit(exit_code=75), (JobResult.ABORTED, "state saved for a retry; preempted")),
        (JobExit(exit_code=5), (JobResult.ABORTED, "preempted")),
        (JobExit(signal=15), (JobResult.ABORTED, "preempted")),
        (JobExit(exit_code=0, failure="the log is full"), (JobResult.ABORTED, "preempted")),
    ],
)
def test_an_interruptible_job_says_by_its_exit_status_whether_it_is_done(
    exit: JobExit, counts: tuple[JobResult, str]
) -> None:
    engine = leased()
    engine.on_run(a_run(interruptible=True, interrupt_signal=InterruptSignal.SIGUSR1), at(0))
    engine.on_started(a_job(), 100, at(0))

    assert engine.on_interrupt(Interrupt(a_job(), 1000, "preempted"), at(1)).effects == [
        Signal(a_job(), signal.SIGUSR1)
    ]
    assert the_end(engine.on_exited(a_job(), exit, at(2)).effects) == counts


@pytest.mark.parametrize(("exit_code", "result"), [(0, JobResult.COMPLETED), (75, JobResult.FAILED)])
def test_an_interruptible_job_that_ends_before_the_signal_counts_like_any_other(
    exit_code: int, result: JobResult
) -> None:
    engine = leased()
    engine.on_run(a_run(interruptible=True), at(0))
    engine.on_started(a_job(), 100, at(0))
    engine.on_interrupt(Interrupt(a_job(), 1000, "preempted"), at(5))

    ended = engine.on_exited(a_job(), JobExit(exit_code=exit_code, main_ended_ns=at(4).steady_ns), at(9))

    assert the_end(ended.effects) == (result, "")


def test_an_interruptible_job_that_cannot_go_on_has_failed_whatever_it_returns() -> None:
    engine = leased()
    engine.on_run(a_run(interruptible=True), at(0))
    engine.on_started(a_job(), 100, at(0))
    engine.on_failure(a_job(), "the log is full", at(1))

    assert the_end(engine.on_exited(a_job(), JobExit(exit_code=0), at(2)).effects) == (
        JobResult.FAILED,
        "the log is full",
    )


def test_a_job_that_was_killed_after_its_time_says_how_long_it_had() -> None:
    engine = running()
    engine.on_interrupt(Interrupt(a_job(), 2_500, "preempted"), at(0))
    engine.on_time(at(2_500))
    engine.on_time(at(2_500 + KILL_TIMEOUT_MS))

    assert the_end(engine.on_exited(a_job(), JobExit(signal=9), at(13_000)).effects) == (
        JobResult.ABORTED,
        "preempted; killed, 2.5 s after the request to end",
    )


def test_the_picture_says_of_an_interrupted_job_why_and_what_time_is_left() -> None:
    engine = running(0, 1)
    engine.on_interrupt(Interrupt(a_job(0), 1_000, "preempted", b"for research"), at(0))
    engine.on_interrupt(Interrupt(a_job(0), 600, "again", b"for others"), at(100))

    [told] = engine.on_hello(About("none", "", 1), at(500)).effects

    assert isinstance(told, SendToAgent)
    assert isinstance(told.message, FullReport)
    assert [kept.interrupted for kept in told.message.running] == [
        Interrupt(a_job(0), 200, "preempted", b"for others"),
        None,
    ]


def test_a_job_whose_end_crossed_the_interruption_counts_by_its_own_end() -> None:
    engine = running()
    engine.on_interrupt(Interrupt(a_job(), 1000, "preempted"), at(5))

    effects = engine.on_exited(a_job(), JobExit(exit_code=0, main_ended_ns=at(4).steady_ns), at(9)).effects

    assert the_end(effects) == (JobResult.COMPLETED, "")


def test_a_job_that_does_not_obey_is_killed_when_its_time_is_over_and_not_before() -> None:
    engine = running()
    engine.on_interrupt(Interrupt(a_job(), 1000, "preempted"), at(0))

    assert engine.next_wake_ns() == at(1000).steady_ns
    assert engine.on_time(at(999)).effects == []
    assert engine.on_time(at(1000)).effects == [Signal(a_job(), signal.SIGKILL)]


def test_a_kill_that_does_nothing_is_repeated() -> None:
    engine = running()
    engine.on_interrupt(Interrupt(a_job(), 0, "preempted"), at(0))

    assert engine.on_time(at(KILL_TIMEOUT_MS - 1)).effects == []
    assert engine.on_time(at(KILL_TIMEOUT_MS)).effects == [Signal(a_job(), signal.SIGKILL)]


def test_without_any_time_the_kill_follows_at_once() -> None:
    effects = running().on_interrupt(Interrupt(a_job(), 0, "preempted"), at(0)).effects

    assert effects == [Signal(a_job(), signal.SIGTERM), Signal(a_job(), signal.SIGKILL)]


def test_a_deadline_may_come_earlier_but_never_later_and_the_first_reason_stays() -> None:
    engine = running()
    engine.on_interrupt(Interrupt(a_job(), 1000, "first"), at(0))

    assert engine.on_interrupt(Interrupt(a_job(), 5000, "second"), at(1)).effects == []
    assert engine.next_wake_ns() == at(1000).steady_ns
    assert engine.on_interrupt(Interrupt(a_job(), 10, "third"), at(1)).effects == []
    assert engine.next_wake_ns() == at(11).steady_ns
    assert not engine.check()
    assert the_end(engine.on_exited(a_job(), JobExit(signal=15), at(2)).effects) == (JobResult.ABORTED, "first")


def test_an_interruption_that_comes_before_the_process_takes_effect_when_it_is_there() -> None:
    engine = leased()
    engine.on_run(a_run(), at(0))

    assert engine.on_interrupt(Interrupt(a_job(), 1000, "preempted"), at(0)).effects == []
    assert engine.on_started(a_job(), 100, at(1)).effects[1:] == [Signal(a_job(), signal.SIGTERM)]


def test_a_kill_that_came_before_the_process_is_repeated_when_it_is_there() -> None:
    engine = leased()
    engine.on_run(a_run(), at(0))
    engine.on_interrupt(Interrupt(a_job(), 0, "preempted"), at(0))

    signals = engine.on_started(a_job(), 100, at(1)).effects[1:]

    assert signals == [Signal(a_job(), signal.SIGTERM), Signal(a_job(), signal.SIGKILL)]


def test_an_interruption_of_an_unknown_or_ended_job_is_ignored() -> None:
    engine = running()
    engine.on_exited(a_job(), JobExit(exit_code=0), at(1))

    assert engine.on_interrupt(Interrupt(a_job(), 1, "preempted"), at(2)).effects == []
    assert engine.on_interrupt(Interrupt(a_job(9), 1, "preempted"), at(2)).effects == []


def test_a_job_that_is_known_is_not_started_again_and_its_state_is_told() -> None:
    engine = running()
    started = Started(a_job(), 100, at(0).wall_ms, at(0).steady_ns)

    assert engine.on_run(a_run(), at(1)).effects == [SendToAgent(started)]
    end = engine.on_exited(a_job(), JobExit(exit_code=0), at(2)).effects
    assert engine.on_run(a_run(), at(3)).effects == end[1:]


def test_an_end_is_in_every_picture_until_it_is_acknowledged() -> None:
    engine = running(0, 1)
    engine.on_exited(a_job(1), JobExit(exit_code=0), at(2))

    picture = engine.on_hello(About("rlimit", "why", 7), at(3)).effects[0]
    assert isinstance(picture, SendToAgent)
    assert isinstance(picture.message, FullReport)
    assert [kept.run.job for kept in picture.message.running] == [a_job(0)]
    assert [end.key for end in picture.message.ended] == [a_job(1)]

    assert engine.on_acknowledge([a_job(1), a_job(0), a_job(5)], at(3)).effects == [Drop(a_job(1))]
    (picture,) = engine.on_hello(About("rlimit", "why", 7), at(3)).effects
    assert isinstance(picture, SendToAgent)
    assert isinstance(picture.message, FullReport)
    assert ([kept.run.job for kept in picture.message.running], picture.message.ended) == ([a_job(0)], [])


def test_a_job_that_cannot_be_started_has_failed() -> None:
    engine = leased()
    engine.on_run(a_run(), at(0))

    effects = engine.on_not_started(a_job(), "not started: work.py: no such file", 127, at(1)).effects

    assert the_end(effects) == (JobResult.FAILED, "not started: work.py: no such file")
    assert isinstance(effects[0], Keep)
    assert effects[0].end.not_started


def test_a_job_that_its_host_cannot_start_or_confine_counts_against_nobody() -> None:
    engine = leased()
    engine.on_run(a_run(), at(0))
    words = "not started: no space left on device"
    not_started = engine.on_not_started(a_job(), words, None, at(1)).effects
    confined = running(1)
    confined.on_not_confined(a_job(1), "its limits could not be set", at(0))
    ended = confined.on_exited(a_job(1), JobExit(signal=15), at(1)).effects

    assert the_end(not_started) == (JobResult.ABORTED, words)
    assert the_end(ended) == (JobResult.ABORTED, "its limits could not be set")
    for effects in (not_started, ended):
        assert [effect.message.is_host_fault for effect in effects if isinstance(effect, SendToAgent)] == [True]  # type: ignore[union-attr]


def test_what_a_job_cannot_go_on_without_ends_it_as_failed_even_if_it_is_interrupted_later() -> None:
    engine = running()

    assert engine.on_failure(a_job(), "the disk is full", at(0)).effects == [Signal(a_job(), signal.SIGTERM)]
    engine.on_interrupt(Interrupt(a_job(), 1, "preempted"), at(1))
    assert the_end(engine.on_exited(a_job(), JobExit(signal=15), at(1)).effects) == (
        JobResult.FAILED,
        "the disk is full",
    )


def test_when_the_lease_has_passed_all_jobs_end() -> None:
    engine = running(0, 1, engine=leased(100))

    assert engine.next_wake_ns() == at(100).steady_ns
    assert engine.on_time(at(99)).effects == []
    assert engine.on_time(at(100)).effects == [Signal(a_job(0), signal.SIGTERM), Signal(a_job(1), signal.SIGTERM)]
    assert engine.next_wake_ns() == at(5_100).steady_ns
    assert engine.on_time(at(101)).effects == []
    result, reason = the_end(engine.on_exited(a_job(0), JobExit(signal=15), at(102)).effects)
    assert (result, reason[:27]) == (JobResult.ABORTED, "the lease of the node ended")


def test_a_job_that_outlives_its_lease_is_killed_when_the_time_that_came_with_the_lease_has_passed() -> None:
    engine = RunnerEngine()
    engine.on_lease(NodeLease(at(100).steady_ns, timeout_ms=20), at(0))
    engine.on_lease(NodeLease(at(50).steady_ns, timeout_ms=9), at(0))
    running(engine=engine)

    assert engine.on_time(at(100)).effects == [Signal(a_job(), signal.SIGTERM)]
    assert engine.on_time(at(119)).effects == []
    assert engine.on_time(at(120)).effects == [Signal(a_job(), signal.SIGKILL)]


def test_a_runner_that_wakes_long_after_its_lease_kills_at_once() -> None:
    engine = RunnerEngine()
    engine.on_lease(NodeLease(at(100).steady_ns, timeout_ms=20), at(0))
    running(engine=engine)

    assert engine.on_time(at(110)).effects == [Signal(a_job(), signal.SIGTERM)]
    assert engine.next_wake_ns() == at(120).steady_ns

    engine = RunnerEngine()
    engine.on_lease(NodeLease(at(100).steady_ns, timeout_ms=20), at(0))
    running(engine=engine)

    assert engine.on_time(at(121)).effects == [Signal(a_job(), signal.SIGTERM), Signal(a_job(), signal.SIGKILL)]


def test_a_lease_that_began_after_the_one_before_had_passed_does_not_save_the_jobs() -> None:
    """A host slept with its jobs, and its agent wakes before its runner looks at the time: the jobs run elsewhere by now."""
    engine = running(engine=leased(100))

    ended = engine.on_lease(NodeLease(at(9_000).steady_ns, since_boottime_ns=at(7_000).steady_ns), at(7_001)).effects

    assert ended == [Signal(a_job(), signal.SIGTERM), Signal(a_job(), signal.SIGKILL)]
    assert engine.on_run(a_run(1), at(7_002)).effects == [Launch(a_run(1))]
    assert engine.check() == []


def test_leases_that_followed_one_another_while_the_runner_was_frozen_let_the_jobs_go_on() -> None:
    engine = running(engine=leased(100))

    assert engine.on_lease(NodeLease(at(9_000).steady_ns, since_boottime_ns=at(0).steady_ns), at(7_001)).effects == []


def test_a_later_lease_lets_jobs_go_on_and_an_earlier_one_changes_nothing() -> None:
    engine = running(engine=leased(100))
    engine.on_lease(NodeLease(at(500).steady_ns), at(0))
    engine.on_lease(NodeLease(at(50).steady_ns), at(0))

    assert engine.on_time(at(499)).effects == []
    assert engine.on_time(at(500)).effects != []


def test_a_runner_that_was_told_no_lease_starts_nothing_and_says_so() -> None:
    engine = RunnerEngine()

    assert the_end(engine.on_run(a_run(), at(0)).effects) == (
        JobResult.ABORTED,
        "not started: the runner has no lease yet",
    )
    assert engine.next_wake_ns() is None
    assert engine.on_time(at(10**12)).effects == []


def test_no_job_starts_after_the_lease_until_there_is_a_new_one() -> None:
    engine = leased(100)

    assert the_end(engine.on_run(a_run(), at(100)).effects)[0] is JobResult.ABORTED
    engine.on_lease(NodeLease(at(1000).steady_ns), at(101))
    assert engine.on_run(a_run(1), at(102)).effects == [Launch(a_run(1))]


def test_when_everything_is_to_end_jobs_are_interrupted_none_starts_and_the_last_lets_the_runner_go() -> None:
    engine = running(0, 1)

    effects = engine.on_end_all(EndAll(1000, "stopping"), at(0)).effects
    assert effects == [Signal(a_job(0), signal.SIGTERM), Signal(a_job(1), signal.SIGTERM)]
    assert not engine.check()
    assert the_end(engine.on_run(a_run(2), at(1)).effects)[0] is JobResult.ABORTED
    assert EndRunner() not in engine.on_exited(a_job(0), JobExit(signal=15), at(2)).effects
    assert engine.on_exited(a_job(1), JobExit(signal=15), at(2)).effects[-1] == EndRunner()


def test_when_nothing_runs_the_runner_goes_at_once() -> None:
    assert RunnerEngine().on_end_all(EndAll(1000, "stopping"), at(0)).effects == [EndRunner()]


def test_a_process_that_cannot_be_killed_does_not_keep_the_runner() -> None:
    engine = running()
    engine.on_end_all(EndAll(1000, "stopping"), at(0))

    assert EndRunner() not in engine.on_time(at(1000 + KILL_TIMEOUT_MS - 1)).effects
    assert EndRunner() in engine.on_time(at(1000 + KILL_TIMEOUT_MS)).effects


def test_a_job_too_many_is_ended_and_says_so() -> None:
    engine = running(0, 1, engine=leased(most_jobs=2))

    result, reason = the_end(engine.on_run(a_run(2), at(1)).effects)

    assert result is JobResult.ABORTED
    assert "2 jobs run, and the limit of open files" in reason


def test_a_job_with_a_device_of_a_live_job_ends_as_a_fault_of_the_host_and_starts_once_the_device_is_free() -> None:
    engine = leased()
    engine.on_run(a_run(0, gpus=("0", "1")), at(0))
    engine.on_started(a_job(0), 100, at(0))
    refused = engine.on_run(a_run(1, gpus=("2", "1")), at(1)).effects
    other = a_run(2, gpus=("2",))

    assert the_end(refused) == (
        JobResult.ABORTED,
        f"not started: job 0 of operation {OPERATION} still has GPU device 1",
    )
    assert [effect.message.is_host_fault for effect in refused if isinstance(effect, SendToAgent)] == [True]  # type: ignore[union-attr]
    assert engine.on_run(other, at(1)).effects == [Launch(other)]
    engine.on_exited(a_job(0), JobExit(exit_code=0), at(2))
    again = a_run(1, gpus=("0", "1"), job=a_job(1, attempt=2))
    assert engine.on_run(again, at(3)).effects == [Launch(again)]
    assert engine.check() == []


def test_a_queued_job_does_not_start_with_a_device_of_another_job() -> None:
    engine = leased()
    engine.on_run(a_run(0, gpus=("0",)), at(0))
    engine.on_run(a_run(1, gpus=("1",), allocation="alloc-2"), at(0))
    engine.on_run_ahead(RunAhead(a_run(2, gpus=("0",), allocation="alloc-2")), at(0))
    for index in range(2):
        engine.on_started(a_job(index), 100 + index, at(0))

    effects = engine.on_exited(a_job(1), JobExit(exit_code=0), at(1)).effects

    assert not [effect for effect in effects if isinstance(effect, Launch)]


def test_ends_of_a_former_runner_are_told_again() -> None:
    former = running()
    kept = former.on_exited(a_job(), JobExit(exit_code=0), at(1)).effects[0]
    assert isinstance(kept, Keep)

    engine = RunnerEngine()
    engine.on_recovered([kept.end], at(2))

    assert engine.on_run(a_run(), at(2)).effects == [SendToAgent(Ended(kept.end))]


def test_a_broken_invariant_is_told_in_words() -> None:
    engine = running(0, 1, 2)
    engine.on_interrupt(Interrupt(a_job(0), 1000, "preempted"), at(0))
    engine._interruptions.awaited.clear()
    engine._live[a_job(1)].state = JobState.ENDED
    engine._live[a_job(3)] = engine._live.pop(a_job(2))

    broken = engine.check()

    assert len(broken) == 3
    assert broken[0].endswith("(JobState.INTERRUPTED): its deadline is not awaited")
    assert broken[1].endswith("(JobState.ENDED): it is listed as live, but has ended")
    assert broken[2].endswith("it is listed under another key")


def test_figures_count_jobs_and_ends() -> None:
    engine = running(0, 1)
    engine.on_exited(a_job(1), JobExit(exit_code=0), at(2))

    assert {each.name: each.value for each in engine.figures()} == {
        "live_jobs": 1,
        "unacknowledged_ends": 1,
        "deadlines": 0,
        "leases_seen_late": 0,
    }


def test_asking_when_to_wake_changes_nothing() -> None:
    engine = running()
    engine.on_interrupt(Interrupt(a_job(), 1_000, "taken back"), at(0))
    engine.on_exited(a_job(), JobExit(exit_code=0), at(10))
    before = engine.figures()

    engine.next_wake_ns()

    assert engine.figures() == before
    assert engine.on_time(at(1_000)).effects == []


def test_the_end_of_a_job_that_was_preempted_carries_the_record_and_an_end_before_the_signal_none() -> None:
    record = PreemptionRecord(PreemptionReason.PREEMPTION, OperationId("wants-it"), share_before=(0.5,) * 5)
    order = Interrupt(a_job(), 1000, "preempted", msgspec.msgpack.encode(record))

    def record_of_end(main_ended_ms: int) -> PreemptionRecord | None:
        engine = running()
        engine.on_interrupt(order, at(5))
        exit = JobExit(exit_code=0, main_ended_ns=at(main_ended_ms).steady_ns)
        kept = engine.on_exited(a_job(), exit, at(9)).effects[0]
        assert isinstance(kept, Keep)
        return kept.end.preemption

    assert record_of_end(7) == record
    assert record_of_end(3) is None


def test_the_end_of_each_job_says_how_its_allocation_started() -> None:
    record = StartRecord(StartStage.PREEMPTIVE_NORMAL, (0.25,) * 5, (0.5,) * 5, 1)
    engine = leased()
    run = a_run(0, start=record)
    engine.on_run(run, at(0))
    engine.on_started(run.job, 100, at(0))

    kept = engine.on_exited(run.job, JobExit(exit_code=0), at(9)).effects[0]

    assert isinstance(kept, Keep)
    assert kept.end.start == record


def test_a_job_with_a_file_for_it_is_told_before_the_signal_when_it_is_killed_and_again_when_that_is_earlier() -> None:
    engine = leased()
    run = a_run(0, deadline_file="/x/deadline")
    engine.on_run(run, at(0))
    engine.on_started(run.job, 100, at(0))

    assert engine.on_interrupt(Interrupt(run.job, 30_000, "preempted"), at(5)).effects == [
        TellDeadline("/x/deadline", at(30_005).wall_ms),
        Signal(run.job, signal.SIGTERM),
    ]
    assert not engine.on_interrupt(Interrupt(run.job, 60_000, "again"), at(6)).effects
    earlier = engine.on_interrupt(Interrupt(run.job, 10_000, "sooner"), at(7)).effects
    assert list(earlier) == [TellDeadline("/x/deadline", at(10_007).wall_ms)]
    assert [type(effect) for effect in engine.on_time(at(10_007)).effects] == [Signal]
    assert engine.check() == []


def test_a_job_that_has_no_time_is_not_told_of_a_deadline() -> None:
    engine = leased()
    run = a_run(0, deadline_file="/x/deadline")
    engine.on_run(run, at(0))
    engine.on_started(run.job, 100, at(0))

    effects = engine.on_interrupt(Interrupt(run.job, 0, "aborted"), at(5)).effects

    assert [type(effect) for effect in effects] == [Signal, Signal]


def with_ahead(*indexes: int, engine: RunnerEngine | None = None) -> RunnerEngine:
    """Job 0 runs, and these are ahead in its allocation."""
    engine = running(0, engine=engine)
    for index in indexes:
        assert not engine.on_run_ahead(RunAhead(a_run(index)), at(0)).effects
    return engine


def launched(effects: Sequence[RunnerEffect]) -> list[Run]:
    return [effect.run for effect in effects if isinstance(effect, Launch)]


def followers(effects: Sequence[RunnerEffect]) -> list[object]:
    return [e.message.followed_by for e in effects if isinstance(e, SendToAgent) and isinstance(e.message, Ended)]


@pytest.mark.parametrize("exit_code", [0, 1])
def test_what_is_ahead_starts_when_the_job_before_it_has_ended_by_itself(exit_code: int) -> None:
    engine = with_ahead(1, 2)

    effects = engine.on_exited(a_job(0), JobExit(exit_code=exit_code), at(5)).effects
    engine.on_started(a_job(1), 101, at(5))
    later = engine.on_exited(a_job(1), JobExit(exit_code=0), at(6)).effects

    assert ([a_run(1)], [a_job(1)]) == (launched(effects), followers(effects))
    assert ([a_run(2)], [a_job(2)]) == (launched(later), followers(later))
    assert not engine.check()


def test_nothing_follows_a_job_that_was_stopped() -> None:
    engine = with_ahead(1)
    engine.on_interrupt(Interrupt(a_job(0), 1_000, "why"), at(1))

    effects = engine.on_exited(a_job(0), JobExit(exit_code=0), at(5)).effects

    assert (launched(effects), followers(effects)) == ([], [None])


def test_what_is_recalled_does_not_start_and_that_is_said() -> None:
    engine = with_ahead(1, 2)

    told = engine.on_recall(Recall("alloc-1"), at(1)).effects
    effects = engine.on_exited(a_job(0), JobExit(exit_code=0), at(5)).effects

    assert [SendToAgent(Recalled("alloc-1"))] == told
    assert (launched(effects), followers(effects)) == ([], [None])


def test_of_an_allocation_without_a_job_nothing_is_kept_ahead_and_a_recall_is_answered() -> None:
    engine = leased()

    engine.on_run_ahead(RunAhead(a_run(1)), at(0))
    told = engine.on_recall(Recall("alloc-1"), at(0)).effects
    running(0, engine=engine)
    effects = engine.on_exited(a_job(0), JobExit(exit_code=0), at(5)).effects

    assert [SendToAgent(Recalled("alloc-1"))] == told
    assert launched(effects) == []


def test_what_one_agent_told_ahead_does_not_start_once_another_has_come() -> None:
    engine = with_ahead(1)

    [told] = engine.on_hello(About("none", "", 1), at(1)).effects
    effects = engine.on_exited(a_job(0), JobExit(exit_code=0), at(5)).effects

    assert isinstance(told, SendToAgent)
    assert isinstance(told.message, FullReport)
    assert told.message.runs_ahead
    assert launched(effects) == []


def test_what_is_ahead_does_not_start_when_the_lease_has_passed_or_all_is_to_end() -> None:
    late = with_ahead(1, engine=leased(until_ms=10))
    ending = with_ahead(1)
    ending.on_end_all(EndAll(1_000, "all"), at(1))

    for engine in (late, ending):
        assert launched(engine.on_exited(a_job(0), JobExit(exit_code=0), at(50)).effects) == []


def test_what_is_ahead_goes_with_a_job_that_cannot_be_started() -> None:
    engine = with_ahead(1, 2)
    engine.on_exited(a_job(0), JobExit(exit_code=0), at(5))

    effects = engine.on_not_started(a_job(1), "no such command", 127, at(5)).effects

    assert (launched(effects), followers(effects)) == ([], [None])
    assert not engine.check()


@pytest.mark.parametrize("index", [0, 1])
def test_a_job_that_is_known_already_does_not_follow(index: int) -> None:
    engine = with_ahead(index)
    engine.on_run(a_run(1, allocation="alloc-2"), at(1))

    effects = engine.on_exited(a_job(0), JobExit(exit_code=0), at(5)).effects

    assert (launched(effects), followers(effects)) == ([], [None])
