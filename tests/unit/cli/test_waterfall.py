"""The waterfall of a trace: a span that two processes told stands in it once."""

from __future__ import annotations

from headrace.obs.tracing import Span
from headrace_cli.traces.waterfall import waterfall

TRACE = "a" * 32


def span(name: str, span_id: str, start_ns: int, parent_id: str = "") -> Span:
    return Span(TRACE, span_id, name, "fair_share", start_ns, start_ns + 1_000_000, parent_id)


def test_of_a_span_that_was_told_twice_the_first_is_shown() -> None:
    spans = [
        span("StartOperation", "1" * 16, 0),
        span("first snapshot", "2" * 16, 3_000_000, parent_id="1" * 16),
        span("first snapshot", "2" * 16, 9_000_000, parent_id="1" * 16),
    ]
    shown = waterfall(spans, TRACE)
    assert [(row.name, row.depth, row.start_ms) for row in shown.spans] == [
        ("StartOperation", 0, 0.0),
        ("first snapshot", 1, 3.0),
    ]
    assert shown.took_ms == 4.0
