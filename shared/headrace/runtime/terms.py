"""Terms: numbers by which everybody tells the word of a leader from that of its predecessors.

A process takes its term before its first subscription: one above the largest that the bucket, its own records and any peer know. A
bucket that lost its newest writes cannot bring an old term back while anybody remembers it.
"""

from __future__ import annotations

import msgspec

from headrace.bus import Bus, Message, WrongRevision
from headrace.obs.logging import logger
from headrace.wire import subjects
from headrace.wire.codec import BadMessage, decode, encode
from headrace.wire.version import LARGEST_JUMP, Term, WhoAnswer, WhoRequest

__all__ = ["TermBook", "stored_term", "take_term"]


class TermBook:
    """The highest term seen of each role, told to whoever asks `who`."""

    def __init__(self, peer: str) -> None:
        self._peer = peer
        self._highest: dict[str, Term] = {}

    def see(self, role: str, term: Term) -> bool:
        """Notes a term. False if whatever carries it must be refused: a higher one is known, or it jumps too far."""
        known = self._highest.get(role, 0)
        if term > known + LARGEST_JUMP:
            logger().error("term refused", role=role, term=term, known=known)
            return False
        if term > known:
            self._highest[role] = term
        return term >= known

    def highest(self, role: str) -> Term:
        """The highest term seen of the role, 0 for none."""
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


class _TermRecord(msgspec.Struct, frozen=True):
    term: Term


async def stored_term(bus: Bus, role: str) -> Term:
    """The term that the bucket has for a role, 0 for none. Raises `BusError`."""
    entry = await (await bus.key_value(subjects.TERMS_BUCKET)).get(role)
    return msgspec.json.decode(entry.value, type=_TermRecord).term if entry is not None else 0


async def take_term(bus: Bus, role: str, *, recorded: Term = 0, wait_s: float = 0.1) -> Term:
    """Returns a term above every one ever seen of the role, after writing it by compare-and-set.

    `recorded` is the highest term in what the service itself has written. Peers have `wait_s` to answer; one that is
    `LARGEST_JUMP` above bucket and records is not believed. Raises `BusError` if the bucket is out of reach.
    """
    bucket = await bus.key_value(subjects.TERMS_BUCKET)
    answers = await bus.gather(subjects.WHO, encode(WhoRequest(role=role)), wait_s=wait_s)
    while True:
        entry = await bucket.get(role)
        stored = msgspec.json.decode(entry.value, type=_TermRecord).term if entry is not None else 0
        known = max(stored, recorded)
        term = max(known, _highest_of(answers, role, known)) + 1
        value = msgspec.json.encode(_TermRecord(term=term))
        try:
            await bucket.update(role, value, entry.revision if entry is not None else 0)
        except WrongRevision:
            continue
        logger().info("term taken", role=role, term=term)
        return term


def _highest_of(answers: list[bytes], role: str, known: Term) -> Term:
    highest: Term = 0
    for data in answers:
        try:
            answer = decode(data, WhoAnswer)
        except BadMessage:
            logger().warning("malformed answer to who", role=role)
            continue
        if answer.role == role and answer.term <= known + LARGEST_JUMP:
            highest = max(highest, answer.term)
        else:
            logger().error("term of a peer refused", role=role, peer=answer.peer, term=answer.term, known=known)
    return highest
