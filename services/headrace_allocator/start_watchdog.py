"""Watchdog over starts: find operations whose jobs fit into free resources and that nothing holds back, but whose jobs do not start.

There should be no such operations. Each second a few operations of the scheduling order are examined, all of them in turn. An operation
that nothing holds back is examined again until a job of it starts or something holds it back. If many nodes have to be examined, this takes
several ticks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from itertools import islice
from typing import Final

from headrace.ids import OperationId
from headrace.resources import LARGEST_SUM, RESOURCE_NAMES, Resources, format_amount
from headrace.runtime.engine import Figure, Moment, counter, gauge
from headrace_allocator.decision.least_satisfied import LeastSatisfied
from headrace_allocator.effects import Alarm
from headrace_allocator.explain import reasons as why
from headrace_allocator.explain.waiting import reasons_in_turn
from headrace_allocator.facts.facts import Facts
from headrace_allocator.facts.operations import Operation

#: The largest amount of each resource that a message can carry.
_MOST_TOLD: Final = Resources(*[LARGEST_SUM] * len(RESOURCE_NAMES))
#: Seconds for which a job may wait without a reason before that is reported. Several heartbeats come in this time even under load.
_LONG_S: Final = 30.0
#: Upper bound of the operations that are examined for the first time in each round.
_MOST_NEW: Final = 4
#: Upper bound of all operations that are examined in each round.
_MOST_WATCHED: Final = 16
#: Upper bound of the steps of one tick. A step examines one reason, or a hundred nodes and allocations. An operation takes some 20 steps if
#: few nodes have free resources for its jobs.
_MOST_STEPS: Final = 400


class Watchdog:
    """Finds stuck operations: nothing holds them back, and still none of their jobs has started for half a minute."""

    def __init__(self) -> None:
        #: Operations that nothing holds back. Each has its numbers of allocations and of pending jobs, and the time since which nothing has
        #: held it back and these numbers have not changed (steady-clock seconds).
        self._watched: dict[OperationId, tuple[float, tuple[int, int]]] = {}
        self._stuck: set[OperationId] = set()
        #: Operations that are still to be examined in turn, before all are examined again.
        self._turn: list[OperationId] = []
        #: Operations of the round that are still to be examined, and the operations of the round that nothing holds back.
        self._round: deque[OperationId] = deque()
        self._free: dict[OperationId, tuple[float, tuple[int, int]]] = {}
        #: The examination of the first operation of the round, if it has begun.
        self._examination: Generator[None, None, bool] | None = None
        self._alarmed = 0
        #: The resource of which all nodes together report more than a message can carry; empty if there is none.
        self._too_much_of = ""

    def on_tick(self, facts: Facts, order: LeastSatisfied, now: Moment) -> list[Alarm]:
        """Continue the round of examinations. A new round begins with the operations that nothing held back in the last round, and some
        more operations.

        Return alarms for stuck operations and for amounts that are too large.
        """
        if not self._round:
            if not self._turn:
                self._turn = list(order)
            new = [self._turn.pop() for _ in range(min(_MOST_NEW, len(self._turn)))]
            self._round.extend(islice(dict.fromkeys([*self._watched, *new]), _MOST_WATCHED))
        self._examine(facts, order, now)
        alarms: list[Alarm] = []
        if not self._round:
            self._watched, self._free = self._free, {}
            stuck = {name for name, (since_s, _) in self._watched.items() if now.steady_s - since_s > _LONG_S}
            new_stuck, self._stuck = stuck - self._stuck, stuck
            self._alarmed += len(new_stuck)
            what = "jobs fit into free resources and none starts"
            alarms += [Alarm(what, {"operation": name}) for name in sorted(new_stuck)]
        before_of, self._too_much_of = self._too_much_of, facts.total.name_above(_MOST_TOLD)
        if self._too_much_of and self._too_much_of != before_of:
            alarms.append(
                Alarm("the nodes together report more than a message can carry", {"resource": self._too_much_of})
            )
        return alarms

    def _examine(self, facts: Facts, order: LeastSatisfied, now: Moment) -> None:
        """Examine operations of the round until all are examined, or the work of this tick is done."""
        steps = 0
        while self._round:
            name = self._round[0]
            operation = facts.operations.get(name)
            if operation is not None and name in order:
                if self._examination is None:
                    self._examination = _nothing_holds(facts, order, operation, now)
                try:
                    next(self._examination)
                except StopIteration as end:
                    if end.value:
                        self._note_free(operation, now)
                else:
                    steps += 1
                    if steps >= _MOST_STEPS:
                        return
                    continue
            self._examination = None
            self._round.popleft()

    def _note_free(self, operation: Operation, now: Moment) -> None:
        """Record that nothing holds the operation back."""
        has = (len(operation.allocations), operation.slots.pending_count)
        since_s, had = self._watched.get(operation.id, (now.steady_s, has))
        self._free[operation.id] = (since_s, had) if had == has else (now.steady_s, has)

    @property
    def trouble(self) -> str:
        """The text about amounts that cannot be published in full, or about stuck operations; empty if there is neither."""
        if self._too_much_of:
            amount = format_amount(self._too_much_of, LARGEST_SUM)
            return f"all nodes together report more {self._too_much_of} than the most that counts, {amount}: headrace node list"
        if not self._stuck:
            return ""
        first, more = min(self._stuck), len(self._stuck) - 1
        others = f" and of {more} more" if more else ""
        return f"jobs of {first}{others} fit into free resources, and none has started for {_LONG_S:.0f} s: headrace op explain {first}"

    def figures(self) -> list[Figure]:
        """Return the metrics of the operations that are stuck now, and of the number of times that an operation became stuck."""
        says = "Operations whose jobs fit into free resources and of which no job has started for half a minute."
        return [
            gauge("stuck_operations", "operations", len(self._stuck), says),
            counter("stuck", "alarms", self._alarmed, "Times that an operation became stuck."),
        ]


def _nothing_holds(
    facts: Facts, order: LeastSatisfied, operation: Operation, now: Moment
) -> Generator[None, None, bool]:
    """Return True if jobs of the operation wait for no reason, or only for a late node. Pause (yield) after each step."""
    if not operation.slots.pending_count:
        return False
    for reason in reasons_in_turn(facts, order, operation, now):
        if reason is None:
            yield None
        elif not isinstance(reason, why.RoomUnheard):
            return False
    return True
