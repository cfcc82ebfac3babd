"""Metrics that services report about themselves, and the request for them."""

from __future__ import annotations

import enum

import msgspec

from headrace.resources import Finite
from headrace.wire.version import Name, Term


class FigureKind(enum.StrEnum):
    """Kinds of metrics, by how their value behaves over time."""

    #: The value only grows while the process lives.
    COUNTER = "counter"
    #: The value goes up and down.
    GAUGE = "gauge"
    #: The value is a `Histogram`: numbers of observed values, by their size.
    HISTOGRAM = "histogram"


class Histogram(msgspec.Struct, frozen=True):
    """Values counted by size: `counts[i]` is the number of values at most `bounds[i]` and above `bounds[i - 1]`.

    The last count is the number of values above all bounds.
    """

    bounds: tuple[Finite, ...]
    counts: tuple[int, ...]
    #: Sum of all values.
    sum: Finite


class Figure(msgspec.Struct, frozen=True):
    """One metric of a service."""

    #: Name in lower case with underscores, without the unit.
    name: str
    #: Unit, such as `bytes` or `ms`; for a count the noun that is counted, such as `nodes`.
    unit: str
    kind: FigureKind
    value: Finite | Histogram
    #: Description in one sentence.
    says: str = ""
    #: Name without the part that the labels express; empty if there are no labels.
    family: str = ""
    #: Labels that distinguish the metrics of one family, such as the name of a pool.
    labels: dict[str, str] = msgspec.field(default_factory=dict)


class FiguresRequest(msgspec.Struct, frozen=True):
    """Ask every service for its metrics."""


class FiguresAnswer(msgspec.Struct, frozen=True, tag_field="refusal", tag="none"):
    """The metrics of one process at the time of the answer."""

    service: Name
    figures: list[Figure]
    #: Role that the process leads; empty if it leads none.
    role: Name = ""
    #: Term in which the process leads the role; 0 if it leads none.
    term: Term = 0
    #: Name of the process, which stays the same when it restarts; for an agent the name of its node. Processes of earlier
    #: releases leave it empty.
    instance: Name = ""
