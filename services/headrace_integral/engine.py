"""The accumulated volumes of one tree. Fair share sends advances, each of which moves the volumes forward by some time.

The engine applies each advance once and in the order of its chain, however often messages are lost, repeated or late. `on_advance` decides,
the shell saves the record, and `on_saved` makes the record the state. So the volumes in memory are never newer than the volumes in the
bucket.

Every advance keeps the bounds of volumes (`volumes.keeps_bounds`): no part of a volume becomes negative, and a part that is above its
capacity does not grow.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec
import numpy as np

from headrace.ids import TreeName
from headrace.resources import RESOURCE_NAMES, ZERO
from headrace.runtime.engine import Check, Figure, Moment, Outcome, counter, gauge, run_checks
from headrace.wire.codec import runs_within
from headrace.wire.integral import (
    LARGEST_CPU_VOLUME,
    PAGE_BYTES,
    Advance,
    Advanced,
    AdvanceGap,
    AdvancePartTaken,
    Downtime,
    GetVolumes,
    PoolFlow,
    PoolVolume,
    Volume,
)
from headrace.wire.refusals import BadRequest, NotFound, StaleTerm
from headrace.wire.version import LARGEST_JUMP, NEVER, Counter, Term, Version
from headrace_integral.free_volume import family_of, handed_out, total_flows
from headrace_integral.volumes import CPU, Floats, Refill, Refilled, keeps_bounds, ratio_volumes, refilled

#: Number of answers that are kept for repeated requests.
_REMEMBERED: Final = 64
_MICROSECONDS: Final = 1_000_000
_KINDS: Final = ("none", "burst", "relaxed")


class VolumesRecord(msgspec.Struct, frozen=True):
    """The saved volumes, and the version of the advance that produced them."""

    tree: TreeName
    version: Version = NEVER
    pools: list[PoolVolume] = []
    #: Term of the process that saved the record.
    writer: Term = 0
    #: Unix time of the advance in milliseconds; 0 if it is not known.
    at_ms: Counter = 0
    downtime: Downtime = Downtime()

    def answer(self, first: int = 0) -> Advanced:
        """Return the volumes from index `first` on, as many as fit in a message."""
        page = next(runs_within(self.pools[first:], PAGE_BYTES), [])
        more = first + len(page) < len(self.pools)
        return Advanced(self.tree, self.version, page, self.downtime, more)


class Save(msgspec.Struct, frozen=True):
    """Effect: save the record, then call `on_saved` and send the answer that it returns."""

    record: VolumesRecord


IntegralAnswer = Advanced | AdvancePartTaken | AdvanceGap | BadRequest | NotFound | StaleTerm


class IntegralEngine:
    """The volumes of one tree."""

    def __init__(self, tree: TreeName, writer: Term, record: VolumesRecord | None = None) -> None:
        self._tree = tree
        self._writer = writer
        #: Highest term of fair_share that has advanced the volumes.
        self.term: Term = 0
        self._remembered: dict[Version, Advanced] = {}
        #: Parts of the newest advance while it is incomplete.
        self._parts: dict[int, Advance] = {}
        self.record = VolumesRecord(tree=tree)
        self.applied = 0
        self.repeated = 0
        self.refused = 0
        #: Number of volumes that were outside their bounds after an advance; anything but 0 is a defect.
        self.out_of_bounds = 0
        self._restore(record)

    def on_restored(self, record: VolumesRecord | None, now: Moment) -> Outcome[None, Save]:
        """Replace the volumes in memory by the saved record, or by empty volumes if nothing is saved."""
        self._restore(record)
        return Outcome(None)

    def on_advance(self, request: Advance, now: Moment) -> Outcome[IntegralAnswer | None, Save]:
        """Decide on an advance. Return an answer, or a record to save. The state changes only in `on_saved`."""
        whole = self._gathered(request)
        if whole is None:
            return Outcome(AdvancePartTaken(request.version, request.part))
        request = whole
        refusal = self._why_not_applied(request)
        if refusal is not None:
            self.refused += 1
            return Outcome(refusal)
        self.term = max(self.term, request.version.term)
        known = self._remembered.get(request.version)
        if known is not None:
            self.repeated += 1
            return Outcome(known)
        have = self.record.version
        if request.version <= have or request.previous not in (NEVER, have):
            self.refused += 1
            return Outcome(AdvanceGap(tree=self._tree, have=have, previous=request.previous))
        return Outcome(None, [Save(self._applied(request))])

    def on_saved(self, record: VolumesRecord, now: Moment) -> Outcome[Advanced, Save]:
        """Make the record, which is durable now, the state. Return the answer that confirms the advance."""
        self.applied += 1
        self._remember(record)
        return Outcome(record.answer())

    def on_get(self, request: GetVolumes, now: Moment) -> Outcome[Advanced | NotFound, Save]:
        """Return the current volumes."""
        if request.tree != self._tree:
            return Outcome(NotFound(what="tree", name=request.tree, near=[self._tree]))
        return Outcome(self.record.answer(request.first))

    def checks(self) -> Iterator[Check]:
        """Yield the check of the volumes."""
        yield self._check_volumes

    def check(self) -> list[str]:
        """Return a text for each broken invariant; the list is empty if all invariants hold."""
        return run_checks(self.checks())

    def figures(self) -> list[Figure]:
        """Return the metrics: number of advances by outcome, and the time for which pools were credited no volume."""
        return [
            gauge("integral_pools", "pools", len(self.record.pools), "Pools with volumes."),
            counter("advances_applied", "advances", self.applied, "Advances of volumes that were applied."),
            counter("advances_repeated", "advances", self.repeated, "Advances that had been applied already."),
            counter("advances_refused", "advances", self.refused, "Advances that were refused."),
            counter(
                "volumes_out_of_bounds",
                "volumes",
                self.out_of_bounds,
                "Volumes outside the bounds of what their pool may save.",
            ),
            counter(
                "downtime_gaps",
                "gaps",
                self.record.downtime.gaps,
                "Periods in which no update was computed and volumes did not change.",
            ),
            counter(
                "downtime",
                "ms",
                self.record.downtime.together_ms,
                "Total length of the periods in which volumes did not change.",
            ),
        ]

    def _check_volumes(self) -> list[str]:
        volumes = _columns([pool.volume for pool in self.record.pools])
        broken: list[bool] = ((volumes < 0.0).any(axis=0) | (volumes[CPU] >= LARGEST_CPU_VOLUME)).tolist()
        return [
            f"pool {pool.pool} has a volume outside the bounds of what can be stored: {pool.volume}"
            for pool, is_broken in zip(self.record.pools, broken, strict=True)
            if is_broken
        ]

    def _restore(self, record: VolumesRecord | None) -> None:
        if record is None:
            record = VolumesRecord(tree=self._tree)
        if record.version != self.record.version:
            self._remembered = {}
        self._remember(record)

    def _remember(self, record: VolumesRecord) -> None:
        self.record = record
        self.term = max(self.term, record.version.term)
        if record.version != NEVER:
            self._remembered[record.version] = record.answer()
        while len(self._remembered) > _REMEMBERED:
            del self._remembered[next(iter(self._remembered))]

    def _gathered(self, part: Advance) -> Advance | None:
        """Collect the parts of an advance. Return the whole advance, or None while parts are missing."""
        if any(kept.version != part.version for kept in self._parts.values()):
            self._parts = {}
        self._parts[part.part] = part
        if len(self._parts) < part.parts:
            return None
        parts, self._parts = [self._parts[number] for number in sorted(self._parts)], {}
        return msgspec.structs.replace(part, pools=[flow for each in parts for flow in each.pools], part=0, parts=1)

    def _why_not_applied(self, request: Advance) -> BadRequest | NotFound | StaleTerm | None:
        if request.tree != self._tree:
            return NotFound(what="tree", name=request.tree, near=[self._tree])
        if request.version.term < self.term:
            return StaleTerm(role=f"fair_share.{self._tree}", known=self.term, got=request.version.term)
        if request.version.term > self.term + LARGEST_JUMP:
            return BadRequest("version.term", str(request.version.term), f"at most {self.term + LARGEST_JUMP}")
        if request.version <= request.previous or request.version.term == 0:
            return BadRequest(
                "version", str(request.version), f"a version after {request.previous}, with a term of at least 1"
            )
        if request.previous.term != request.version.term and request.dt_us:
            return BadRequest("dt_us", str(request.dt_us), "0, because this is the first advance of a term")
        if len({flow.pool for flow in request.pools}) != len(request.pools):
            return BadRequest.because("pools", "a pool is named twice")
        for place, flow in enumerate(request.pools):
            if flow.guarantee_type not in _KINDS:
                return BadRequest(
                    f"pools.{flow.pool}.guarantee_type", flow.guarantee_type, f"one of {', '.join(_KINDS)}"
                )
            if flow.parent >= place:
                return BadRequest(f"pools.{flow.pool}.parent", str(flow.parent), f"a position before its own, {place}")
        return None

    def _applied(self, request: Advance) -> VolumesRecord:
        """Return the record after the advance."""
        flows, total = request.pools, request.total
        integral = np.array([flow.guarantee_type != "none" for flow in flows], np.bool_)
        saved = {pool.pool: pool.volume for pool in self.record.pools}
        before = _columns([saved.get(flow.pool, Volume()) for flow in flows])
        after = before
        if total != ZERO and integral.any():
            refill = Refill(
                total=total,
                seconds=request.dt_us / _MICROSECONDS,
                saturation_period_s=request.saturation_period_s,
                flow=np.where(integral, [flow.flow_ratio for flow in flows], 0.0),
                drawn=np.where(integral, [flow.grant_ratio for flow in flows], 0.0),
                accepts_free_volume=np.array([flow.can_accept_free_volume for flow in flows], np.bool_),
            )
            passed = refilled(before, refill)
            after = _with_free_volume(passed, refill, flows)
            # A pool whose volume would exceed `LARGEST_CPU_VOLUME` loses the excess, and `check` reports the pool. Other pools are not
            # affected.
            after[CPU] = np.minimum(after[CPU], LARGEST_CPU_VOLUME)
            self.out_of_bounds += int(np.count_nonzero(~keeps_bounds(before, after, passed.capacity)))
        ratios = ratio_volumes(after, total).tolist()
        pools = [
            PoolVolume(pool=flow.pool, volume=Volume(slots, int(cpu), gpu, memory, network), ratio_volume=ratio)
            for flow, (slots, cpu, gpu, memory, network), ratio in zip(flows, after.T.tolist(), ratios, strict=True)
            if flow.guarantee_type != "none"
        ]
        return VolumesRecord(
            tree=self._tree,
            version=request.version,
            pools=pools,
            writer=self._writer,
            at_ms=request.at_ms,
            downtime=_downtime(self.record, request),
        )


def _downtime(before: VolumesRecord, request: Advance) -> Downtime:
    """Return the time for which pools with volumes were credited nothing, up to this advance.

    The time since the previous advance is added if this advance credits nothing (`dt_us` is 0) although pools had volumes.
    """
    known = before.downtime
    missed = before.pools and request.pools and not request.dt_us
    if not missed or not 0 < before.at_ms < request.at_ms:
        return known
    goes_on = known.gaps and known.last_until_ms == before.at_ms
    return Downtime(
        gaps=known.gaps if goes_on else known.gaps + 1,
        together_ms=known.together_ms + request.at_ms - before.at_ms,
        last_from_ms=known.last_from_ms if goes_on else before.at_ms,
        last_until_ms=request.at_ms,
    )


def _with_free_volume(passed: Refilled, refill: Refill, flows: list[PoolFlow]) -> Floats:
    """Return the volumes after full pools have passed on their overflow."""
    distributes = np.array([flow.distributes_free_volume for flow in flows], np.bool_)
    if not (distributes.any() and passed.overflow.any()):
        return passed.volume
    family = family_of(flows)
    return handed_out(family, passed, total_flows(family, refill.flow), refill.accepts_free_volume, distributes)


def _columns(volumes: list[Volume]) -> Floats:
    parts = [(each.user_slots, each.cpu, each.gpu, each.memory, each.network) for each in volumes]
    return np.array(parts, np.float64).reshape(-1, len(RESOURCE_NAMES)).T
