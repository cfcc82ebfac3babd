"""Files that a person names may be endless: every reader stops at a bound, and says so."""

from __future__ import annotations

import gzip
import itertools
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.bus.credential_files import read_secret
from headrace.client.place import find_place
from headrace.errors import BadInput
from headrace.runtime.settings import load
from headrace.wire.simulation import SimulationTask
from headrace_agent.settings import AgentSettings
from headrace_cli.agent.command import _text
from headrace_cli.commands.operations.run import read_lines
from headrace_cli.slurm.command_line import Given
from headrace_cli.slurm.submit import POOLS_FILE, _script, pools_file
from headrace_simulator.workload_files import read_files
from headrace_simulator.workloads import columns, yarn
from headrace_simulator.workloads.formats import FORMATS, read_workload

READERS: dict[str, Callable[[Path], object]] = {
    "--each-line": read_lines,
    "batch script": lambda file: _script(Given(words=[str(file)])),
    "pools of sbatch": lambda file: pools_file({POOLS_FILE: str(file)}),
    "credential": lambda file: read_secret("credential_file", str(file)),
    "settings": lambda file: load(AgentSettings, "agent", file, {}),
    "--token-file": lambda file: _text("", file),
    "endpoint": lambda file: find_place(state=file.parent),
}


@pytest.mark.parametrize("name", READERS)
def test_a_file_of_a_tebibyte_is_refused_before_it_is_in_memory(tmp_path: Path, name: str) -> None:
    file = tmp_path / "endpoint.json"
    file.touch(mode=0o600)
    os.truncate(file, 2**40)

    with pytest.raises(BadInput, match=r"at most [0-9]+ bytes"):
        READERS[name](file)


@pytest.fixture
def low_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the test need less time than it takes to read as much as the readers of workloads accept."""
    monkeypatch.setattr(yarn, "_LARGEST_TEXT", 2**22)
    monkeypatch.setattr(columns, "MOST_LINES", 1_000)


@pytest.mark.parametrize("format", ["auto", *FORMATS])
@pytest.mark.parametrize("is_compressed", [False, True])
def test_a_workload_with_an_endless_line_is_refused_before_it_is_in_memory(
    tmp_path: Path, format: str, is_compressed: bool, low_bounds: None
) -> None:
    file = tmp_path / "workload"
    if is_compressed:
        with gzip.open(file, "wb", compresslevel=1) as packed:
            for _ in range(8):
                packed.write(bytes(2**20))
    else:
        file.touch()
        os.truncate(file, 2**40)

    with pytest.raises(BadInput, match=r"expected at most|cannot be recognized"):
        read_files(SimulationTask(file=str(file), setups=[], format=format))


@pytest.mark.parametrize("format", FORMATS)
def test_a_workload_without_an_end_is_refused(format: str, low_bounds: None) -> None:
    headers = {"sacct": "JobID|Submit|ElapsedRaw|NCPUS", "table": "submit,run"}
    openb = "name,cpu_milli,memory_mib,num_gpu,creation_time,deletion_time"
    with pytest.raises(BadInput, match="expected at most"):
        read_workload("w", itertools.chain([headers.get(format, openb)], itertools.repeat("\n")), format)
