"""History of pools: what fair_share records of a tree every few seconds, and how people read it.

A sample leaves out pools whose figures are all zero. A pool that a complete sample does not name used nothing, wanted nothing and
was owed nothing. A missing sample does no harm: it is a gap, and is shown as a gap.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from headrace.ids import PoolName, TreeName
from headrace.resources import ZERO, Amount, Finite, Resources
from headrace.wire.integral import Volume
from headrace.wire.version import Counter, Term

#: Largest number of points in an answer, over the whole period asked for.
MOST_POINTS = 4_000

#: Milliseconds of Unix time; the bound is three thousand years away.
UnixMs = Annotated[int, msgspec.Meta(ge=0, le=10**14)]


class IntegralSample(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A pool's integral guarantee at one point in time."""

    #: Inflow, as a share of the total.
    flow_ratio: Finite
    #: Burst: the most that may be drawn at once, as a share of the total; 0 for a relaxed pool.
    burst_ratio: Finite
    #: Saved volume; None until integral has reported it.
    volume: Volume | None = None


class PoolSample(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The figures of a pool at one point in time. They include all pools and operations below the pool."""

    usage: Resources = ZERO
    demand: Resources = ZERO
    #: Total fair share, as amounts.
    fair_share: Resources = ZERO
    #: Strong guarantee in force.
    strong_guarantee: Resources = ZERO
    integral: IntegralSample | None = None
    #: Resources of the smallest job of the operations below the pool that want more than they have; None if no operation wants more. Jobs
    #: are compared by the largest share of the cluster that they need of any resource.
    smallest_waiting: Resources | None = None


class HistorySample(msgspec.Struct, frozen=True):
    """The figures of one update, as fair_share records them, or one page of these figures."""

    tree: TreeName
    #: Unix time of the update.
    at_ms: Counter
    #: Milliseconds until the next complete sample is due.
    next_due_ms: Annotated[int, msgspec.Meta(ge=1)]
    total: Resources
    #: Seconds after which the inflow has filled empty savings.
    saturation_period_s: Annotated[float, msgspec.Meta(gt=0, le=1e9)]
    pools: dict[PoolName, PoolSample]
    #: False: the sample has only pools whose guarantees were just changed, and says nothing about other pools.
    complete: bool = True
    #: Number of this page, counted from 0.
    page: Counter = 0
    #: Number of pages of the sample.
    pages: Annotated[int, msgspec.Meta(ge=1)] = 1
    #: Term of the fair_share process that recorded the sample. The first sample of each term has no pools. Once this first sample is
    #: recorded, no process of a former term can record a sample.
    term: Term = 0


class GetHistory(msgspec.Struct, frozen=True):
    """Ask for one resource of one pool from `since_ms` to `until_ms` (Unix time, end excluded) in at most `points` points.

    The answer comes in pages. The request for a further page repeats values of the page before: see `first` and `known_until_ms`.
    """

    pool: Annotated[PoolName, msgspec.Meta(max_length=200)]
    since_ms: UnixMs
    until_ms: UnixMs
    resource: Annotated[str, msgspec.Meta(max_length=100)] = "cpu"
    points: Annotated[int, msgspec.Meta(ge=1, le=MOST_POINTS)] = 1_000
    tree: TreeName = TreeName("default")
    #: True: if records begin later than `since_ms`, begin with the oldest record.
    from_oldest: bool = False
    #: `next` of the previous page; 0 for the first page.
    first: Counter = 0
    #: `known_until_ms` of the previous page; 0 for the first page.
    known_until_ms: Counter = 0


class Spread(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Mean, minimum and maximum of a figure over a stretch of time."""

    mean: Finite
    least: Finite
    most: Finite

    def joined(self, samples: int, later: Spread, later_samples: int) -> Spread:
        """Return the values for both stretches of time together; the mean is weighted by the number of samples."""
        mean = (self.mean * samples + later.mean * later_samples) / (samples + later_samples)
        return Spread(mean, min(self.least, later.least), max(self.most, later.most))


class Savings(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Savings over a stretch of time: the value at its end, the minimum and the maximum."""

    last: Finite
    least: Finite
    most: Finite


class IntegralPoint(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A pool's integral guarantee over a stretch of time, as amounts.

    A minimum or maximum is taken over all samples. All other values are those of the last sample.
    """

    flow: Finite
    burst: Finite
    #: Largest volume that can be saved: amount times seconds.
    capacity: Finite
    #: Saved volume: amount times seconds; None until integral has reported it.
    volume: Savings | None = None

    def joined(self, later: IntegralPoint) -> IntegralPoint:
        """Return the values for both stretches of time together."""
        mine, theirs = self.volume, later.volume
        if mine is None or theirs is None:
            return later
        savings = Savings(theirs.last, min(mine.least, theirs.least), max(mine.most, theirs.most))
        return msgspec.structs.replace(later, volume=savings)


class Delivery(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The use of a pool's fair share over a stretch of time."""

    #: Mean of min(usage, fair share): usage above the fair share at one time does not make up for usage below it at another time.
    delivered: Finite
    #: Fraction of the samples in which the pool used less than its guarantee and wanted more.
    below_guarantee: Finite
    #: Smallest amount that a waiting job needed; None if no job waited.
    smallest_waiting: Amount | None = None

    def joined(self, samples: int, later: Delivery, later_samples: int) -> Delivery:
        """Return the values for both stretches of time together."""
        weights = samples + later_samples
        waiting = [each for each in (self.smallest_waiting, later.smallest_waiting) if each is not None]
        return Delivery(
            (self.delivered * samples + later.delivered * later_samples) / weights,
            (self.below_guarantee * samples + later.below_guarantee * later_samples) / weights,
            min(waiting, default=None),
        )


class HistoryPoint(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One stretch of the period asked for. Amounts are in units of the wire: hundredths of a core, bytes."""

    #: Number of the stretch, counted from 0. All stretches have the same length.
    stretch: Counter
    #: Unix time of the last sample in the stretch, in milliseconds.
    at_ms: Counter
    #: Number of samples in the stretch.
    samples: Annotated[int, msgspec.Meta(ge=1)]
    #: True if samples are missing for the time just before the first sample of the stretch.
    after_gap: bool
    usage: Spread
    demand: Spread
    fair_share: Spread
    #: Strong guarantee in the last sample of the stretch.
    strong_guarantee: Amount
    #: Total of the cluster in the last sample of the stretch.
    total: Amount
    integral: IntegralPoint | None = None
    #: How much of the fair share the pool used; None if a former version of fair_share answers.
    delivery: Delivery | None = None

    def joined(self, later: HistoryPoint) -> HistoryPoint:
        """Return both points as one: means weighted by samples, minimum and maximum over both, everything else from the later point."""
        mine, theirs = self.integral, later.integral
        before, after = self.delivery, later.delivery
        return msgspec.structs.replace(
            later,
            delivery=before.joined(self.samples, after, later.samples) if before and after else None,
            samples=self.samples + later.samples,
            after_gap=self.after_gap,
            usage=self.usage.joined(self.samples, later.usage, later.samples),
            demand=self.demand.joined(self.samples, later.demand, later.samples),
            fair_share=self.fair_share.joined(self.samples, later.fair_share, later.samples),
            integral=mine.joined(theirs) if mine is not None and theirs is not None else theirs,
        )


class PoolHistory(msgspec.Struct, frozen=True, tag_field="refusal", tag="none"):
    """A page of the answer, in order of time. Stretches without a sample have no point.

    The last point of a page and the first point of the next page may belong to the same stretch; then the reader must join them.
    """

    pool: PoolName
    tree: TreeName
    resource: str
    #: Unix time in milliseconds at which the first stretch begins.
    since_ms: Counter
    #: Unix time in milliseconds at which the last stretch ends.
    until_ms: Counter
    points: list[HistoryPoint]
    #: Value of `first` in the request for the next page; None on the last page.
    next: Counter | None = None
    #: Unix time in milliseconds until which the newest sample that was read holds. If the next sample is later, there is a gap between the
    #: two.
    known_until_ms: Counter = 0
    #: Unix time of the oldest sample kept for the tree, in milliseconds; None if there is none.
    oldest_ms: Counter | None = None
    #: True if the pool exists now or a sample on this page names the pool. If `known` is false on all pages, no pool of this name is known,
    #: and the zeros in the answer mean nothing.
    known: bool = True
    #: Known pool names nearest to an unknown name, best first.
    near: list[str] = []
