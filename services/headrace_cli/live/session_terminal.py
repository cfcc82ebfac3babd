"""The person's side of a session: this terminal in raw mode, or stdin, stdout and stderr as they are."""

from __future__ import annotations

import codecs
import math
import os
import signal
import sys
import termios
import tty
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

import anyio
from anyio.streams.memory import MemoryObjectSendStream

from headrace.client import Refused, Unanswered
from headrace.client.sessions import Session
from headrace_cli.exit_statuses import Exit
from headrace_cli.show.screen import harmless

_READ_BYTES: Final = 64 * 1024
#: Bytes that a pipe accepts as a whole once it is writable, so that a write does not block.
_WRITE_BYTES: Final = 4096
#: Seconds of silence of the node after which the person is told, and Ctrl-C leaves the session.
_SILENT_S: Final = 8.0
_INTERRUPT: Final = b"\x03"
#: The key that always leaves a session, as in machinectl. It must be pressed `_LEAVE_TIMES` times within `_LEAVE_S` seconds.
_LEAVE: Final = b"\x1d"
_LEAVE_TIMES: Final = 3
_LEAVE_S: Final = 1.0
#: Upper bound of the pieces of input from a terminal that wait until the node accepts them.
_MOST_READ_AHEAD: Final = 256


def window() -> tuple[int, int]:
    """Return rows and columns of the terminal of stdin; 24 and 80 if stdin is no terminal."""
    try:
        columns, rows = os.get_terminal_size(sys.stdin.fileno())
    except OSError:
        return 24, 80
    return rows, columns


def has_terminal() -> bool:
    """True if stdin and stdout are terminals."""
    return sys.stdin.isatty() and sys.stdout.isatty()


@contextmanager
def raw_terminal() -> Iterator[None]:
    """Pass every key unchanged inside the block, and restore the terminal after it."""
    fd = sys.stdin.fileno()
    before = termios.tcgetattr(fd)
    # TCSADRAIN keeps the keys that were typed while the job was starting.
    tty.setraw(fd, termios.TCSADRAIN)
    try:
        yield
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)


async def converse(session: Session, *, is_terminal: bool) -> int:
    """Carry bytes in both directions until the process ends, and return its exit status.

    A hang-up, SIGTERM, or Ctrl-C without a terminal ends the session. With a terminal Ctrl-C goes to the job; it ends the session
    only while the node does not answer. Three times Ctrl-] within a second always ends it.
    """
    left = False

    def leave() -> None:
        nonlocal left
        left = True
        tasks.cancel_scope.cancel()

    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_watch_signals, session, is_terminal, leave)
            tasks.start_soon(_carry_input, session, is_terminal, leave)
            tasks.start_soon(session.stay)
            tasks.start_soon(_tell_silence, session, is_terminal)
            writers = [
                _writer(sys.stdout.fileno(), is_terminal=is_terminal),
                _writer(sys.stderr.fileno(), is_terminal=False),
            ]
            async for output in session.read():
                for write, data in zip(writers, output, strict=True):
                    await write(data)
            tasks.cancel_scope.cancel()
    except BrokenPipeError:
        return Exit.FAILED
    return Exit.INTERRUPTED if left or session.end is None else session.end.status


async def _carry_input(session: Session, is_terminal: bool, leave: Callable[[], None]) -> None:
    # Keys are read even while the node does not accept earlier keys, because a key may leave the session.
    send, receive = anyio.create_memory_object_stream[bytes](_MOST_READ_AHEAD if is_terminal else 0)
    async with receive, anyio.create_task_group() as tasks:
        tasks.start_soon(_read_input, send, session, is_terminal, leave)
        # The session may end while input is on its way. The task that reads the output reports how it ended.
        with suppress(Refused, Unanswered):
            async for data in receive:
                await session.write(data)
            if not is_terminal:
                await session.end_input()


async def _read_input(
    send: MemoryObjectSendStream[bytes], session: Session, is_terminal: bool, leave: Callable[[], None]
) -> None:
    fd = sys.stdin.fileno()
    presses: deque[float] = deque([-math.inf] * _LEAVE_TIMES, maxlen=_LEAVE_TIMES)
    async with send:
        while data := await _read(fd):
            presses.extend([anyio.current_time()] * data.count(_LEAVE))
            is_pressed_often = presses[-1] - presses[0] < _LEAVE_S
            if is_terminal and (is_pressed_often or (_INTERRUPT in data and session.silent_s > _SILENT_S)):
                leave()
                return
            await send.send(data)


async def _read(fd: int) -> bytes:
    # The poll refuses files, which are always readable and cannot be waited for.
    with suppress(PermissionError):
        await anyio.wait_readable(fd)
    try:
        return os.read(fd, _READ_BYTES)
    except OSError:
        return b""


def _writer(fd: int, *, is_terminal: bool) -> Callable[[bytes], Awaitable[None]]:
    """Return a function that writes output. If `fd` is a terminal, escape sequences reach it only in a session with its own terminal."""
    is_shown = os.isatty(fd) and not is_terminal
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    async def write(data: bytes) -> None:
        if is_shown:
            data = harmless(decoder.decode(data)).encode()
        while data:
            with suppress(PermissionError):
                await anyio.wait_writable(fd)
            data = data[os.write(fd, data[:_WRITE_BYTES]) :]

    return write


async def _watch_signals(session: Session, is_terminal: bool, leave: Callable[[], None]) -> None:
    with anyio.open_signal_receiver(signal.SIGWINCH, signal.SIGHUP, signal.SIGTERM, signal.SIGINT) as signals:
        async for number in signals:
            if number != signal.SIGWINCH:
                leave()
                return
            if is_terminal:
                with suppress(Refused, Unanswered):
                    await session.resize(*window())


async def _tell_silence(session: Session, is_terminal: bool) -> None:
    told = False
    while True:
        await anyio.sleep(1)
        is_silent = session.silent_s > _SILENT_S
        if is_silent and not told:
            # A terminal in raw mode does not return to the beginning of the line by itself.
            before, end = ("\r\n", "\r\n") if is_terminal else ("", "\n")
            os.write(sys.stderr.fileno(), f"{before}node {session.node} does not answer; Ctrl-C leaves{end}".encode())
        told = is_silent
