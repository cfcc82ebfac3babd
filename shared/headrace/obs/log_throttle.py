"""The throttle for log lines about frequent events: one line a minute for each key."""

from __future__ import annotations

import time
from collections.abc import Callable

_EVERY_S = 60.0
_MOST_KEYS = 1_000


class LogThrottle:
    """Decides whether a line may be logged again."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._at: dict[str, float] = {}

    def due(self, key: str) -> bool:
        """True if no line with this key was logged within the last minute."""
        now = self._clock()
        last = self._at.get(key)
        if last is not None and now - last < _EVERY_S:
            return False
        if len(self._at) >= _MOST_KEYS:
            self._at.clear()
        self._at[key] = now
        return True
