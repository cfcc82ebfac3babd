"""Young objects: the garbage collector examines each object once, while it is new and still in the CPU cache."""

from __future__ import annotations

import gc
from typing import Final

_YOUNGEST: Final = 0
#: Number of messages between two runs of the garbage collector. The objects that a few messages made are still in the core's caches, so
#: that examining them is cheap.
_EVERY: Final = 4


class YoungObjects:
    """Runs the garbage collector once in a number of messages, on the objects that were made since its last run.

    By itself the collector runs when the number of objects made exceeds the number of objects freed by a threshold. Code that replaces
    objects frees as many as it makes, so the collector ran rarely. A single run then had to examine tens of thousands of new objects, and
    no message was answered meanwhile.

    After a run, the objects that are still in use are frozen: no later run examines them. Reference counting still frees them once nothing
    refers to them. Heartbeats make no cycles that outlive a run, so examining old objects would find nothing, and would delay messages.
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
