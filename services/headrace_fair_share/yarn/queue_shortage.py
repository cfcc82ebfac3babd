"""Starvation by YARN's older engine: computes how much each pool is short of its minimum and of its fair share. Pure.

    minimum 2000, fair share 5000, demand 9000, usage 0: 5000 are due, the larger of both

Source: section 6 of the specification of YARN's FairScheduler.
"""

from __future__ import annotations

from headrace.resources import ZERO, Resources
from headrace.yarn_comparison import is_below
from headrace_fair_share.yarn.shortage import Due, LeafQueue, Rules, ShareTimes, part_of


def is_short_of_fair_share(queue: LeafQueue, rules: Rules) -> bool:
    """Return True if a queue uses less than the threshold fraction of its fair share."""
    wanted = _smaller(part_of(queue.fair_share, queue.threshold), queue, rules)
    return is_below(queue.usage, wanted, rules.total, queue.policy)


def refresh(queue: LeafQueue, clocks: ShareTimes, now_ms: int, rules: Rules) -> None:
    """Update the time at which a queue last had its minimum, and the time at which it last had the threshold of its fair share."""
    clocks.fair.setdefault(queue.key, now_ms)
    clocks.least.setdefault(queue.key, now_ms)
    if not is_short_of_fair_share(queue, rules):
        clocks.fair[queue.key] = now_ms
    if not is_below(queue.usage, _smaller(queue.least, queue, rules), rules.total, queue.policy):
        clocks.least[queue.key] = now_ms


def due_to(queue: LeafQueue, clocks: ShareTimes, now_ms: int, rules: Rules) -> Due:
    """Return the amounts that are due to a queue that was short for longer than its timeouts.

    The threshold decides only whether something is due. The amount due is what is missing up to the whole fair share, or to the demand if
    that is smaller.
    """
    to_min = to_fair = ZERO
    if now_ms - clocks.least.get(queue.key, now_ms) > queue.min_timeout_ms:
        to_min = (_smaller(queue.least, queue, rules) - queue.usage).or_more(ZERO)
    if now_ms - clocks.fair.get(queue.key, now_ms) > queue.fair_timeout_ms:
        to_fair = (_smaller(queue.fair_share, queue, rules) - queue.usage).or_more(ZERO)
    return Due(to_fair, to_min, claims=max(to_min.as_tuple()) > 0 or max(to_fair.as_tuple()) > 0)


def _smaller(target: Resources, queue: LeafQueue, rules: Rules) -> Resources:
    if rules.older_release:
        # The older release compares only the memory of the two amounts, and uses all resources of the amount with less memory.
        return min(target, queue.demand, key=lambda amount: amount.memory)
    return target.within(queue.demand)
