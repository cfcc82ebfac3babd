"""Jobs that are interrupted: a real agent and runner, and scripts that understand the signal, or do not."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import msgspec
import psutil
import pytest

from headrace.ids import OperationId
from headrace.wire.heartbeat import AllocationReport, AllocationState, Heartbeat, JobResult, Start, TakeBack
from headrace.wire.preemption import InterruptSignal, PreemptionReason, PreemptionRecord
from tests.support.agent_world import FakeAllocator, agent, allocator, start_of, take_back_of
from tests.support.nats_server import nats_server

pytestmark = pytest.mark.long

OPERATION = "op-00000001"
RECORD = PreemptionRecord(
    PreemptionReason.PREEMPTION,
    OperationId("op-of-others"),
    decided_at_ms=1_700_000_000_000,
    timeout_ms=60_000,
    threshold=1.0,
    fair_share=(0.25,) * 5,
    share_before=(0.5,) * 5,
    share_after=(0.25,) * 5,
)
#: Counts up in a file, and says that it is ready for the signal.
_COUNT = """
count=$(cat {folder}/count 2>/dev/null || echo 0)
trap 'echo $count > {folder}/count; exit 75' {signal}
echo $count >> {folder}/began
while [ $count -lt {goal} ]; do sleep 0.01; count=$((count + 1)); done
"""
_DEAF = "trap '' TERM; echo > {folder}/began; while :; do sleep 0.05; done"
_DONE = "trap 'exit 0' TERM; echo > {folder}/began; while :; do sleep 0.01; done"


def a_start(script: str, folder: Path, *, sign: InterruptSignal = InterruptSignal.SIGTERM, **changes: object) -> Start:
    """A start of an interruptible job, whose script finds a folder of its own."""
    start = start_of(script.format(folder=folder, signal=sign.removeprefix("SIG"), goal=changes.pop("goal", 10**6)))
    assert start.spec is not None
    interruptible = bool(changes.pop("interruptible", True))
    spec = msgspec.structs.replace(start.spec, interruptible=interruptible, interrupt_signal=sign)
    return msgspec.structs.replace(start, spec=spec, **changes)


def a_preemption(timeout_ms: int = 60_000) -> TakeBack:
    return msgspec.structs.replace(take_back_of("a-1", timeout_ms), detail="for research", preemption=RECORD)


async def ready(fake: FakeAllocator, folder: Path, times: int = 1) -> None:
    """Waits until the script has set its trap."""

    def is_ready(_: Heartbeat) -> bool:
        file = folder / "began"
        return file.exists() and len(file.read_text().splitlines()) >= times

    await fake.heard_next(is_ready)


def shows(state: AllocationState, allocation: str = "a-1") -> Callable[[Heartbeat], bool]:
    return lambda heartbeat: report_of(heartbeat, allocation, state) is not None


def report_of(heartbeat: Heartbeat, allocation: str, state: AllocationState) -> AllocationReport | None:
    return next((one for one in heartbeat.allocations if (one.id, one.state) == (allocation, state)), None)


@pytest.mark.parametrize("sign", [InterruptSignal.SIGTERM, InterruptSignal.SIGUSR1, InterruptSignal.SIGINT])
async def test_a_job_saves_its_state_and_goes_on_where_it_was(tmp_path: Path, sign: InterruptSignal) -> None:
    state = tmp_path / "state"
    with nats_server(jetstream=False) as server:
        async with allocator(server) as fake, agent(server, state):
            fake.give(a_start(_COUNT, tmp_path, sign=sign))
            await ready(fake, tmp_path)
            fake.give(a_preemption())
            saved = await fake.ended(OPERATION, 0)
            count = int((tmp_path / "count").read_text())
            again = a_start(_COUNT, tmp_path, sign=sign, goal=count, allocation="a-2")
            slots = [msgspec.structs.replace(slot, attempt=2) for slot in again.slots]
            fake.give(msgspec.structs.replace(again, slots=slots))
            done = await fake.ended(OPERATION, 0, attempt=2)

    assert (saved.result, saved.exit_code) == (JobResult.ABORTED, 75)
    assert saved.reason == "state saved for a retry; preempted: for research"
    assert (done.result, done.exit_code) == (JobResult.COMPLETED, 0)
    assert (tmp_path / "began").read_text() == f"0\n{count}\n"


@pytest.mark.parametrize(("interruptible", "result"), [(True, JobResult.COMPLETED), (False, JobResult.ABORTED)])
async def test_a_job_that_ends_with_0_after_the_signal_is_done_only_if_it_understands_it(
    tmp_path: Path, interruptible: bool, result: JobResult
) -> None:
    with nats_server(jetstream=False) as server:
        async with allocator(server) as fake, agent(server, tmp_path / "state"):
            fake.give(a_start(_DONE, tmp_path, interruptible=interruptible))
            await ready(fake, tmp_path)
            fake.give(a_preemption())
            end = await fake.ended(OPERATION, 0)

    assert (end.result, end.exit_code) == (result, 0)


async def test_a_job_that_ignores_the_signal_is_killed_however_often_the_order_comes(tmp_path: Path) -> None:
    with nats_server(jetstream=False) as server:
        async with allocator(server) as fake, agent(server, tmp_path / "state"):
            fake.give(a_start(_DEAF, tmp_path))
            await ready(fake, tmp_path)
            fake.give(a_preemption(700))
            # The same order, and later ones, with every heartbeat: the deadline stays.
            while (await fake.heard_next(lambda _: True)).ends == []:
                fake.give(a_preemption(700), a_preemption(60_000))
            end = await fake.ended(OPERATION, 0)

    assert (end.result, end.signal) == (JobResult.ABORTED, signal.SIGKILL)
    assert end.reason.startswith("preempted: for research; killed, 0.")


async def test_a_lowered_timeout_in_a_repeated_order_brings_the_kill_earlier(tmp_path: Path) -> None:
    with nats_server(jetstream=False) as server:
        async with allocator(server) as fake, agent(server, tmp_path / "state"):
            fake.give(a_start(_DEAF, tmp_path))
            await ready(fake, tmp_path)
            fake.give(a_preemption(600_000))
            await fake.heard(shows(AllocationState.CLOSING))
            fake.give(a_preemption(100))
            end = await fake.ended(OPERATION, 0)

    assert (end.result, end.signal) == (JobResult.ABORTED, signal.SIGKILL)


async def test_an_agent_that_is_killed_while_a_job_saves_its_state_forgets_neither_that_nor_what_for(
    tmp_path: Path,
) -> None:
    state = tmp_path / "state"
    slow = _COUNT.replace("exit 75", "while [ ! -e {folder}/go ]; do sleep 0.01; done; exit 75")
    with nats_server(jetstream=False) as server:
        async with allocator(server) as fake, agent(server, state) as first:
            fake.give(a_start(slow, tmp_path, slots=start_of("", slots=3).slots))
            await ready(fake, tmp_path)
            fake.give(a_preemption())
            closing = await fake.heard(shows(AllocationState.CLOSING))
            first.send(signal.SIGKILL)
            await first.wait()
            fake.heartbeats.clear()
            async with agent(server, state):
                adopted = await fake.heard(lambda _: True)
                fake.give(a_preemption())
                await fake.heard_next(lambda _: True)
                (tmp_path / "go").touch()
                end = await fake.ended(OPERATION, 0)

    for heartbeat in (closing, adopted):
        report = report_of(heartbeat, "a-1", AllocationState.CLOSING)
        assert report is not None
        assert report.preemption == RECORD
    assert (end.result, end.exit_code) == (JobResult.ABORTED, 75)
    assert end.reason == "state saved for a retry; preempted: for research"


async def test_a_runner_that_was_frozen_interrupts_when_it_wakes(tmp_path: Path) -> None:
    with nats_server(jetstream=False) as server:
        async with allocator(server) as fake, agent(server, tmp_path / "state") as process:
            fake.give(a_start(_COUNT, tmp_path))
            await ready(fake, tmp_path)
            os.kill(process.runner_pid(), signal.SIGSTOP)
            fake.give(a_preemption())
            await fake.heard(shows(AllocationState.CLOSING))
            os.kill(process.runner_pid(), signal.SIGCONT)
            end = await fake.ended(OPERATION, 0)

    assert (end.result, end.exit_code) == (JobResult.ABORTED, 75)


async def test_a_new_allocation_waits_for_the_room_of_one_that_is_on_its_way_out(tmp_path: Path) -> None:
    slow = _COUNT.replace("exit 75", "while [ ! -e {folder}/go ]; do sleep 0.01; done; exit 75")
    with nats_server(jetstream=False) as server:
        async with allocator(server) as fake, agent(server, tmp_path / "state"):
            total = (await fake.heard(lambda _: True)).total
            fake.give(a_start(slow, tmp_path, resources=total))
            await ready(fake, tmp_path)
            beneficiary = start_of("exit 0", operation="op-of-others", allocation="a-2")
            fake.give(a_preemption(), msgspec.structs.replace(beneficiary, resources=total))
            waiting = await fake.heard(shows(AllocationState.WAITING, "a-2"))
            (tmp_path / "go").touch()
            victim, other = await fake.ended(OPERATION, 0), await fake.ended("op-of-others", 0)

    assert shows(AllocationState.CLOSING)(waiting)
    assert victim.exit_code == 75
    assert other.result is JobResult.COMPLETED
    assert other.started_at_ms >= victim.ended_at_ms


async def test_an_allocation_that_waits_too_long_for_a_slow_one_is_given_back(tmp_path: Path) -> None:
    with nats_server(jetstream=False) as server:
        async with allocator(server) as fake, agent(server, tmp_path / "state"):
            total = (await fake.heard(lambda _: True)).total
            fake.give(a_start(_DEAF, tmp_path, resources=total))
            await ready(fake, tmp_path)
            fake.pace_ms = 60_000
            beneficiary = start_of("exit 0", operation="op-of-others", allocation="a-2", slots=2)
            fake.give(a_preemption(), msgspec.structs.replace(beneficiary, resources=total, waiting_timeout_ms=300))
            told = await fake.heard(shows(AllocationState.ENDED, "a-2"))

    report = report_of(told, "a-2", AllocationState.ENDED)
    assert report is not None
    assert report.unstarted == beneficiary.slots
    assert report.given_back_for == "its waiting time for free resources of this host is over"
    assert shows(AllocationState.CLOSING)(told)


async def test_nothing_is_left_of_a_job_that_left_children_when_it_saved_its_state(tmp_path: Path) -> None:
    child = "trap '' TERM; echo $$ > {folder}/child; while :; do sleep 0.05; done"
    script = (
        f'sh -c "{child.replace("$", chr(92) + "$")}" & while [ ! -e {{folder}}/child ]; do sleep 0.01; done\n{_COUNT}'
    )
    with nats_server(jetstream=False) as server:
        async with allocator(server) as fake, agent(server, tmp_path / "state"):
            fake.give(a_start(script, tmp_path))
            await ready(fake, tmp_path)
            fake.give(a_preemption())
            end = await fake.ended(OPERATION, 0)

    assert (end.result, end.exit_code) == (JobResult.ABORTED, 75)
    assert not psutil.pid_exists(int((tmp_path / "child").read_text()))
