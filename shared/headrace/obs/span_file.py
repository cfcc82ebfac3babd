"""The file of spans: one JSON object per line, written by all processes of a machine and bounded in size.

A full file is renamed to `.1`, replacing the previous one. So the newest spans are kept, and there are never more than two files.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from headrace.obs.tracing import Span

FILE: Final = "spans.jsonl"
_ASIDE: Final = FILE + ".1"
#: Upper bound of the bytes of one file, which is about 40,000 spans.
MOST_BYTES: Final = 16 * 1024 * 1024

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Span)


class SpanFile:
    """Appends spans to the file in a folder. A span that cannot be written is lost: a full disk must not end the process."""

    def __init__(self, folder: Path, most_bytes: int = MOST_BYTES) -> None:
        """Open the file, and create its folder if it is missing. Raises `OSError`."""
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._path = folder / FILE
        self._aside = folder / _ASIDE
        self._most_bytes = most_bytes
        self._descriptor = self._open()

    def write(self, span: Span) -> None:
        """Append one line. Each line is a single write, so lines of several processes never mix."""
        with contextlib.suppress(OSError):
            if os.fstat(self._descriptor).st_size >= self._most_bytes:
                self._begin_anew()
            os.write(self._descriptor, _encoder.encode(span) + b"\n")

    def close(self) -> None:
        """Close the file. All spans are already written."""
        os.close(self._descriptor)

    def _open(self) -> int:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        return os.open(self._path, flags, 0o600)

    def _begin_anew(self) -> None:
        """Rename the full file, unless another process has already renamed it, and open a new file."""
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        try:
            if self._path.exists() and os.path.samestat(os.fstat(self._descriptor), self._path.stat()):
                self._path.replace(self._aside)
            new = self._open()
        finally:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        os.close(self._descriptor)
        self._descriptor = new


def read_spans(folder: Path) -> Iterator[Span]:
    """Yield the spans in a folder in the order in which they ended. Lines that are no span are skipped. Raises `OSError`."""
    for path in (folder / _ASIDE, folder / FILE):
        with contextlib.suppress(FileNotFoundError), path.open("rb") as file:
            for line in file:
                with contextlib.suppress(msgspec.DecodeError):
                    yield _decoder.decode(line)
