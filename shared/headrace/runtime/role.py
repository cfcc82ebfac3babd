"""A role, such as `allocator.default`, and the one process that leads it.

A process waits until the role is free, takes its term, serves, and steps down. Everything that it writes or says carries the term,
so that everybody can tell its word from that of a predecessor. Whoever notices that a higher term is taken, however deep in a
handler or a task, deposes the process: `Deposition` carries that to where the process ends.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio
import msgspec

from headrace.bus import Bus, Message, WrongRevision
from headrace.errors import HeadraceError
from headrace.ids import TreeName
from headrace.obs.logging import logger
from headrace.wire import subjects
from headrace.wire.codec import BadMessage, decode, encode
from headrace.wire.version import Term, WhoAnswer, WhoRequest

__all__ = ["Deposed", "Deposition", "Role", "TermBook", "lead", "role_of", "take_term"]


class Deposed(HeadraceError):
    """Another process serves with a higher term; this one must not go on."""


class Deposition:
    """Ends the process when anybody in it notices that another one leads."""

    def __init__(self) -> None:
        self._noticed = anyio.Event()
        self._reason = ""

    def depose(self, reason: str) -> None:
        """Ends the process within a moment. Only the first reason counts."""
        if not self._noticed.is_set():
            self._reason = reason
            self._noticed.set()

    @property
    def is_deposed(self) -> bool:
        """True once the process is to end."""
        return self._noticed.is_set()

    async def watch(self) -> None:
        """Waits for a deposition. Raises `Deposed` then; runs in the task group of the whole process."""
        await self._noticed.wait()
        raise Deposed(self._reason)


class Role:
    """The lead of one role in one life of a process."""

    def __init__(self, name: str, term: Term, deposition: Deposition) -> None:
        self.name = name
        self.term = term
        self._deposition = deposition

    def on_term(self, term: Term, told_by: str) -> None:
        """Somebody told of a term of this role. A higher one than ours deposes this process."""
        if term > self.term:
            self._deposition.depose(f"{told_by} knows term {term} of {self.name}, ours is {self.term}")

    def step_down(self, reason: str) -> None:
        """Ends the process; another one leads, or none should."""
        self._deposition.depose(reason)


class TermBook:
    """The highest term seen of each role; answers `who`."""

    def __init__(self, peer: str) -> None:
        self._peer = peer
        self._highest: dict[str, Term] = {}

    def see(self, role: str, term: Term) -> bool:
        """Notes a term. False if a higher one of the role is known: then whatever carries it must be refused."""
        known = self._highest.get(role, 0)
        if term > known:
            self._highest[role] = term
        return term >= known

    def highest(self, role: str) -> Term:
        """The highest term seen of the role; 0 for none."""
        return self._highest.get(role, 0)

    async def serve(self, bus: Bus) -> None:
        """Answers `who` for the rest of the bus's life."""

        async def answer(message: Message) -> bytes | None:
            try:
                request = decode(message.data, WhoRequest)
            except BadMessage:
                return None
            term = self.highest(request.role)
            return encode(WhoAnswer(role=request.role, term=term, peer=self._peer)) if term else None

        await bus.serve(subjects.WHO, answer)


def role_of(service: str, tree: TreeName | None = None) -> str:
    """The name of a service's role: one for each tree, or one for all where no tree is named."""
    return service if tree is None else f"{service}.{tree}"


async def lead(
    bus: Bus, terms: TermBook, deposition: Deposition, name: str, serve: Callable[[Role], Awaitable[None]]
) -> None:
    """Takes the term of a role and runs `serve` with it. Raises `BusError` if the bucket of terms is out of reach.

    The term is taken before the first subscription of `serve`, so nothing that it answers can carry an older one.
    """
    role = Role(name, await take_term(bus, name), deposition)
    terms.see(name, role.term)
    await serve(role)


class _TermRecord(msgspec.Struct, frozen=True):
    term: Term


async def take_term(bus: Bus, role: str, *, wait_s: float = 0.1) -> Term:
    """Returns a term above every one ever seen of the role, after writing it by compare-and-set.

    A bucket that lost its newest writes cannot bring an old term back while a peer remembers it; peers have `wait_s` to answer.
    Raises `BusError` if the bucket is out of reach.
    """
    bucket = await bus.key_value(subjects.TERMS_BUCKET)
    seen = 0
    for data in await bus.gather(subjects.WHO, encode(WhoRequest(role=role)), wait_s=wait_s):
        try:
            seen = max(seen, decode(data, WhoAnswer).term)
        except BadMessage:
            logger().warning("malformed answer to who", role=role)
    while True:
        entry = await bucket.get(role)
        stored = msgspec.json.decode(entry.value, type=_TermRecord).term if entry else 0
        term = max(stored, seen) + 1
        value = msgspec.json.encode(_TermRecord(term=term))
        try:
            if entry is None:
                await bucket.create(role, value)
            else:
                await bucket.update(role, value, entry.revision)
        except WrongRevision:
            continue
        logger().info("term taken", role=role, term=term)
        return term
