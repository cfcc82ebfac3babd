"""Files that go with an operation: there for its jobs on every node, the same for everybody, gone when it is over."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.headrace_up import Up


@pytest.fixture(scope="module")
def up() -> Iterator[Up]:
    with Up(nodes=("alpha:cpu=1,memory=1G", "beta:cpu=1,memory=1G")) as running:
        yield running


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / "data" / "empty").mkdir(parents=True)
    (folder / "work.sh").write_text('#!/bin/sh\ncat data/words "$HEADRACE_FILES/latest"; pwd; echo on $HEADRACE_NODE\n')
    (folder / "work.sh").chmod(0o755)
    (folder / "data" / "words").write_text("water\n")
    (folder / "latest").symlink_to("data/words")
    return folder


def folders(up: Up) -> list[str]:
    """The folders of operations on all nodes."""
    return sorted(str(path.relative_to(up.state)) for path in up.state.glob("agents/*/files/*/*"))


def test_jobs_on_all_nodes_find_the_files_in_their_folder(up: Up, project: Path) -> None:
    script = "./work.sh; touch ready; until [ -e go ]; do sleep 0.05; done"
    operation = up.start_operation("--jobs", "2", "--upload", str(project), "--", "sh", "-c", script)
    up.wait_line(operation, "on ", times=2)

    said = up.run("op", "logs", operation).stdout
    here = folders(up)
    for folder in here:
        (up.state / folder / "go").touch()
    assert up.run("op", "wait", operation).returncode == 0

    assert "on alpha" in said
    assert "on beta" in said
    assert said.count("water") == 4
    assert len(here) == 2
    assert all(operation in folder for folder in here)
