"""Readers of Alibaba's GPU cluster trace of 2023, openb: comma-separated values of its tasks (pods) and its nodes. Pure.

Source: Alibaba, cluster-trace-gpu-v2023 (Weng et al., USENIX ATC 2023). A core has 1,000 cpu_milli, a GPU has 1,000 gpu_milli, and
times are seconds since the beginning of the trace.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from headrace.errors import BadInput
from headrace.resources import LARGEST_AMOUNT, Resources
from headrace.wire.nodes import LONGEST_TAG
from headrace_simulator.workloads.columns import (
    LONGEST_S,
    MIB,
    Damaged,
    bounded,
    cells_of,
    column_positions,
    decimal,
    header_cells,
    job_size,
    missing_columns,
    numbered_lines,
    same_text,
    shown,
    whole,
)
from headrace_simulator.workloads.workload import Workload, WorkloadJob, WorkloadNode

_PLACE: Final = "openb"
_POD_COLUMNS: Final = ("name", "cpu_milli", "memory_mib", "num_gpu", "creation_time", "deletion_time")
_NODE_COLUMNS: Final = ("cpu_milli", "memory_mib", "gpu")
#: Thousandths of a core in a hundredth of a core.
_MILLI: Final = 10
_WHOLE_GPU: Final = 1_000
#: User slots of a node, which is the agent's default.
_SLOTS: Final = 1_000
_PART_NOTE, _KIND_NOTE = "a part of a GPU", "a kind of GPU"
#: The characters of tags in formulas: headrace.pools.node_filter.
_TAG: Final = re.compile(r"[a-z0-9_./:@-]+\Z")


def read_openb_pods(lines: Iterable[str]) -> Workload:
    """Return the jobs of a file of pods. Raises `BadInput` if there is no header with the needed columns."""
    workload, rows = Workload("openb"), numbered_lines(_PLACE, lines)
    header = header_cells(_PLACE, rows, ", ".join(_POD_COLUMNS))
    positions = column_positions(header)
    if any(name not in positions for name in _POD_COLUMNS):
        raise missing_columns(_PLACE, header, ", ".join(_POD_COLUMNS))
    assumed = Counter[str]()
    for number, text in rows:
        try:
            _add_pod(workload, _row(text, positions, len(header)), assumed)
        except Damaged as error:
            workload.add_damaged(number, str(error))
    if count := assumed[_PART_NOTE]:
        workload.notes.append(f"{count} tasks request a part of a GPU and get a whole GPU")
    if count := assumed[_KIND_NOTE]:
        workload.notes.append(f"{count} tasks request a kind of GPU (gpu_spec), which is ignored")
    return workload


def read_openb_nodes(lines: Iterable[str]) -> list[WorkloadNode]:
    """Return the nodes of a file of nodes; equal nodes are one entry. Raises `BadInput`, also for a line that cannot be read."""
    rows = numbered_lines(_PLACE, lines)
    header = header_cells(_PLACE, rows, ", ".join(_NODE_COLUMNS))
    positions = column_positions(header)
    if any(name not in positions for name in _NODE_COLUMNS):
        raise missing_columns(_PLACE, header, ", ".join(_NODE_COLUMNS))
    counts = Counter[tuple[Resources, str]]()
    for number, text in rows:
        try:
            row = _row(text, positions, len(header))
            milli = whole(row["cpu_milli"], "cpu_milli", LARGEST_AMOUNT)
            size = job_size(milli // _MILLI, whole(row["gpu"], "gpu", LARGEST_AMOUNT), _memory(row))
        except Damaged as error:
            raise BadInput.because(f"{_PLACE}, line {number}", str(error)) from None
        resources = Resources(user_slots=_SLOTS, cpu=size.cpu, gpu=size.gpu, memory=size.memory)
        tag = f"gpu:{row.get('model', '').lower()}"
        counts[resources, tag if tag != "gpu:" and _TAG.match(tag) and len(tag) <= LONGEST_TAG else ""] += 1
    return [WorkloadNode(count, size, [tag] if tag else []) for (size, tag), count in counts.items()]


def _row(text: str, positions: Mapping[str, int], width: int) -> dict[str, str]:
    """Return the values of a line by column. Raises `Damaged`."""
    cells = cells_of(text)
    if len(cells) != width:
        raise Damaged(f"{len(cells)} values in place of {width}: {shown(text)}")
    return {name: cells[position].strip() for name, position in positions.items()}


def _add_pod(workload: Workload, row: Mapping[str, str], assumed: Counter[str]) -> None:
    """Add the job of a line, or count it as left out. Raises `Damaged`."""
    name = row["name"]
    if not name or "\ufffd" in name:
        raise Damaged(f"the name is {shown(name)}; expected a text")
    if not row["creation_time"]:
        workload.left_out["without a submit time"] += 1
        return
    if not row.get("scheduled_time", "0"):
        workload.left_out["never scheduled"] += 1
        return
    if not row["deletion_time"]:
        workload.left_out["never deleted"] += 1
        return
    created_ms = _time_ms(row, "creation_time")
    began_ms = _time_ms(row, "scheduled_time") if "scheduled_time" in row else created_ms
    runs_ms = _time_ms(row, "deletion_time") - began_ms
    bounded(runs_ms, "deletion_time minus the time of the start, in milliseconds", 1_000 * LONGEST_S)
    bounded(began_ms - created_ms, "scheduled_time minus creation_time, in milliseconds", 1_000 * LONGEST_S)
    milli, gpus = whole(row["cpu_milli"], "cpu_milli", LARGEST_AMOUNT), whole(row["num_gpu"], "num_gpu", LARGEST_AMOUNT)
    gpu_milli = whole(row.get("gpu_milli") or "0", "gpu_milli", LARGEST_AMOUNT)
    job = WorkloadJob(
        name=name,
        submitted_ms=created_ms,
        runs_ms=runs_ms,
        count=1,
        size=job_size(-(-milli // _MILLI), gpus, _memory(row)),
        queue=same_text(row.get("qos", "").lower()),
        waited_ms=began_ms - created_ms if "scheduled_time" in row else -1,
        failed=row.get("pod_phase", "").lower() == "failed",
    )
    workload.jobs.append(job)
    assumed[_PART_NOTE] += gpus > 0 and 0 < gpu_milli < _WHOLE_GPU
    assumed[_KIND_NOTE] += bool(row.get("gpu_spec"))


def _time_ms(row: Mapping[str, str], column: str) -> int:
    return round(1_000 * decimal(row[column], column, LONGEST_S))


def _memory(row: Mapping[str, str]) -> int:
    return whole(row["memory_mib"], "memory_mib", LARGEST_AMOUNT // MIB) * MIB
