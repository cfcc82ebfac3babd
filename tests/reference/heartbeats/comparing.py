"""The comparison of what the allocator decides on a heartbeat with the plain decision."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final
from unittest import mock

from headrace.runtime.engine import run_checks
from headrace_allocator.decide import DueSteps, HeartbeatDecision
from headrace_allocator.decision.extending import Extension
from headrace_allocator.decision.placing import Placement
from headrace_allocator.decision.ranking import Ranking
from headrace_allocator.decision.view import Overlay, View
from headrace_allocator.facts.nodes import Node
from headrace_allocator.heartbeat_answer import HeartbeatAnswers
from headrace_allocator.preemption.stages import STAGES, StageOutcome
from headrace_allocator.preemption.victims import Preemption
from tests.reference.heartbeats.decision import decide_plainly

__all__ = ["SEEN", "compare", "every_heartbeat_compared"]

#: Number of heartbeats in this process: decided equally, and differently because the order of operations was out of date.
SEEN: Final[Counter[str]] = Counter()
_DECIDE: Final = HeartbeatAnswers.decide


def compare(view: View, due: DueSteps, made: HeartbeatDecision) -> None:
    """Raise `AssertionError` if the plain decision differs. Call this before anything of the decision is applied."""
    plain = decide_plainly(view, due, {stage.stage.priority for stage in made.stages})
    assert _told(made) == _told(plain), f"decided: {_told(made)}\nplainly: {_told(plain)}"
    plain_stages = {(one.stage.name, one.for_few_nodes): one for one in plain.stages}
    for stage in made.stages:
        # A stage that can change nothing does not look for candidates, and a plan knows its own.
        if (stage.candidates or stage.held) and stage.stage in STAGES:
            found, expected = _candidates(stage), _candidates(plain_stages[stage.stage.name, stage.for_few_nodes])
            assert found == expected, f"candidates of {stage.stage.name}: {found}\nplainly: {expected}"


@contextmanager
def every_heartbeat_compared(report: Callable[[AssertionError], None] | None = None) -> Iterator[None]:
    """Compare every heartbeat of every allocator in the process while the block lasts. Blocks may be nested.

    A difference is raised where the heartbeat is answered, or passed to `report`: the shell of a service survives what its engine raises.
    """

    def decide(self: HeartbeatAnswers, node: Node, due: DueSteps, *rest: Any) -> Overlay | None:
        overlay = _DECIDE(self, node, due, *rest)
        _, _, pace_ms, _ = rest
        ranking = self._ranking
        batches = ranking.batches.of_priority
        view = View.of(self._facts, node, ranking.order, pace_ms, (), batches, ()) if overlay is None else overlay.view
        try:
            compare(view, due, self.decided)
        except AssertionError as error:
            if _is_out_of_date(ranking):
                SEEN["out of date"] += 1
            elif report is None:
                raise
            else:
                report(error)
        else:
            SEEN["equal"] += 1
        return overlay

    with mock.patch.object(HeartbeatAnswers, "decide", decide):
        yield


def _is_out_of_date(ranking: Ranking) -> bool:
    """True if operations or pools that wait to be repositioned are at positions that contradict the facts.

    The allocator goes by these positions until then.
    """
    if not ranking.some_marked:
        return False
    with mock.patch.multiple(ranking, _marked={}, _marked_pools={}, _all_marked=False):
        return bool(run_checks(ranking.checks()))


def _told(made: HeartbeatDecision) -> dict[str, Any]:
    """Return all that is carried out of a decision, in its order and by names."""
    stages = [stage for stage in made.stages if stage.placement is not None or stage.preemptions]
    return {
        "preempted": [_preempted(one) for one in made.preemptions],
        "extended": [(one.allocation.id, one.jobs if isinstance(one, Extension) else 0) for one in made.extensions],
        "started": [_started(one) for one in made.placements],
        "stages": [
            (one.stage.name.value, one.for_few_nodes, _started(one.placement), list(map(_preempted, one.preemptions)))
            for one in stages
        ],
        "unused": [one.unused for one in stages if one.placement is not None],
    }


def _started(one: Placement | None) -> tuple[object, ...] | None:
    return None if one is None else (one.operation.id, one.jobs, one.job, one.stage.value)


def _preempted(one: Preemption) -> tuple[object, ...]:
    beneficiary = None if one.beneficiary is None else one.beneficiary.id
    return one.allocation.id, one.reason.value, one.group.name, beneficiary, one.properly, one.timeout_ms


def _candidates(stage: StageOutcome) -> tuple[object, ...]:
    return stage.candidates, stage.discount, stage.held
