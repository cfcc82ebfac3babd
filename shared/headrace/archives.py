"""Packing of a person's files and folders into one archive. The same contents always give the same bytes.

The archive keeps names, contents and whether a file is executable. Times, owners and other permissions are left out.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import stat
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from headrace.archive_names import defect_of_link, defect_of_name
from headrace.errors import BadInput, shortened
from headrace.resources import format_amount
from headrace.wire.files import (
    LARGEST_ARCHIVE_BYTES,
    LARGEST_CONTENT_BYTES,
    MOST_FILES,
    PIECE_BYTES,
    Archive,
)

_LEVEL: Final = 6
_LARGEST_TOLD: Final = 3


class Packed(NamedTuple):
    """An archive: its description and its bytes."""

    archive: Archive
    data: bytes

    def piece(self, number: int) -> bytes:
        """Return the bytes of one piece of the archive, by its number from 0."""
        return self.data[number * PIECE_BYTES : (number + 1) * PIECE_BYTES]


def pack(paths: Sequence[Path], place: str = "--upload") -> Packed:
    """Pack each file under its name, and the contents of each folder without the folder itself. Raises `BadInput`, which names the file and
    its size.
    """
    found = dict(sorted(_found(paths, place).items()))
    sizes = {name: path.lstat().st_size for name, path in found.items() if path.is_file() and not path.is_symlink()}
    content_bytes = sum(sizes.values())
    if len(found) > MOST_FILES:
        raise BadInput.because(
            place, f"{len(found)} files and folders are to be sent; at most {MOST_FILES} are allowed"
        )
    if content_bytes > LARGEST_CONTENT_BYTES:
        raise BadInput.because(
            place,
            f"the files are too large: {_told(content_bytes, sizes)}; at most {_bytes(LARGEST_CONTENT_BYTES)} are allowed, unpacked",
        )
    target = _Bounded()
    try:
        _write(found, target, place)
    except _TooLarge:
        raise BadInput.because(
            place,
            f"the files are too large: {_told(content_bytes, sizes)}; packed they may have at most {_bytes(LARGEST_ARCHIVE_BYTES)}",
        ) from None
    data = target.getvalue()
    return Packed(Archive(hashlib.sha256(data).hexdigest(), len(data), len(found)), data)


class _TooLarge(Exception):
    pass


class _Bounded(io.BytesIO):
    def write(self, data: Any) -> int:
        if self.tell() + len(data) > LARGEST_ARCHIVE_BYTES:
            raise _TooLarge
        return super().write(data)


def _found(paths: Sequence[Path], place: str) -> dict[str, Path]:
    """Return the paths to pack, by the names that they get in the archive."""
    found: dict[str, Path] = {}
    for given in paths:
        path = given.resolve()
        pairs = _inside(path, "", place) if path.is_dir() else iter([(given.name, path)])
        for name, path in pairs:
            other = found.setdefault(name, path)
            if other != path and not (other.is_dir() and path.is_dir()):
                raise BadInput.because(place, f"{other} and {path} would both be stored as {name}. Rename one of them")
            if len(found) > MOST_FILES:
                raise BadInput.because(
                    place, f"more than {MOST_FILES} files and folders are to be sent; at most {MOST_FILES} are allowed"
                )
    if not found:
        raise BadInput(place, ", ".join(map(str, paths)), "a file, or a folder that is not empty")
    return found


def _inside(folder: Path, above: str, place: str) -> Iterator[tuple[str, Path]]:
    try:
        entries = list(folder.iterdir())
    except OSError as error:
        raise BadInput(place, str(folder), f"a folder that can be read ({error.strerror})") from None
    for path in entries:
        name = above + path.name
        yield name, path
        if path.is_dir() and not path.is_symlink():
            yield from _inside(path, f"{name}/", place)


def _write(found: Mapping[str, Path], target: _Bounded, place: str) -> None:
    with (
        gzip.GzipFile("", "wb", _LEVEL, target, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w:", format=tarfile.PAX_FORMAT) as archive,
    ):
        for name, path in found.items():
            try:
                _add(archive, name, path, place)
            except OSError as error:
                why = error.strerror or "it changed while it was read"
                raise BadInput(place, str(path), f"a file that can be read ({why})") from None


def _add(archive: tarfile.TarFile, name: str, path: Path, place: str) -> None:
    status = path.lstat()
    if defect := defect_of_name(name):
        raise BadInput(place, shortened(str(path)), f"a name that a node can have: {defect}")
    member = tarfile.TarInfo(name)
    member.mode = 0o755 if status.st_mode & stat.S_IXUSR else 0o644
    if stat.S_ISDIR(status.st_mode):
        member.type = tarfile.DIRTYPE
        archive.addfile(member)
    elif stat.S_ISLNK(status.st_mode):
        member.type, member.mode, member.linkname = tarfile.SYMTYPE, 0o777, os.readlink(path)
        if defect := defect_of_link(name, member.linkname):
            raise BadInput(place, f"{path} -> {member.linkname}", f"a link that stays inside the folder: {defect}")
        archive.addfile(member)
    elif stat.S_ISREG(status.st_mode):
        with path.open("rb") as file:
            member.size = os.fstat(file.fileno()).st_size
            archive.addfile(member, file)
    else:
        raise BadInput(place, str(path), "a file, a folder or a symbolic link")


def _told(content_bytes: int, sizes: Mapping[str, int]) -> str:
    largest = sorted(sizes, key=lambda name: sizes[name], reverse=True)[:_LARGEST_TOLD]
    told = ", ".join(f"{name} {_bytes(sizes[name])}" for name in largest)
    return f"{_bytes(content_bytes)} in {len(sizes)} files, the largest {told}"


def _bytes(count: int) -> str:
    return format_amount("memory", count)
