"""Waterfalls: the spans of one trace, each below its parent span. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator
from typing import Final

import msgspec
from rich.table import Table

from headrace.obs.tracing import Attributes, Span
from headrace.wire.trace import TRACED_JOBS, SpanContext
from headrace_cli.show.tables import table

_NARROWEST_BAR: Final = 20
_WIDEST_BAR: Final = 60
#: Width of all columns except the bar, in characters.
_OTHER_COLUMNS: Final = 70


class Row(msgspec.Struct, frozen=True):
    """A span with its position in the waterfall."""

    name: str
    service: str
    #: Number of spans above this span in the trace.
    depth: int
    #: Milliseconds since the first span of the trace began.
    start_ms: float
    took_ms: float
    span_id: str
    parent_id: str
    attributes: Attributes
    links: list[SpanContext]
    #: Kind of failure that ended the span; empty: none.
    error: str


class Waterfall(msgspec.Struct, frozen=True):
    """The spans of one trace in the order of the waterfall."""

    trace_id: str
    took_ms: float
    spans: list[Row]

    @property
    def is_cut(self) -> bool:
        """True if the trace may lack jobs: it contains `TRACED_JOBS` jobs, and further jobs of an operation are not traced."""
        return any(row.attributes.get("job") == TRACED_JOBS - 1 for row in self.spans)


def trace_of_operation(spans: Collection[Span], operation: str) -> str | None:
    """Return the id of the newest trace of an operation's start; None if there is none."""
    starts = [span for span in spans if span.attributes.get("operation") == operation and span.name in _STARTS]
    return max(starts, key=lambda span: span.start_ns).trace_id if starts else None


def traced_operations(spans: Collection[Span]) -> list[str]:
    """Return the operations whose start has a trace, the newest first."""
    starts = sorted((span for span in spans if span.name in _STARTS), key=lambda span: -span.start_ns)
    return list(dict.fromkeys(str(span.attributes["operation"]) for span in starts if "operation" in span.attributes))


#: Names of the span of an operation's start; the client and admission each use one of them.
_STARTS: Final = frozenset({"start request", "StartOperation"})


def waterfall(spans: Collection[Span], trace_id: str) -> Waterfall:
    """Return the spans of a trace as a waterfall.

    A span whose parent is missing has no indentation. Such a parent is not over yet, or belongs to another program. If a span was reported
    twice, for example by a process and by its successor, the first report counts.
    """
    ids: dict[str, Span] = {}
    for span in spans:
        if span.trace_id == trace_id:
            ids.setdefault(span.span_id, span)
    own = sorted(ids.values(), key=lambda span: (span.start_ns, -span.end_ns))
    below = defaultdict(list)
    for span in own:
        below[span.parent_id if span.parent_id in ids else ""].append(span)
    first_ns = min((span.start_ns for span in own), default=0)
    took_ns = max((span.end_ns for span in own), default=0) - first_ns

    def rows(parent_id: str, depth: int) -> Iterator[Row]:
        for span in below[parent_id]:
            yield _row(span, depth, first_ns)
            yield from rows(span.span_id, depth + 1)

    return Waterfall(trace_id, took_ns / 1e6, list(rows("", 0)))


def waterfall_table(shown: Waterfall, width: int) -> Table:
    """Return a table with a line for each span: its name, where it ran, its times in figures, and its time as a bar."""
    bar = min(_WIDEST_BAR, max(_NARROWEST_BAR, width - _OTHER_COLUMNS))
    made = table("span", "where", "start", "took", f"{shown.took_ms:.1f} ms in all", right=("start", "took"))
    for row in shown.spans:
        where = " ".join(str(row.attributes[name]) for name in ("node",) if name in row.attributes)
        words = [row.name, *(f"{name} {row.attributes[name]}" for name in ("job",) if name in row.attributes)]
        words += [row.error] if row.error else []
        made.add_row(
            "  " * row.depth + ", ".join(words),
            f"{row.service} {where}".rstrip(),
            f"{row.start_ms:.2f}",
            f"{row.took_ms:.2f} ms",
            _bar(row, shown.took_ms, bar),
        )
    return made


def _row(span: Span, depth: int, first_ns: int) -> Row:
    start_ms, took_ms = (span.start_ns - first_ns) / 1e6, (span.end_ns - span.start_ns) / 1e6
    ids = span.span_id, span.parent_id
    return Row(span.name, span.service, depth, start_ms, took_ms, *ids, span.attributes, list(span.links), span.error)


def _bar(row: Row, whole_ms: float, width: int) -> str:
    """Return a bar, at least one character wide, that shows when the span ran."""
    scale = width / whole_ms if whole_ms else 0.0
    first = min(int(row.start_ms * scale), width - 1)
    return " " * first + "█" * max(1, min(round(row.took_ms * scale), width - first))
