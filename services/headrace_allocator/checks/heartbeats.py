"""The check of heartbeats in production: one of very many is decided wholly by the plain functions, too.

Both decide on the same facts before anything is carried out, each over an overlay of its own, and the quick way's decision holds.
Not compared are why room is left, if more waits for the next heartbeat, and what is only observed: no place depends on these.
"""

from __future__ import annotations

from itertools import islice
from typing import Final

import msgspec

from headrace.resources import Resources
from headrace.runtime.engine import Figure, counter
from headrace.wire.snapshots import PreemptionPriority
from headrace_allocator.checks.choices import PlainChoices, case_of
from headrace_allocator.checks.heartbeat_cases import (
    Case,
    Decided,
    HeartbeatCase,
    MayBeDecided,
    Start,
    Taken,
    allocation_cases,
)
from headrace_allocator.checks.plain_decision import decide_plainly
from headrace_allocator.decision.extending import Extension
from headrace_allocator.decision.view import Overlay, View
from headrace_allocator.decision.walk import next_in_line
from headrace_allocator.facts.operations import Operation
from headrace_allocator.preemption.heartbeat_decision import Due, HeartbeatDecision

#: One heartbeat of so many is checked, of those that are decided on and of those with nothing to decide: some 16 ms at 10,000 operations.
_EVERY: Final = 10_000
#: Cases that wait to be kept.
_MOST_CASES: Final = 5
#: Operations of each priority that are part of a case though they got nothing.
_MOST_STARVING: Final = 50


class HeartbeatCheck:
    """Chooses as `next_in_line` does, and decides one heartbeat of very many plainly, too."""

    def __init__(self, every: int = _EVERY) -> None:
        self._every = every
        #: Heartbeats since the last one that was checked, and those with nothing to decide since the last of them that was.
        self._heartbeats = 0
        self._quiet = 0
        self._settled = self._is_turn = False
        #: The choices of this heartbeat, by whose priority alone took part.
        self._made: dict[PreemptionPriority | None, list[Operation | None]] = {}
        self._compared = self._unlike = 0
        self._choices = self._wrong_choices = 0
        self._cases: list[Case] = []

    def begin(self, *, settled: bool = True) -> None:
        """A heartbeat is about to be decided on. While some places are to be found anew, the plain loop knows better for a while."""
        self._heartbeats += 1
        self._settled = settled
        self._is_turn = settled and self._heartbeats >= self._every

    def is_turn_of_quiet(self) -> bool:
        """True if this heartbeat, with nothing to decide by the quick path, is to be decided plainly."""
        # Counted by themselves: most heartbeats of a full cluster are such, and no other would have its turn.
        self._quiet += 1
        return self._settled and self._quiet >= self._every

    def choose(self, overlay: Overlay, room: Resources, priority: PreemptionPriority | None = None) -> Operation | None:
        """The operation whose job goes first into `room`, by the quick way."""
        chosen = next_in_line(overlay, room, priority)
        if self._is_turn:
            self._made.setdefault(priority, []).append(chosen)
        return chosen

    def compare(self, view: View, due: Due, decided: HeartbeatDecision) -> None:
        """Holds the decision on a heartbeat against the plain one, if it is its turn. Nothing of it is carried out yet."""
        if self._is_turn:
            self._heartbeats = 0
            self._compare(view, due, decided)

    def compare_quiet(self, view: View, due: Due) -> None:
        """Holds the verdict of the quick path, that there is nothing to decide, against the plain decision."""
        self._quiet = 0
        self._compare(view, due, HeartbeatDecision())

    def take_cases(self) -> list[Case]:
        """The differences since it was asked last."""
        cases, self._cases = self._cases, []
        return cases

    def figures(self) -> list[Figure]:
        """Heartbeats and choices that were checked, and those that were wrong."""
        return [
            counter("heartbeats_checked", "heartbeats", self._compared, "Heartbeats that were decided plainly, too."),
            counter(
                "heartbeats_differing", "heartbeats", self._unlike, "Heartbeats that the plain rules decide otherwise."
            ),
            counter("choices_checked", "choices", self._choices, "Choices that were made again by the plain rule."),
            counter(
                "choices_differing", "choices", self._wrong_choices, "Choices that the plain rule did not confirm."
            ),
        ]

    def _compare(self, view: View, due: Due, decided: HeartbeatDecision) -> None:
        made, self._made, self._is_turn = self._made, {}, False
        self._compared += 1
        # Which allocations rest is remembered by the quick way, so that the plain one asks them all.
        view = msgspec.structs.replace(view, restless=view.allocations)
        choices = PlainChoices(made, turn=self._compared)
        ran = {stage.stage.priority for stage in decided.stages}
        plainly = decide_plainly(Overlay(view), due, choices.choose, ran)
        self._choices += choices.checked
        quickly_told, plainly_told = _told(decided), _told(plainly)
        if choices.case is None and quickly_told == plainly_told:
            return
        self._unlike += 1
        self._wrong_choices += choices.case is not None
        if len(self._cases) < _MOST_CASES:
            self._cases.append(choices.case or _case_of(view, due, quickly_told, plainly_told))


def _told(decided: HeartbeatDecision) -> Decided:
    """Everything that is carried out of a decision."""
    starts = [*decided.placements, *(stage.placement for stage in decided.stages if stage.placement is not None)]
    by_stages = [one for stage in decided.stages for one in stage.preemptions]
    return Decided(
        starts=[Start(one.operation.id, one.jobs, one.job) for one in starts],
        jobs=[(one.allocation.id, one.jobs if isinstance(one, Extension) else 0) for one in decided.extensions],
        taken=[
            Taken(
                one.allocation.id, one.reason, one.group, one.beneficiary.id if one.beneficiary else None, one.properly
            )
            for one in [*by_stages, *decided.preemptions]
        ],
    )


def _case_of(view: View, due: Due, quickly: Decided, plainly: Decided) -> HeartbeatCase:
    """The case, with the operations that have something on the node or get it, and the first of those for whom stages run."""
    names = [one.operation for one in view.allocations] + [one.operation for one in (*quickly.starts, *plainly.starts)]
    for priority in (PreemptionPriority.AGGRESSIVE, PreemptionPriority.NORMAL):
        starving = (one.id for one in view.operations.values() if one.preemption_priority is priority)
        names += islice(starving, _MOST_STARVING)
    names += [view.reserved.id] if view.reserved is not None else []
    known = {name: view.operations[name] for name in names if name in view.operations}
    return HeartbeatCase(
        quickly=quickly,
        plainly=plainly,
        due=MayBeDecided(due.extend, due.start, due.preempt, due.preemptive_stages, due.repair_overcommit),
        limits=view.limits,
        held=view.limits - view.free - Resources.sum(one.usage for one in view.allocations),
        boottime_ms=view.boottime_ms,
        pace_ms=view.pace_ms,
        allocations=allocation_cases(view),
        tree=case_of(Overlay(view), view.free, None, None, None, known.values()),
    )
