"""The check of heartbeats in production: one of very many is decided by the plain functions too.

Both ways decide on the same facts before anything is carried out, each over an overlay of its own. The decision of the quick way holds.
Three things are not compared, because no allocation depends on them: why free resources are left, whether more is left for the next
heartbeat, and what is only observed.
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
from headrace_allocator.decide import DueSteps, HeartbeatDecision
from headrace_allocator.decision.extending import Extension
from headrace_allocator.decision.view import Overlay, View
from headrace_allocator.decision.walk import next_in_line
from headrace_allocator.facts.operations import Operation

#: One heartbeat in this number is checked, counted apart for heartbeats that are decided on and for heartbeats with nothing to decide. A
#: check takes some 16 ms at 10,000 operations.
_EVERY: Final = 10_000
#: Upper bound of the cases that wait to be written.
_MOST_CASES: Final = 5
#: Upper bound of the operations of each priority that are in a case although they got nothing.
_MOST_STARVING: Final = 50


class HeartbeatCheck:
    """Chooses like `next_in_line`, and decides one heartbeat of very many by the plain functions too."""

    def __init__(self, every: int = _EVERY) -> None:
        self._every = every
        #: Heartbeats since the last check, and heartbeats with nothing to decide since the last check of such a heartbeat.
        self._heartbeats = 0
        self._quiet = 0
        self._settled = self._is_turn = False
        #: The choices of this heartbeat, by the preemption priority that took part.
        self._made: dict[PreemptionPriority | None, list[Operation | None]] = {}
        self._compared = self._unlike = 0
        self._choices = self._wrong_choices = 0
        self._cases: list[Case] = []

    def begin(self, *, settled: bool = True) -> None:
        """Start a heartbeat that is about to be decided.

        `settled` is False while operations are marked to be repositioned. Then the plain loop knows better for a while, and nothing is
        checked.
        """
        self._heartbeats += 1
        self._settled = settled
        self._is_turn = settled and self._heartbeats >= self._every

    def is_turn_of_quiet(self) -> bool:
        """True if this heartbeat, on which the quick path found nothing to decide, must be decided plainly."""
        # Counted apart: most heartbeats of a full cluster have nothing to decide, and no other heartbeat would get its turn.
        self._quiet += 1
        return self._settled and self._quiet >= self._every

    def choose(self, overlay: Overlay, room: Resources, priority: PreemptionPriority | None = None) -> Operation | None:
        """Return the operation whose job comes first and fits into `room`, by the quick walk."""
        chosen = next_in_line(overlay, room, priority)
        if self._is_turn:
            self._made.setdefault(priority, []).append(chosen)
        return chosen

    def compare(self, view: View, due: DueSteps, decided: HeartbeatDecision) -> None:
        """Compare the decision on a heartbeat with the plain decision, if it is its turn. Call this before anything is carried out."""
        if self._is_turn:
            self._heartbeats = 0
            self._compare(view, due, decided)

    def compare_quiet(self, view: View, due: DueSteps) -> None:
        """Compare the finding of the quick path, that there is nothing to decide, with the plain decision."""
        self._quiet = 0
        self._compare(view, due, HeartbeatDecision())

    def take_cases(self) -> list[Case]:
        """Return the differences found since the last call."""
        cases, self._cases = self._cases, []
        return cases

    def figures(self) -> list[Figure]:
        """Return metrics of the checked heartbeats and choices, and of the differences found."""
        return [
            counter(
                "heartbeats_checked",
                "heartbeats",
                self._compared,
                "Heartbeats that were decided again by the plain rules.",
            ),
            counter(
                "heartbeats_differing",
                "heartbeats",
                self._unlike,
                "Heartbeats that the plain rules decide differently.",
            ),
            counter("choices_checked", "choices", self._choices, "Choices that were made again by the plain rules."),
            counter(
                "choices_differing", "choices", self._wrong_choices, "Choices that the plain rules did not confirm."
            ),
        ]

    def _compare(self, view: View, due: DueSteps, decided: HeartbeatDecision) -> None:
        made, self._made, self._is_turn = self._made, {}, False
        self._compared += 1
        # The quick way remembers which allocations need no order, so the plain way looks at all of them.
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
    """Return everything that is carried out of a decision."""
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


def _case_of(view: View, due: DueSteps, quickly: Decided, plainly: Decided) -> HeartbeatCase:
    """Return the case of a difference, with all operations on the node or in a decision, and the first starving operations."""
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
