"""The store of starvation clocks: ages, in pieces that each fit a message. Only the process with the newest term can write a piece."""

from __future__ import annotations

import msgspec

from headrace.bus import KeyValue
from headrace.ids import TreeName
from headrace.obs.logging import logger
from headrace.runtime.fenced_writes import FencedKey
from headrace.wire.codec import BadMessage, decode, encode, runs_within
from headrace.wire.version import Term
from headrace_fair_share.starvation.clocks import Age, Ages

#: Largest size of the ages in one value.
_PIECE_BYTES = 256 * 1024


class ClockStore:
    """Stores the ages of one tree under the keys `<tree>.<number>`.

    After a crash between the writes of two pieces, the ages in the first piece are newer by one save period than the ages in the second.
    """

    def __init__(self, bucket: KeyValue, tree: TreeName, term: Term) -> None:
        self._bucket = bucket
        self._tree = tree
        self._term = term
        self._pieces: list[FencedKey] = []

    async def load(self) -> list[Ages]:
        """Claim all pieces, and return the saved ages. Unreadable pieces are skipped and logged. Raises `KeyFenced`, `BusError`."""
        prefix = f"{self._tree}."
        found: list[Ages] = []
        for _ in [key for key in await self._bucket.entries() if key.startswith(prefix)]:
            value = await self._piece(len(self._pieces)).claim(self._restated)
            ages = None if value is None else _ages_of(value)
            if ages is not None:
                found.append(ages)
            else:
                logger().warning("saved clocks cannot be read", tree=self._tree, piece=len(self._pieces) - 1)
        return found

    async def save(self, ages: list[Age]) -> None:
        """Write all ages. Pieces that are no longer needed become empty. Raises `KeyFenced`, `BusError`."""
        pieces = list(runs_within(ages, _PIECE_BYTES))
        for number in range(max(len(pieces), len(self._pieces))):
            piece = pieces[number] if number < len(pieces) else []
            await self._piece(number).write(encode(Ages(ages=piece, term=self._term)))

    def _piece(self, number: int) -> FencedKey:
        if number == len(self._pieces):
            self._pieces.append(FencedKey(self._bucket, f"{self._tree}.{number}", self._term, _term_of))
        return self._pieces[number]

    def _restated(self, value: bytes | None) -> bytes:
        ages = None if value is None else _ages_of(value)
        return encode(msgspec.structs.replace(ages or Ages(), term=self._term))


async def term_of_clocks(bucket: KeyValue, tree: TreeName) -> Term:
    """Return the highest term of a process that saved clocks, or 0 if no clocks are saved. Raises `BusError`."""
    entries = await bucket.entries()
    return max((_term_of(entry.value) for key, entry in entries.items() if key.startswith(f"{tree}.")), default=0)


def _ages_of(value: bytes) -> Ages | None:
    try:
        return decode(value, Ages)
    except BadMessage:
        return None


def _term_of(value: bytes) -> Term:
    ages = _ages_of(value)
    return 0 if ages is None else ages.term
