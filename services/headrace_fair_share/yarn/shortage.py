"""Starvation by YARN's newer engine: computes the amounts that operations are short of. Pure.

An operation starves below a threshold fraction of its fair share, or in a queue that is below its minimum.

    share 10000, threshold 0.8, usage 7000: after the timeout 1000 are due

Source: section 4 of the specification of YARN's FairScheduler.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from typing import Final, NamedTuple

import msgspec
import numpy as np

from headrace.pools.tree_options import MinShareSpread
from headrace.resources import RESOURCE_NAMES, ZERO, Resources
from headrace.yarn_comparison import ComparedChild, QueuePolicy, in_32_bits, is_below, is_less, serving_key
from headrace_fair_share.starvation.clocks import Age

#: Amount of each resource in one unit of YARN.
AMOUNTS_IN_UNIT: Final = tuple({"cpu": 100, "memory": 2**20}.get(name, 1) for name in RESOURCE_NAMES)


class Due(NamedTuple):
    """The amounts that an element is short of, by the target that it misses."""

    to_fair_share: Resources = ZERO
    to_min_share: Resources = ZERO
    #: True if the last update found this shortage, so that preemption must handle it. False if an earlier update found it.
    claims: bool = False

    @property
    def amount(self) -> Resources:
        """The sum of `to_fair_share` and `to_min_share`."""
        return self.to_fair_share + self.to_min_share


class Applicant(NamedTuple):
    """An operation with unmet demand."""

    key: str
    sibling: ComparedChild
    fair_share: Resources


class LeafQueue(NamedTuple):
    """A pool whose starvation is checked: it may starve itself, or has operations that may starve."""

    key: str
    policy: QueuePolicy
    usage: Resources
    demand: Resources
    fair_share: Resources
    #: The minimum share; zero for a pool that has child pools, too.
    least: Resources = ZERO
    threshold: float = 0.5
    #: Milliseconds below the threshold of the fair share after which starvation begins; infinite if it never begins.
    fair_timeout_ms: float = math.inf
    #: Milliseconds below the minimum after which starvation begins; infinite if it never begins.
    min_timeout_ms: float = math.inf
    #: Operations with unmet demand, without those that preemption handled a short while ago.
    applicants: Sequence[Applicant] = ()


class Rules(NamedTuple):
    """The rules that differ between trees and between versions of Hadoop."""

    total: Resources
    spread: MinShareSpread = MinShareSpread.INTENDED
    #: True if the rules of older releases of Hadoop apply. In this module these are releases 2.9 to 3.1, in `queue_shortage` 2.6 and 2.7.
    older_release: bool = False


class ShareTimes(NamedTuple):
    """Times at which elements last had what they are owed, by key."""

    fair: MutableMapping[str, int]
    #: Times at which queues last had their minimum.
    least: MutableMapping[str, int]


def gate_is_open(used: Resources, total: Resources, threshold: float) -> bool:
    """Return True if the used part of the cluster's memory or cores is above the threshold, so that preemption may start.

    The numbers are compared in 32 bits. A part that equals the threshold is not above it.
    """
    parts = (
        np.float32(has) / np.float32(whole)
        for has, whole in ((used.memory, total.memory), (used.cpu, total.cpu))
        if whole > 0
    )
    return bool(np.float32(threshold) < max(parts, default=np.float32(0)))


def examine(queue: LeafQueue, clocks: ShareTimes, dues: MutableMapping[str, Due], now_ms: int, rules: Rules) -> None:
    """Determine what the operations of a queue are short of.

    Operations are checked in order, up to the first operation that does not starve. The operations after it keep the shortages that an
    earlier update found.
    """
    key = serving_key(queue.policy, rules.total)
    applicants = sorted(queue.applicants, key=lambda one: key(one.sibling))
    found = ZERO
    for one in applicants:
        amount = _short_of_fair_share(queue, one, clocks.fair, now_ms, rules.total)
        before = dues.get(one.key, Due())
        dues[one.key] = before._replace(to_fair_share=amount or ZERO, claims=amount is not None)
        if amount is None:
            break
        found = found + amount
    missing = _short_of_minimum(queue, clocks.least, now_ms, rules)
    _spread((missing - found).or_more(ZERO), queue, applicants, dues, rules)


def part_of(share: Resources, threshold: float) -> Resources:
    """Return a fraction of a share in whole units of YARN: 0.7 of 10 cores are 6, because 0.7 in 32 bits is less than 0.7."""
    threshold = in_32_bits(threshold)
    u, c, g, m, n = (
        int(amount // unit * threshold) * unit for amount, unit in zip(share.as_tuple(), AMOUNTS_IN_UNIT, strict=True)
    )
    return Resources(u, c, g, m, n)


def _short_of_fair_share(
    queue: LeafQueue, one: Applicant, clocks: MutableMapping[str, int], now_ms: int, total: Resources
) -> Resources | None:
    """Return the amount that an operation needs to reach the threshold of its fair share. None if the operation does not starve."""
    usage = one.sibling.usage
    wanted = part_of(one.fair_share, queue.threshold).within(one.sibling.demand)
    since_ms = clocks.setdefault(one.key, now_ms)
    if not is_below(usage, wanted, total, queue.policy):
        clocks[one.key] = now_ms
        return None
    if now_ms - since_ms < queue.fair_timeout_ms:
        return None
    missing = (wanted - usage).or_more(ZERO)
    # Resources that the queue does not compare are never missing.
    return missing if queue.policy is QueuePolicy.DRF else Resources(memory=missing.memory)


def _short_of_minimum(queue: LeafQueue, clocks: MutableMapping[str, int], now_ms: int, rules: Rules) -> Resources:
    target = queue.least.within(queue.demand)
    missing = (target - queue.usage).or_more(ZERO)
    if rules.older_release:
        # In the older release, `missing` is negative while the queue uses more than its minimum, so its clock is not reset. Once the
        # timeout has passed in this way, the queue starves as soon as it falls below its minimum.
        target = queue.least if is_less(queue.least, queue.demand, rules.total, queue.policy) else queue.demand
        missing = target - queue.usage
    since_ms = clocks.setdefault(queue.key, now_ms)
    if missing == ZERO:
        clocks[queue.key] = since_ms = now_ms
    return missing.or_more(ZERO) if now_ms - since_ms >= queue.min_timeout_ms else ZERO


def _spread(
    left: Resources, queue: LeafQueue, applicants: Sequence[Applicant], dues: MutableMapping[str, Due], rules: Rules
) -> None:
    """Distribute what a queue is short of over its operations in order, to each operation at most its remaining demand."""
    for one in applicants:
        due = dues.get(one.key, Due())
        # All resources are compared here: a shortage of cores alone counts, even if the queue compares only memory.
        if left == ZERO:
            mine, claims = ZERO, due.claims
        else:
            mine, claims = (one.sibling.demand - one.sibling.usage - due.to_fair_share).or_more(ZERO), True
            if is_less(left, mine, rules.total, queue.policy):
                mine = left if rules.spread is MinShareSpread.INTENDED else (mine - left).or_more(ZERO)
                left = ZERO
            else:
                left = (left - mine).or_more(ZERO)
        if due.amount != ZERO or mine != ZERO:
            dues[one.key] = due._replace(to_min_share=mine, claims=claims)


class YarnState(msgspec.Struct, frozen=True):
    """Times (in counted time) and shortages by element key. All are empty unless the tree has a YARN policy."""

    #: Time when each element last reached its starvation threshold.
    had_share_ms: Mapping[str, int] = {}
    #: Time when each pool last had its minimum.
    had_minimum_ms: Mapping[str, int] = {}
    dues: Mapping[str, Due] = {}

    @staticmethod
    def saved(ages: Iterable[Age], now_ms: int) -> YarnState:
        """Return the state that saved ages describe. The state has no shortages; the next update computes them."""
        listed = list(ages)
        return YarnState(
            {age.key: now_ms - age.had_share_ms for age in listed if age.had_share_ms is not None},
            {age.key: now_ms - age.had_minimum_ms for age in listed if age.had_minimum_ms is not None},
        )

    def with_ages(self, ages: Iterable[Age], now_ms: int) -> list[Age]:
        """Return the ages, with the time since each element last had its share and its minimum, as far as this state knows it."""
        of = {age.key: age for age in ages}
        return [
            msgspec.structs.replace(
                of.get(key) or Age(key),
                had_share_ms=_passed(self.had_share_ms.get(key), now_ms),
                had_minimum_ms=_passed(self.had_minimum_ms.get(key), now_ms),
            )
            for key in {**of, **self.had_share_ms, **self.had_minimum_ms}
        ]


def _passed(since_ms: int | None, now_ms: int) -> int | None:
    return None if since_ms is None else max(0, now_ms - since_ms)
