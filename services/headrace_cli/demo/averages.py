"""Averages over time of what pools used and were owed, from samples. Pure.

Only the time in which jobs of every pool wait counts: there shares mean something. It begins when jobs of every pool run: until
then the pool that came first has what was free, and nothing is taken from it before its first jobs end. A sample holds until the
next one.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec


class Sample(msgspec.Struct, frozen=True):
    """One pool at one moment, in cores."""

    usage: float
    fair_share: float
    #: Jobs of it wait for a place.
    waiting: bool


class Averages:
    """Sums of value times length of time."""

    def __init__(self, pools: list[str]) -> None:
        self._pools = pools
        self._last: tuple[float, Mapping[str, Sample]] | None = None
        self._usage = dict.fromkeys(pools, 0.0)
        self._fair_share = dict.fromkeys(pools, 0.0)
        self._begun = False
        #: Length of the time that counted.
        self.seconds = 0.0

    def on_sample(self, now_s: float, samples: Mapping[str, Sample]) -> None:
        """Adds a sample taken at this moment. Pools that are missing in it count as idle."""
        if self._last is not None:
            then_s, before = self._last
            if self._counts(before):
                self._add(now_s - then_s, before)
        self._last = (now_s, samples)

    def usage(self, pool: str) -> float:
        """Cores used on average, 0 if no time counted."""
        return self._usage[pool] / self.seconds if self.seconds else 0.0

    def fair_share(self, pool: str) -> float:
        """Cores owed on average, 0 if no time counted."""
        return self._fair_share[pool] / self.seconds if self.seconds else 0.0

    def _counts(self, samples: Mapping[str, Sample]) -> bool:
        if not all(pool in samples and samples[pool].waiting for pool in self._pools):
            return False
        self._begun = self._begun or all(min(samples[pool].usage, samples[pool].fair_share) > 0 for pool in self._pools)
        return self._begun

    def _add(self, length_s: float, samples: Mapping[str, Sample]) -> None:
        self.seconds += length_s
        for pool in self._pools:
            self._usage[pool] += samples[pool].usage * length_s
            self._fair_share[pool] += samples[pool].fair_share * length_s
