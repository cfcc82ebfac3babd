"""Files that go with an operation: there for its jobs on every node, the same for everybody, gone when it is over."""

from __future__ import annotations

import hashlib
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.access.permissions import Party
from headrace.access.routes import PartyKind
from headrace.archives import pack
from headrace.bus import KeyValue
from headrace.wire import subjects
from tests.support.headrace_up import Up

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def up() -> Iterator[Up]:
    with Up(nodes=("alpha:cpu=1,memory=1G", "beta:cpu=1,memory=1G")) as running:
        yield running


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / "data" / "empty").mkdir(parents=True)
    (folder / "work.sh").write_text('#!/bin/sh\ncat data/words "$HEADRACE_FILES/latest"; echo on $HEADRACE_NODE\n')
    (folder / "work.sh").chmod(0o755)
    (folder / "data" / "words").write_text("water\n")
    (folder / "latest").symlink_to("data/words")
    return folder


def folders(up: Up, operation: str = "") -> list[Path]:
    """The folders of an operation, or of all, on all nodes. Their names go on with the time of the operation's start."""
    return sorted(up.state.glob(f"agents/*/files/*/{operation}*"))


def wait_logged(up: Up, log: str, *texts: str) -> None:
    """Until a line of the log has all these texts."""
    command = ["tail", "-n", "+1", "-F", str(up.state / "logs" / log)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as tail:
        assert tail.stdout is not None
        for line in tail.stdout:
            if all(text in line for text in texts):
                tail.kill()
                return


async def first_piece(up: Up, sha256: str, harm: bytes | None = None) -> str | None:
    """The key of the first piece of an archive, None where it is not there. Writes or deletes it, as admission's credential lets."""
    inbox = Party(kind=PartyKind.ADMISSION).inbox
    async with up.bus(up.state / "credentials" / "admission", inbox) as bus:
        pieces: KeyValue = await bus.key_value(subjects.PIECES_BUCKET)
        archives: KeyValue = await bus.key_value(subjects.ARCHIVES_BUCKET)
        records = [key for key in await archives.entries() if sha256 in key]
        first = next((key.replace(".record", ".0") for key in records), "")
        if not first or await pieces.get(first) is None:
            return None
        if harm:
            await pieces.put(first, harm)
        elif harm is not None:
            await pieces.delete(first)
        return first


def test_jobs_on_all_nodes_find_the_files_in_their_folder_until_it_is_over(up: Up, project: Path) -> None:
    script = "./work.sh; until [ -e go ]; do sleep 0.05; done"
    operation = up.start_operation("--jobs", "2", "--upload", str(project), "--", "sh", "-c", script)
    up.wait_line(operation, "on ", times=2)

    said = up.run("op", "logs", operation).stdout
    assert re.search(r"^files +5, .* packed$", up.run("op", "get", operation).stdout, re.MULTILINE)
    here = folders(up, operation)
    for folder in here:
        (folder / "go").touch()
    up.run("op", "wait", operation)

    assert "on alpha" in said
    assert "on beta" in said
    assert said.count("water") == 4
    assert [folder.parts[-4] for folder in here] == ["alpha", "beta"]
    for node in ("alpha", "beta"):
        wait_logged(up, f"agent-{node}.log", "files removed", operation)
    assert folders(up) == []


async def test_two_operations_share_what_they_sent_and_it_goes_with_the_second(up: Up, project: Path) -> None:
    (project / "data" / "words").write_text("shared\n")
    up.run("pause", "starts")
    first, second = (up.start_operation("--upload", str(project), "--", "./work.sh") for _ in range(2))

    piece = await first_piece(up, pack([project]).archive.sha256)
    assert piece is not None
    user, sha256 = piece.split(".")[:2]
    up.run("op", "abort", first)
    up.run("resume", "starts")

    assert up.run("op", "wait", second).returncode == 0
    assert "shared" in up.run("op", "logs", second).stdout
    wait_logged(up, "admission.log", "archive removed", user, sha256)
    assert await first_piece(up, sha256) is None


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (b"", "cannot be fetched: there is no undamaged piece of its files in the store"),
        (b"damaged where it is kept", "cannot be fetched: there is no undamaged piece of its files in the store"),
        (hashlib.sha256(b"other").digest() + b"other", "are damaged: 5 bytes"),
    ],
)
async def test_lost_and_damaged_files_fail_the_job_with_words(up: Up, project: Path, harm: bytes, said: str) -> None:
    (project / "data" / "words").write_text(said)
    up.run("pause", "starts")
    words = ("--max-failed-job-count", "1", "--upload", str(project), "--", "./work.sh")
    operation = up.start_operation(*words)
    assert await first_piece(up, pack([project]).archive.sha256, harm)
    up.run("resume", "starts")

    ended = up.run("op", "wait", operation, expect=1)

    assert "not started: its files " in ended.stderr
    assert said in ended.stderr
    assert " failed on node " in ended.stderr
    assert folders(up, operation) == []
    if "no whole piece" in said:
        assert up.run("run", "--wait", *words).returncode == 0, "it was sent anew"


@pytest.mark.long
def test_an_agent_that_is_killed_while_it_fetches_leaves_nothing(up: Up, tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(os.urandom(30_000_000))
    operation = up.start_operation("--upload", str(tmp_path / "large"), "--", "wc", "-c", "large")
    while not (unfinished := folders(up, ".unfinished-")):
        assert not folders(up, operation), "it was too fast"
    node = unfinished[0].parts[-4]
    os.kill(int((up.state / "agents" / node / "agent.lock").read_text()), signal.SIGKILL)

    up.run("op", "wait", operation)
    assert "30000000 large" in up.run("op", "logs", operation).stdout
    (ran_on,) = {folder.parts[-4] for folder in folders(up, operation)} or {node}
    wait_logged(up, f"agent-{ran_on}.log", "files removed", operation)
    up.wait_said(f"agent-{node} ended .*SIGKILL")
    while folders(up, ".unfinished-"):
        up.run("service", "list")


@pytest.mark.long
def test_files_that_were_left_by_a_killed_machine_are_removed(up: Up, project: Path) -> None:
    operation = up.start_operation("--jobs", "2", "--upload", str(project), "--", "sleep", "1000")
    for node in ("alpha", "beta"):
        wait_logged(up, f"agent-{node}.log", "files fetched", operation)
    up.stop(signal.SIGKILL)
    assert len(folders(up, operation)) == 2

    up.start()
    up.run("op", "abort", operation)

    for node in ("alpha", "beta"):
        wait_logged(up, f"agent-{node}.log", "files removed", operation)
    assert folders(up, operation) == []


def test_what_cannot_be_sent_is_said_before_anything_starts(up: Up, tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(os.urandom(65 * 1024 * 1024))

    too_large = up.run("run", "--upload", str(tmp_path / "large"), "--", "true", expect=2)
    missing = up.run("run", "--upload", str(tmp_path / "no-such"), "--", "true", expect=2)

    assert "65 MiB in 1 files, the largest large 65 MiB" in too_large.stderr
    assert "packed they may have at most 64 MiB" in too_large.stderr
    assert "no-such" in missing.stderr


@pytest.mark.long
def test_a_node_that_cannot_keep_the_files_says_so_and_the_job_runs_elsewhere(project: Path) -> None:
    up = Up(nodes=("alpha:cpu=2,memory=2G", "beta:cpu=1,memory=1G"))
    (up.state / "agents" / "alpha").mkdir(parents=True, mode=0o700)
    (up.state / "agents" / "alpha" / "files").write_text("in the way")
    with up:
        # Alone on beta there is room for one of them.
        operation = up.start_operation("--jobs", "3", "--upload", str(project), "--", "./work.sh")
        wait_logged(up, "agent-alpha.log", "trouble", "this host cannot store the files of an operation")
        up.run("op", "wait", operation)

        said = up.run("op", "logs", operation).stdout
        assert said.count("on beta") == 3
        assert "this host cannot store the files of an operation" in up.run("node", "list").stdout
