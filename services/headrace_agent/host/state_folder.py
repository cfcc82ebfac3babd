"""The state folder of a node: private, and used by at most one agent and one runner at a time."""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path
from typing import Literal

from headrace.errors import HeadraceError
from headrace_agent.host.own_folder import ForeignFolder, take_own_folder

FolderHolder = Literal["agent", "runner"]


class StateInUse(HeadraceError):
    """Another agent, or another runner, uses the state folder."""

    def __init__(self, state: str, holder: FolderHolder, owner: str) -> None:
        self.state = state
        self.owner = owner
        super().__init__(f"another {holder}{f' (pid {owner})' if owner else ''} uses {state}; nothing was changed")


class ForeignState(HeadraceError):
    """The state folder belongs to another account, or another account put a symbolic link in its place."""


def claim(state: str, holder: FolderHolder, uid: int | None = None) -> int:
    """Make the state folder, close it to all accounts but its owner, and lock it until the returned descriptor is closed or the process
    ends.

    With `uid` the folder may belong to that account. Raises `StateInUse`, `ForeignState`, and OSError if the folder cannot be
    used.
    """
    # `makedirs` raises FileExistsError if the path is a symbolic link that the kernel does not follow. `take_own_folder` then checks the
    # owner of the link.
    with suppress(FileExistsError):
        os.makedirs(state, mode=0o700, exist_ok=True)
    try:
        take_own_folder(state, 0o700, uid)
    except ForeignFolder as error:
        raise ForeignState(f"the state folder {state} cannot be used: {error.strerror}; nothing was changed") from None
    lock = os.open(f"{state}/{holder}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    if os.fstat(lock).st_nlink != 1:
        os.close(lock)
        raise ForeignState(f"{state}/{holder}.lock is a link to a file elsewhere: remove it; nothing was changed")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        owner = os.read(lock, 32).decode(errors="replace").strip()
        os.close(lock)
        raise StateInUse(state, holder, owner) from None
    os.ftruncate(lock, 0)
    os.pwrite(lock, b"%d\n" % os.getpid(), 0)
    return lock


def mark_of(state: str) -> str:
    """Return a short random mark that identifies the state folder on its machine. The mark is a file in the folder, so it moves with the
    folder.

    Empty if the folder cannot store a mark.
    """
    path = Path(state, "mark")
    with suppress(OSError, UnicodeDecodeError):
        if not path.exists():
            new = path.with_suffix(".new")
            new.write_text(os.urandom(4).hex())
            new.replace(path)
        return path.read_text()[:8]
    return ""
