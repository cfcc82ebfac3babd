"""The longest that the allocator works at one go, beside heartbeats, at 10,000 operations and nodes."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from headrace.wire.explanations import ExplainWaiting
from headrace.wire.nodes import ListNodes, WhereRequest
from headrace.wire.snapshots import PreemptionPriority
from headrace_allocator.facts.nodes import PreemptiveTry
from tests.bench.heartbeats_at_size import MANY, Fleet, fleet
from tests.bench.registry import REGISTRY, Figure
from tests.support.allocating import cores

#: As the shell has them.
_USAGE_SLICE, _REFRESH_SLICE = 100, 50
#: Of many checks that are alike.
_CHECKED = 200


@REGISTRY.add(
    "allocator_slice_ms", "the longest work at one go: tick, new places, usage, checks, questions; 10,000 of each", 5
)
def allocator_slice() -> Figure:
    desk = fleet(MANY)
    desk.only(desk.working)
    return Figure.of([max(_slices_ms(desk)) for _ in range(3)], "ms")


def _slices_ms(desk: Fleet) -> list[float]:
    engine, operation = desk.engine, desk.working[0].operation
    for node in desk.facts.nodes.values():
        node.tries[PreemptionPriority.NONE] = PreemptiveTry(desk.now_s, 1, cores(0.5), desk.working[1].operation)
    taken = [
        _ms(partial(engine.on_question, question, desk.now))
        for question in (ExplainWaiting(operation), WhereRequest(operation), ListNodes(limit=100))
    ]
    taken.append(_ms(lambda: engine.on_tick(desk.now)))
    engine.ranking.mark_all()
    while engine.ranking.some_marked:
        taken.append(_ms(lambda: engine.on_refresh_due(_REFRESH_SLICE, desk.now)))
    desk.facts.touched.update(dict.fromkeys(desk.facts.operations))
    while desk.facts.touched:
        taken.append(_ms(lambda: engine.on_usage_due(_USAGE_SLICE, desk.now)))
    done: dict[str, int] = {}
    for check in engine.checks():
        kind = getattr(check, "func", check).__qualname__
        done[kind] = done.get(kind, 0) + 1
        if done[kind] <= _CHECKED:
            taken.append(_ms(check))
    return taken


def _ms(work: Callable[[], object]) -> float:
    """Of the processor: nobody else's work on this machine counts."""
    begun = time.thread_time()
    kept = work()  # a service keeps the answer until it is told: to free 10,000 items is no part of cutting them
    taken_s = time.thread_time() - begun
    del kept
    return taken_s * 1e3
