"""Folders for this process in places where other accounts may write.

In a place such as `/tmp`, another account can make the folder before this process does, or put a symbolic link there. Root would then
change the permissions of a foreign folder, or write where that account wants. So a path is accepted only if it is a real folder that
belongs to this account or to root.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from typing import Final

_OPEN: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class ForeignFolder(PermissionError):
    """The path is not a folder of this account or of root, so it was not changed. `strerror` says what is wrong, without the path."""


def make_own_folder(path: str, mode: int) -> None:
    """Make a folder with these permissions, or set the permissions of an existing folder. The parent folder must exist.

    The folder must be a real folder, not a symbolic link, and belong to this account or to root. Raises `ForeignFolder`, OSError.
    """
    with suppress(FileExistsError):
        os.mkdir(path, 0o700)
    try:
        folder = os.open(path, _OPEN | os.O_NOFOLLOW)
    except NotADirectoryError:
        raise _foreign("it is a file or a symbolic link, but must be a folder", path) from None
    try:
        _take(folder, path, mode)
    finally:
        os.close(folder)


def take_own_folder(path: str, mode: int, uid: int | None = None) -> None:
    """Set these permissions on an existing folder, which must meet the conditions of `make_own_folder`, with two exceptions.

    A symbolic link is accepted if it belongs to this account or to root. With `uid` the folder may also belong to the account
    `uid`; such a folder keeps its permissions. Raises `ForeignFolder`, OSError.
    """
    link = os.lstat(path)
    is_link = stat.S_ISLNK(link.st_mode)
    if is_link:
        refuse_foreign(link, path)
    folder = os.open(path, _OPEN if is_link else _OPEN | os.O_NOFOLLOW)
    try:
        _take(folder, path, mode, uid)
    finally:
        os.close(folder)


def refuse_foreign(status: os.stat_result, path: str, uid: int | None = None) -> None:
    """Raise `ForeignFolder` if the file belongs neither to this account, nor to root, nor to the account `uid`."""
    if status.st_uid not in (os.geteuid(), 0, uid):
        raise _foreign(f"it belongs to uid {status.st_uid}, but must belong to uid {os.geteuid()}, which uses it", path)


def _take(folder: int, path: str, mode: int, uid: int | None = None) -> None:
    status = os.fstat(folder)
    refuse_foreign(status, path, uid)
    # Only the owner of a folder can change the permissions of the folder. If it belongs to another account, its permissions stay as they
    # are.
    if status.st_uid == os.geteuid() and stat.S_IMODE(status.st_mode) != mode:
        os.fchmod(folder, mode)


def _foreign(why: str, path: str) -> ForeignFolder:
    return ForeignFolder(errno.EPERM, why, path)
