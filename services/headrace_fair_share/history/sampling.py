"""Samples of a tree's pools: their contents, and when they are taken. Pure.

A sample contains usage, demand, fair share, strong guarantee and integral guarantee of every pool for which any of these is not zero. All
other pools are left out: they are idle and have no guarantee, like most pools of a large tree. No information is lost, because all their
values are zero. If samples are so large that the stream would be full before the oldest sample reaches its maximum age, samples are taken
less often.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from headrace.ids import OperationId, PoolName, TreeName
from headrace.pools import IntegralType, PoolTree
from headrace.resources import EPS, ZERO, Resources
from headrace.runtime.engine import Figure, counter, gauge
from headrace.wire.codec import MessageTooLarge, encode
from headrace.wire.history import HistorySample, IntegralSample, PoolSample
from headrace.wire.integral import PoolVolume
from headrace.wire.snapshots import ShareFrame, ShareItem
from headrace.wire.version import NEVER, Term
from headrace_fair_share.engine import FairShareEngine
from headrace_fair_share.facts.known_volumes import saturation_period_s
from headrace_fair_share.facts.operations import KnownOperation
from headrace_fair_share.integral_guarantees import specified_ratio
from headrace_fair_share.update.elements import pool_key
from headrace_fair_share.update.results import PoolResults

#: Number of pools on each page of a sample, at the first try. If a page is too large for a message, smaller pages are tried.
_POOLS_PER_PAGE = 2_000
#: Bytes that the stream itself adds to each message.
_MESSAGE_BYTES = 100
#: Longest time between samples in milliseconds, however large the samples are.
_LONGEST_PERIOD_MS = 3_600_000
_NOTHING = PoolSample()
#: Strong guarantee, flow ratio, burst ratio.
Guarantee = tuple[Resources, float, float]


class HistoryOptions(msgspec.Struct, frozen=True):
    """The settings of the history of a tree."""

    period_ms: int = 10_000
    max_age_ms: int = 7 * 86_400_000
    max_bytes: int = 512 * 2**20


class SampleInput(msgspec.Struct, frozen=True):
    """The input of a sample: the results of one update."""

    pools: PoolTree
    frame: ShareFrame
    items: Mapping[str, ShareItem]
    pool_results: Mapping[PoolName, PoolResults]
    volumes: Mapping[PoolName, PoolVolume]
    saturation_period_s: float
    operations: Mapping[OperationId, KnownOperation] = {}

    @staticmethod
    def of(engine: FairShareEngine) -> SampleInput:
        """Copy from the engine what a sample needs."""
        # The dictionaries are copied, because the next update changes them in place.
        items, results, pools = dict(engine.items), dict(engine.pool_results), engine.configuration.pools
        period_s, operations = saturation_period_s(pools), dict(engine.operations.by_id)
        return SampleInput(pools, engine.frame, items, results, engine.volumes.of, period_s, operations)


class TakenSample(msgspec.Struct, frozen=True):
    """A sample ready to be recorded: its pages, and the guarantees that it contains."""

    at_ms: int
    pages: list[bytes]
    guarantees: dict[PoolName, Guarantee]
    complete: bool


class Sampler:
    """Decides when the next sample is due, and makes samples. `sample` may run in any thread, because only `on_taken` changes the state."""

    def __init__(self, tree: TreeName, options: HistoryOptions, term: Term = 0) -> None:
        self._tree = tree
        self._term = term
        self._options = options
        self._guarantees: dict[PoolName, Guarantee] = {}
        self._pools: PoolTree | None = None
        self._last_ms = 0
        #: Unix time in milliseconds at which the results of the last complete sample were computed.
        self._complete_ms = 0
        #: Milliseconds from the last complete sample to the next, as announced in the last complete sample.
        self._next_due_ms = 0
        #: Size of the last complete sample in bytes.
        self.sample_bytes = 0
        #: Milliseconds that the next complete sample will announce as the time until the complete sample after it.
        self.period_ms = options.period_ms
        self.samples = 0

    def first(self) -> bytes:
        """Return the first entry of this term. It contains nothing but the term."""
        return encode(HistorySample(self._tree, 0, 1, ZERO, 1.0, {}, complete=False, term=self._term))

    def wants(self, frame: ShareFrame, pools: PoolTree, revision: int) -> bool:
        """Return True if a sample must be taken now, because a complete sample is due or because the configuration of pools changed.

        Return False if `frame` is the result of an update without usage, or of an update that did not include the `pools` of this revision
        yet: the next update will include them.
        """
        if frame.usage_version == NEVER or frame.pools_revision != revision or frame.at_ms == self._last_ms:
            return False
        return self._complete_due(frame.at_ms) or pools is not self._pools

    def sample(self, given: SampleInput) -> TakenSample:
        """Return a complete sample if one is due, else a sample of the pools whose guarantees changed."""
        complete = self._complete_due(given.frame.at_ms)
        pools = dict(_samples(given))
        guarantees = {name: each for name, sample in pools.items() if (each := _guarantee(sample)) is not None}
        if not complete:
            names = {*guarantees, *self._guarantees}
            changed = [name for name in names if guarantees.get(name) != self._guarantees.get(name)]
            pools = {name: pools.get(name, _NOTHING) for name in sorted(changed)}
        pages = self._pages(given, pools, complete=complete) if pools or complete else []
        return TakenSample(given.frame.at_ms, pages, guarantees, complete)

    def on_taken(self, given: SampleInput, taken: TakenSample) -> None:
        """Update the schedule after a sample, whether it was recorded or lost."""
        self._guarantees = taken.guarantees
        self._pools = given.pools
        self._last_ms = taken.at_ms
        self.samples += bool(taken.pages)
        if taken.complete:
            self._complete_ms, self._next_due_ms = taken.at_ms, self.period_ms
            self.sample_bytes = sum(len(page) + _MESSAGE_BYTES for page in taken.pages)
            fits_ms = self.sample_bytes * self._options.max_age_ms // self._options.max_bytes
            self.period_ms = max(self._options.period_ms, min(fits_ms, _LONGEST_PERIOD_MS))

    def figures(self) -> list[Figure]:
        """Return metrics: number of samples, size of the last sample, present period."""
        return [
            counter("samples", "samples", self.samples, "Samples of the history of pools that were taken."),
            gauge("sample_size", "bytes", self.sample_bytes, "Size of the last sample."),
            gauge("sample_period", "ms", self.period_ms, "Time between two samples."),
        ]

    def _complete_due(self, at_ms: int) -> bool:
        # A sample is also due if `at_ms` is before the last sample. Otherwise, after a clock was set back, no sample would be taken until
        # the clock passes the last sample again.
        return not self._complete_ms <= at_ms < self._complete_ms + self._next_due_ms

    def _pages(self, given: SampleInput, pools: dict[PoolName, PoolSample], *, complete: bool) -> list[bytes]:
        names = list(pools)
        size = _POOLS_PER_PAGE
        next_due_ms = self.period_ms if complete else self._complete_ms + self._next_due_ms - given.frame.at_ms
        while True:
            chunks = [names[at : at + size] for at in range(0, len(names), size)] or [[]]
            try:
                return [
                    encode(
                        HistorySample(
                            tree=self._tree,
                            at_ms=given.frame.at_ms,
                            next_due_ms=next_due_ms,
                            total=given.frame.total,
                            saturation_period_s=given.saturation_period_s,
                            pools={name: pools[name] for name in chunk},
                            complete=complete,
                            page=number,
                            pages=len(chunks),
                            term=self._term,
                        )
                    )
                    for number, chunk in enumerate(chunks)
                ]
            except MessageTooLarge:
                if size == 1:
                    raise
                size = max(1, size // 4)


def _guarantee(sample: PoolSample) -> Guarantee | None:
    """Return the strong and integral guarantee of the pool; None if it has no guarantee."""
    integral = sample.integral
    flow, burst = (integral.flow_ratio, integral.burst_ratio) if integral is not None else (0.0, 0.0)
    found = (sample.strong_guarantee, flow, burst)
    return found if any(sample.strong_guarantee.as_tuple()) or integral is not None else None


def _samples(given: SampleInput) -> Iterable[tuple[PoolName, PoolSample]]:
    total, waiting = given.frame.total, _smallest_waiting(given)
    for name, results in given.pool_results.items():
        item = given.items.get(pool_key(name))
        if item is None:
            continue
        sample = PoolSample(
            usage=results.usage.within_wire(),
            demand=results.demand.within_wire(),
            fair_share=total.part(item.fair_share.total),
            strong_guarantee=total.part(item.strong_guarantee_share),
            integral=_integral(given, name, total),
            smallest_waiting=waiting.get(name),
        )
        if sample != _NOTHING:
            yield name, sample


def _smallest_waiting(given: SampleInput) -> dict[PoolName, Resources]:
    """Return for each pool the size of the smallest pending job in the pool and all pools below it."""
    least: dict[PoolName, tuple[float, Resources]] = {}
    #: Cache of shares by job size. It is useful because even very many operations have few different job sizes.
    shares: dict[Resources, float] = {}
    total = given.frame.total
    for name, operation in given.operations.items():
        job = operation.job
        share = shares.get(job)
        if share is None:
            share = shares[job] = max(job.share_of(total))
        item = given.items.get(name)
        if item is None or (item.parent in least and least[item.parent][0] <= share):
            continue
        if not operation.takes_part or not _wants_more(item):
            continue
        above: ShareItem | None = item
        while above is not None and above.parent:
            pool = above.parent
            if pool in least and least[pool][0] <= share:
                break
            least[pool] = (share, job)
            above = given.items.get(pool_key(pool))
    return {pool: job for pool, (_, job) in least.items()}


def _wants_more(item: ShareItem) -> bool:
    return any(wanted > used + EPS for wanted, used in zip(item.demand_share, item.usage_share, strict=True))


def _integral(given: SampleInput, name: PoolName, total: Resources) -> IntegralSample | None:
    pool = given.pools.pools.get(name)
    if pool is None:
        return None
    settings = pool.settings.integral_guarantees
    if settings.guarantee_type is IntegralType.NONE:
        return None
    volume = given.volumes.get(name)
    return IntegralSample(
        flow_ratio=specified_ratio(settings.resource_flow.whole, total),
        burst_ratio=specified_ratio(settings.burst_guarantee_resources.whole, total),
        volume=volume.volume if volume is not None else None,
    )
