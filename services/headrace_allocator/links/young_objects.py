"""Young objects: the collector of cycles looks at what was made while it is at hand, and never again."""

from __future__ import annotations

import gc
from typing import Final

_YOUNGEST: Final = 0
#: Heartbeats between two looks. What a few of them made is in the caches of the core still, so that a look at it is cheap.
_EVERY: Final = 4


class YoungObjects:
    """Has the collector look at what was made since its last look, once in so many messages.

    By itself it looks when so many more were made than were freed. Whoever puts new objects in the place of others frees as many
    as it makes, so that one look found tens of thousands of them, and no message was answered meanwhile.
    What is in use after that is put aside for good. It is freed as all is that nobody refers to, and heartbeats make no cycles that
    last longer: a look at all of it would find nothing, and nobody would be answered meanwhile.
    """

    def __init__(self, every: int = _EVERY) -> None:
        self._every = self._left = every

    def note(self) -> None:
        """One more message was handled."""
        self._left -= 1
        if self._left == 0:
            self._left = self._every
            gc.collect(_YOUNGEST)
            gc.freeze()
