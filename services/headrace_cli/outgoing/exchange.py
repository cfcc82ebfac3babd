"""One exchange with a server, which ends after a bounded time.

The timeouts of `requests` and `smtplib` bound the time between two bytes. A server that sends a byte now and then would therefore keep
the thread of an attempt for ever, and each further attempt would need another thread.
"""

from __future__ import annotations

import os
import socket
import threading
from contextlib import suppress
from types import TracebackType
from typing import Any, Self, TypeVar

C = TypeVar("C")


class Exchange:
    """The connections of one attempt, which are shut down when the time is over. The end of the block then raises `TimeoutError`."""

    def __init__(self, longest_s: float) -> None:
        self._longest_s = longest_s
        self._copies: list[socket.socket] = []
        self._lock = threading.Lock()
        self._is_over = False
        self._timer = threading.Timer(longest_s, self._end)
        self._timer.daemon = True

    def __enter__(self) -> Self:
        self._timer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()
        with self._lock:
            for copy in self._copies:
                copy.close()
            self._copies.clear()
        if self._is_over:
            raise TimeoutError(f"no answer within {self._longest_s:.0f} s") from None

    def bounded(self, kind: type[C], connecting: str) -> type[C]:
        """Return a subclass of a kind of connection. `connecting` is the name of its method that returns a new connected socket."""

        def connect(connection: Any, *words: Any) -> socket.socket:
            made: socket.socket = getattr(super(bounded, connection), connecting)(*words)
            self._add(made)
            return made

        bounded = type(kind.__name__, (kind,), {connecting: connect})
        return bounded

    def _add(self, made: socket.socket) -> None:
        # The copy of the descriptor stays valid if TLS takes over the socket, and no other file can get its number before it is closed.
        copy = socket.socket(fileno=os.dup(made.fileno()))
        with self._lock:
            self._copies.append(copy)
            if self._is_over:
                _shut_down(copy)

    def _end(self) -> None:
        with self._lock:
            self._is_over = True
            for copy in self._copies:
                _shut_down(copy)


def _shut_down(copy: socket.socket) -> None:
    with suppress(OSError):
        copy.shutdown(socket.SHUT_RDWR)
