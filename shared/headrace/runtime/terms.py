"""Terms: numbers that tell a leader's messages apart from those of earlier leaders.

A process takes its term before its first subscription. The new term is one above the largest term that the bucket of terms, the
lease of the role, the service's own records or any peer know. So if the bucket loses its newest writes, no term is taken twice,
as long as another of these sources knows it.
"""

from __future__ import annotations

from typing import Final

import msgspec

from headrace.bus import Bus, BusError, Entry, Message, WrongRevision
from headrace.errors import BadInput
from headrace.obs.logging import logger
from headrace.runtime.lease import term_of_lease
from headrace.wire import subjects
from headrace.wire.codec import UNREADABLE, BadMessage, decode, encode
from headrace.wire.version import LARGEST_JUMP, Term, WhoAnswer, WhoRequest

#: Seconds that peers have to answer.
_WHO_WAIT_S: Final = 0.1


class TermBook:
    """The highest term of each role that this process has seen. Other processes ask for these terms with `WhoRequest`."""

    def __init__(self, peer: str) -> None:
        self._peer = peer
        self._highest: dict[str, Term] = {}

    def see(self, role: str, term: Term) -> bool:
        """Record a term. Return False if a message with this term must be refused: a higher term is known, or the term is too
        far above the known term.
        """
        known = self._highest.get(role, 0)
        if term > known + LARGEST_JUMP:
            logger().error("term refused", role=role, term=term, known=known)
            return False
        if term > known:
            self._highest[role] = term
        return term >= known

    async def believes(self, bus: Bus, role: str, term: Term) -> bool:
        """Return True if a message with this term is accepted: no higher term is known, and a process has taken this term.

        A term above the known term is looked up first. Otherwise, after one forged message with a high term, every message of the
        true leader would be refused.
        """
        if term <= self.highest(role):
            return term == self.highest(role)
        try:
            taken = await taken_term(bus, role, at_least=term)
        except BusError as error:
            logger().info("terms cannot be read", role=role, error=str(error))
            return False
        if taken < term:
            logger().error("term refused", role=role, term=term, taken=taken)
            return False
        return self.see(role, term)

    def highest(self, role: str) -> Term:
        """Return the highest term seen of the role, or 0."""
        return self._highest.get(role, 0)

    async def serve(self, bus: Bus) -> None:
        """Answer requests for the highest term of a role (`WhoRequest`) until the connection is closed."""

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


async def taken_term(bus: Bus, role: str, *, at_least: Term) -> Term:
    """Return the highest term of a role that the bucket, the role's lease or a peer knows, or 0 if none is known.

    The lease is read and peers are asked only if the bucket has no term of at least `at_least`. Raises `BusError`.
    """
    try:
        stored = _term_in(await (await bus.key_value(subjects.TERMS_BUCKET)).get(role))
    except BadInput:
        # The role comes from a message. If it is no valid key of the bucket, no process can have taken a term of it,
        # so the term is 0.
        return 0
    if stored < at_least:
        # The lease is read, too: its holder writes its term there with each renewal, but may answer too slowly as a peer.
        stored = max(stored, await _leased_term(bus, role))
    if stored >= at_least:
        return stored
    return max(stored, await term_of_peers(bus, role, known=stored))


async def take_term(bus: Bus, role: str, *, recorded: Term = 0) -> Term:
    """Take a term for this process and return it: a term above every known term of the role, written to the bucket by compare-and-set.

    `recorded` is the highest term in the data that the service itself has written. A term of a peer is ignored if it is
    more than `LARGEST_JUMP` above the term in the bucket, the term in the lease and `recorded`. Raises `BusError` if
    the bucket is out of reach.
    """
    bucket = await bus.key_value(subjects.TERMS_BUCKET)
    recorded = max(recorded, await _leased_term(bus, role))
    answers = await _ask_peers(bus, role)
    while True:
        entry = await bucket.get(role)
        stored = _term_in(entry)
        known = max(stored, recorded)
        term = max(known, _highest_of(answers, role, known)) + 1
        value = msgspec.json.encode(_TermRecord(term=term))
        try:
            await bucket.update(role, value, entry.revision if entry is not None else 0)
        except WrongRevision:
            continue
        logger().info("term taken", role=role, term=term)
        return term


async def term_of_peers(bus: Bus, role: str, *, known: Term) -> Term:
    """Ask all peers for the highest term of a role, and return it. Terms that are too far above `known` are ignored. Raises `BusError`."""
    return _highest_of(await _ask_peers(bus, role), role, known)


async def _ask_peers(bus: Bus, role: str) -> list[bytes]:
    return await bus.gather(subjects.WHO, encode(WhoRequest(role=role)), wait_s=_WHO_WAIT_S)


async def _leased_term(bus: Bus, role: str) -> Term:
    return term_of_lease(await (await bus.key_value(subjects.LEASES_BUCKET)).get(role))


def _term_in(entry: Entry | None) -> Term:
    if entry is None:
        return 0
    try:
        return msgspec.json.decode(entry.value, type=_TermRecord).term
    except UNREADABLE as error:
        # The unreadable record counts as lost. The lease, the service's records and peers still know the term.
        logger().error("term cannot be read", key=entry.key, error=str(error))
        return 0


def _highest_of(answers: list[bytes], role: str, known: Term) -> Term:
    highest: Term = 0
    for data in answers:
        try:
            answer = decode(data, WhoAnswer)
        except BadMessage:
            logger().warning("malformed answer about the highest term of a role", role=role)
            continue
        if answer.role == role and answer.term <= known + LARGEST_JUMP:
            highest = max(highest, answer.term)
        else:
            logger().error("term of a peer refused", role=role, peer=answer.peer, term=answer.term, known=known)
    return highest
