"""Times in words, in the time zone of this terminal."""

from __future__ import annotations

import time
from typing import Final

_DAY_MS: Final = 24 * 3600 * 1000


def moment_words(at_ms: int, now_ms: int) -> str:
    """Return the time of day of a Unix time in milliseconds, with the date if it is a day or more from now."""
    return time.strftime(
        "%H:%M:%S" if abs(now_ms - at_ms) < _DAY_MS else "%Y-%m-%d %H:%M", time.localtime(at_ms / 1000)
    )
