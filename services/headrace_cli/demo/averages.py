"""Averages over time of what pools used and were owed, from samples. Pure.

Only the time in which all pools have pending jobs counts, because shares matter only then. This
time begins when jobs of all pools run. Earlier, the pool that started first has all cores until its first jobs end. Each sample counts
until the next sample.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec


class Sample(msgspec.Struct, frozen=True):
    """Usage and fair share of one pool at one time, in cores."""

    usage: float
    fair_share: float
    #: True if jobs of the pool are pending.
    waiting: bool


class Averages:
    """Averages of samples, weighted by time."""

    def __init__(self, pools: list[str]) -> None:
        self._pools = pools
        self._last: tuple[float, Mapping[str, Sample]] | None = None
        self._usage = dict.fromkeys(pools, 0.0)
        self._fair_share = dict.fromkeys(pools, 0.0)
        self._begun = False
        #: Length of the time that counted, in seconds.
        self.seconds = 0.0

    def on_sample(self, now_s: float, samples: Mapping[str, Sample]) -> None:
        """Add a sample that was taken at `now_s`. Pools that are missing in the sample count as idle."""
        if self._last is not None:
            then_s, before = self._last
            if self._counts(before):
                self._add(now_s - then_s, before)
        self._last = (now_s, samples)

    def usage(self, pool: str) -> float:
        """Return the cores that the pool used on average, or 0 if the pools never all had jobs at the same time."""
        return self._usage[pool] / self.seconds if self.seconds else 0.0

    def fair_share(self, pool: str) -> float:
        """Return the cores that the pool was owed on average, or 0 if the pools never all had jobs at the same time."""
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
