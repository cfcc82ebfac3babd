"""The contract of every engine: the messages it handles, its answers, and how it shows its state.

An engine decides what to do, and does none of it itself. Each `on_<message>(message, ..., now)` changes the state and returns an
`Outcome`: the answer, if the sender waits for one, and the effects that the shell performs in order. The last argument is always
the current time, so an engine never reads a clock. `check` and `figures` only read.

Example: a counter as an engine.

    class Counter:
        def on_added(self, number: int, now: Moment) -> Outcome[int, Never]:
            self.sum += number
            return Outcome(self.sum)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Generic, Protocol, TypeVar

import msgspec

from headrace.wire.figures import Figure, FigureKind, Histogram

__all__ = [
    "Check",
    "Engine",
    "Figure",
    "FigureKind",
    "Histogram",
    "Moment",
    "Outcome",
    "by_label",
    "counter",
    "gauge",
    "run_checks",
]

A = TypeVar("A")
E = TypeVar("E")

NS_PER_MS = 1_000_000


class Moment(msgspec.Struct, frozen=True):
    """One reading of both clocks, passed from a shell to its engine.

    Durations are differences of `steady_ns`. Unix time is for records that people read; it may jump.
    """

    #: Nanoseconds of a clock of this machine that never jumps and also runs while the machine sleeps.
    steady_ns: int
    #: Unix time in milliseconds.
    wall_ms: int

    @property
    def steady_s(self) -> float:
        """The steady clock in seconds."""
        return self.steady_ns / 1_000_000_000

    @property
    def steady_us(self) -> int:
        """The steady clock in whole microseconds."""
        return self.steady_ns // 1_000


class Outcome(msgspec.Struct, Generic[A, E], frozen=True):
    """The result of one message."""

    #: The answer for the sender; None if the sender waits for none or there is nothing to answer.
    answer: A
    #: Effects that the shell performs, in this order.
    effects: Sequence[E] = ()


def counter(name: str, unit: str, value: float, says: str) -> Figure:
    """Return a metric that only grows."""
    return Figure(name, unit, FigureKind.COUNTER, value, says)


def gauge(name: str, unit: str, value: float, says: str) -> Figure:
    """Return a metric that may rise and fall."""
    return Figure(name, unit, FigureKind.GAUGE, value, says)


def by_label(family: Figure, name: str, label: str, values: Mapping[str, float]) -> list[Figure]:
    """Return one metric of a family for each value of a label. The name of each metric is `name`, an underscore and the value of
    the label. `values` has the value of each metric.

    Example: the counter `preempted` by `reason`, with `name` `preempted_by`, gives `preempted_by_preemption` among others.
    """
    return [
        msgspec.structs.replace(family, name=f"{name}_{key}", value=value, family=family.name, labels={label: key})
        for key, value in values.items()
    ]


#: Checks one structure. Returns a text for each broken invariant.
Check = Callable[[], list[str]]


class Engine(Protocol):
    """The methods that every engine has in addition to its `on_<message>` methods."""

    def checks(self) -> Iterator[Check]:
        """Yield the checks of all structures, one check for each structure.

        The structures may change between two calls. Each check describes its structure at the time when the check is called.
        """
        ...

    def check(self) -> list[str]:
        """Check all structures. Return a text for each broken invariant; the list is empty if all invariants hold."""
        ...

    def figures(self) -> list[Figure]:
        """Return the engine's metrics as they are now."""
        ...


def run_checks(checks: Iterable[Check]) -> list[str]:
    """Run all checks, one after another. `Engine.check` of most engines only calls this function."""
    return [words for check in checks for words in check()]
