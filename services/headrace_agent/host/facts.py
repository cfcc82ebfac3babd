"""Facts about the host: its name, its resources, its folders, and whether the folders can be written."""

from __future__ import annotations

import hashlib
import os
import pwd
import socket
import sys
from contextlib import suppress
from pathlib import Path

import psutil

from headrace_agent.host.environment import host_environment, path_with_interpreter

_CGROUP = Path("/sys/fs/cgroup")
_PROBE = b"headrace" * 512
#: Smallest uid of people's accounts if the host does not say.
_LOWEST_UID = 1000
_USUAL_PATH = "/usr/local/bin:/usr/bin:/bin"


def host_name() -> str:
    """Return the host's own name."""
    return socket.gethostname()


def machine_name() -> str:
    """Return the host's name, followed by a hash of the machine id if the system has one."""
    identity = _read(Path("/etc/machine-id"))
    # The machine id itself is confidential, so only a hash of it is used.
    return f"{host_name()} ({hashlib.sha256(identity.encode()).hexdigest()[:8]})" if identity else host_name()


def is_root() -> bool:
    """True if this process may start other processes as any account of the host."""
    return os.geteuid() == 0


def lowest_uid_of_people(definitions: Path = Path("/etc/login.defs")) -> int:
    """Return the smallest uid of people's accounts, as the host's tools assign them. Smaller uids belong to system accounts."""
    for line in _read(definitions).splitlines():
        match line.split():
            case ["UID_MIN", value, *_] if value.isdigit():
                return int(value)
    return _LOWEST_UID


def cpu_centi(cgroup: Path = _CGROUP) -> int:
    """Return the hundredths of cores that this process may use, bounded by its affinity and by the quota of a container."""
    cores = len(os.sched_getaffinity(0)) * 100
    quota, _, period = _read(cgroup / "cpu.max").partition(" ")
    if quota.isdigit() and period.isdigit() and int(period) > 0:
        cores = min(cores, int(quota) * 100 // int(period))
    return cores


def memory_bytes(cgroup: Path = _CGROUP) -> int:
    """Return the memory in bytes of the host, or of the container if its limit is lower."""
    total = psutil.virtual_memory().total
    limit = _read(cgroup / "memory.max")
    return min(total, int(limit)) if limit.isdigit() else total


def default_state_folder(node: str) -> str:
    """Return the default state folder of a node, in the folder where this user's programs keep lasting state."""
    base = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return f"{base}/headrace/agent-{node}"


def absolute(path: str) -> str:
    """Return the absolute path, with `~` resolved."""
    return os.path.abspath(os.path.expanduser(path))


def jobs_environment(path: str) -> dict[str, str]:
    """Return the environment that every job of this host gets. `path` is the setting of that name."""
    try:
        account = pwd.getpwuid(os.getuid())
        home, user = account.pw_dir, account.pw_name
    except KeyError:
        home, user = "/", str(os.getuid())
    folder = os.path.dirname(sys.executable) or "/usr/bin"
    path = path or path_with_interpreter(os.environ.get("PATH", _USUAL_PATH), folder)
    return host_environment(os.environ, path=path, home=home, user=user)


def defect_of_folder(folder: str) -> str:
    """Write a test file into a folder. Return why that is impossible, or an empty string if it works.

    A folder that does not exist yet counts as having no defect.
    """
    probe = f"{folder}/.probe-{os.getpid()}"
    try:
        with suppress(FileNotFoundError):
            os.unlink(probe)
        # A symbolic link is not followed: if other accounts can write in the folder, one of them may have put the link there.
        with open(
            os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600), "wb"
        ) as file:
            file.write(_PROBE)
    except FileNotFoundError:
        return ""
    except OSError as error:
        return f"{folder} cannot be written: {error.strerror}"
    finally:
        with suppress(OSError):
            os.unlink(probe)
    return ""


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""
