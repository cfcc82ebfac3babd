"""The store of starvation clocks: ages, in pieces that fit a message. Best effort: the newest pieces count."""

from __future__ import annotations

from headrace.bus import KeyValue
from headrace.ids import TreeName
from headrace.obs.logging import logger
from headrace.wire.codec import BadMessage, decode, encode
from headrace_fair_share.starvation.clocks import Age, Ages

__all__ = ["ClockStore"]

#: Ages in one value.
_AGES_PER_PIECE = 2_500


class ClockStore:
    """The ages of one tree, under `<tree>.<number>`. A crash between two pieces leaves ages that differ by one period of saving."""

    def __init__(self, bucket: KeyValue, tree: TreeName) -> None:
        self._bucket = bucket
        self._prefix = f"{tree}."
        self._pieces = 0

    async def load(self) -> list[Ages]:
        """Reads all saved ages. A piece that is none is left out and logged. Raises `BusError`."""
        found: list[Ages] = []
        for key, entry in sorted((await self._bucket.entries()).items()):
            if key.startswith(self._prefix):
                self._pieces += 1
                try:
                    found.append(decode(entry.value, Ages))
                except BadMessage as error:
                    logger().warning("saved clocks cannot be read", key=key, error=str(error))
        return found

    async def save(self, ages: list[Age]) -> None:
        """Writes all ages, or nothing where there are none and were none. Raises `BusError`."""
        pieces = [ages[at : at + _AGES_PER_PIECE] for at in range(0, len(ages), _AGES_PER_PIECE)]
        for number, piece in enumerate(pieces):
            await self._bucket.put(f"{self._prefix}{number}", encode(Ages(ages=piece)))
        for number in range(len(pieces), self._pieces):
            await self._bucket.delete(f"{self._prefix}{number}")
        self._pieces = len(pieces)
