"""Readers of workloads on any input: they raise nothing but `BadInput`, and what they return is within bounds.

The files of `../shared/traces` beside the checkout are read where they are present.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.durations import LONGEST_MS
from headrace.errors import BadInput
from headrace.resources import LARGEST_AMOUNT
from headrace.wire.operation_spec import LARGEST_JOB_COUNT
from headrace_simulator.workloads.formats import FORMATS, read_workload
from headrace_simulator.workloads.openb import read_openb_nodes, read_openb_pods
from headrace_simulator.workloads.sacct import read_sacct
from headrace_simulator.workloads.swf import read_swf
from headrace_simulator.workloads.table import read_table
from headrace_simulator.workloads.workload import Workload
from headrace_simulator.workloads.yarn import read_yarn

TRACES = Path(__file__).parents[3].parent / "shared" / "traces"
Result = TypeVar("Result")


def traces(*patterns: str) -> list[Any]:
    """The real traces as parameters. Where there are none, the name of the only parameter says so."""
    found = sorted(path for pattern in patterns for path in TRACES.glob(pattern))
    return [pytest.param([path], id=path.name) for path in found] or [pytest.param([], id="no-traces-here")]


GOOD: dict[str, tuple[Callable[[Iterable[str]], Workload], list[str]]] = {
    "swf": (
        read_swf,
        [
            "; UnixStartTime: 1793613600",
            "; MaxNodes: 4",
            "; MaxProcs: 16",
            "7 100 20 60.5 4 -1 -1 8 3600 1024 1 3 2 -1 5 -1 -1 -1",
        ],
    ),
    "sacct": (
        read_sacct,
        [
            "JobID|User|Submit|Start|Elapsed|State|NCPUS|NNodes|ReqMem|AllocTRES|Timelimit|NodeList",
            "1_2|anna|2026-11-02T10:00:00|2026-11-02T10:00:05|1-02:03:04.5|RUNNING|8|2|4Gc|cpu=8,gres/gpu:a=3|1-00:00:00|n[1-2]",
            "1|anna|2026-11-02T10:00:00|Unknown|00:00:00|FAILED|8||16G|mem=2G,node=4|UNLIMITED|n[1-2,5],b",
        ],
    ),
    "openb": (
        read_openb_pods,
        [
            "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time",
            "pod-1,6005,12288,1,460,,LS,Succeeded,100,1000,130",
        ],
    ),
    "yarn": (
        read_yarn,
        [
            '{"apps": {"app": [{"id": "a", "state": "FINISHED", "startedTime": 9, "launchTime": 10, "elapsedTime": 900,',
            '"memorySeconds": 1000, "vcoreSeconds": 10, "finalStatus": "FAILED"}]}}',
        ],
    ),
    "sls": (
        read_yarn,
        [
            '{"job.start.ms": 0, "job.id": "j", "job.tasks": [{"container.start.ms": 0, "container.end.ms": "30"},',
            ' {"duration.ms": 5, "count": 3, "container.memory": 1}]}',
            '{"job.start.ms": 0, "job.tasks": [{"duration.ms": 1}], "job.count": 2}',
        ],
    ),
    "table": (
        read_table,
        ["submit,run,count,cpu,memory,together,limit,wait", "1,2h,8,0.5,512M,yes,3h,7", "1e3,5,,,,,,"],
    ),
}

ODD = (
    "-1",
    "nan",
    "inf",
    "1e300",
    "9" * 400,
    "\ufffd",
    "٣",
    "²",
    '"',
    "|",
    ",",
    "[",
    "{",
    "\x00",
    "\x1b[31m",
    "\\ud800",
    "",
)
texts = st.text(st.characters(), max_size=80) | st.sampled_from(ODD)


def result_of(read: Callable[[], Result]) -> tuple[Result | None, str]:
    """What a reader returns, or None and the message of its error."""
    try:
        return read(), ""
    except BadInput as error:
        return None, str(error)


def check(read: Callable[[Iterable[str]], Workload], lines: list[str]) -> None:
    workload, message = result_of(lambda: read(iter(lines)))
    assert message.isprintable()
    if workload is None:
        return
    assert all(why.isprintable() and len(why) < 300 and 0 < line <= len(lines) for line, why in workload.damaged)
    assert workload.damaged_count >= len(workload.damaged)
    for job in workload.jobs:
        assert 0 <= job.submitted_ms < 10**15
        assert 0 <= job.runs_ms <= LONGEST_MS
        assert 1 <= job.count <= LARGEST_JOB_COUNT
        assert 0 <= min(job.size.as_tuple()) <= max(job.size.as_tuple()) <= LARGEST_AMOUNT
        assert job.size.user_slots == 1
        assert 0 <= job.limit_ms <= LONGEST_MS
        assert -1 <= job.waited_ms < 10**15
    msgspec.json.decode(msgspec.json.encode(workload.jobs))


def test_the_good_lines_are_good() -> None:
    for read, lines in GOOD.values():
        workload = read(lines)
        assert workload.damaged == []
        assert workload.jobs


@pytest.mark.parametrize("name", GOOD)
@given(lines=st.lists(texts, max_size=5), with_header=st.booleans())
def test_any_lines(name: str, lines: list[str], with_header: bool) -> None:
    read, good = GOOD[name]
    check(read, good[:1] * with_header + lines)


@pytest.mark.parametrize("name", GOOD)
@given(data=st.data())
def test_changed_lines(name: str, data: st.DataObject) -> None:
    read, good = GOOD[name]
    lines = list(good)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(lines) - 1))
        line = lines[at]
        begin = data.draw(st.integers(0, len(line)))
        end = data.draw(st.integers(begin, min(len(line), begin + 12)))
        lines[at] = line[:begin] + data.draw(texts) + line[end:]
    check(read, lines)


@pytest.mark.parametrize("name", ["swf", "sacct", "openb", "table"])
@given(data=st.data())
def test_changed_values(name: str, data: st.DataObject) -> None:
    read, good = GOOD[name]
    separator = {"swf": " ", "sacct": "|"}.get(name, ",")
    values = good[-1].split(separator)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(values) - 1))
        values[at] = data.draw(texts | st.integers(-2, 2**70).map(str) | st.floats().map(str))
    check(read, [*good[:-1], separator.join(values)])


@given(st.lists(texts, max_size=5), st.sampled_from(("auto", *FORMATS)), st.sampled_from(("-", "a.swf", "b.json.gz")))
def test_any_file(lines: list[str], format: str, name: str) -> None:
    check(lambda given: read_workload(name, given, format), lines)


@given(st.lists(texts | st.just("a,32000,1024,8,G2"), max_size=4))
def test_any_nodes(lines: list[str]) -> None:
    nodes, message = result_of(lambda: read_openb_nodes(["sn,cpu_milli,memory_mib,gpu,model", *lines]))

    assert message.isprintable()
    if nodes is not None:
        assert sum(node.count for node in nodes) == sum(bool(line.strip()) for line in lines)


@pytest.mark.parametrize("paths", traces("*.swf.gz", "*pod_list*.csv.gz"))
def test_real_traces_have_no_damaged_line(paths: list[Path]) -> None:
    for path in paths:
        with gzip.open(path, "rt", encoding="utf-8", errors="replace") as lines:
            workload = read_workload(path.name, lines)

        assert workload.damaged == []
        assert workload.jobs


@pytest.mark.parametrize("paths", traces("*node_list*.csv.gz"))
def test_real_nodes_are_read(paths: list[Path]) -> None:
    for path in paths:
        with gzip.open(path, "rt", encoding="utf-8", errors="replace") as lines:
            nodes = read_openb_nodes(lines)

        assert sum(node.count for node in nodes) == 1_523
        assert any(node.tags == ["gpu:v100m32"] for node in nodes)
