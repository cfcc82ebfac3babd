"""Unpacks an archive that a user sent, which may be malicious.

Whatever an archive contains, it can do no worse than to count as unusable, so that its operation fails. Everything is unpacked into a new
folder: folders and files first, symbolic links last. So nothing is ever written through a link.
"""

from __future__ import annotations

import errno
import os
from typing import Final, NamedTuple

from headrace.archive_members import ArchiveMember, MemberKind, UnusableArchive, members
from headrace.obs.logging import logger

#: System errors that are due to the host, not to the archive.
_HOST_ERRORS: Final = frozenset(
    {
        *(errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.ENOMEM, errno.EMFILE, errno.ENFILE),
        *(errno.EACCES, errno.EPERM, errno.ENOENT, errno.ESTALE, errno.ETIMEDOUT, errno.ENODEV, errno.EINTR),
    }
)
_NEW_FILE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class FilesOwner(NamedTuple):
    """The account that the files are to belong to."""

    uid: int
    gid: int


def unpack(archive: str, folder: int, owner: FilesOwner | None = None) -> None:
    """Unpack the archive at the path `archive` into the folder with the descriptor `folder`, which must be new, empty, and closed to other
    accounts.

    The files belong to `owner`, or to this process's account. Raises `UnusableArchive`, and OSError if the host is at fault.
    """
    try:
        with open(archive, "rb") as packed:
            links = []
            for member in members(packed):
                if member.kind is MemberKind.LINK:
                    links.append(member)
                else:
                    _make(member, folder, owner)
            for member in links:
                _make(member, folder, owner)
    except UnusableArchive:
        raise
    except OSError as error:
        if error.errno in _HOST_ERRORS:
            raise
        raise UnusableArchive(f"this host cannot store it: {error.strerror}: {str(error.filename)[:200]!r}") from None
    except Exception as error:
        # An error here is a defect of the agent. It is caught so that only the operation fails, not the agent.
        logger().error("archive not unpacked", exception=error)
        raise UnusableArchive(f"unpacking it failed: {type(error).__name__}: {str(error)[:200]}") from None


def _make(member: ArchiveMember, folder: int, owner: FilesOwner | None) -> None:
    match member.kind:
        case MemberKind.FOLDER:
            os.mkdir(member.name, 0o755, dir_fd=folder)
        case MemberKind.LINK:
            os.symlink(member.target, member.name, dir_fd=folder)
        case MemberKind.FILE:
            mode = 0o755 if member.is_executable else 0o644
            with open(os.open(member.name, _NEW_FILE, mode, dir_fd=folder), "wb") as file:
                for data in member.content:
                    file.write(data)
    if owner is not None:
        os.chown(member.name, owner.uid, owner.gid, dir_fd=folder, follow_symlinks=False)
