"""The runner's end of the connection to the agent: a unix socket with one connected agent at a time.

A new connection becomes the agent's connection when `Hello` arrives on it. The agent's earlier connection is then closed. Before `Hello`
the runner sends nothing on the new connection. A connection is closed and counted as garbage if another message arrives on it before
`Hello`, if it carries unreadable bytes, or if it belongs to another user. That does not affect the jobs. If an order of the agent cannot be
read, only the job that the order is about ends: see `unreadable_messages`.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import struct
from collections import deque
from itertools import islice

import msgspec

from headrace.errors import BadInput
from headrace.ids import operation_id
from headrace.obs.logging import Logger
from headrace.runtime.engine import NS_PER_MS
from headrace_agent.runner.frames import SOCKET_NAME, BadFrame, FrameReader, pack, unpack
from headrace_agent.runner.host.poll import Poll
from headrace_agent.runner.protocol import (
    LARGEST_REQUEST_BYTES,
    Ended,
    FromRunner,
    Hello,
    Run,
    RunAhead,
    Started,
    ToRunner,
)
from headrace_agent.runner.unreadable_messages import order_instead_of

_READ_BYTES = 256 * 1024
_MOST_GUESTS = 8
#: Upper bound of frames that one system call sends; Linux accepts up to 1,024.
_MOST_FRAMES_AT_ONCE = 256
#: Number of unsent bytes above which the agent counts as stuck. Its connection is then closed, and the agent gets a full report when it
#: reconnects.
_MOST_WAITING_BYTES = 64 * 1024 * 1024
_CREDENTIALS = struct.Struct("3i")
#: Nanoseconds for which the report of a job's end may wait for further messages, if the next queued job has been started already. Such a
#: report is not urgent, since the agent need not act on it.
_TOGETHER_NS = 5 * NS_PER_MS


class _Connection:
    __slots__ = ("mask", "outbox", "reader", "socket", "waiting_bytes")

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self.reader = FrameReader(LARGEST_REQUEST_BYTES)
        self.outbox: deque[memoryview] = deque()
        self.waiting_bytes = 0
        self.mask = select.EPOLLIN


class AgentLink:
    """Listens on a socket in the state folder, for connections of processes of the user `uid`. Raises OSError if that is not possible."""

    def __init__(self, state: str, poll: Poll, log: Logger, uid: int) -> None:
        self._poll = poll
        self._log = log
        self._uid = uid
        self._path = f"{state}/{SOCKET_NAME}"
        self._connections: dict[int, _Connection] = {}
        self._agent = -1
        self._is_urgent = False
        #: CLOCK_BOOTTIME in nanoseconds at which queued messages are sent at the latest; None: no message is queued.
        self.due_ns: int | None = None
        #: Connections that may hold complete frames which were not decoded yet.
        self._unread: dict[int, None] = {}
        self._decoder = msgspec.msgpack.Decoder(ToRunner)
        self.garbage = 0
        self._listener = _listen(state)
        poll.register(self._listener, select.EPOLLIN)

    @property
    def connected(self) -> bool:
        return self._agent >= 0

    @property
    def unread(self) -> bool:
        return bool(self._unread)

    @property
    def flushed(self) -> bool:
        return self._agent < 0 or not self._connections[self._agent].outbox

    def on_event(self, fd: int, mask: int) -> bool:
        """Handle an event of the poll. Return False if the descriptor is not one of this object."""
        if fd == self._listener.fileno():
            self._accept()
        elif fd in self._connections:
            if mask & select.EPOLLOUT:
                self._flush(fd)
            if mask & ~select.EPOLLOUT and fd in self._connections:
                self._read(fd)
        else:
            return False
        return True

    def messages(self, most: int) -> list[ToRunner]:
        """Decode the data that has arrived, and return at most `most` messages of the agent, oldest first."""
        found: list[ToRunner] = []
        for fd in list(self._unread):
            while fd in self._unread and len(found) < most:
                message = self._next(fd)
                if message is None:
                    self._unread.pop(fd, None)
                elif fd == self._agent:
                    found.append(message)
        return found

    def send(self, message: FromRunner) -> None:
        """Queue a message for the agent. It is sent by a later `flush`, as soon as the agent reads. Without an agent the message is
        dropped.
        """
        if self._agent < 0:
            return
        connection = self._connections[self._agent]
        # The first frame is not counted: it may be a full report, which may alone be larger than the bound.
        front = connection.outbox[0] if connection.outbox else b""
        if connection.waiting_bytes - len(front) > _MOST_WAITING_BYTES:
            self._close(self._agent, "it does not read")
            return
        may_wait = isinstance(message, Ended) and message.followed_by is not None
        # The report that a queued job has started directly follows the report of the previous job's end, so both reports may wait together.
        self._is_urgent = self._is_urgent or not (may_wait or (isinstance(message, Started) and connection.outbox))
        frame = pack(message)
        connection.outbox.append(memoryview(frame))
        connection.waiting_bytes += len(frame)

    def flush(self, now_ns: int) -> None:
        """Send all queued messages, unless all of them may still wait. Messages that are sent together wake the agent only once."""
        connection = self._connections.get(self._agent)
        if connection is None or not connection.outbox or connection.mask != select.EPOLLIN:
            self._is_urgent, self.due_ns = False, None
            return
        if self.due_ns is None:
            self.due_ns = now_ns + _TOGETHER_NS
        if self._is_urgent or now_ns >= self.due_ns:
            self._is_urgent, self.due_ns = False, None
            self._flush(self._agent)

    def close(self) -> None:
        for fd in list(self._connections):
            self._close(fd, "")
        self._listener.close()
        # If the socket cannot be removed, the next runner removes it.
        with contextlib.suppress(OSError):
            os.unlink(self._path)

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError as error:
            self._log.info("connection refused", why=str(error))
            return
        uid = _CREDENTIALS.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))[1]
        if uid != self._uid:
            self.garbage += 1
            self._log.info("connection refused", why=f"user {uid} is not the user of this runner")
            connection.close()
            return
        guests = [fd for fd in self._connections if fd != self._agent]
        if len(guests) >= _MOST_GUESTS:
            self._close(guests[0], "it did not send Hello")
        connection.setblocking(False)
        self._connections[connection.fileno()] = _Connection(connection)
        self._poll.register(connection, select.EPOLLIN)

    def _read(self, fd: int) -> None:
        # If earlier messages of this connection are not obeyed yet, nothing more is read. So a fast sender must wait.
        if fd in self._unread:
            return
        connection = self._connections[fd]
        try:
            data = connection.socket.recv(_READ_BYTES)
        except (BlockingIOError, InterruptedError):
            # There is nothing to read. The poll reports when there is.
            return
        except OSError:
            # A broken connection counts as closed: the agent reconnects.
            data = b""
        if not data:
            self._close(fd, "")
            return
        connection.reader.feed(data)
        self._unread[fd] = None

    def _next(self, fd: int) -> ToRunner | None:
        try:
            frame = self._connections[fd].reader.next()
            message = self._message_in(frame, fd) if frame is not None else None
            if fd != self._agent and message is not None and not isinstance(message, Hello):
                raise BadFrame(f"{type(message).__name__} before Hello")
        except BadFrame as error:
            self.garbage += 1
            self._close(fd, f"garbage: {error}")
            return None
        if isinstance(message, Hello) and fd != self._agent:
            if self._agent >= 0:
                self._close(self._agent, "another agent connected")
            self._agent = fd
            self._log.info("agent connected", incarnation=message.incarnation)
        return message

    def _message_in(self, frame: bytes, fd: int) -> ToRunner:
        """Decode a frame. If it is an unusable order of the agent, return an order that ends the job which the order is about. Raises
        `BadFrame` for anything else that is unusable; the caller then closes the connection.
        """
        try:
            message: ToRunner = unpack(frame, self._decoder)
            if isinstance(message, Run | RunAhead):
                run = message if isinstance(message, Run) else message.run
                # The operation's id becomes a part of paths, so it must be legal.
                operation_id(run.job.operation)
        except (BadFrame, BadInput) as error:
            instead = order_instead_of(frame, str(error)) if fd == self._agent else None
            if instead is None:
                raise BadFrame(str(error)) from None
            self.garbage += 1
            self._log.info("order cannot be read", why=str(error), garbage=self.garbage)
            return instead
        return message

    def _flush(self, fd: int) -> None:
        connection = self._connections[fd]
        outbox = connection.outbox
        try:
            while outbox:
                sent = connection.socket.sendmsg(islice(outbox, _MOST_FRAMES_AT_ONCE))
                connection.waiting_bytes -= sent
                while outbox and sent >= len(outbox[0]):
                    sent -= len(outbox.popleft())
                if sent:
                    outbox[0] = outbox[0][sent:]
        except (BlockingIOError, InterruptedError):
            # The rest is sent when the poll reports that the socket accepts more.
            pass
        except OSError as error:
            self._close(fd, str(error))
            return
        mask = select.EPOLLIN | select.EPOLLOUT if outbox else select.EPOLLIN
        if mask != connection.mask:
            connection.mask = mask
            self._poll.modify(fd, mask)

    def _close(self, fd: int, why: str) -> None:
        connection = self._connections.pop(fd)
        self._unread.pop(fd, None)
        self._poll.unregister(fd)
        if fd == self._agent:
            self._agent = -1
            self._log.info("agent gone", why=why, garbage=self.garbage)
        elif why:
            self._log.info("connection closed", why=why, garbage=self.garbage)
        connection.socket.close()


def _listen(state: str) -> socket.socket:
    path = f"{state}/{SOCKET_NAME}"
    with contextlib.suppress(FileNotFoundError):
        # A socket that exists was left by a runner that was killed: this process holds the lock, so no other runner lives.
        os.unlink(path)
    folder = os.open(state, os.O_RDONLY | os.O_DIRECTORY)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        # The socket is reached through the folder's descriptor, since a unix address holds only 107 bytes.
        listener.bind(f"/proc/self/fd/{folder}/{SOCKET_NAME}")
        os.chmod(path, 0o600)
        listener.listen(16)
        listener.setblocking(False)
    except OSError:
        listener.close()
        raise
    finally:
        os.close(folder)
    return listener
