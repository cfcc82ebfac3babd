"""Starvation of one element and of the pools above it, in words. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from headrace.client.preemptions import starving_cause
from headrace.durations import format_duration
from headrace.wire.pools import StarvationOutlook
from headrace.wire.snapshots import (
    PreemptionPriority,
    SchedulingStatus,
    ShareItem,
    StarvationReason,
    StarvationStatus,
)
from headrace_cli.show.times import time_of_day

#: The share for which an element starves, in words.
STARVATION_REASONS: Final = {StarvationReason.FAIR_SHARE: "fair share", StarvationReason.MIN_SHARE: "strong guarantee"}


def starvation_facts(share: ShareItem, outlooks: Sequence[StarvationOutlook], now_ms: int) -> list[tuple[str, str]]:
    """Return facts about an element that is below its share, and about the pools above it.

    `outlooks` are the known forecasts of starvation of the element and of these pools.
    """
    own = next((each for each in outlooks if each.key == share.key), None)
    facts: list[tuple[str, str]] = []
    if share.scheduling_status is SchedulingStatus.BELOW_FAIR_SHARE and share.below_fair_share_since_ms is not None:
        to_come = _for_fair_share(own, now_ms) if own is not None else ""
        facts.append(("below fair share", f"for {_passed(share.below_fair_share_since_ms, now_ms)}{to_come}"))
    if own is not None and own.below_strong_guarantee_since_ms is not None:
        words = f"for {_passed(own.below_strong_guarantee_since_ms, now_ms)}{_for_strong_guarantee(own, now_ms)}"
        facts.append(("below guarantee", words))
    if share.starvation_status is not StarvationStatus.NON_STARVING and share.starving_since_ms is not None:
        words = f"for {_passed(share.starving_since_ms, now_ms)}, for its {STARVATION_REASONS[share.starvation_reason]}"
        facts.append(("starves", words))
    if share.preemption_priority is not PreemptionPriority.NONE:
        cause = starving_cause({}, share)
        stage = "aggressive" if share.preemption_priority is PreemptionPriority.AGGRESSIVE else "normal"
        why = "it starves itself" if cause is not None else "a pool above it starves"
        facts.append(("may preempt", f"in the {stage} stage: {why}"))
    return facts + [(f"pool {each.name}", _pool_above(each, now_ms)) for each in outlooks if each is not own]


def _pool_above(pool: StarvationOutlook, now_ms: int) -> str:
    """Return for how long a pool has been below its fair share or its guarantee, when it will starve, and for how long it has starved."""
    parts = []
    if pool.below_fair_share_since_ms is not None:
        passed = _passed(pool.below_fair_share_since_ms, now_ms)
        parts.append(f"below its fair share for {passed}{_for_fair_share(pool, now_ms)}")
    if pool.below_strong_guarantee_since_ms is not None:
        passed = _passed(pool.below_strong_guarantee_since_ms, now_ms)
        parts.append(f"below its strong guarantee for {passed}{_for_strong_guarantee(pool, now_ms)}")
    if pool.starvation_status is not StarvationStatus.NON_STARVING and pool.starving_since_ms is not None:
        parts.append(
            f"starves for {_passed(pool.starving_since_ms, now_ms)}, for its {STARVATION_REASONS[pool.starvation_reason]}"
        )
    return "; ".join(parts)


def _for_fair_share(outlook: StarvationOutlook, now_ms: int) -> str:
    starves_at_ms, aggressively_at_ms = outlook.starves_for_fair_share_at_ms, outlook.starves_aggressively_at_ms
    aggressively = "" if aggressively_at_ms is None else f"aggressively {_when(aggressively_at_ms, now_ms)}"
    if starves_at_ms is None or starves_at_ms == aggressively_at_ms:
        return f"; it starves {aggressively}" if aggressively else ""
    return f"; it starves {_when(starves_at_ms, now_ms)}" + (f", and {aggressively}" if aggressively else "")


def _for_strong_guarantee(outlook: StarvationOutlook, now_ms: int) -> str:
    at_ms = outlook.starves_for_strong_guarantee_at_ms
    return "" if at_ms is None else f"; it starves for the guarantee {_when(at_ms, now_ms)}"


def _when(at_ms: int, now_ms: int) -> str:
    """Return when an event is expected: the remaining time and the time of day, or the next update if that time has passed."""
    if at_ms <= now_ms:
        return "with the next update"
    return f"in {format_duration(at_ms - now_ms)}, at {time_of_day(at_ms, now_ms)}"


def _passed(since_ms: int, now_ms: int) -> str:
    return format_duration(max(0, now_ms - since_ms))
