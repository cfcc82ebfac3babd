"""An agent of its own process with a real runner, and an allocator and an admission of a few lines, on a real nats-server."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio
import psutil

from headrace.bus import Bus, Message, connect
from headrace.ids import AllocationId, NodeName, OperationId, TreeName
from headrace.resources import Resources
from headrace.wire import subjects
from headrace.wire.codec import decode, encode
from headrace.wire.heartbeat import (
    AllocationReport,
    AllocationState,
    Extend,
    Forget,
    Heartbeat,
    JobEnd,
    JobKey,
    JobSlot,
    JobSpec,
    Orders,
    Start,
    TakeBack,
    TakeBackReason,
)
from headrace.wire.logs import AskLogReader, LogReader
from headrace.wire.nodes import Enrol, Enrolled
from headrace.wire.refusals import NotAllowed
from tests.support.guarded import Guarded
from tests.support.nats_server import NatsServer

__all__ = ["NODE", "AgentProcess", "FakeAllocator", "agent", "allocator", "bus_as", "start_of", "take_back_of"]

NODE = NodeName("node-1")
_PATIENCE_S = 20.0


def start_of(
    script: str,
    *,
    operation: str = "op-00000001",
    allocation: str = "a-1",
    slots: int = 1,
    cpu: int = 10,
    timeout_ms: int = 5_000,
) -> Start:
    """A start of jobs that run a shell script."""
    spec = JobSpec(
        operation=OperationId(operation),
        argv=["/bin/sh", "-c", script],
        job_count=slots,
        pool="research",
        interruption_timeout_ms=timeout_ms,
    )
    return Start(
        allocation=AllocationId(allocation),
        operation=OperationId(operation),
        resources=Resources(user_slots=1, cpu=cpu),
        slots=[JobSlot(index) for index in range(slots)],
        spec=spec,
    )


def take_back_of(allocation: str, timeout_ms: int | None) -> TakeBack:
    return TakeBack(AllocationId(allocation), TakeBackReason.PREEMPTED, timeout_ms)


class FakeAllocator:
    """Answers every heartbeat with what was `give`n since the last, again if that was not obeyed, and forgets what ended."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._given: list[Start | Extend | TakeBack] = []
        #: To which heartbeat of which life the newest orders went.
        self._sent: tuple[str, int, list[Start | Extend | TakeBack]] | None = None
        self._news = anyio.Event()
        self.heartbeats: list[Heartbeat] = []
        self.ends: dict[JobKey, JobEnd] = {}
        self.enrolments: list[Enrol] = []
        self.term = 1
        self.pace_ms = 50
        self.answers = True
        #: Answered once, instead of orders.
        self.rubbish = b""
        self.knows_node = True
        #: Who may read logs. Everybody else is refused.
        self.readers = {"ann"}

    async def serve(self) -> None:
        await self._bus.serve(subjects.heartbeat("*", "*"), self._on_heartbeat)
        await self._bus.serve(subjects.enrol("*"), self._on_enrol)
        await self._bus.serve(subjects.log_reader("*"), self._on_log_reader)

    def give(self, *orders: Start | Extend | TakeBack) -> None:
        """Goes with the answer to the next heartbeat."""
        self._given.extend(orders)

    async def heard(self, what: Callable[[Heartbeat], bool]) -> Heartbeat:
        """The first heartbeat of which it is true, waiting for it."""
        seen = 0
        with anyio.fail_after(_PATIENCE_S):
            while True:
                news = self._news
                for heartbeat in self.heartbeats[seen:]:
                    if what(heartbeat):
                        return heartbeat
                seen = len(self.heartbeats)
                await news.wait()

    async def heard_next(self, what: Callable[[Heartbeat], bool]) -> Heartbeat:
        """Likewise, but none that has come already."""
        before = set(map(id, self.heartbeats))
        return await self.heard(lambda heartbeat: id(heartbeat) not in before and what(heartbeat))

    async def running(self, allocation: str) -> AllocationReport:
        """The report of an allocation once its job runs."""

        def runs(heartbeat: Heartbeat) -> bool:
            return any(
                found.id == allocation and found.job and found.job.started_at_ms for found in heartbeat.allocations
            )

        heartbeat = await self.heard(runs)
        return next(found for found in heartbeat.allocations if found.id == allocation)

    async def ended(self, operation: str, index: int, attempt: int = 1) -> JobEnd:
        """The end of a job, once it was reported."""
        key = JobKey(OperationId(operation), index, attempt)
        await self.heard(lambda _: key in self.ends)
        return self.ends[key]

    async def _on_heartbeat(self, message: Message) -> bytes | None:
        heartbeat = decode(message.data, Heartbeat)
        self.ends.update((end.key, end) for end in heartbeat.ends)
        self.heartbeats.append(heartbeat)
        self._news.set()
        self._news = anyio.Event()
        if self.rubbish or not self.answers:
            rubbish, self.rubbish = self.rubbish, b""
            return rubbish or None
        return encode(self._orders(heartbeat))

    def _orders(self, heartbeat: Heartbeat) -> Orders:
        if self._sent and self._sent[0] == heartbeat.incarnation and heartbeat.applied < self._sent[1]:
            # The answer did not come in time, which a busy machine may see to.
            self._given = [*self._sent[2], *self._given]
        given, self._given = self._given, []
        self._sent = (heartbeat.incarnation, heartbeat.seq, given)
        ended = [found.id for found in heartbeat.allocations if found.state is AllocationState.ENDED]
        forget = Forget([end.key for end in heartbeat.ends], ended)
        return Orders(
            node=heartbeat.node,
            incarnation=heartbeat.incarnation,
            seq=heartbeat.seq,
            term=self.term,
            next_heartbeat_ms=self.pace_ms,
            start=[order for order in given if isinstance(order, Start)],
            extend=[order for order in given if isinstance(order, Extend)],
            take_back=[order for order in given if isinstance(order, TakeBack)],
            forget=forget,
            enrolled=self.knows_node,
        )

    async def _on_log_reader(self, message: Message) -> bytes:
        user = decode(message.data, AskLogReader).user
        return encode(LogReader() if user in self.readers else NotAllowed(user, "read that"))

    async def _on_enrol(self, message: Message) -> bytes | None:
        request = decode(message.data, Enrol)
        self.enrolments.append(request)
        self.knows_node = True
        return encode(Enrolled(node=request.node, tree=TreeName("default"), revision=1))


class AgentProcess:
    """`python -m headrace_agent` with a state folder that outlives it."""

    def __init__(self, server: NatsServer | Guarded, state: Path, **settings: str) -> None:
        self.state = state
        self._log_path = state.parent / f"{state.name}.log"
        environment = {
            **os.environ,
            "HEADRACE_NATS_URL": server.url,
            "HEADRACE_AGENT_NODE": NODE,
            "HEADRACE_AGENT_STATE_FOLDER": str(state),
            "HEADRACE_AGENT_HEARTBEAT_TIMEOUT_MS": "2000",
            "HEADRACE_AGENT_USERS": "agent",
            "HEADRACE_LOG_LEVEL": "debug",
            "HEADRACE_SECRET": "not for jobs",
            **{f"HEADRACE_AGENT_{name.upper()}": value for name, value in settings.items()},
        }
        with self._log_path.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "headrace_agent"], env=environment, stdout=log, stderr=log
            )

    def log(self) -> str:
        return self._log_path.read_text(encoding="utf-8")

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    async def wait(self) -> int:
        """Its exit status."""
        with anyio.fail_after(_PATIENCE_S):
            return await anyio.to_thread.run_sync(self.process.wait, abandon_on_cancel=True)

    def runner_pid(self) -> int:
        return int((self.state / "runner.lock").read_text())


def end_runner(state: Path) -> None:
    """Ends a runner of the state folder with all that descends from it. One that begins has no lock yet, so its words tell."""
    for runner in psutil.process_iter():
        with suppress(psutil.NoSuchProcess):
            words = runner.cmdline()
            if "headrace_agent.runner" in words and str(state) in words:
                for process in [*runner.children(recursive=True), runner]:
                    process.kill()


@asynccontextmanager
async def agent(server: NatsServer | Guarded, state: Path, **settings: str) -> AsyncIterator[AgentProcess]:
    """A running agent; at the end it and its runner are killed, if they are still there."""
    process = AgentProcess(server, state, **settings)
    try:
        yield process
    except BaseException:
        print(process.log())
        print((state / "runner.log").read_text() if (state / "runner.log").exists() else "no runner.log")
        raise
    finally:
        process.process.kill()
        process.process.wait()
        end_runner(state)


@asynccontextmanager
async def bus_as(server: NatsServer, kind: str, name: str) -> AsyncIterator[Bus]:
    """A connection under somebody's name."""
    async with connect(
        [server.url], name=name, credential=None, inbox_prefix=subjects.inbox(kind, name), connect_timeout_s=10
    ) as bus:
        yield bus


@asynccontextmanager
async def allocator(server: NatsServer) -> AsyncIterator[FakeAllocator]:
    """A serving `FakeAllocator`."""
    async with bus_as(server, "service", "allocator") as bus:
        fake = FakeAllocator(bus)
        await fake.serve()
        yield fake
