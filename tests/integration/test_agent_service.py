"""The agent's process against a real nats-server, with a real runner and real jobs."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import psutil
import pytest

from headrace.bus import Bus, Message, RequestTimeout
from headrace.ids import NodeName, OperationId
from headrace.wire import subjects
from headrace.wire.codec import decode, encode
from headrace.wire.figures import FiguresAnswer, FiguresRequest
from headrace.wire.heartbeat import AllocationState, HeartbeatReason, JobResult, NodeState, Nudge
from headrace.wire.logs import LogChunk, LogStream, ReadLog
from headrace.wire.refusals import NotAllowed, NotFound, Refusal
from headrace.wire.version import WhoAnswer, WhoRequest
from tests.support.agent_world import (
    NODE,
    AgentProcess,
    FakeAllocator,
    agent,
    allocator,
    bus_as,
    start_of,
    take_back_of,
)
from tests.support.nats_server import NatsServer, nats_server

OPERATION = "op-00000001"
#: Runs until it is told to end, and says that it runs.
_SLEEP = "echo started; exec sleep 600"


@asynccontextmanager
async def running(tmp_path: Path, **settings: str) -> AsyncIterator[tuple[NatsServer, FakeAllocator, AgentProcess]]:
    with nats_server(jetstream=False) as server:
        async with allocator(server) as fake, agent(server, tmp_path / "state", **settings) as process:
            yield server, fake, process


async def ask(bus: Bus, request: ReadLog, user: str = "ann") -> LogChunk | Refusal:
    subject = subjects.user(user, f"job.logs.{NODE}")
    data = await bus.request(subject, encode(request), timeout_s=5)
    return decode(data, LogChunk | Refusal)  # type: ignore[arg-type]


async def first_bytes(bus: Bus, request: ReadLog) -> LogChunk:
    """Asks again until the job has written something."""
    with anyio.fail_after(20):
        while True:
            chunk = await ask(bus, request)
            assert isinstance(chunk, LogChunk), chunk
            if chunk.data:
                return chunk
            await anyio.sleep(0.02)


async def read_until_ended(bus: Bus, request: ReadLog) -> bytes:
    """Follows a log to its end."""
    found = b""
    with anyio.fail_after(20):
        while True:
            chunk = await ask(bus, request)
            assert isinstance(chunk, LogChunk), chunk
            found += chunk.data
            if chunk.ended:
                return found
            request = ReadLog(request.operation, request.index, request.attempt, request.stream, chunk.next_offset)
            await anyio.sleep(0.02)


async def test_the_jobs_of_an_allocation_run_one_after_another_and_their_ends_are_reported(tmp_path: Path) -> None:
    async with running(tmp_path) as (_, fake, _):
        fake.give(start_of("exit $HEADRACE_JOB_INDEX", slots=3))
        ends = [await fake.ended(OPERATION, index) for index in range(3)]
        last = await fake.heard(lambda heartbeat: heartbeat.applied > 0 and not heartbeat.allocations)

    assert [end.result for end in ends] == [JobResult.COMPLETED, JobResult.FAILED, JobResult.FAILED]
    assert [end.exit_code for end in ends] == [0, 1, 2]
    assert last.trouble == ""


async def test_an_agent_whose_folder_is_in_use_says_by_whom_and_ends(tmp_path: Path) -> None:
    async with running(tmp_path) as (server, fake, first):
        await fake.heard(lambda heartbeat: heartbeat.applied > 0)
        (tmp_path / "other").mkdir()
        (tmp_path / "other" / "state").symlink_to(first.state)
        async with agent(server, tmp_path / "other" / "state") as second:
            status = await second.wait()
            words = second.log()

    assert status == 1
    assert f"another agent (pid {first.process.pid}) uses {tmp_path}/other/state; nothing was changed" in words
    assert "Traceback" not in words


async def test_a_node_enrols_before_its_first_heartbeat_and_again_when_it_is_not_known(tmp_path: Path) -> None:
    async with running(tmp_path, tags="fast, gpu", containers="off") as (_, fake, _):
        await fake.heard(lambda heartbeat: heartbeat.applied > 0)
        fake.knows_node = False
        await fake.heard_next(lambda _: fake.knows_node)

    assert len(fake.enrolments) == 2
    assert (fake.enrolments[0].node, fake.enrolments[0].tags) == (NODE, ["fast", "gpu"])


async def test_a_job_sees_a_clean_environment(tmp_path: Path) -> None:
    async with running(tmp_path) as (server, fake, process), bus_as(server, "user", "ann") as ann:
        fake.give(start_of("env; command -v python >&2"))
        await fake.ended(OPERATION, 0)
        told = (await read_until_ended(ann, ReadLog(OperationId(OPERATION), 0))).decode()
        python = await read_until_ended(ann, ReadLog(OperationId(OPERATION), 0, stream=LogStream.STDERR))
        of_runner = psutil.Process(process.runner_pid()).environ()

    environment = dict(line.split("=", 1) for line in told.splitlines())
    assert {"HEADRACE_OPERATION_ID", "HEADRACE_POOL", "HOME", "LANG", "PATH", "USER"} <= environment.keys()
    assert "not for jobs" not in told
    assert not [name for name in environment if "NATS" in name or "SECRET" in name or "PYTEST" in name]
    assert python.strip(), "python is found"
    assert not [name for name in of_runner if name.startswith("HEADRACE")], "jobs of the same user can read these"


async def test_a_restarted_agent_adopts_what_runs(tmp_path: Path) -> None:
    with nats_server(jetstream=False) as server:
        async with allocator(server) as fake, agent(server, tmp_path / "state") as first:
            fake.give(start_of(_SLEEP, slots=3))
            before = await fake.running("a-1")
            first.send(signal.SIGKILL)
            await first.wait()
            runner = first.runner_pid()
            former = fake.heartbeats[-1].incarnation
            fake.heartbeats.clear()
            async with agent(server, tmp_path / "state") as second:
                told = await fake.heard(lambda _: True)
                fake.give(take_back_of("a-1", timeout_ms=3_000))
                end = await fake.ended(OPERATION, 0)
                same = second.runner_pid() == runner

    assert same
    assert told.seq == 1
    assert int(told.incarnation.partition("-")[0]) > int(former.partition("-")[0])
    assert [(a.id, a.state, a.unstarted) for a in told.allocations] == [("a-1", AllocationState.RUNNING, [])]
    job = told.allocations[0].job
    assert before.job is not None
    assert job is not None
    assert (before.job.index, before.job.started_at_ms) == (job.index, job.started_at_ms)
    assert end.result == JobResult.ABORTED


async def test_where_what_the_runner_keeps_cannot_be_written_no_more_jobs_start_once_one_has_failed(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as (_, fake, _):
        await fake.heard(lambda heartbeat: heartbeat.applied > 0 and not heartbeat.trouble)
        jobs = tmp_path / "state" / "jobs"
        jobs.rename(tmp_path / "moved")
        jobs.write_text("")
        fake.give(start_of("true"))
        end = await fake.ended(OPERATION, 0)
        told = await fake.heard(lambda heartbeat: bool(heartbeat.trouble))
        jobs.unlink()
        (tmp_path / "moved").rename(jobs)
        await fake.heard_next(lambda heartbeat: not heartbeat.trouble)

    assert "cannot be written: Not a directory" in end.reason
    assert "cannot be written: Not a directory" in told.trouble


async def test_when_the_runner_is_killed_its_jobs_are_lost_and_others_start_at_the_next(tmp_path: Path) -> None:
    async with running(tmp_path) as (_, fake, process):
        fake.give(start_of(_SLEEP))
        await fake.running("a-1")
        killed = process.runner_pid()
        os.kill(killed, signal.SIGKILL)
        end = await fake.ended(OPERATION, 0)
        await fake.heard_next(lambda heartbeat: not heartbeat.trouble)
        fake.give(start_of("true", operation="op-00000002", allocation="a-2"))
        after = await fake.ended("op-00000002", 0)

        assert killed != process.runner_pid()
    assert end.result == JobResult.LOST
    assert after.result == JobResult.COMPLETED


async def test_logs_are_read_while_a_job_runs_and_after_it(tmp_path: Path) -> None:
    async with running(tmp_path) as (server, fake, _), bus_as(server, "user", "ann") as ann:
        fake.give(
            start_of("mkfifo f; echo $PWD; read line < f; echo second", operation="op-00000002", allocation="a-2")
        )
        await fake.running("a-2")
        request = ReadLog(OperationId("op-00000002"), 0)
        chunk = await first_bytes(ann, request)
        folder = Path(chunk.data.decode().strip())
        await anyio.to_thread.run_sync((folder / "f").write_text, "go\n")
        rest = await read_until_ended(ann, ReadLog(OperationId("op-00000002"), 0, offset=chunk.next_offset))

    assert not chunk.ended
    assert chunk.attempt == 1
    assert rest == b"second\n"


async def test_logs_of_what_never_ran_here_are_not_found(tmp_path: Path) -> None:
    async with running(tmp_path) as (server, fake, _), bus_as(server, "user", "ann") as ann:
        await fake.heard(lambda _: True)
        strange = await ask(ann, ReadLog(OperationId("op-unknown-1"), 3))
        path = await ask(ann, ReadLog(OperationId("../../../etc"), 0))

    assert NotFound(what="job", name="op-unknown-1.3.newest") == strange
    assert not isinstance(path, LogChunk)


async def test_logs_are_for_those_of_whom_admission_says_so(tmp_path: Path) -> None:
    async with running(tmp_path) as (server, fake, _), bus_as(server, "user", "bob") as bob:
        fake.give(start_of("echo secret"))
        await fake.ended(OPERATION, 0)
        refused = await ask(bob, ReadLog(OperationId(OPERATION), 0), "bob")

    assert refused == NotAllowed("bob", "read that")


async def test_a_caller_who_wants_the_answer_in_another_inbox_gets_none(tmp_path: Path) -> None:
    async with running(tmp_path) as (server, fake, process), bus_as(server, "user", "ann") as ann:
        await fake.heard(lambda _: True)
        with pytest.raises(RequestTimeout):
            await ann.request(
                subjects.user("bob", f"job.logs.{NODE}"), encode(ReadLog(OperationId(OPERATION), 0)), timeout_s=0.3
            )

        assert "forged message" in process.log()


async def test_a_nudge_is_followed_by_a_heartbeat(tmp_path: Path) -> None:
    async with running(tmp_path) as (server, fake, _), bus_as(server, "service", "other") as other:
        fake.pace_ms = 60_000
        await fake.heard(lambda _: True)
        await other.publish(subjects.nudge(NODE), encode(Nudge(NodeName("node-2"), 9)))
        await other.publish(subjects.nudge(NODE), b"\xc1 rubbish")
        await other.publish(subjects.nudge(NODE), encode(Nudge(NODE, 1)))
        nudged = await fake.heard(lambda heartbeat: heartbeat.reason is HeartbeatReason.NUDGED)

    assert nudged.node == NODE


async def test_the_agent_remembers_the_allocators_term_for_those_who_ask(tmp_path: Path) -> None:
    async with running(tmp_path) as (server, fake, _), bus_as(server, "service", "other") as other:
        fake.term = 7
        await fake.heard(lambda heartbeat: heartbeat.term == 7)
        answers = await other.gather(subjects.WHO, encode(WhoRequest("allocator.default")), wait_s=0.3)

    assert [(answer.term, answer.peer) for answer in (decode(data, WhoAnswer) for data in answers)] == [(7, "agent")]


async def test_the_agent_answers_with_its_figures(tmp_path: Path) -> None:
    async with running(tmp_path) as (server, fake, _), bus_as(server, "service", "other") as other:
        fake.give(start_of("sleep 60"))
        await fake.running("a-1")
        answer = decode(await other.request(subjects.FIGURES, encode(FiguresRequest()), timeout_s=5), FiguresAnswer)

    told = {figure.name: figure.value for figure in answer.figures}
    assert (answer.service, answer.role) == ("agent", "")
    assert (told["allocations_running"], told["jobs"], told["broken_invariants"]) == (1, 1, 0)


async def test_sigterm_interrupts_the_jobs_and_nothing_of_ours_runs_afterwards(tmp_path: Path) -> None:
    async with running(tmp_path) as (_, fake, process):
        fake.give(start_of("trap 'exit 3' TERM; echo started; while :; do sleep 0.05; done"))
        await fake.running("a-1")
        runner = process.runner_pid()
        process.send(signal.SIGTERM)
        end = await fake.ended(OPERATION, 0)
        status = await process.wait()

    assert status == 0
    assert (end.result, end.exit_code) == (JobResult.ABORTED, 3)
    assert fake.heartbeats[-1].state == NodeState.STOPPING
    assert not psutil.pid_exists(runner)


async def test_a_stop_that_waits_lets_the_job_end(tmp_path: Path) -> None:
    async with running(tmp_path) as (server, fake, process):
        fake.give(start_of("mkfifo f; echo $PWD; read line < f", slots=2))
        await fake.running("a-1")
        process.send(signal.SIGUSR1)
        draining = await fake.heard(lambda heartbeat: heartbeat.state is NodeState.DRAINING)
        await fake.heard(lambda beat: [found.state for found in beat.allocations] == [AllocationState.CLOSING])
        async with bus_as(server, "user", "ann") as ann:
            chunk = await first_bytes(ann, ReadLog(OperationId(OPERATION), 0))
        await anyio.to_thread.run_sync((Path(chunk.data.decode().strip()) / "f").write_text, "go\n")
        end = await fake.ended(OPERATION, 0)
        status = await process.wait()

    assert [found.id for found in draining.allocations] == ["a-1"]
    assert (end.result, status) == (JobResult.COMPLETED, 0)


async def test_sigusr2_leaves_the_jobs_running_for_the_next_agent(tmp_path: Path) -> None:
    with nats_server(jetstream=False) as server:
        async with allocator(server) as fake, agent(server, tmp_path / "state") as first:
            fake.give(start_of(_SLEEP))
            await fake.running("a-1")
            first.send(signal.SIGUSR2)
            status = await first.wait()
            fake.heartbeats.clear()
            async with agent(server, tmp_path / "state"):
                told = await fake.heard(lambda _: True)

    assert status == 0
    assert [found.id for found in told.allocations] == ["a-1"]


async def test_sigquit_kills_the_jobs_and_goes(tmp_path: Path) -> None:
    async with running(tmp_path) as (_, fake, process):
        fake.give(start_of("trap '' TERM; echo started; while :; do sleep 0.05; done"))
        await fake.running("a-1")
        runner = psutil.Process(process.runner_pid())
        below = runner.children(recursive=True)
        process.send(signal.SIGQUIT)
        status = await process.wait()

    assert status == 0
    assert below
    assert not [found for found in [runner, *below] if found.is_running() and found.status() != psutil.STATUS_ZOMBIE]


async def test_an_agent_without_an_allocator_still_stops(tmp_path: Path) -> None:
    with nats_server(jetstream=False) as server:
        async with bus_as(server, "service", "admission") as admission:
            asked = anyio.Event()

            async def silent(_: Message) -> None:
                asked.set()

            await admission.serve(subjects.enrol("*"), silent)
            async with agent(server, tmp_path / "state") as process:
                with anyio.fail_after(20):
                    await asked.wait()
                process.send(signal.SIGTERM)
                status = await process.wait()

    assert status == 0


async def test_a_heartbeat_that_was_not_answered_is_followed_by_another_and_the_jobs_run_on(tmp_path: Path) -> None:
    async with running(tmp_path, heartbeat_timeout_ms="200") as (_, fake, _):
        fake.give(start_of(_SLEEP))
        await fake.running("a-1")
        fake.answers = False
        deaf = await fake.heard_next(lambda _: True)
        fake.answers = True
        again = await fake.heard(lambda heartbeat: heartbeat.seq > deaf.seq)
        healed = await fake.heard(lambda heartbeat: heartbeat.applied > deaf.seq)

    assert (deaf.seq + 1, deaf.applied) == (again.seq, again.applied)
    assert ["a-1"] == [found.id for found in again.allocations] == [found.id for found in healed.allocations]


async def test_answers_that_are_rubbish_change_nothing(tmp_path: Path) -> None:
    async with running(tmp_path) as (_, fake, process):
        fake.rubbish = b"\xc1 rubbish"
        await fake.heard_next(lambda _: not fake.rubbish)
        fake.give(start_of("true"))
        end = await fake.ended(OPERATION, 0)

        assert process.log().count('"malformed message"') == 1
    assert end.result == JobResult.COMPLETED


async def test_a_second_agent_of_a_state_folder_goes_and_changes_nothing(tmp_path: Path) -> None:
    async with running(tmp_path) as (server, fake, first):
        fake.give(start_of(_SLEEP))
        await fake.running("a-1")
        second = AgentProcess(server, tmp_path / "state")
        status = await second.wait()
        after = await fake.heard_next(lambda _: True)

        assert f"another agent (pid {first.process.pid}) uses" in second.log()
        assert first.process.poll() is None
    assert status == 1
    assert [found.id for found in after.allocations] == ["a-1"]
    assert len({heartbeat.incarnation for heartbeat in fake.heartbeats}) == 1


async def test_a_node_whose_runner_cannot_start_says_so_and_gives_its_jobs_back(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file where a folder should be")
    async with running(tmp_path) as (_, fake, _):
        told = await fake.heard(lambda heartbeat: bool(heartbeat.trouble))
        fake.give(start_of("true"))
        back = await fake.heard(lambda heartbeat: bool(heartbeat.allocations))

    assert "no runner can be started" in told.trouble
    assert (back.allocations[0].state, len(back.allocations[0].unstarted)) == (AllocationState.ENDED, 1)
