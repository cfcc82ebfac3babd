"""Files that a person names may be endless: every reader stops at a bound, and says so."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.bus.credential_files import read_secret
from headrace.client.place import find_place
from headrace.errors import BadInput
from headrace.runtime.settings import load
from headrace_agent.settings import AgentSettings
from headrace_cli.agent.command import _text
from headrace_cli.commands.operations.run import read_lines
from headrace_cli.slurm.command_line import Given
from headrace_cli.slurm.submit import POOLS_FILE, _script, pools_file

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
