"""What a heartbeat costs if each start is booked as soon as it is decided, instead of all starts at the end of the decision.

    python -m tests.bench.one_book [ROUNDS]

Nothing is undone here; an undo would come on top. Both forms must start the same jobs, or the program fails.
"""

from __future__ import annotations

import gc
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final
from unittest import mock

import msgspec

from headrace.ids import OperationId
from headrace.resources import Resources
from headrace.runtime.service import COLLECTOR_THRESHOLDS
from headrace.wire.heartbeat import Orders, Start
from headrace_allocator import heartbeat_answer
from headrace_allocator.decision.placing import Placement
from headrace_allocator.decision.view import Overlay, View
from headrace_allocator.facts.allocations import Allocation
from headrace_allocator.facts.nodes import Node
from headrace_allocator.facts.operations import Operation
from headrace_allocator.heartbeat_answer import HeartbeatAnswers
from tests.bench.heartbeats import MANY, heartbeats_us

_DECIDE: Final = HeartbeatAnswers.decide
_ANSWER: Final = HeartbeatAnswers.answer


class OnTheFacts(Overlay):
    """Decides on the facts: what is used is booked, and the order is brought up to date, before the next job is chosen."""

    answers: HeartbeatAnswers
    node: Node
    #: The operations that the node knew before the decision, and the allocations that the decision has booked.
    shown: set[OperationId]
    booked: list[Allocation]

    def __init__(self, view: View) -> None:
        for operation in view.moved:
            self.answers._ranking.refresh(operation)
        view.order.settle()
        super().__init__(msgspec.structs.replace(view, moved=()))

    def use(self, operation: Operation, amount: Resources, jobs: int = 0, task: int | None = None) -> None:
        answers = self.answers
        self.booked.append(answers._facts.start(answers._next_name(), operation, self.node, jobs, amount, task))
        self.room = self.room - amount
        answers._ranking.refresh(operation)
        self.view.order.settle()
        # The lists that the walk went along have changed.
        self._heads.clear()


def _decide(self: HeartbeatAnswers, node: Node, *rest: Any) -> Overlay | None:
    OnTheFacts.answers, OnTheFacts.node = self, node
    OnTheFacts.shown, OnTheFacts.booked = heartbeat_answer._shown(node), []
    return _DECIDE(self, node, *rest)


def _starts(self: HeartbeatAnswers, node: Node, placed: list[Placement], *rest: Any) -> tuple[list[Start], bool]:
    """Return the orders of what is booked already, within the bytes of the answer, as the allocator does of placements."""
    (budget, now, *_), starts, shown = rest, list[Start](), OnTheFacts.shown
    for one, allocation in zip(placed, OnTheFacts.booked, strict=True):
        assert heartbeat_answer._fits(budget, one.operation, one.jobs, is_shown=one.operation.id in shown)
        allocation.stage = one.stage
        starts.append(self._start(allocation, one.operation, now, is_shown=one.operation.id in shown))
        shown.add(one.operation.id)
    return starts, True


@contextmanager
def _on_the_facts() -> Iterator[None]:
    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(heartbeat_answer, "Overlay", OnTheFacts))
        stack.enter_context(mock.patch.object(HeartbeatAnswers, "decide", _decide))
        stack.enter_context(mock.patch.object(HeartbeatAnswers, "_starts", _starts))
        yield


def _measured() -> tuple[float, list[list[tuple[str, int]]]]:
    """Return the median of the CPU time of heartbeats in microseconds, and the operations that each heartbeat started jobs of."""
    started = []

    def answer(*arguments: Any) -> Orders:
        orders = _ANSWER(*arguments)
        started.append([(str(one.operation), len(one.slots)) for one in orders.start])
        return orders

    # The time of a processor: on a busy machine a heartbeat is interrupted.
    with mock.patch.object(HeartbeatAnswers, "answer", answer), mock.patch("time.perf_counter", time.thread_time):
        return statistics.median(heartbeats_us(MANY)), started


def main() -> None:
    gc.set_threshold(*COLLECTOR_THRESHOLDS)
    overlay, facts = [], []
    for _ in range(int(sys.argv[1]) if len(sys.argv) > 1 else 9):
        us, expected = _measured()
        overlay.append(us)
        with _on_the_facts():
            us, started = _measured()
        facts.append(us)
        assert started == expected
    for name, each in (("booked at the end", overlay), ("booked at once", facts)):
        print(f"{name:18} median {statistics.median(each):5.0f} us, least {min(each):5.0f} us")
    print(f"{statistics.median(there / here for here, there in zip(overlay, facts, strict=True)) - 1:+.0%}")


if __name__ == "__main__":
    main()
