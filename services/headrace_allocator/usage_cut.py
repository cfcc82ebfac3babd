"""The usage that is published for fair_share: what each operation holds, and what it asks for."""

from __future__ import annotations

import msgspec

from headrace.resources import ZERO
from headrace.runtime.engine import Moment
from headrace.wire.snapshots import UsageFrame, UsageItem
from headrace_allocator.facts.facts import Facts
from headrace_allocator.facts.operations import Operation
from headrace_allocator.words import FITS_NO_NODE

__all__ = ["UsageCut", "cut_usage", "usage_changed"]


class UsageCut(msgspec.Struct, frozen=True):
    """The news since the cut before."""

    frame: UsageFrame
    items: list[UsageItem]
    gone: list[str]


def cut_usage(facts: Facts, moment: Moment) -> UsageCut:
    """Cuts what changed since the last cut."""
    facts.told_frame = _usage_frame(facts)
    frame = msgspec.structs.replace(facts.told_frame, at_ms=moment.wall_ms)
    touched, gone = facts.touched, facts.gone
    facts.touched, facts.gone = set(), set()
    items = [_usage_of(facts.operations[name]) for name in sorted(touched & facts.operations.keys())]
    return UsageCut(frame, items, sorted(gone - facts.operations.keys()))


def usage_changed(facts: Facts) -> bool:
    """True if usage is not what was cut last."""
    return bool(facts.touched or facts.gone) or _usage_frame(facts) != facts.told_frame


def _usage_frame(facts: Facts) -> UsageFrame:
    return UsageFrame(
        total=facts.total,
        nodes=facts.online_nodes,
        complete=facts.recovery.complete,
        recovering=facts.recovery.progress(),
    )


def _usage_of(operation: Operation) -> UsageItem:
    size = operation.spec.resources
    pending = operation.pending_jobs
    reason = FITS_NO_NODE if pending and not operation.fits_somewhere else ""
    return UsageItem(
        operation=operation.id,
        usage=operation.usage,
        precommit=operation.precommit,
        pending_jobs=pending,
        pending=ZERO if reason else size * pending,
        min_needed=size,
        running_jobs=operation.running_jobs,
        allocations=len(operation.allocations),
        unschedulable_reason=reason,
    )
