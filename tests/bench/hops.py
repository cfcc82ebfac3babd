"""The walk from a wish to a process, hop by hop, from the spans that `headrace trace` shows."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final

from headrace.obs.span_file import read_spans
from headrace_cli.traces.waterfall import Row, trace_of_operation, waterfall

#: Each hop, and the spans from the end of one of which to the end of the other it goes. From the beginning of the first: "".
HOPS: Final[Mapping[str, tuple[str, str, str]]] = {
    "hop_append_ms": ("", "append to log", "from the request until it is recorded on the disk"),
    "hop_snapshot_ms": ("append to log", "first snapshot", "from there until shares count the operation"),
    "hop_placement_ms": ("first snapshot", "placement", "from there until a heartbeat gives it a place"),
    "hop_process_ms": ("placement", "process start", "from there until the agent knows of the process"),
}


def hops_of(folder: Path, operations: Collection[str]) -> dict[str, list[float]]:
    """Milliseconds of each hop of each operation whose trace is whole."""
    spans = list(read_spans(folder))
    found: dict[str, list[float]] = {name: [] for name in HOPS}
    for operation in operations:
        trace = trace_of_operation(spans, operation)
        rows = {row.name: row for row in waterfall(spans, trace).spans} if trace is not None else {}
        for name, (begin, end, _what) in HOPS.items():
            if end in rows and (not begin or begin in rows):
                found[name].append(_end(rows[end]) - (_end(rows[begin]) if begin else 0.0))
    assert all(found.values()), {name: len(hops) for name, hops in found.items()}
    return found


def _end(row: Row) -> float:
    return row.start_ms + row.took_ms
