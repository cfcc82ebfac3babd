"""The files of systemd units, and whether this host and an account allow them."""

from __future__ import annotations

import difflib
import os
import pwd
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from headrace.errors import HeadraceError
from headrace.files.durable import replace_durably
from headrace.systemd.systemctl import systemctl
from headrace.systemd.unit_text import SystemdUnit

#: Python code that runs under the account, to check that the account can reach the programs and the folder.
_REACHES: Final = "import os, sys, headrace; os.chdir(sys.argv[1])"


class CannotInstall(HeadraceError):
    """The units cannot be installed on this host. Nothing was changed."""


def check_root(action: str) -> None:
    """Check that this process is root. `action` is `install` or `remove`. Raises `CannotInstall`."""
    if os.geteuid() != 0:
        raise CannotInstall(f"only root can {action} systemd units: try again with `sudo`")


def check_reach(account: str, folder: Path) -> None:
    """Check that an existing account can run Headrace's programs and enter the nearest existing folder above `folder`. Raises
    `CannotInstall`.
    """
    above = next(each for each in (folder.parent, *folder.parents) if each.exists())
    found = pwd.getpwnam(account)
    command: Sequence[str] = [sys.executable, "-c", _REACHES, str(above)]
    groups = os.getgrouplist(found.pw_name, found.pw_gid)
    try:
        done = subprocess.run(
            command,
            cwd="/",
            env={},
            user=found.pw_uid,
            group=found.pw_gid,
            extra_groups=groups,
            capture_output=True,
            text=True,
            check=False,
        )
        why = done.stderr.strip().splitlines()[-1:] if done.returncode else []
    except OSError as error:
        why = [error.strerror or str(error)]
    if why:
        raise CannotInstall(f"account {account} cannot reach both {sys.executable} and {above}: {why[0]}")


def check_unit_folder(unit_folder: Path) -> None:
    """Check that systemd answers and that units can be written. Raises `CannotInstall`, `NoSystemd`."""
    systemctl("show", "--property=Version")
    try:
        with tempfile.NamedTemporaryFile(dir=unit_folder, prefix=".headrace-"):
            pass
    except OSError as error:
        raise CannotInstall(f"no unit can be written to {unit_folder}: {error.strerror}") from None


def installed_text(unit_folder: Path, name: str) -> str | None:
    """Return the text of the installed unit, or None if it is not installed."""
    try:
        return (unit_folder / name).read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return None


def write_unit(unit_folder: Path, unit: SystemdUnit) -> Iterator[str]:
    """Write a unit file, unless it has this text already. Yield a diff if another text is replaced, then what was done. Raises OSError."""
    file, before = unit_folder / unit.name, installed_text(unit_folder, unit.name)
    if before == unit.text:
        return
    if before is not None:
        lines = difflib.unified_diff(
            before.splitlines(), unit.text.splitlines(), f"{file}", f"{file} (new)", lineterm=""
        )
        yield from lines
    replace_durably(file, unit.text, mode=0o644)
    yield f"{file} is {'written' if before is None else 'replaced'}"


def give(path: Path, uid: int, gid: int, *, dir_fd: int | None = None) -> None:
    """Make an account the owner of a file or folder. `path` may be relative to the folder `dir_fd`.

    The account may have put links into the folder, to become the owner of files elsewhere. So symbolic links are not followed,
    and a file with several hard links is refused: raises `CannotInstall`.
    """
    if sys.platform != "linux":
        raise NotImplementedError
    fd = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=dir_fd)
    try:
        status = os.fstat(fd)
        if stat.S_ISLNK(status.st_mode):
            os.chown(path, uid, gid, dir_fd=dir_fd, follow_symlinks=False)
            return
        if not stat.S_ISDIR(status.st_mode) and status.st_nlink > 1:
            raise CannotInstall(f"{path} is a link to a file elsewhere: remove it, and try again")
        os.chown(f"/proc/self/fd/{fd}", uid, gid)
    finally:
        os.close(fd)
