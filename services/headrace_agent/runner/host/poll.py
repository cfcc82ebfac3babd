"""Waiting for events of descriptors."""

from __future__ import annotations

import select
from collections.abc import Iterator
from typing import Protocol


class HasDescriptor(Protocol):
    """Anything with a descriptor, such as a socket."""

    def fileno(self) -> int:
        """Return the descriptor."""


class Poll:
    """As `select.epoll`, without events of descriptors that are closed meanwhile.

    One wait reports the events of several descriptors. While an event is handled, descriptors are closed and opened, and the kernel gives
    the numbers of closed descriptors to new ones. An event of a closed descriptor was taken for an event of the new one with its
    number: a job that had just started was taken for ended, and killed.
    """

    def __init__(self) -> None:
        self._epoll = select.epoll()
        #: Descriptors that were registered after the last wait.
        self._fresh: set[int] = set()

    def register(self, fd: int | HasDescriptor, mask: int) -> None:
        self._epoll.register(fd, mask)
        self._fresh.add(fd if isinstance(fd, int) else fd.fileno())

    def modify(self, fd: int | HasDescriptor, mask: int) -> None:
        self._epoll.modify(fd, mask)

    def unregister(self, fd: int | HasDescriptor) -> None:
        self._epoll.unregister(fd)

    def events(self, timeout_s: float) -> Iterator[tuple[int, int]]:
        """Wait for events, at most `timeout_s` seconds, and yield each as its descriptor and mask.

        An event of a descriptor that was registered after the wait is left out. If it is an event of the new descriptor, the next
        wait reports it again.
        """
        self._fresh.clear()
        for fd, mask in self._epoll.poll(timeout_s):
            if fd not in self._fresh:
                yield fd, mask

    def close(self) -> None:
        self._epoll.close()
