"""Files and folders of the host. All methods raise the OSError of the system call that failed. Paths are absolute."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from itertools import islice
from typing import Final, NamedTuple

from headrace_agent.host.own_folder import refuse_foreign

_OWNER_ONLY: Final = 0o700


class FolderEntry(NamedTuple):
    """One entry of a folder. A symbolic link does not count as a folder and is not followed."""

    name: str
    is_folder: bool
    size_bytes: int
    changed_at: float


class LinuxFiles:
    """Files and folders by system calls. Nothing here follows a symbolic link in the last part of a path."""

    def make_folder(self, path: str) -> None:
        """Make a folder that only its owner can enter. The parent folder must exist. An existing folder stays as it is.

        Raises `ForeignFolder` if an existing folder belongs to neither this account nor root.
        """
        try:
            os.mkdir(path, _OWNER_ONLY)
        except FileExistsError:
            status = os.lstat(path)
            if not stat.S_ISDIR(status.st_mode):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path) from None
            refuse_foreign(status, path)

    def unlock(self, path: str) -> None:
        """Give the owner of a folder all permissions on it. Raises OSError for anything but a folder."""
        # O_PATH needs no permissions on the folder itself. The path is resolved only once, so replacing the folder by a link afterwards has
        # no effect.
        fd = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            if os.fstat(fd).st_mode & _OWNER_ONLY != _OWNER_ONLY:
                os.chmod(f"/proc/self/fd/{fd}", _OWNER_ONLY)
        finally:
            os.close(fd)

    def is_fresh_folder(self, path: str) -> bool:
        """True if the folder is as `make_folder` makes folders: empty, owned by this account, and closed to all others.

        Raises OSError if nothing exists there.
        """
        status = os.lstat(path)
        is_ours = stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()
        return is_ours and stat.S_IMODE(status.st_mode) == _OWNER_ONLY and _is_empty(path)

    def check_room(self, folder: str, least_bytes: int) -> None:
        """Raise OSError, as a write does, if the disk has fewer free bytes than `least_bytes` or accepts no more files."""
        disk = os.statvfs(folder)
        has_bytes = (
            not disk.f_blocks or disk.f_bavail * disk.f_frsize >= least_bytes
        )  # Not all disks report their size.
        if not has_bytes or (disk.f_files and not disk.f_favail):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), folder)

    def let_others_read(self, folder: str) -> None:
        """Let every account list the folder. The permissions of its files stay as they are."""
        os.chmod(folder, 0o755)

    def leave_word(self, path: str, data: bytes) -> None:
        """Replace a small file by one that every account may read, in a folder where other accounts may write. Raises OSError."""
        new = f"{path}.new"
        with contextlib.suppress(FileNotFoundError):
            os.unlink(new)
        fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        try:
            os.fchmod(fd, 0o644)
            os.write(fd, data)
        finally:
            os.close(fd)
        os.rename(new, path)

    def open(self, path: str, flags: int) -> int:
        return os.open(path, flags | os.O_NOFOLLOW, 0o600)

    def read(self, fd: int, buffer: bytearray | memoryview) -> int:
        return os.readv(fd, [buffer])

    def write(self, fd: int, data: bytes | memoryview) -> int:
        return os.write(fd, data)

    def write_at(self, fd: int, data: bytes | memoryview, place: int) -> int:
        return os.pwrite(fd, data, place)

    def close(self, fd: int) -> None:
        os.close(fd)

    def inode(self, fd: int) -> int:
        return os.fstat(fd).st_ino

    def rename(self, old: str, new: str) -> None:
        os.rename(old, new)

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def remove_folder(self, path: str) -> None:
        os.rmdir(path)

    def entries(self, path: str, most: int | None = None) -> list[FolderEntry]:
        """Return the entries of a folder, at most `most` of them."""
        found = []
        try:
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except NotADirectoryError:
            # The path may be a link to a folder. Links are not followed, and the error says that it is a link.
            if os.path.islink(path):
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path) from None
            raise
        try:
            with os.scandir(fd) as listing:
                for entry in islice(listing, most):
                    try:
                        status = entry.stat(follow_symlinks=False)
                    except FileNotFoundError:
                        continue
                    is_folder = stat.S_ISDIR(status.st_mode)
                    found.append(FolderEntry(entry.name, is_folder, status.st_size, status.st_mtime))
        finally:
            os.close(fd)
        return found

    def read_file(self, path: str, limit: int) -> bytes:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
        try:
            return os.read(fd, limit)
        finally:
            os.close(fd)


def _is_empty(folder: str) -> bool:
    """True if a folder has no entry. The list of names is not read to its end: a job may leave millions of files."""
    with os.scandir(folder) as listing:
        return next(listing, None) is None


def write_file(files: LinuxFiles, path: str, data: bytes, flags: int = os.O_WRONLY | os.O_CREAT | os.O_TRUNC) -> None:
    """Write all of `data`. Raises OSError with the path in it; what was written before the error stays."""
    try:
        fd = files.open(path, flags)
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[files.write(fd, rest) :]
        finally:
            files.close(fd)
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from None
