"""Downsampling of recorded samples to the points of a graph. The requested time is divided into equal intervals, and each point summarizes
the samples of an interval. Pure.

Usage, demand and fair share are averaged over the samples of an interval. Their minimum and maximum are kept too, so that no peak is lost.
Guarantees and volumes are those of the last sample of the interval. Where samples are missing there is no point, and the next point says
that it follows a gap.
"""

from __future__ import annotations

from typing import Final

from headrace.resources import RESOURCE_NAMES
from headrace.wire.history import (
    Delivery,
    GetHistory,
    HistoryPoint,
    HistorySample,
    IntegralPoint,
    PoolSample,
    Savings,
    Spread,
)

#: Number of periods. If two consecutive samples are further apart, samples between them are missing.
_LATE: Final = 2.5
_NOTHING = PoolSample()


class Downsampler:
    """Makes the requested points from samples, which must be added in the order in which they were recorded."""

    def __init__(self, request: GetHistory) -> None:
        self._request = request
        self._place = RESOURCE_NAMES.index(request.resource)
        self._points: dict[int, HistoryPoint] = {}
        #: Unix time in milliseconds until which the next sample must come. If it is later, samples are missing before it.
        self.known_until_ms = request.known_until_ms
        #: Time of the newest sample that lists all pools, and the numbers of its pages that were added and do not contain the pool. Once
        #: these are all pages of the sample, the pool is known to be missing from it.
        self._pages: tuple[int, set[int]] = (0, set())
        #: True if a sample at or after the end of the requested time was added, so that no further sample is needed.
        self.past_end = False
        #: True if any of the added samples contained the pool.
        self.named = False

    @property
    def points(self) -> list[HistoryPoint]:
        """The points in order of time."""
        return [self._points[stretch] for stretch in sorted(self._points)]

    def add(self, sample: HistorySample) -> None:
        """Add one message of the history: a sample or a page of a sample."""
        request = self._request
        if sample.at_ms >= request.until_ms:
            self.past_end = True
            return
        pool = sample.pools.get(request.pool)
        if pool is None and not self._is_last_page(sample):
            return
        self.named = self.named or pool is not None
        if sample.at_ms >= request.since_ms:
            self._take(sample, pool or _NOTHING)
        self.known_until_ms = max(self.known_until_ms, sample.at_ms + int(sample.next_due_ms * _LATE))

    def _is_last_page(self, sample: HistorySample) -> bool:
        """Return True if this page is the last page of a complete sample of which no page contains the pool. Then all values of the pool
        are zero.
        """
        if not sample.complete:
            return False
        at_ms, seen = self._pages
        if at_ms != sample.at_ms:
            seen = set()
        seen.add(sample.page)
        self._pages = (sample.at_ms, seen)
        return len(seen) == sample.pages

    def _take(self, sample: HistorySample, pool: PoolSample) -> None:
        request = self._request
        stretch = (sample.at_ms - request.since_ms) * request.points // (request.until_ms - request.since_ms)
        point = HistoryPoint(
            stretch=stretch,
            at_ms=sample.at_ms,
            samples=1,
            after_gap=0 < self.known_until_ms < sample.at_ms,
            usage=self._spread(pool.usage.as_tuple()),
            demand=self._spread(pool.demand.as_tuple()),
            fair_share=self._spread(pool.fair_share.as_tuple()),
            strong_guarantee=pool.strong_guarantee.as_tuple()[self._place],
            total=sample.total.as_tuple()[self._place],
            integral=self._integral(sample, pool),
            delivery=self._delivery(pool),
        )
        known = self._points.get(stretch)
        self._points[stretch] = known.joined(point) if known is not None else point

    def _spread(self, amounts: tuple[int, int, int, int, int]) -> Spread:
        amount = float(amounts[self._place])
        return Spread(amount, amount, amount)

    def _delivery(self, pool: PoolSample) -> Delivery:
        used, wanted, owed, guaranteed = (
            amounts.as_tuple()[self._place]
            for amounts in (pool.usage, pool.demand, pool.fair_share, pool.strong_guarantee)
        )
        waiting = pool.smallest_waiting
        return Delivery(
            delivered=float(min(used, owed)),
            below_guarantee=float(used < min(guaranteed, wanted)),
            smallest_waiting=None if waiting is None else waiting.as_tuple()[self._place],
        )

    def _integral(self, sample: HistorySample, pool: PoolSample) -> IntegralPoint | None:
        integral = pool.integral
        if integral is None:
            return None
        total, volume = sample.total.as_tuple()[self._place], integral.volume
        saved = None
        if volume is not None:
            parts = (volume.user_slots, volume.cpu, volume.gpu, volume.memory, volume.network)
            saved = Savings(*[float(parts[self._place])] * 3)
        return IntegralPoint(
            flow=total * integral.flow_ratio,
            burst=total * integral.burst_ratio,
            capacity=total * integral.flow_ratio * sample.saturation_period_s,
            volume=saved,
        )
