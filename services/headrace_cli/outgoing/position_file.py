"""A file that says how far a command has come, for one process at a time."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from headrace.errors import BadInput
from headrace.files.durable import replace_durably
from headrace_cli.up.state_folder import InUse

S = TypeVar("S", bound=msgspec.Struct)


class PositionFile(Generic[S]):
    """A file with one struct as JSON. A kill or a power failure leaves its old content or its new content."""

    def __init__(self, path: Path, kind: type[S], empty: S) -> None:
        self.path = path
        self._kind = kind
        self._empty = empty
        #: Content of the file; empty if it is not known.
        self._text = ""

    def read(self) -> S:
        """Return the content of the file, or the empty struct if there is no file. Raises `BadInput`, OSError."""
        try:
            return msgspec.json.decode(self.path.read_bytes(), type=self._kind)
        except FileNotFoundError:
            return self._empty
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            expected = f"a file that an earlier run wrote ({error}); remove the file to export from the beginning"
            raise BadInput("position file", str(self.path), expected) from None

    def write(self, value: S) -> None:
        """Write the file, unless it has this content already. Raises OSError."""
        text = msgspec.json.encode(value).decode() + "\n"
        if text != self._text:
            replace_durably(self.path, text)
            self._text = text


@contextmanager
def locked(path: Path) -> Iterator[int]:
    """Open a file for the block, and make it if it is missing. No other process may lock it meanwhile.

    Yields the descriptor, which appends. Raises `InUse`, `BadInput`.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise BadInput("file", str(path), f"a file that can be written ({error.strerror})") from None
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InUse(f"another process writes {path}; nothing was changed") from None
        yield descriptor
    finally:
        os.close(descriptor)
