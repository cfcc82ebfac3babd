"""Logging what may happen ten thousand times a second: once per subject and minute."""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["Seldom"]

_EVERY_S = 60.0
_MOST_KEYS = 1_000


class Seldom:
    """Says whether something is due to be logged again."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._at: dict[str, float] = {}

    def due(self, key: str) -> bool:
        """True the first time, and again when a minute has passed since it was last true."""
        now = self._clock()
        last = self._at.get(key)
        if last is not None and now - last < _EVERY_S:
            return False
        if len(self._at) >= _MOST_KEYS:
            self._at.clear()
        self._at[key] = now
        return True
