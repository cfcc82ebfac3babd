"""A real runner in a process of its own, and an agent to talk to it. Every wait has an end, none is a sleep."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import msgspec
import pytest

from headrace.wire.heartbeat import JobEnd, JobKey
from headrace_agent.job_logs.reader import read_log
from headrace_agent.runner.files.job_log import Stream
from headrace_agent.runner.frames import FrameReader, connect, pack
from headrace_agent.runner.protocol import (
    LARGEST_ANSWER_BYTES,
    Acknowledge,
    EndAll,
    Ended,
    FromRunner,
    FullReport,
    Hello,
    Interrupt,
    NodeLease,
    Pong,
    Started,
    Turned,
)
from tests.unit.runner.builders import a_job, a_run

PATIENCE_S = 20.0
#: No test lives to see its end.
LONG_LEASE = NodeLease(2**62)
M = TypeVar("M", Started, Ended, FullReport, Pong, Turned)


class Agent:
    """One connection to a runner."""

    def __init__(self, state: Path) -> None:
        self.socket = connect(str(state))
        self.socket.settimeout(PATIENCE_S)
        self._reader = FrameReader(LARGEST_ANSWER_BYTES)
        self._decoder = msgspec.msgpack.Decoder(FromRunner)
        self._heard: list[FromRunner] = []

    def say(self, *messages: msgspec.Struct) -> None:
        self.socket.sendall(b"".join(pack(message) for message in messages))

    def hear(self, kind: type[M], like: Callable[[M], bool] = lambda _: True) -> M:
        """The first such message that was not heard before; others are kept for later."""
        for number, message in enumerate(self._heard):
            if isinstance(message, kind) and like(message):
                del self._heard[number]
                return message
        while True:
            message = self._next()
            if isinstance(message, kind) and like(message):
                return message
            self._heard.append(message)

    def hello(self) -> FullReport:
        self.say(Hello("incarnation-1"))
        return self.hear(FullReport)

    def run(self, index: int, *argv: str, **changes: object) -> Started:
        """Starts the job and waits until it runs."""
        self.say(a_run(index, *argv, **changes))
        return self.hear(Started, lambda started: started.job == a_job(index))

    def sh(self, index: int, script: str, **changes: object) -> JobEnd:
        """Runs a line of shell to its end."""
        self.say(a_run(index, "sh", "-c", script, **changes))
        return self.end_of(index)

    def end_of(self, index: int) -> JobEnd:
        return self.end_of_job(a_job(index))

    def end_of_job(self, job: JobKey) -> JobEnd:
        return self.hear(Ended, lambda ended: ended.end.key == job).end

    def closed(self) -> bool:
        """Waits until the runner has closed the connection."""
        with contextlib.suppress(ConnectionError):
            while self.socket.recv(65536):
                pass
        return True

    def _next(self) -> FromRunner:
        while (frame := self._reader.next()) is None:
            data = self.socket.recv(65536)
            if not data:
                raise EOFError("the runner closed the connection")
            self._reader.feed(data)
        message: FromRunner = self._decoder.decode(frame)
        return message


class ARunner:
    """A runner with its state in `folder`; `start` may be called again after a kill."""

    def __init__(self, folder: Path) -> None:
        self.state = folder / "state"
        self.logs = self.state / "logs"
        self.log_file = folder / "runner.log"
        self.process: subprocess.Popen[bytes] | None = None
        self._agents: list[Agent] = []

    def start(
        self, *options: str, lease: NodeLease | None = LONG_LEASE, left_open: tuple[int, ...] = (), **popen: object
    ) -> Agent:
        """Starts it, with descriptors that it inherits, waits until it is ready, says hello and tells it the lease."""
        ready, ready_end = os.pipe()
        command = [sys.executable, "-m", "headrace_agent.runner", "--state", str(self.state), "--log-level", "debug"]
        with self.log_file.open("ab") as log:
            self.process = subprocess.Popen(  # type: ignore[call-overload]
                [*command, "--ready-fd", str(ready_end), *options],
                pass_fds=[ready_end, *left_open],
                stderr=log,
                **popen,
            )
        os.close(ready_end)
        with open(ready, "rb") as pipe:
            assert pipe.readline() == b"ready\n", self.log_file.read_text()
        agent = self.agent()
        agent.hello()
        if lease is not None:
            agent.say(lease)
        return agent

    def agent(self) -> Agent:
        self._agents.append(Agent(self.state))
        return self._agents[-1]

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def kill(self) -> None:
        """As the host's out-of-memory killer would."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(PATIENCE_S)

    def wait(self) -> int:
        assert self.process is not None
        return self.process.wait(PATIENCE_S)

    def log(self, index: int, stream: Stream = "stdout") -> bytes:
        return read_log(str(self.logs), a_job(index), stream, 0, 10**6).data

    def events(self, name: str) -> list[dict[str, object]]:
        lines = [msgspec.json.decode(line, type=dict[str, object]) for line in self.log_file.read_bytes().splitlines()]
        return [line for line in lines if line["event"] == name]

    def stop(self) -> None:
        """Whatever a failed test left: the runner, its jobs, our connections."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            try:
                last = self.agent()
                last.hello()
                last.say(EndAll(0, "the test is over"))
                self.process.wait(PATIENCE_S)
            except (OSError, EOFError, subprocess.TimeoutExpired):
                self.kill()
        for agent in self._agents:
            agent.socket.close()


@pytest.fixture
def runner(tmp_path: Path) -> Iterator[ARunner]:
    it = ARunner(tmp_path)
    yield it
    it.stop()


def readable(fd: int) -> bool:
    """Waits until it is; False: not within our patience."""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(PATIENCE_S * 1000))


def gone(pid: int) -> bool:
    """Waits until the process has ended (a zombie has); False: it is still there after our patience."""
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return readable(pidfd)
    finally:
        os.close(pidfd)


def lives(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


class Signpost:
    """A fifo on which a job says a line, and the test waits for it."""

    def __init__(self, folder: Path, name: str = "signpost") -> None:
        self.path = folder / name
        os.mkfifo(self.path)
        self._fd = os.open(self.path, os.O_RDWR)
        self._text = b""

    def line(self) -> str:
        while b"\n" not in self._text:
            assert readable(self._fd), "nobody said a line"
            self._text += os.read(self._fd, 4096)
        line, _, self._text = self._text.partition(b"\n")
        return line.decode()

    def close(self) -> None:
        os.close(self._fd)


@pytest.fixture
def signpost(tmp_path: Path) -> Iterator[Signpost]:
    it = Signpost(tmp_path)
    yield it
    it.close()


__all__ = [
    "PATIENCE_S",
    "ARunner",
    "Acknowledge",
    "Agent",
    "EndAll",
    "Interrupt",
    "JobKey",
    "Signpost",
    "gone",
    "lives",
    "runner",
    "signpost",
    "socket",
]
