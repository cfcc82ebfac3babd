"""Young objects: the garbage collector examines new objects while they are in the CPU cache, and never again."""

from __future__ import annotations

import gc
from typing import Final

_YOUNGEST: Final = 0
#: Messages between two runs. The objects that a few messages made are still in the core's caches, so that examining them is cheap.
_EVERY: Final = 4


class YoungObjects:
    """Runs the garbage collector on the objects made since its last run, once in a number of messages.

    By itself the collector runs once a number of objects more were made than freed. Code that replaces objects frees as many as it makes,
    so that one run found tens of thousands of new objects, and no message was answered meanwhile.

    Objects still in use after a run are frozen for good. They are freed like all objects to which nothing refers. Heartbeats make no
    cycles that last longer, so a run over all objects would find nothing, and no message would be answered meanwhile.
    """

    def __init__(self, every: int = _EVERY) -> None:
        self._every = self._left = every

    def note(self) -> None:
        """Count one more message that was handled."""
        self._left -= 1
        if self._left == 0:
            self._left = self._every
            gc.collect(_YOUNGEST)
            gc.freeze()
