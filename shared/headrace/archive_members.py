"""Reading of an archive that a person sent, file by file. The person may have built the archive to do harm.

An archive is what `headrace.archives.pack` writes: gzip around tar, with long names in pax records. This module refuses all other archives.
It reads an archive once from front to back, keeps one header in memory at a time, and checks the size of each part against a bound before
it reads the part. `tarfile` accepts more: sparse files (a megabyte becomes lists of gigabytes), negative sizes (each makes it read the
archive again from the beginning), and headers about headers (each is a recursive call). So this module uses only the function of `tarfile`
that parses a single header.
"""

from __future__ import annotations

import enum
import tarfile
import zlib
from collections.abc import Iterator
from typing import Final, NamedTuple, Protocol

from headrace.archive_names import defect_of_link, defect_of_name
from headrace.errors import HeadraceError
from headrace.wire.files import LARGEST_CONTENT_BYTES, MOST_FILES

_BLOCK_BYTES: Final = 512
_READ_BYTES: Final = 64 * 1024
_UNPACKED_AT_ONCE: Final = 256 * 1024
#: Upper bound of the bytes of all headers and pax records of an archive together.
_LARGEST_HEADERS_BYTES: Final = 64 * 1024 * 1024
#: Upper bound of the bytes of the pax records of one file: its name, its target, and some records that this module ignores.
_LARGEST_RECORDS_BYTES: Final = 16 * 1024
#: Upper bound of the number of pax records of one file.
_MOST_RECORDS: Final = 100
#: A pax record whose keyword begins with one of these texts changes how the content after the record is read. An archive with such a record
#: is refused.
_REFUSED_RECORDS: Final = (b"size", b"GNU.sparse")
#: `TarInfo.isreg` also accepts sparse files, so the plain types are listed here.
_PLAIN_FILES: Final = (tarfile.REGTYPE, tarfile.AREGTYPE)
#: Window size for `zlib` that means: the data begins with a gzip header.
_GZIP: Final = 31


class UnusableArchive(HeadraceError):
    """An archive cannot be unpacked, or must not be. The text says why."""


class MemberKind(enum.Enum):
    """Kinds of members of an archive."""

    FOLDER = "folder"
    FILE = "file"
    LINK = "link"


class Readable(Protocol):
    """The bytes of an archive, in order."""

    def read(self, size: int, /) -> bytes:
        """Return some bytes, normally at most `size`, and no bytes at the end."""
        ...


class ArchiveMember(NamedTuple):
    """A folder, a file or a symbolic link in an archive. Its name is a relative path that stays inside the archive."""

    name: str
    kind: MemberKind
    #: Target of a link; empty for other kinds.
    target: str = ""
    is_executable: bool = False
    #: Content of a file. It must be read before the next member is requested.
    content: Iterator[bytes] = iter(())


def members(packed: Readable) -> Iterator[ArchiveMember]:
    """Yield the members of an archive. A folder is yielded before its contents, even if the archive does not list the folder.

    Each name is yielded only once. Raises `UnusableArchive`, and the errors of `packed.read`.
    """
    reader = _Reader(packed)
    try:
        yield from reader.members()
    except (tarfile.TarError, zlib.error, ValueError) as error:
        raise UnusableArchive(f"it is damaged: {str(error)[:200]}") from None


class _Reader:
    def __init__(self, packed: Readable) -> None:
        self._packed = packed
        self._inflate = zlib.decompressobj(wbits=_GZIP)
        self._unpacked = b""
        #: Number of bytes of `_unpacked` that were already read.
        self._at = 0
        self._left_header_bytes = _LARGEST_HEADERS_BYTES
        self._left_content_bytes = LARGEST_CONTENT_BYTES
        self._kinds: dict[str, MemberKind] = {}
        #: Bytes of the current member that were not read yet.
        self._unread_bytes = 0

    def members(self) -> Iterator[ArchiveMember]:
        while (found := self._next_header()) is not None:
            header, name, target = found
            yield from self._new_folders(name.rpartition("/")[0])
            if header.isdir():
                yield from self._new_folders(name)
            elif header.issym():
                self._note(name, MemberKind.LINK)
                if defect := defect_of_link(name, target):
                    raise UnusableArchive(defect)
                yield ArchiveMember(name, MemberKind.LINK, target)
            elif header.type in _PLAIN_FILES:
                self._note(name, MemberKind.FILE)
                yield self._file(name, header)
                self._skip_unread(header.size)
            else:
                raise UnusableArchive(f"{name[:200]!r} is not a file, a folder or a link")

    def _file(self, name: str, header: tarfile.TarInfo) -> ArchiveMember:
        self._left_content_bytes -= header.size
        if header.size < 0 or self._left_content_bytes < 0:
            raise UnusableArchive(f"it unpacks to more than {LARGEST_CONTENT_BYTES} bytes")
        self._unread_bytes = header.size
        is_executable = bool(header.mode & 0o100)
        return ArchiveMember(name, MemberKind.FILE, is_executable=is_executable, content=self._content())

    def _content(self) -> Iterator[bytes]:
        while self._unread_bytes:
            data = self._some(self._unread_bytes)
            if not data:
                raise UnusableArchive("it is damaged: it ends within a file")
            self._unread_bytes -= len(data)
            yield data

    def _skip_unread(self, size_bytes: int) -> None:
        for _ in self._content():
            pass
        self._take(-size_bytes % _BLOCK_BYTES)

    def _new_folders(self, path: str) -> Iterator[ArchiveMember]:
        """Yield the folders of a path that were not yielded yet, from the top."""
        end = 0
        while path and end < len(path):
            end = path.find("/", end + 1)
            end = len(path) if end < 0 else end
            if self._kinds.get(path[:end]) is not MemberKind.FOLDER:
                self._note(path[:end], MemberKind.FOLDER)
                yield ArchiveMember(path[:end], MemberKind.FOLDER)

    def _note(self, name: str, kind: MemberKind) -> None:
        if name in self._kinds:
            raise UnusableArchive(f"{name[:200]!r} is in it twice")
        if len(self._kinds) >= MOST_FILES:
            raise UnusableArchive(f"it has more than {MOST_FILES} files and folders")
        self._kinds[name] = kind

    def _next_header(self) -> tuple[tarfile.TarInfo, str, str] | None:
        """Return the next header with its name and target, or None at the end of the archive."""
        header = self._header()
        records: dict[bytes, str] = {}
        if header is not None and header.type == tarfile.XHDTYPE:
            records = self._records(header.size)
            header = self._header()
            if header is None:
                raise UnusableArchive("it is damaged: it ends within a file")
        if header is None:
            return None
        name = records.get(b"path", header.name)
        # A slash at the end of a folder's name is removed.
        name = name.removesuffix("/") if header.isdir() else name
        if defect := defect_of_name(name):
            raise UnusableArchive(defect)
        return header, name, records.get(b"linkpath", header.linkname)

    def _header(self) -> tarfile.TarInfo | None:
        self._count_header(_BLOCK_BYTES)
        block = self._take(_BLOCK_BYTES, may_end=True)
        if not block.strip(b"\0"):
            return None
        return tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")

    def _records(self, size_bytes: int) -> dict[bytes, str]:
        """Read the pax records of one file. Each record consists of its own length, a blank, a keyword, `=`, a value and a newline."""
        if not 0 <= size_bytes <= _LARGEST_RECORDS_BYTES:
            raise UnusableArchive(
                f"it has {size_bytes} bytes of records about one file, more than {_LARGEST_RECORDS_BYTES}"
            )
        self._count_header(size_bytes)
        data = self._take(size_bytes)
        self._take(-size_bytes % _BLOCK_BYTES)
        records: dict[bytes, str] = {}
        begin = 0
        while begin < size_bytes and len(records) < _MOST_RECORDS:
            blank = data.find(b" ", begin, begin + 8)
            digits = data[begin : max(begin, blank)]
            end = begin + int(digits) if digits.isdigit() else begin
            keyword, equals, value = data[blank + 1 : end - 1].partition(b"=")
            if not begin < end <= size_bytes or not equals or data[end - 1 : end] != b"\n" or keyword in records:
                raise UnusableArchive("it is damaged: a record about a file cannot be read")
            if keyword.startswith(_REFUSED_RECORDS):
                raise UnusableArchive(
                    f"it has a file with the record {keyword[:50]!r}, and only plain files are unpacked"
                )
            records[keyword] = value.decode("utf-8", "surrogateescape")
            begin = end
        if begin != size_bytes:
            raise UnusableArchive(f"it has more than {_MOST_RECORDS} records about one file")
        return records

    def _count_header(self, size_bytes: int) -> None:
        self._left_header_bytes -= size_bytes
        if self._left_header_bytes < 0:
            raise UnusableArchive(f"it has more than {_LARGEST_HEADERS_BYTES} bytes of headers")

    def _take(self, size_bytes: int, *, may_end: bool = False) -> bytes:
        """Read exactly `size_bytes` bytes. If `may_end` is True and the archive has ended, return no bytes."""
        data = b""
        while len(data) < size_bytes:
            more = self._some(size_bytes - len(data))
            if not more:
                if may_end and not data:
                    return b""
                raise UnusableArchive("it is damaged: it ends too early")
            data += more
        return data

    def _some(self, most_bytes: int) -> bytes:
        """Return the next 1 to `most_bytes` bytes, or no bytes at the end of the archive."""
        if self._at == len(self._unpacked):
            self._unpacked, self._at = self._inflated(), 0
        data = self._unpacked[self._at : self._at + most_bytes]
        self._at += len(data)
        return data

    def _inflated(self) -> bytes:
        """Unpack and return the next bytes, or no bytes at the end."""
        while not self._inflate.eof:
            packed = self._inflate.unconsumed_tail or self._packed.read(_READ_BYTES)
            data = self._inflate.decompress(packed, _UNPACKED_AT_ONCE)
            if data:
                return data
            if not packed:
                raise UnusableArchive("it is damaged: it ends too early")
        return b""
