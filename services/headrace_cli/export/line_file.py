"""A file of JSON lines to which each finished operation is appended once, however often the process is killed.

Each line contains the position in the log from which reading goes on after this line. If a kill has cut the last line, the next start
removes it, and goes on after the last whole line. The file `NAME.position` says how far the log was read beyond that line.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from headrace.client.finished import FinishedOperation, LogPosition
from headrace.errors import BadInput
from headrace.files.durable import keep_names
from headrace_cli.outgoing.position_file import PositionFile, locked

_BLOCK_BYTES: Final = 64 * 1024
#: Longest line that is read, in bytes.
_LONGEST_LINE_BYTES: Final = 4 * 1024**2
#: Beginning of each line. A line that was cut has this beginning, or a part of it.
_BEGINNING: Final = b'{"operation":"'
_EXPECTED: Final = "a file that `headrace export operations` wrote, or a new file"


class Kept(msgspec.Struct, frozen=True, omit_defaults=True):
    """The content of a position file."""

    position: str
    #: For an endpoint: position after the operations that are being sent; empty: none are being sent.
    until: str = ""


class _Positioned(msgspec.Struct, frozen=True):
    position: str


class LineFile:
    """An open file of finished operations."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self._descriptor = descriptor
        self._beside = PositionFile(path.with_name(f"{path.name}.position"), Kept, Kept(str(LogPosition())))
        known = LogPosition.parse(self._beside.read().position, str(self._beside.path))
        self.position = max(known, self._last(path))

    def append(self, operations: Sequence[FinishedOperation], position: LogPosition) -> None:
        """Append lines, and return when they and the position are on disk. Raises OSError."""
        data = b"".join(msgspec.json.encode(each) + b"\n" for each in operations)
        while data:
            data = data[os.write(self._descriptor, data) :]
        os.fsync(self._descriptor)
        self.keep(position)

    def keep(self, position: LogPosition) -> None:
        """Record that the file has all operations up to this position. Raises OSError."""
        self.position = position
        self._beside.write(Kept(str(position)))

    def _last(self, path: Path) -> LogPosition:
        """Remove a line that was cut, and return the position of the last line. Raises `BadInput` for a file with other content."""
        end = self._after_newline_before(os.fstat(self._descriptor).st_size, path)
        cut = os.pread(self._descriptor, len(_BEGINNING), end)
        position = LogPosition()
        try:
            if not _BEGINNING.startswith(cut):
                raise BadInput("file", str(path), _EXPECTED)
            if end:
                begin = self._after_newline_before(end - 1, path)
                line = os.pread(self._descriptor, end - begin, begin)
                position = LogPosition.parse(msgspec.json.decode(line, type=_Positioned).position, str(path))
        except (msgspec.MsgspecError, UnicodeDecodeError, BadInput):
            raise BadInput("file", str(path), _EXPECTED) from None
        os.ftruncate(self._descriptor, end)
        if not end:
            os.fsync(self._descriptor)
            keep_names(path.absolute().parent)
        return position

    def _after_newline_before(self, end: int, path: Path) -> int:
        """Return the offset behind the last line feed before `end`; 0 if there is none."""
        start = end
        while start > 0:
            if end - start > _LONGEST_LINE_BYTES:
                raise BadInput("file", str(path), _EXPECTED)
            size = min(_BLOCK_BYTES, start)
            start -= size
            found = os.pread(self._descriptor, size, start).rfind(b"\n")
            if found >= 0:
                return start + found + 1
        return 0


@contextmanager
def open_lines(path: Path) -> Iterator[LineFile]:
    """Open a file for appending, for this process alone. Raises `InUse`, `BadInput`, OSError."""
    if path.exists() and not stat.S_ISREG(path.stat().st_mode):
        raise BadInput("TARGET", str(path), "a file, or an address that begins with https:// or http://")
    with locked(path) as descriptor:
        yield LineFile(path, descriptor)
