"""Terms: how a service makes sure that nobody takes it for one of its former lives.

A service takes its term at start, before its first subscription: the highest of what the bucket holds and what any peer has seen,
plus one, by compare-and-set. A bucket that lost its newest writes cannot bring an old term back while a peer remembers it.
"""

from __future__ import annotations

import msgspec

from headrace.bus import Bus, Message, WrongRevision
from headrace.obs.logging import logger
from headrace.wire import subjects
from headrace.wire.codec import BadMessage, decode, encode
from headrace.wire.version import Term, WhoAnswer, WhoRequest

__all__ = ["TermBook", "take_term"]


class _TermRecord(msgspec.Struct, frozen=True):
    term: Term


class TermBook:
    """The highest term seen of each role; answers `who`."""

    def __init__(self, peer: str) -> None:
        self._peer = peer
        self._highest: dict[str, int] = {}

    def see(self, role: str, term: int) -> bool:
        """Notes a term; False when a higher one of the role is known, so that what carries it must be refused."""
        known = self._highest.get(role, 0)
        if term > known:
            self._highest[role] = term
        return term >= known

    def highest(self, role: str) -> int:
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


async def take_term(bus: Bus, role: str, *, wait_s: float = 0.1) -> Term:
    """A term higher than every one ever seen of `role` (such as `allocator.default`), written before it is returned.

    `wait_s` is how long peers may take to answer. Raises `BusError` when the bucket cannot be reached.
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
