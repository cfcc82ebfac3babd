"""Preemptive tries: the last word of a stage on its node, for those who ask why it gave them nothing."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.ids import OperationId
from headrace.resources import Resources
from headrace.runtime.engine import Moment
from headrace.wire.heartbeat import Start
from headrace_allocator.facts.nodes import PreemptiveTry
from headrace_allocator.preemption.stages import StageOutcome


def try_of(stage: StageOutcome, started: Sequence[Start], moment: Moment) -> PreemptiveTry:
    """The try of a stage that looked for a place for somebody."""
    operation = started[0].operation if started else OperationId("")
    room = (stage.room + stage.discount).within_wire()
    exempt_until_s = moment.steady_s + stage.exempt_ms / 1000
    return PreemptiveTry(moment.steady_s, stage.candidates, room, operation, stage.exempt, exempt_until_s)


def try_without_candidates(free: Resources, moment: Moment) -> PreemptiveTry:
    """The same where nothing on the node may be taken, which is known without running a stage."""
    return PreemptiveTry(moment.steady_s, 0, free.within_wire(), OperationId(""), 0, moment.steady_s)
