"""Reading files that a person names. Such a file may be endless, such as /dev/zero, or a pipe."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from headrace.errors import BadInput

#: Upper bound of the bytes of files that have a line or a few lines, such as credentials.
SMALL_FILE_BYTES: Final = 256 * 1024
#: Upper bound of the bytes of other files.
LARGEST_FILE_BYTES: Final = 16 * 1024**2
_STDIN: Final = "-"


def read_bounded(path: str | Path, most_bytes: int, place: str, *, or_stdin: bool = False) -> bytes:
    """Return the content of a file, or of stdin for `-` if that is allowed.

    Raises `BadInput`, which names `place`, for more than `most_bytes`, and `OSError`.
    """
    if or_stdin and str(path) == _STDIN:
        data = sys.stdin.buffer.read(most_bytes + 1)
    else:
        with open(path, "rb") as file:
            data = file.read(most_bytes + 1)
    if len(data) > most_bytes:
        raise BadInput(place, str(path), f"a file of at most {most_bytes} bytes")
    return data
