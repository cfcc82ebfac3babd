"""The throttle of log lines about frequent things: one a minute for each key."""

from __future__ import annotations

import time
from collections.abc import Callable

_EVERY_S = 60.0
_MOST_KEYS = 1_000


class LogThrottle:
    """Says whether something is due to be logged again."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._at: dict[str, float] = {}

    def due(self, key: str) -> bool:
        """True if it never was for this key, or if a minute has passed since."""
        now = self._clock()
        last = self._at.get(key)
        if last is not None and now - last < _EVERY_S:
            return False
        if len(self._at) >= _MOST_KEYS:
            self._at.clear()
        self._at[key] = now
        return True
