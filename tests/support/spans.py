"""Spans of this process, kept for a test to look at."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from headrace.obs import tracing
from headrace.obs.tracing import Span

__all__ = ["Spans", "tracing_on"]


class Spans(list[Span]):
    """In the order in which they ended."""

    def write(self, span: Span) -> None:
        self.append(span)

    def close(self) -> None: ...


@contextmanager
def tracing_on(
    service: str = "test", sample_ratio: float = 1.0, wall_ns: Callable[[], int] = tracing.SYSTEM_NS
) -> Iterator[Spans]:
    """Tracing is on inside."""
    kept = Spans()
    tracing.begin(service, kept, sample_ratio, wall_ns)
    try:
        yield kept
    finally:
        tracing.end()
