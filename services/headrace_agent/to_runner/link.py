"""The way to the runner of this host: starts one where none lives, speaks with it, returns to it.

While no picture of the runner is there, messages to it are dropped: whatever was missed shows in the next picture.
"""

from __future__ import annotations

import asyncio
import fcntl
import random
import socket
import struct
import subprocess
import termios
from collections.abc import Callable
from contextlib import suppress

import anyio
import msgspec

from headrace.child_process import wait_for_end
from headrace.obs.logging import logger
from headrace_agent.effects import Trouble
from headrace_agent.runner.files.kept_jobs import has_jobs
from headrace_agent.runner.frames import BadFrame, FrameReader, connect, pack, unpack
from headrace_agent.runner.host.files import LinuxFiles
from headrace_agent.runner.protocol import LARGEST_ANSWER_BYTES, Hello, Picture, Ping, Pong, Said, ToAgent, ToRunner
from headrace_agent.runner.unreadable import order_frame, report_instead_of
from headrace_agent.settings import AgentSettings
from headrace_agent.to_runner import hung_runner
from headrace_agent.to_runner.hung_runner import Finding, RunnerProcess, Silence
from headrace_agent.to_runner.process import IN_USE, NoRunner, let_go, start_runner

_READ_BYTES = 256 * 1024
_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 10.0
#: A conversation that ends sooner is begun anew ever more slowly: another would end as soon.
_SETTLED_S = 1.0
_GONE = "the runner is gone and is being started again"


class RunnerLink:
    """The connection to the runner, and the runner's process if this agent started it.

    `on_message` gets what the runner says, whole pictures only. `on_trouble` gets why it cannot be spoken with.
    """

    def __init__(
        self,
        settings: AgentSettings,
        incarnation: str,
        on_message: Callable[[ToAgent], None],
        on_trouble: Callable[[Trouble, str], None],
    ) -> None:
        self._settings = settings
        self._state = settings.state()
        self._hello = pack(Hello(incarnation))
        self._on_message = on_message
        self._on_trouble = on_trouble
        self._decoder = msgspec.msgpack.Decoder(Said)
        self._random = random.Random()
        #: The connection while a picture of the runner is there. Only then is anything told.
        self._told_by: socket.socket | None = None
        #: Frames that were told and are not written yet.
        self._outbox: list[bytes] = []
        #: Set while the runner has not taken all that was written.
        self._behind = anyio.Event()
        self._conversation: anyio.CancelScope | None = None
        self._flushed = anyio.Event()
        self._gone = anyio.Event()
        self._ending = False
        #: The runner that this process started last, if it did.
        self._child: subprocess.Popen[bytes] | None = None
        #: Runners started.
        self.starts = 0
        self._silence = Silence()
        #: The runner answers `Ping`.
        self._answers_pings = False
        #: A `Ping` was told and no `Pong` came yet.
        self._has_pinged = False
        #: Why the last conversation ended.
        self._why_over = _GONE

    async def run(self) -> None:
        """Runs until cancelled, or until `end` was called and the conversation is over."""
        pause_s = _FIRST_PAUSE_S
        while not self._ending:
            try:
                connection = await self._reach()
                began_s = anyio.current_time()
                had_picture = await self._converse(connection)
                if had_picture and anyio.current_time() - began_s >= _SETTLED_S:
                    pause_s = _FIRST_PAUSE_S
                self._on_trouble(Trouble.RUNNER_AWAY, self._why_over)
            except NoRunner as refusal:
                nothing_runs = refusal.status not in (None, IN_USE) and not self._has_jobs()
                self._on_trouble(Trouble.NO_RUNNER if nothing_runs else Trouble.RUNNER_AWAY, str(refusal))
            await anyio.sleep(pause_s * (0.5 + self._random.random()))
            pause_s = min(_LONGEST_PAUSE_S, pause_s * 2)

    def tell(self, message: ToRunner) -> None:
        """Sends a message with the next `flush`, in order. It is dropped while there is no picture of the runner."""
        if self._told_by is None:
            return
        frame = order_frame(message)
        if frame is None:
            logger().error("runner not told", message=type(message).__name__, why="it cannot be written")
        else:
            self._outbox.append(frame)

    def flush(self) -> None:
        """Writes all that was told, now: a start waits for it. What the runner does not take at once follows."""
        if self._told_by is None or not self._outbox or self._behind.is_set():
            return
        together = b"".join(self._outbox)
        self._outbox.clear()
        try:
            sent = self._told_by.send(together)
        except BlockingIOError:
            sent = 0
        except OSError:
            return  # the reader sees the end, too
        if sent < len(together):
            self._outbox.append(together[sent:])
            self._flushed = anyio.Event()
            self._behind.set()

    def reconnect(self) -> None:
        """Ends the conversation. Another begins, with a picture."""
        if self._conversation is not None:
            self._why_over = "the agent speaks with the runner anew"
            self._conversation.cancel()

    async def end(self, timeout_s: float, *, with_runner: bool) -> bool:
        """Starts no runner any more, and waits until all that was told has gone out.

        Waits until the runner is gone too, `with_runner`.
        """
        self._ending = True
        with anyio.move_on_after(timeout_s) as scope:
            self.flush()
            self._told_by = None
            if self._behind.is_set():
                await self._flushed.wait()
            if with_runner:
                if self._conversation is not None:
                    await self._gone.wait()
                elif (connection := self._connect()) is not None:
                    # It lives and was away when it was told: it is told with its picture.
                    await self._converse(connection)
                elif self._child is not None:
                    self._child.terminate()  # started a moment ago, and not spoken with yet
                if self._child is not None:
                    await wait_for_end(self._child)
        if self._child is not None:
            let_go(self._child)
        return not scope.cancelled_caught

    async def _converse(self, connection: socket.socket) -> bool:
        """One connection, from Hello to its end. True if a picture came."""
        self._gone, self._behind = anyio.Event(), anyio.Event()
        self._outbox.clear()
        self._silence, self._has_pinged, self._answers_pings, self._why_over = Silence(), False, False, _GONE
        connection.setblocking(False)
        had_picture = False
        process = RunnerProcess(connection, self._state)
        try:
            async with anyio.create_task_group() as tasks:
                self._conversation = tasks.cancel_scope
                tasks.start_soon(self._write, connection)
                tasks.start_soon(self._watch, connection, process)
                try:
                    await self._read(connection)
                finally:
                    # Before the other tasks have ended: what is told meanwhile is dropped.
                    had_picture, self._told_by = self._told_by is not None, None
                tasks.cancel_scope.cancel()
        finally:
            connection.close()
            process.close()
            self._conversation = None
            self._flushed.set()
            self._gone.set()
        return had_picture

    async def _read(self, connection: socket.socket) -> None:
        """Takes what the runner says as soon as it is there, until the runner is gone or not understood."""
        reader, loop = FrameReader(LARGEST_ANSWER_BYTES), asyncio.get_running_loop()
        over: asyncio.Future[None] = loop.create_future()
        failure: Exception | None = None

        def on_readable() -> None:
            nonlocal failure
            if over.done():
                return
            try:
                data = _receive(connection)
                if data:
                    self._silence.heard()
                reader.feed(data)
                while (frame := reader.next()) is not None:
                    message = self._report_in(frame)
                    if isinstance(message, Pong):
                        self._has_pinged = False
                        continue
                    if isinstance(message, Picture):
                        self._told_by, self._answers_pings = connection, message.answers_pings
                    self._on_message(message)
            except Exception as error:
                failure = error
                # A message may have ended the conversation before another failed.
                if not over.done():
                    over.set_result(None)

        # It stays: to wait for each message anew would cost as much as what is done about it.
        loop.add_reader(connection, on_readable)
        try:
            await over
        finally:
            loop.remove_reader(connection)
            if isinstance(failure, anyio.BrokenResourceError | BadFrame):
                logger().warning("runner not understood", error=str(failure))
                if isinstance(failure, BadFrame):
                    self._why_over = f"the runner is not understood ({failure}); the agent speaks with it anew"
            elif failure is not None and not isinstance(failure, anyio.EndOfStream):
                raise failure
            # At the end of the stream the runner has ended, which `run` tells as trouble.

    def _report_in(self, frame: bytes) -> Said:
        """Reads a frame. Raises `BadFrame` if nothing can be made of it."""
        try:
            report: Said = unpack(frame, self._decoder)
        except BadFrame as error:
            instead = report_instead_of(frame, str(error))
            if instead is None:
                raise
            logger().error("report of the runner not read", why=str(error))
            return instead
        return report

    async def _write(self, connection: socket.socket) -> None:
        """Says hello, and goes on with what the runner did not take at once."""
        loop = asyncio.get_running_loop()
        with suppress(OSError):  # the reader sees the end, too
            await loop.sock_sendall(connection, self._hello)
            while True:
                await self._behind.wait()
                while self._outbox:
                    together = b"".join(self._outbox)
                    self._outbox.clear()
                    await loop.sock_sendall(connection, together)
                self._behind = anyio.Event()
                self._flushed.set()

    async def _watch(self, connection: socket.socket, process: RunnerProcess) -> None:
        """Asks the runner at each look whether it is there. A runner that is hung is said to be, and then killed."""
        was_killed = False
        while True:
            is_asked = self._owes_an_answer(connection)
            if self._told_by is not None and self._answers_pings and not self._has_pinged:
                self.tell(Ping())
                self.flush()
                is_asked = self._has_pinged = True
            await anyio.sleep(hung_runner.LOOK_S)
            finding = self._silence.look(is_asked=is_asked)
            since = f"the runner has not answered for {self._silence.length_s:.0f} s"
            if finding is Finding.KILL:
                was_killed = process.kill()
                logger().error("runner hangs", pid=process.pid, waited_s=self._silence.length_s, killed=was_killed)
                self._why_over = (
                    f"the runner did not answer for {self._silence.length_s:.0f} s and was killed; a new one is started"
                )
            if finding is Finding.ANSWERS and self._told_by is not None:
                self._on_trouble(Trouble.RUNNER_AWAY, "")
            elif finding in (Finding.HUNG, Finding.KILL):
                self._on_trouble(Trouble.RUNNER_AWAY, since + ("; it was killed" if was_killed else ""))

    def _owes_an_answer(self, connection: socket.socket) -> bool:
        """True if the runner was asked something that it has not answered. One that knows no `Ping` reads what it is told."""
        if self._told_by is None or self._has_pinged:
            return True
        (unread_bytes,) = struct.unpack("i", fcntl.ioctl(connection, termios.TIOCOUTQ, bytes(4)))
        return bool(unread_bytes)

    async def _reach(self) -> socket.socket:
        """A connection to the runner of the state folder, started if need be. Raises `NoRunner`."""
        connection = self._connect()
        if connection is None and not self._settings.starts_runner:
            raise NoRunner(
                f"no runner listens in {self._state} yet, and the agent is to start none (starts_runner)", None
            )
        if connection is None:
            if self._child is not None and self._child.poll() is None:
                raise NoRunner("the runner lives and does not listen", None)
            self._child = await start_runner(self._settings)
            self.starts += 1
            logger().info("runner started", pid=self._child.pid, state=self._state)
            connection = self._connect()
        if connection is None:
            raise NoRunner("the runner was started and does not listen", None)
        return connection

    def _connect(self) -> socket.socket | None:
        try:
            return connect(self._state)
        except OSError:
            return None  # none listens, as before the first one is started

    def _has_jobs(self) -> bool:
        """True if a former runner may have left jobs of which nothing is known."""
        try:
            return has_jobs(LinuxFiles(), self._state)
        except (FileNotFoundError, NotADirectoryError):
            return False  # no runner has made the folder, or can
        except OSError:
            return True  # nobody can tell


def _receive(connection: socket.socket) -> bytes:
    """Returns what there is to read, perhaps nothing. Raises `anyio.EndOfStream` or `anyio.BrokenResourceError`."""
    try:
        data = connection.recv(_READ_BYTES)
    except BlockingIOError:
        return b""
    except OSError as error:
        raise anyio.BrokenResourceError from error
    if not data:
        raise anyio.EndOfStream
    return data
