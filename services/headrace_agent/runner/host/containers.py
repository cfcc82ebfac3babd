"""Finds the container of a job, and makes the command that runs another program in this container.

Podman and Apptainer start containers in different ways. With both, the container has a process that carries the marker of the job and has
another root folder than the host. The program joins the namespaces of this process. So the program is a child of the runner, in the cgroup
of the job and at the terminal of the session. With `podman exec` it would be a child of a daemon that outlives the session.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final, NamedTuple

from headrace.files.proc import read_proc
from headrace_agent.runner.host.linux_processes import LinuxProcesses

#: Namespaces in the order of the options of nsenter.
_NAMESPACES: Final = {"user": "--user", "mnt": "--mount", "pid": "--pid"}
_MORE_PATH: Final = "/usr/bin:/bin:/usr/sbin:/sbin"
#: Beginning of the names of variables that the dynamic loader reads.
_OF_LOADER: Final = "LD_"


class Container(NamedTuple):
    """The first process of a container, with its environment, and the namespaces that it does not share with the runner."""

    pid: int
    environment: dict[str, str]
    namespaces: list[str]

    def command(self, argv: list[str]) -> tuple[list[str], dict[str, str]]:
        """Return a command that runs `argv` in the container, and the environment for it.

        The command runs in the working folder of the container's first process. Raises `FileNotFoundError` if the host lacks
        nsenter.
        """
        import shutil  # half a megabyte that most runners never need

        program = shutil.which("nsenter", path=f"{os.environ.get('PATH', '')}:{_MORE_PATH}")
        if program is None:
            raise FileNotFoundError("nsenter")
        joins = [option for name, option in _NAMESPACES.items() if name in self.namespaces]
        # In a user namespace nsenter would switch to uid 0. With this option the program keeps the ids of the account, as the other
        # processes of the container do.
        joins += ["--preserve-credentials"] if "user" in self.namespaces else []
        # Variables of the dynamic loader are set only inside the container, by `env`. nsenter itself starts on the host. With these
        # variables its loader would look on the host for libraries of the image.
        of_loader = [f"{name}={value}" for name, value in self.environment.items() if name.startswith(_OF_LOADER)]
        inside = ["env", *of_loader, *argv] if of_loader else argv
        return [program, f"--target={self.pid}", *joins, "--root", "--wd", "--", *inside], {
            name: value for name, value in self.environment.items() if not name.startswith(_OF_LOADER)
        }


def find_container(processes: LinuxProcesses, marker: str, uid: int) -> Container | None:
    """Return the container of the job with this marker, or None if no process of the job runs in a container yet. `uid` is the account of
    the job.

    Processes of other accounts are ignored: any process can put the marker into its own environment.
    """
    first = min(_inside(processes, marker, uid), default=None)
    if first is None:
        return None
    _, pid = first
    try:
        folder = os.open(f"/proc/{pid}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        # The open folder belongs to this process. If the process ends and its pid is reused, reading through the folder fails.
        if os.fstat(folder).st_uid != uid:
            return None
        variables = [
            os.fsdecode(each).partition("=")
            for each in read_proc("environ", folder=folder).split(b"\0")
            if b"=" in each
        ]
        own = {name: os.readlink(f"/proc/self/ns/{name}") for name in _NAMESPACES}
        namespaces = [name for name in own if os.readlink(f"ns/{name}", dir_fd=folder) != own[name]]
    except OSError:
        return None
    finally:
        os.close(folder)
    return Container(pid, {name: value for name, _, value in variables}, namespaces)


def _inside(processes: LinuxProcesses, marker: str, uid: int) -> Iterator[tuple[int, int]]:
    """Yield the time of the start and the pid of each process of the job that runs in its container."""
    root = os.stat("/")
    for pid in processes.pids():
        if processes.marker(pid) != marker:
            continue
        try:
            owner, other = os.stat(f"/proc/{pid}").st_uid, os.stat(f"/proc/{pid}/root/")
        except OSError:
            continue
        begun = processes.begun(pid)
        if begun is not None and owner == uid and (other.st_dev, other.st_ino) != (root.st_dev, root.st_ino):
            yield begun, pid
