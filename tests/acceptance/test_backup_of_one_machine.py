"""The state folder of one machine is copied and put back, as the page on backups says: what it kept then goes on from there."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.support.headrace_up import Up


def view(up: Up, operation: str) -> dict[str, Any]:
    return dict(msgspec.json.decode(up.run("op", "get", operation, "--json").stdout)["operation"])


@pytest.mark.long
def test_a_state_folder_that_was_put_back_has_all_of_it_and_goes_on(tmp_path: Path) -> None:
    job = f"echo began >>{tmp_path}/$HEADRACE_JOB_INDEX; until [ -e {tmp_path}/go-$HEADRACE_JOB_INDEX ]; do sleep 0.05; done"
    backup = tmp_path / "backup"
    with Up(nodes=("alpha:cpu=1,memory=2G",)) as up:
        up.run("pool", "create", "lab", "weight=3")
        operation = up.start_operation("--pool", "lab", "--jobs", "2", "--", "sh", "-c", job)
        (tmp_path / "go-0").touch()
        while view(up, operation)["completed_jobs"] == 0:
            pass
        exported = up.run("pool", "export", "--options").stdout
        assert up.stop() == 0
        subprocess.run(["cp", "-a", up.state, backup], check=True)

        up.start()
        up.run("pool", "create", "later")
        up.run("op", "abort", operation)
        assert up.stop() == 0
        shutil.rmtree(up.state)
        subprocess.run(["cp", "-a", backup, up.state], check=True)

        up.start()
        assert up.run("pool", "export", "--options").stdout == exported
        (tmp_path / "go-1").touch()
        up.run("op", "wait", operation)
        found = view(up, operation)

    assert (found["state"], found["completed_jobs"]) == ("completed", 2)
    assert (tmp_path / "0").read_text() == "began\n", "an end that was recorded before counts"
