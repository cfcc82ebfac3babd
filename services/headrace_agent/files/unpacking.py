"""Unpacks an archive that a person sent. It may be made to do harm.

Folders and files come first, into a folder that is new, and links last. So nothing is ever written through a link.
"""

from __future__ import annotations

import errno
import gzip
import os
import shutil
import tarfile
import zlib
from typing import Final

from headrace.archives import link_stays_inside
from headrace.errors import HeadraceError
from headrace.wire.files import LARGEST_CONTENT_BYTES, MOST_FILES

#: Of the archive's own words about its files, all together.
_LARGEST_WORDS_BYTES: Final = 64 * 1024 * 1024
#: The library reads such words in one piece.
_LARGEST_READ_BYTES: Final = 1024 * 1024
_COPIED_AT_ONCE: Final = 256 * 1024


class UnusableArchive(HeadraceError):
    """An archive cannot be unpacked, or had better not be. The text says why."""


def unpack(archive: str, folder: str) -> None:
    """Unpacks into a folder that is new and empty. Raises `UnusableArchive`, and OSError for what the host cannot do."""
    links: dict[str, str] = {}
    left_bytes, left_files = LARGEST_CONTENT_BYTES, MOST_FILES
    try:
        with _BoundedGzip(archive) as unpacked, tarfile.open(fileobj=unpacked, mode="r:") as members:
            for member in members:
                left_bytes -= member.size
                left_files -= 1
                if left_bytes < 0 or left_files < 0:
                    most = f"{LARGEST_CONTENT_BYTES} bytes and {MOST_FILES} files"
                    raise UnusableArchive(f"it unpacks to more than {most}")
                _unpack_one(members, member, folder, links)
    except (tarfile.TarError, gzip.BadGzipFile, zlib.error, EOFError, ValueError) as error:
        raise UnusableArchive(f"it is damaged: {error}") from None
    for name, target in links.items():
        try:
            os.symlink(target, f"{folder}/{name}")
        except FileExistsError:
            raise UnusableArchive(f"{name[:200]!r} is there twice") from None


class _BoundedGzip(gzip.GzipFile):
    """Reads what was packed. Refuses an archive that unpacks to more than the bound, or asks for too much in one piece."""

    def read(self, size: int | None = -1) -> bytes:
        if size is None or not 0 <= size <= _LARGEST_READ_BYTES:
            raise UnusableArchive(f"it has words about one file of {size} bytes")
        data = super().read(size)
        if self.tell() > LARGEST_CONTENT_BYTES + _LARGEST_WORDS_BYTES:
            raise UnusableArchive(f"it unpacks to more than {LARGEST_CONTENT_BYTES} bytes")
        return data


def _unpack_one(members: tarfile.TarFile, member: tarfile.TarInfo, folder: str, links: dict[str, str]) -> None:
    name = member.name
    if not name or any(part in ("", ".", "..") for part in name.split("/")):
        raise UnusableArchive(f"the name {name[:200]!r} leads out of its folder")
    path = f"{folder}/{name}"
    try:
        if member.isdir():
            os.makedirs(path, 0o755, exist_ok=True)
            return
        os.makedirs(os.path.dirname(path), 0o755, exist_ok=True)
        if member.issym() and link_stays_inside(name, member.linkname):
            links[name] = member.linkname
        elif member.isreg() and not member.issparse():
            _write(members, member, path)
        else:
            raise UnusableArchive(f"{name[:200]!r} is no file, no folder and no link that stays inside")
    except (FileExistsError, NotADirectoryError):
        raise UnusableArchive(f"{name[:200]!r} is there twice") from None
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:
            raise
        raise UnusableArchive(f"the name {name[:200]!r} is too long for this host") from None


def _write(members: tarfile.TarFile, member: tarfile.TarInfo, path: str) -> None:
    content = members.extractfile(member)
    assert content is not None
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with content, open(os.open(path, flags, 0o755 if member.mode & 0o100 else 0o644), "wb") as file:
        shutil.copyfileobj(content, file, _COPIED_AT_ONCE)
