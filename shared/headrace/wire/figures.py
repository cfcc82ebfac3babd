"""Figures that services tell about themselves, and the question that gets them."""

from __future__ import annotations

import enum

import msgspec

from headrace.resources import Finite
from headrace.wire.version import Name, Term


class FigureKind(enum.StrEnum):
    """The behaviour of a figure over time."""

    #: Only grows within a life of the process.
    COUNTER = "counter"
    #: Goes up and down.
    GAUGE = "gauge"
    #: Counts values by size.
    HISTOGRAM = "histogram"


class Histogram(msgspec.Struct, frozen=True):
    """Values counted by size: `counts[i]` are at most `bounds[i]` and above the bound before.

    The last count is the rest.
    """

    bounds: tuple[Finite, ...]
    counts: tuple[int, ...]
    #: Of all values.
    sum: Finite


class Figure(msgspec.Struct, frozen=True):
    """One named number that a service tells about itself."""

    #: Lower case with underscores, without the unit.
    name: str
    #: A unit such as `bytes` or `ms`; the noun that is counted, such as `nodes`, where the number is a count.
    unit: str
    kind: FigureKind
    value: Finite | Histogram
    #: One sentence for people.
    says: str = ""
    #: The name without what the labels say, where there are any.
    family: str = ""
    #: What tells figures of one family apart, such as the name of a pool.
    labels: dict[str, str] = msgspec.field(default_factory=dict)


class FiguresRequest(msgspec.Struct, frozen=True):
    """Asks every service for its figures."""


class FiguresAnswer(msgspec.Struct, frozen=True, tag_field="refusal", tag="none"):
    """The figures of one process at the moment of the answer."""

    service: Name
    figures: list[Figure]
    #: The role that it leads, and its term; empty and 0 if it leads none.
    role: Name = ""
    term: Term = 0
    #: The name of the process, the same in all its lives; of an agent, that of its node. Empty from an earlier release.
    instance: Name = ""
