"""The container of a job is found by the marker and the root folder of its first process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from headrace_agent.runner.host.containers import Container, find_container
from headrace_agent.runner.host.linux_processes import LinuxProcesses
from headrace_agent.runner.protocol import MARKER

_IN_OTHER_ROOT = """
import ctypes, os, sys, time
if os.geteuid() and ctypes.CDLL(None).unshare(0x10000000):
    print("no", flush=True)
else:
    if len(sys.argv) > 1:
        os.chroot(sys.argv[1])
    print("ready", flush=True)
    time.sleep(60)
"""


def test_only_a_process_with_another_root_folder_is_in_a_container(tmp_path: Path) -> None:
    environment = {MARKER: f"training.{os.getpid()}.1", "PATH": "/in/the/image"}
    command = [sys.executable, "-c", _IN_OTHER_ROOT]
    processes = [
        subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, text=True)
        for words in (command, [*command, str(tmp_path)])
    ]
    try:
        said = [each.stdout.readline().strip() for each in processes if each.stdout is not None]
        if said != ["ready", "ready"]:
            pytest.skip("needs root or user namespaces")
        found = find_container(LinuxProcesses(), environment[MARKER], os.geteuid())
        others = [
            find_container(LinuxProcesses(), f"other.{os.getpid()}.1", os.geteuid()),
            find_container(LinuxProcesses(), environment[MARKER], os.geteuid() + 1),
        ]
    finally:
        for each in processes:
            each.kill()
            each.communicate()

    assert others == [None, None]
    assert found is not None
    assert (found.pid, found.environment) == (processes[1].pid, found.environment | environment)


def test_a_command_joins_what_the_container_does_not_share() -> None:
    as_root, _ = Container(17, {}, ["mnt", "pid"]).command(["sh", "-c", "id"])
    as_account, _ = Container(17, {}, ["user", "mnt"]).command(["id"])

    assert as_root[1:] == ["--target=17", "--mount", "--pid", "--root", "--wd", "--", "sh", "-c", "id"]
    joins = ["--target=17", "--user", "--mount", "--preserve-credentials", "--root", "--wd"]
    assert as_account[1:] == [*joins, "--", "id"]


def test_variables_of_the_loader_reach_the_command_and_not_nsenter() -> None:
    argv, environment = Container(17, {"LD_LIBRARY_PATH": "/opt/lib", "A": "1"}, []).command(["id"])

    assert argv[-4:] == ["--", "env", "LD_LIBRARY_PATH=/opt/lib", "id"]
    assert environment == {"A": "1"}
