"""Young objects: the collector of cycles looks at what a busy service made before it is much."""

from __future__ import annotations

import gc
from typing import Final

#: The generation up to which it looks: what was looked at once before comes along.
_GENERATION: Final = 1
#: Heartbeats between two looks. Where jobs start on half of them it finds 6,000 objects at most.
_EVERY: Final = 128


class YoungObjects:
    """Has the collector look at what was made since its last look, once in so many messages.

    By itself it looks when so many more were made than were freed. Whoever puts new objects in the place of others frees as many
    as it makes, so that one look found tens of thousands of them, and no message was answered meanwhile.
    """

    def __init__(self, every: int = _EVERY) -> None:
        self._every = self._left = every

    def note(self) -> None:
        """One more message was handled."""
        self._left -= 1
        if self._left == 0:
            self._left = self._every
            gc.collect(_GENERATION)
