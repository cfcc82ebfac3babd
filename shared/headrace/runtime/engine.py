"""The contract of every engine: what it is told, what it answers, and how it shows its state.

An engine decides and does nothing else. Each `on_<message>(message, ..., moment)` changes the state and returns an `Outcome`: the
answer, if somebody waits for one, and the effects that the shell performs in their order. The moment is always the last argument,
so an engine never reads a clock. `check` and `figures` only read.

Example: a counter as an engine, and what its shell gets.

    class Counter:
        def on_added(self, number: int, moment: Moment) -> Outcome[int, Never]:
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
    """One reading of both clocks, handed from a shell to its engine.

    Lengths of time are differences of `steady_ns`. Unix time is for records that people read. It may jump.
    """

    #: Nanoseconds of a clock of this machine that never jumps and goes on while the machine sleeps.
    steady_ns: int
    #: Milliseconds of Unix time.
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

    #: For whoever sent the message; None where nobody waits or nothing is to be answered.
    answer: A
    #: Performed by the shell, in this order.
    effects: Sequence[E] = ()


def counter(name: str, unit: str, value: float, says: str) -> Figure:
    """A figure that only grows."""
    return Figure(name, unit, FigureKind.COUNTER, value, says)


def gauge(name: str, unit: str, value: float, says: str) -> Figure:
    """A figure that goes up and down."""
    return Figure(name, unit, FigureKind.GAUGE, value, says)


def by_label(family: Figure, name: str, label: str, values: Mapping[str, float]) -> list[Figure]:
    """One figure of a family for each value of a label, named `name` and the value.

    Example: the counter `preempted` by `reason`, where `name` is `preempted_by`, has `preempted_by_preemption` among others.
    """
    return [
        msgspec.structs.replace(family, name=f"{name}_{key}", value=value, family=family.name, labels={label: key})
        for key, value in values.items()
    ]


#: Looks at one structure; returns its broken invariants in words.
Check = Callable[[], list[str]]


class Engine(Protocol):
    """The questions that every engine answers."""

    def checks(self) -> Iterator[Check]:
        """The checks of all structures, one structure each.

        A structure may change or go between two of them: a check holds for the moment in which it is called.
        """
        ...

    def check(self) -> list[str]:
        """All broken invariants in words, or none if all hold."""
        ...

    def figures(self) -> list[Figure]:
        """The engine's figures at this moment."""
        ...


def run_checks(checks: Iterable[Check]) -> list[str]:
    """Runs all of them at once: the usual body of `Engine.check`."""
    return [words for check in checks for words in check()]
