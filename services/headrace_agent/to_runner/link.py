"""The agent's connection to the runner of its host: starts a runner if there is none, talks to it, and reconnects.

Before the runner's full report (`FullReport`) arrives on a connection, messages to the runner are dropped. The full report then
shows what the runner missed.
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
from headrace.wire.sessions import SessionTurn
from headrace_agent.effects import Trouble
from headrace_agent.runner.files.kept_jobs import has_jobs
from headrace_agent.runner.frames import BadFrame, FrameReader, connect, pack, unpack
from headrace_agent.runner.host.files import LinuxFiles
from headrace_agent.runner.protocol import (
    LARGEST_ANSWER_BYTES,
    FromRunner,
    FullReport,
    Hello,
    Ping,
    Pong,
    ToAgent,
    ToRunner,
    Turn,
    Turned,
)
from headrace_agent.runner.unreadable_messages import order_frame, report_instead_of
from headrace_agent.settings import AgentSettings
from headrace_agent.to_runner import hung_runner
from headrace_agent.to_runner.hung_runner import Finding, RunnerProcess, RunnerSilence
from headrace_agent.to_runner.process import IN_USE, NoRunner, let_go, start_runner
from headrace_agent.to_runner.turns import Turns

_READ_BYTES = 256 * 1024
_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 10.0
#: Seconds after which a connection counts as settled. After a shorter connection the pause before reconnecting grows, because the next
#: connection would most likely end just as soon.
_SETTLED_S = 1.0
_GONE = "the runner is gone and is being restarted"


class RunnerLink:
    """The connection to the runner, and the runner's process if this agent started it.

    `on_message` gets the runner's messages. `on_trouble` gets the reason why the runner cannot be reached.
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
        self._decoder = msgspec.msgpack.Decoder(FromRunner)
        self._random = random.Random()
        #: The connection, set once the runner's full report has arrived on it. While it is None, messages to the runner are dropped.
        self._told_by: socket.socket | None = None
        #: Frames (encoded messages) that are not written to the connection yet.
        self._outbox: list[bytes] = []
        #: Set while the connection accepts no more bytes, because the runner has not read what was written before.
        self._behind = anyio.Event()
        self._conversation: anyio.CancelScope | None = None
        self._flushed = anyio.Event()
        self._gone = anyio.Event()
        self._ending = False
        #: The runner process that this agent started last; None: it started none.
        self._child: subprocess.Popen[bytes] | None = None
        #: Number of runners started.
        self.starts = 0
        self._silence = RunnerSilence()
        #: True if the runner answers `Ping`.
        self._answers_pings = False
        #: True if the runner that sent the newest full report keeps the logs of operations with the same id apart.
        self.tells_starts_apart = True
        #: True if a `Ping` was sent and its `Pong` has not arrived.
        self._has_pinged = False
        #: Number of open sessions, as the runner last reported it.
        self._sessions = 0
        #: Why the last connection ended.
        self._why_over = _GONE
        #: Turns of sessions on this connection; None: the runner knows no sessions, or there is no connection.
        self._turns: Turns | None = None

    async def run(self) -> None:
        """Keep a connection to the runner open until cancelled, or until `end` was called and the connection is closed."""
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

    def send(self, message: ToRunner) -> None:
        """Queue a message for the next `flush`, in order. Before the runner's full report has arrived the message is dropped."""
        if self._told_by is None:
            return
        frame = order_frame(message)
        if frame is None:
            logger().error("message not sent to the runner", message=type(message).__name__, why="it cannot be written")
        else:
            self._outbox.append(frame)

    def flush(self) -> None:
        """Write all queued messages immediately, because jobs may wait to start. Bytes that the connection does not accept now are written
        later.
        """
        if self._told_by is None or not self._outbox or self._behind.is_set():
            return
        together = b"".join(self._outbox)
        self._outbox.clear()
        try:
            sent = self._told_by.send(together)
        except BlockingIOError:
            sent = 0
        except OSError:
            # There is nothing to do here: `_read`, which runs in another task, notices the end of the connection too.
            return
        if sent < len(together):
            self._outbox.append(together[sent:])
            self._flushed = anyio.Event()
            self._behind.set()

    @property
    def is_too_old_for_sessions(self) -> bool:
        """True if the connected runner knows no sessions."""
        return self._told_by is not None and self._turns is None

    async def turn(self, user: str, turn: SessionTurn) -> bytes | None:
        """Send a person's turn of a session to the runner, and return the runner's answer. Return None if the runner cannot be reached, or
        if too many turns already wait for its answers.
        """
        turns = self._turns
        if self._told_by is None or turns is None or turns.is_full:
            return None
        number, answer = turns.begin()
        self.send(Turn(number, user, turn))
        self.flush()
        try:
            return await answer
        finally:
            turns.give_up(number)

    def reconnect(self) -> None:
        """Close the connection. `run` then opens a new connection, which begins with a full report of the runner."""
        if self._conversation is not None:
            self._why_over = "the agent reconnects to the runner"
            self._conversation.cancel()

    async def end(self, timeout_s: float, *, with_runner: bool) -> bool:
        """Stop starting runners, and wait at most `timeout_s` seconds until all queued messages are written.

        If `with_runner` is True, also wait, within the same time, until the runner has ended. Return False if the time was not enough.
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
                    # The runner lives, but was not connected when the order to end was given. It gets the order once its full report has
                    # arrived on this new connection.
                    await self._converse(connection)
                elif self._child is not None:
                    # The runner was started a moment ago, and there is no connection to it yet.
                    self._child.terminate()
                if self._child is not None:
                    await wait_for_end(self._child)
        if self._child is not None:
            let_go(self._child)
        return not scope.cancelled_caught

    async def _converse(self, connection: socket.socket) -> bool:
        """Exchange messages with the runner on one connection, from `Hello` until the connection ends. Return True if the runner's full
        report arrived.
        """
        self._gone, self._behind = anyio.Event(), anyio.Event()
        self._outbox.clear()
        self._silence, self._has_pinged, self._answers_pings, self._why_over = RunnerSilence(), False, False, _GONE
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
                    # `_told_by` is set to None before the other tasks have ended, so that messages sent in the meantime are dropped.
                    had_picture, self._told_by = self._told_by is not None, None
                    if self._turns is not None:
                        self._turns.give_up_all()
                    self._turns = None
                tasks.cancel_scope.cancel()
        finally:
            connection.close()
            process.close()
            self._conversation = None
            self._flushed.set()
            self._gone.set()
        return had_picture

    async def _read(self, connection: socket.socket) -> None:
        """Read the runner's messages as soon as they arrive, until the runner is gone or sends something unreadable."""
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
                        if message.sessions == self._sessions:
                            continue
                        self._sessions = message.sessions
                    if isinstance(message, Turned):
                        if self._turns is not None:
                            self._turns.on_turned(message)
                        continue
                    if isinstance(message, FullReport):
                        self._told_by, self._answers_pings = connection, message.answers_pings
                        self._turns = Turns() if message.has_sessions else None
                        self.tells_starts_apart = message.tells_starts_apart
                    self._on_message(message)
            except Exception as error:
                failure = error
                # `over` may be done already: an earlier message may have ended the connection before this message could not be handled.
                if not over.done():
                    over.set_result(None)

        # The reader stays registered until the end: registering it anew for each message would cost as much as handling the message.
        loop.add_reader(connection, on_readable)
        try:
            await over
        finally:
            loop.remove_reader(connection)
            if isinstance(failure, anyio.BrokenResourceError | BadFrame):
                logger().warning("messages of the runner not understood", error=str(failure))
                if isinstance(failure, BadFrame):
                    self._why_over = (
                        f"a message of the runner cannot be read ({failure}); the agent reconnects to the runner"
                    )
            elif failure is not None and not isinstance(failure, anyio.EndOfStream):
                raise failure
            # The end of the stream means that the runner has ended. `run` then reports this end through `on_trouble`.

    def _report_in(self, frame: bytes) -> FromRunner:
        """Decode a frame. A report that cannot be read is replaced by a readable report, in which each unreadable end counts as a failure
        of its job. Raises `BadFrame` if that is impossible.
        """
        try:
            report: FromRunner = unpack(frame, self._decoder)
        except BadFrame as error:
            instead = report_instead_of(frame, str(error))
            if instead is None:
                raise
            logger().error("report of the runner cannot be read", why=str(error))
            return instead
        return report

    async def _write(self, connection: socket.socket) -> None:
        """Send `Hello`, then, again and again, write the bytes that `flush` could not write immediately."""
        loop = asyncio.get_running_loop()
        # There is nothing to do here: `_read`, which runs in another task, notices the end of the connection too.
        with suppress(OSError):
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
        """Every few seconds, send the runner a `Ping` and look whether it has answered. Report a hung runner, and kill it later."""
        was_killed = False
        while True:
            is_asked = self._owes_an_answer(connection)
            if self._told_by is not None and self._answers_pings and not self._has_pinged:
                self.send(Ping())
                self.flush()
                is_asked = self._has_pinged = True
            await anyio.sleep(hung_runner.LOOK_S)
            finding = self._silence.judge(is_asked=is_asked)
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
        """True if the runner owes an answer. A runner that does not know `Ping` owes an answer while it has not read all that was sent to
        it.
        """
        if self._told_by is None or self._has_pinged:
            return True
        (unread_bytes,) = struct.unpack("i", fcntl.ioctl(connection, termios.TIOCOUTQ, bytes(4)))
        return bool(unread_bytes)

    async def _reach(self) -> socket.socket:
        """Return a connection to the runner of the state folder, and start a runner if necessary. Raises `NoRunner`."""
        connection = self._connect()
        if connection is None and not self._settings.starts_runner:
            raise NoRunner(
                f"no runner listens in {self._state} yet, and the agent may not start a runner (setting starts_runner)",
                None,
            )
        if connection is None:
            if self._child is not None and self._child.poll() is None:
                raise NoRunner("the runner is running, but does not listen", None)
            self._child = await start_runner(self._settings)
            self.starts += 1
            logger().info("runner started", pid=self._child.pid, state=self._state)
            connection = self._connect()
        if connection is None:
            raise NoRunner("the runner was started, but does not listen", None)
        return connection

    def _connect(self) -> socket.socket | None:
        try:
            return connect(self._state)
        except OSError:
            # No runner listens, for example because no runner was started yet.
            return None

    def _has_jobs(self) -> bool:
        """True if an earlier runner may have left jobs whose end no agent has recorded."""
        try:
            return has_jobs(LinuxFiles(), self._state)
        except (FileNotFoundError, NotADirectoryError):
            # The folder does not exist: no runner has made it, or none could.
            return False
        except OSError:
            # The folder cannot be read, so there may be jobs.
            return True


def _receive(connection: socket.socket) -> bytes:
    """Return the data that can be read now, perhaps none. Raises `anyio.EndOfStream` or `anyio.BrokenResourceError`."""
    try:
        data = connection.recv(_READ_BYTES)
    except BlockingIOError:
        return b""
    except OSError as error:
        raise anyio.BrokenResourceError from error
    if not data:
        raise anyio.EndOfStream
    return data
