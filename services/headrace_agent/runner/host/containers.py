"""Finds the container of a job, and the command that runs a program in it.

Podman and Apptainer start containers in different ways, but both end as a process that carries the marker of the job and has another root
folder than the host. A program joins the namespaces of this process, so it stays a child of the runner, in the cgroup of the job and at
the terminal of its session. With `podman exec` a program would be a child of a daemon that outlives the session.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from typing import Final, NamedTuple

from headrace_agent.runner.host.linux_processes import LinuxProcesses

#: Namespaces in the order of the options of nsenter.
_NAMESPACES: Final = {"user": "--user", "mnt": "--mount", "pid": "--pid"}
_MORE_PATH: Final = "/usr/bin:/bin:/usr/sbin:/sbin"


class Container(NamedTuple):
    """The first process of a container, with its environment, and the namespaces that it does not share with the runner."""

    pid: int
    environment: dict[str, str]
    namespaces: list[str]

    def argv(self, command: list[str]) -> list[str]:
        """Return the command that runs `command` in the container, in the folder of its first process. Raises `FileNotFoundError`."""
        program = shutil.which("nsenter", path=f"{os.environ.get('PATH', '')}:{_MORE_PATH}")
        if program is None:
            raise FileNotFoundError("nsenter")
        joins = [option for name, option in _NAMESPACES.items() if name in self.namespaces]
        # In a user namespace the account keeps its own ids, as the processes of the container do.
        joins += ["--preserve-credentials"] if "user" in self.namespaces else []
        return [program, f"--target={self.pid}", *joins, "--root", "--wd", "--", *command]


def find_container(processes: LinuxProcesses, marker: str) -> Container | None:
    """Return the container of the job with this marker, or None if none of its processes runs in a container yet."""
    found = sorted(_inside(processes, marker))
    if not found:
        return None
    _, pid = found[0]
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            variables = [os.fsdecode(each).partition("=") for each in file.read().split(b"\0") if b"=" in each]
        namespaces = [name for name in _NAMESPACES if _namespace(pid, name) != _namespace(os.getpid(), name)]
    except OSError:
        return None
    return Container(pid, {name: value for name, _, value in variables}, namespaces)


def _inside(processes: LinuxProcesses, marker: str) -> Iterator[tuple[int, int]]:
    """Yield the processes of the job that run in its container, as the time of their start and their pid."""
    root = os.stat("/")
    for pid in processes.pids():
        if processes.marker(pid) != marker:
            continue
        try:
            other = os.stat(f"/proc/{pid}/root/")
            begun = processes.begun(pid)
        except OSError:
            continue
        if begun is not None and (other.st_dev, other.st_ino) != (root.st_dev, root.st_ino):
            yield begun, pid


def _namespace(pid: int, name: str) -> str:
    return os.readlink(f"/proc/{pid}/ns/{name}")
