"""Writes to a bucket that this process heard of, and that its mirror of the bucket may lack."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from headrace.bus import Entry, HeardWrites

#: Seconds after which no mirror lacks a write any more: the write is stored or has failed for good, and the mirror has since read the
#: bucket by itself more than once.
_MAY_LACK_IT_S: Final = 12.0


class MissingWrites:
    """The attempts to write that a mirror may lack.

    An attempt is no longer missing once the mirror has the key with a higher revision than the attempt named: then the attempt is part of
    the mirror, or was refused. In most cases that is so a few milliseconds after the attempt. Attempts that named no revision, deleted keys
    and new connections count for `_MAY_LACK_IT_S`.
    """

    def __init__(self) -> None:
        #: Steady time in seconds until which attempts may be missing of which nothing is known; infinite while no attempt can be heard.
        self._unclear_until_s = math.inf
        #: By key, the highest revision that an attempt named, and the steady time in seconds until which the attempt may be missing.
        self._named: dict[str, tuple[int, float]] = {}

    def listens(self) -> None:
        """Record that attempts are heard from now on."""
        self._unclear_until_s = -math.inf

    def note(self, heard: HeardWrites, now_s: float) -> None:
        """Record attempts that were heard."""
        until_s = now_s + _MAY_LACK_IT_S
        if heard.unclear:
            self._unclear_until_s = max(self._unclear_until_s, until_s)
        for key, revision in heard.named.items():
            self._named[key] = (max(revision, self._named.get(key, (0, 0.0))[0]), until_s)

    def some_from(self, entries: Mapping[str, Entry], now_s: float) -> bool:
        """Return True if attempts may be missing from these entries of the mirror. Forget the attempts that are not."""
        for key, (revision, until_s) in list(self._named.items()):
            entry = entries.get(key)
            if now_s >= until_s or (entry is not None and entry.revision > revision):
                del self._named[key]
        return bool(self._named) or now_s < self._unclear_until_s
