"""The agent's process against a real nats-server, with real jobs."""

from __future__ import annotations

from pathlib import Path

from headrace.wire.heartbeat import JobResult
from tests.support.agent_world import agent, allocator, start_of
from tests.support.nats_server import nats_server


async def test_the_jobs_of_an_allocation_run_one_after_another_and_their_ends_are_reported(tmp_path: Path) -> None:
    with nats_server() as server:
        async with allocator(server) as fake, agent(server, tmp_path / "state"):
            fake.give(start_of("echo job $HEADRACE_JOB_INDEX; exit $HEADRACE_JOB_INDEX", slots=3))
            ends = [await fake.ended("op-00000001", index) for index in range(3)]

    assert [end.result for end in ends] == [JobResult.COMPLETED, JobResult.FAILED, JobResult.FAILED]
    assert [end.exit_code for end in ends] == [0, 1, 2]
