"""Preemptive tries: the result of the last run of a preemptive stage on a node, to explain why an operation got nothing there."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.ids import OperationId
from headrace.resources import Resources
from headrace.runtime.engine import Moment
from headrace.wire.heartbeat import Start
from headrace_allocator.facts.nodes import PreemptiveTry
from headrace_allocator.preemption.stages import StageOutcome


def try_of(stage: StageOutcome, started: Sequence[Start], now: Moment) -> PreemptiveTry:
    """Return the result of a stage that tried to start a job."""
    operation = started[0].operation if started else OperationId("")
    room = (stage.room + stage.discount).within_wire()
    exempt_until_s = now.steady_s + stage.exempt_ms / 1000
    return PreemptiveTry(now.steady_s, stage.candidates, room, operation, stage.exempt, exempt_until_s)


def try_without_candidates(free: Resources, now: Moment) -> PreemptiveTry:
    """Return the result for a node on which nothing may be preempted. It is made without running a stage."""
    return PreemptiveTry(now.steady_s, 0, free.within_wire(), OperationId(""), 0, now.steady_s)
