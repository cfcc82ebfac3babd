"""The pages on backups and upgrades, typed as they stand: what a stack keeps is lost and put back, and all of it goes on."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

from tests.containers.stack import SERVICES, Stack, run

SECTION = "The stack of containers"
#: Volume of cores and seconds that is saved before the backup. What comes after it is a hundredth of a core a second.
SAVED = 20.0
#: Each job says that it began, and ends when it is told to.
JOB = "echo >>begun; echo >started; read x <go-on"


def volume(stack: Stack) -> float:
    return float(stack.headrace("pool", "get", "saver", "accumulated_resource_volume/cpu"))


def save(stack: Stack) -> float:
    """Has a pool save some, and nearly nothing more. Returns what it has saved."""
    stack.headrace("pool", "create", "saver", "--integral", "relaxed", "--flow", "cpu=10")
    deadline_s = time.monotonic() + 60
    while volume(stack) < SAVED and time.monotonic() < deadline_s:
        time.sleep(0.2)
    stack.headrace("pool", "set", "saver", "integral_guarantees/resource_flow/cpu=0.01")
    return volume(stack)


def test_pools_savings_and_operations_at_work_are_put_back_and_a_newer_version_goes_on(
    stack: Stack, host: Path, tmp_path: Path
) -> None:
    started, go_on = host / "started", host / "go-on"
    for fifo in (started, go_on):
        os.mkfifo(fifo)
    stack.headrace("pool", "create", "lab", "weight=3", "access={use=[anna; bob]}")
    saved = save(stack)
    words = ("--id", "at-work-1", "--pool", "lab", "--jobs", "2", "--cpu", "1", "--node-filter", "outside")
    stack.headrace("run", *words, "--", "sh", "-c", JOB, cwd=host)
    # The host has no room for the next one.
    started.read_text()
    stack.headrace("run", "--id", "suspended-1", "--node-filter", "outside", "--", "true")
    stack.headrace("op", "suspend", "suspended-1")
    before = stack.headrace("pool", "export", "--options")

    stack.type("backup.md", SECTION, 0, tmp_path)
    assert (tmp_path / "backup.tar.gz").stat().st_mode & 0o077 == 0
    stack.headrace("pool", "create", "later")
    lost_s = int(run(["date", "+%s"]))
    stack.type("backup.md", SECTION, 1, tmp_path)
    stack.wait_healthy(("nats", *SERVICES), lost_s)

    assert stack.headrace("pool", "export", "--options") == before
    assert saved <= volume(stack) < saved + SAVED
    found = [
        json.loads(stack.headrace("op", "get", name, "--json"))["operation"] for name in ("at-work-1", "suspended-1")
    ]
    assert [(each["state"], each["suspended"]) for each in found] == [("running", False), ("running", True)]
    go_on.write_text("\n")
    started.read_text()
    # The second job began after it, and runs while everything is replaced.
    upgraded_s = int(run(["date", "+%s"]))
    stack.environment["HEADRACE_IMAGE"] = stack.image = f"{stack.image}-newer"
    stack.type("upgrade.md", SECTION, 0, tmp_path)
    stack.wait_healthy(SERVICES, upgraded_s)
    assert stack.inspect("admission")["Config"]["Image"] == stack.image
    go_on.write_text("\n")
    stack.headrace("op", "wait", "at-work-1")
    stack.headrace("op", "resume", "suspended-1")
    stack.headrace("op", "wait", "suspended-1")

    assert (host / "begun").read_text() == "\n\n", "no job ran twice"
    for fifo in (started, go_on):
        fifo.unlink()
