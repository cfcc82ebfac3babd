"""A disk that is really full: everybody who could not do what they wanted is told, nothing is lost, and work goes on by itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import nats
import pytest

from headrace_cli.up.configuration import nats_configuration
from tests.support.headrace_up import Up
from tests.support.nats_server import free_port

_BLOCK = 4096


@contextmanager
def a_small_disk(at: Path, size: str) -> Iterator[None]:
    """Mounts a disk of so much there."""
    at.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size},mode=700", "tmpfs", at], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", at], check=True)


def fill(disk: Path) -> Path:
    """A file with all the room that was left."""
    filler = disk / "filler"
    with open(filler, "wb", buffering=0) as file:
        with suppress(OSError):  # others write meanwhile
            os.posix_fallocate(file.fileno(), 0, (os.statvfs(disk).f_bavail - 1) * _BLOCK)
        file.seek(0, os.SEEK_END)
        with suppress(OSError):
            while file.write(bytes(_BLOCK)):
                pass
    return filler


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="hr-") as made:
        yield Path(made)


def test_a_node_without_room_fails_nobodys_jobs_says_why_and_works_again_by_itself(folder: Path) -> None:
    disk, go_on = folder / "agents" / "alpha", folder / "go-on"
    os.mkfifo(go_on)
    with a_small_disk(disk, "8m"), Up(state=folder) as up:
        up.run("run", "--jobs", "4", "--wait", "--", "true")  # whose files others can have
        silent = up.start_operation("--", "sh", "-c", f"echo begun; read x <{go_on}")
        up.wait_line(silent, "begun")
        filler = fill(disk)
        started = up.start_operation("--jobs", "20", "--max-failed-job-count", "1", "--", "echo", "x")
        while "No space left on device" not in up.run("node", "list").stdout:
            pass
        why = up.run("op", "explain", started).stdout
        go_on.write_text("\n")
        ended = up.run("op", "wait", silent)
        filler.unlink()
        up.run("op", "wait", started)
        view = json.loads(up.run("op", "get", started, "--json").stdout)["operation"]

    assert f"not started: {disk}" in " ".join(why.split())
    assert "1 of 1 jobs completed" in ended.stderr
    assert (view["completed_jobs"], view["failed_jobs"]) == (20, 0)


def test_a_disk_that_is_full_for_a_moment_stops_the_server_for_a_moment(folder: Path) -> None:
    disk = folder / "disk"
    with a_small_disk(disk, "64m"):
        (disk / "state").mkdir()
        (disk / "state" / "up.stderr").write_text("\n")
        with Up(state=disk / "state") as up:
            filler = fill(disk)
            up.wait_said(r"nothing can be recorded \(.*no space left on device\)")
            filler.unlink()
            up.wait_said("operations are recorded again")
            up.run("run", "--wait", "--", "true")


def test_up_names_the_place_that_a_full_disk_keeps_it_from_writing(folder: Path) -> None:
    disk = folder / "disk"
    with a_small_disk(disk, "4m"):
        fill(disk)
        command = [sys.executable, "-m", "headrace_cli", "up", "--port", "0", "--state", str(disk / "state")]
        done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert done.returncode == 1
    said = " ".join(done.stderr.split())
    assert f"the state folder {disk}/state cannot be written" in said
    assert "No space left on device" in said


def test_what_was_acknowledged_before_the_disk_was_full_runs_and_what_was_refused_can_be_sent_again(
    folder: Path,
) -> None:
    disk = folder / "disk"
    with a_small_disk(disk, "64m"):
        (disk / "state").mkdir()
        # A terminal has room where the disk has none.
        (disk / "state" / "up.stderr").write_text("\n")
        with Up(state=disk / "state") as up:
            known = [up.start_operation("--jobs", "3", "--", "sleep", "1")]
            filler = fill(disk)
            large = "X=" + "x" * 3_000  # so that the last block is soon full
            while (done := up.run("run", "--env", large, "--", "true", expect=None)).returncode == 0:
                known.append(done.stdout.strip())
            up.wait_said(r"nothing can be recorded \(.*no space left on device\); .* cannot be written: No space left")
            again = ("run", "--id", "sent-again", "--wait", "--", "true")
            refused = up.run(*again, expect=None)
            listed = up.run("service", "list", expect=1).stderr
            filler.unlink()
            up.wait_said("operations are recorded again")
            up.run("whoami")  # asked until the server has started
            for operation in known:
                up.run("op", "wait", operation)
            up.run(*again)
            up.run("pool", "create", "lab")

    for told in (done.stderr, refused.stderr, listed):
        assert f"the disk of {disk}/state/nats is full" in " ".join(told.split())


@contextmanager
def server(folder: Path) -> Iterator[None]:
    """A server with the configuration of that folder."""
    beside = Path(sys.executable).with_name("nats-server")
    command = [beside if beside.exists() else "nats-server", "-c", folder / "nats.conf"]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        try:
            yield
        finally:
            process.terminate()


async def publish(port: int, size_bytes: int, count: int) -> None:
    """Has a stream keep so many messages, as soon as the server listens."""

    async def unheard(_: Exception) -> None:
        """A server that does not listen yet is no news."""

    client = await nats.connect(f"nats://127.0.0.1:{port}", reconnect_time_wait=0.1, error_cb=unheard)
    streams = client.jetstream()
    await streams.add_stream(name="large", subjects=["large"])
    for _ in range(count):
        await streams.publish("large", bytes(size_bytes))
    await client.close()


async def test_a_server_that_starts_while_little_is_free_takes_what_there_is_room_for(folder: Path) -> None:
    disk, port = folder / "disk", free_port()
    (folder / "nats.conf").write_text(nats_configuration(disk / "store", f"127.0.0.1:{port}", ""))
    with a_small_disk(disk, "64m"):
        with server(folder):
            await publish(port, 10**6, 44)
        filler = fill(disk)
        os.truncate(filler, filler.stat().st_size - 6 * 2**20)
        with server(folder):
            await publish(port, 10, 1)
