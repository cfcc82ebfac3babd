"""History of pools: what fair_share records of a tree every few seconds, and how people read it.

A sample leaves out pools of which every figure is zero. A pool that a complete sample does not name had nothing, wanted nothing and
was owed nothing. A sample that does not come harms nothing: it is a hole, and shown as one.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from headrace.ids import PoolName, TreeName
from headrace.resources import ZERO, Amount, Finite, Resources
from headrace.wire.integral import Volume
from headrace.wire.version import Counter, Term

#: The finest picture that is handed out of a stretch of time.
MOST_POINTS = 4_000

#: Milliseconds of Unix time, for three thousand years more.
UnixMs = Annotated[int, msgspec.Meta(ge=0, le=10**14)]


class IntegralSample(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Integral guarantee of a pool at one moment."""

    #: What accrues, as a share of the total.
    flow_ratio: Finite
    #: The most that may be drawn at once, as a share of the total; 0 for a relaxed pool.
    burst_ratio: Finite
    #: What is saved; None while nobody has said.
    volume: Volume | None = None


class PoolSample(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One pool at one moment, with all pools and operations below it."""

    usage: Resources = ZERO
    demand: Resources = ZERO
    #: What it is owed, all parts together.
    fair_share: Resources = ZERO
    #: Strong guarantee in force.
    strong_guarantee: Resources = ZERO
    integral: IntegralSample | None = None
    #: One job of the operation that wants more and needs the least for it, by its dominant resource; None: nobody wants more.
    smallest_waiting: Resources | None = None


class HistorySample(msgspec.Struct, frozen=True):
    """A record of fair_share: figures of one update, or one page of them."""

    tree: TreeName
    #: Unix time of the update.
    at_ms: Counter
    #: The next complete sample is due this long after this one.
    next_due_ms: Annotated[int, msgspec.Meta(ge=1)]
    total: Resources
    #: Savings end at this long a time of the flow.
    saturation_period_s: Annotated[float, msgspec.Meta(gt=0, le=1e9)]
    pools: dict[PoolName, PoolSample]
    #: False: only pools whose guarantees were just changed; nothing is said of the others.
    complete: bool = True
    #: Number of this page from 0, and how many there are.
    page: Counter = 0
    pages: Annotated[int, msgspec.Meta(ge=1)] = 1
    #: Of the fair_share that recorded it. The first one of each term has no pools: it shuts former terms out.
    term: Term = 0


class GetHistory(msgspec.Struct, frozen=True):
    """One resource of one pool from `since_ms` to `until_ms` (Unix time, the end not included) in at most `points` points.

    The answer comes in pages. Each request for a further one carries what the page before said of it."""

    pool: Annotated[PoolName, msgspec.Meta(max_length=200)]
    since_ms: UnixMs
    until_ms: UnixMs
    resource: Annotated[str, msgspec.Meta(max_length=100)] = "cpu"
    points: Annotated[int, msgspec.Meta(ge=1, le=MOST_POINTS)] = 1_000
    tree: TreeName = TreeName("default")
    #: Where records begin later than `since_ms`, begin with them.
    from_oldest: bool = False
    #: `next` and `known_until_ms` of the page before; 0 for the first page.
    first: Counter = 0
    known_until_ms: Counter = 0


class Spread(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A figure over a stretch of time."""

    mean: Finite
    least: Finite
    most: Finite

    def joined(self, samples: int, later: Spread, later_samples: int) -> Spread:
        """Joins two stretches into one."""
        mean = (self.mean * samples + later.mean * later_samples) / (samples + later_samples)
        return Spread(mean, min(self.least, later.least), max(self.most, later.most))


class Savings(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Savings over a stretch of time: what there was at its end, and how little and how much in between."""

    last: Finite
    least: Finite
    most: Finite


class IntegralPoint(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A pool's integral guarantee over a stretch of time, as amounts. All but the extremes are as they were last."""

    flow: Finite
    burst: Finite
    #: The most that can be saved: amount times seconds.
    capacity: Finite
    #: What was saved: amount times seconds; None while nobody has said.
    volume: Savings | None = None

    def joined(self, later: IntegralPoint) -> IntegralPoint:
        """Joins two stretches into one."""
        mine, theirs = self.volume, later.volume
        if mine is None or theirs is None:
            return later
        savings = Savings(theirs.last, min(mine.least, theirs.least), max(mine.most, theirs.most))
        return msgspec.structs.replace(later, volume=savings)


class Delivery(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Delivery of what a pool is owed, over a stretch of time."""

    #: Usage, at most the fair share, on average: what is used beyond it makes up for no other moment.
    delivered: Finite
    #: The part of the samples in which it used less than it is guaranteed and wanted more.
    below_guarantee: Finite
    #: The least that one job needed which waited; None while none did.
    smallest_waiting: Amount | None = None

    def joined(self, samples: int, later: Delivery, later_samples: int) -> Delivery:
        """Joins two stretches into one."""
        weights = samples + later_samples
        waiting = [each for each in (self.smallest_waiting, later.smallest_waiting) if each is not None]
        return Delivery(
            (self.delivered * samples + later.delivered * later_samples) / weights,
            (self.below_guarantee * samples + later.below_guarantee * later_samples) / weights,
            min(waiting, default=None),
        )


class HistoryPoint(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One stretch of the time that was asked for. Amounts in units of the wire: hundredths of a core, bytes."""

    #: Stretches are equally long and counted from 0.
    stretch: Counter
    #: Unix time of its last sample.
    at_ms: Counter
    #: How many samples it is made of.
    samples: Annotated[int, msgspec.Meta(ge=1)]
    #: Before its first sample is time of which nothing is known.
    after_gap: bool
    usage: Spread
    demand: Spread
    fair_share: Spread
    #: These as they were last.
    strong_guarantee: Amount
    total: Amount
    integral: IntegralPoint | None = None
    #: None from a fair_share of a former version.
    delivery: Delivery | None = None

    def joined(self, later: HistoryPoint) -> HistoryPoint:
        """Both as one: means by the number of samples, least and most of both, the rest as it was last."""
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

    The last point of a page and the first of the next one may be of the same stretch: they are to be joined."""

    pool: PoolName
    tree: TreeName
    resource: str
    #: When the first stretch begins, and the last one ends.
    since_ms: Counter
    until_ms: Counter
    points: list[HistoryPoint]
    #: What the request for the next page says in `first`; None: this was the last one.
    next: Counter | None = None
    #: Samples speak of the time up to this one; later than that begins a gap.
    known_until_ms: Counter = 0
    #: Unix time of the oldest sample that is kept of the tree; None where there is none.
    oldest_ms: Counter | None = None
    #: The pool is there now, or a sample on this page names it. Where no page knows it, all its zeros mean nothing.
    known: bool = True
    #: Names that are nearest to one that is not known, best first.
    near: list[str] = []
