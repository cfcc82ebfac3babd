"""Names of keys, from the characters that a terminal sends for them. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

_KEY: Final = re.compile(r"\x1b\[[0-9;?]*[@-~]|\x1bO.|\x1b[^\x1b\[O]|.", re.DOTALL)
_BEGUN: Final = re.compile(r"\x1b(\[[0-9;?]*|O)?\Z")
_NAMES: Final = {
    **dict.fromkeys(("\x1b[A", "\x1bOA"), "up"),
    **dict.fromkeys(("\x1b[B", "\x1bOB"), "down"),
    **dict.fromkeys(("\x1b[H", "\x1bOH", "\x1b[1~", "\x1b[7~"), "home"),
    **dict.fromkeys(("\x1b[F", "\x1bOF", "\x1b[4~", "\x1b[8~"), "end"),
    **dict.fromkeys(("\r", "\n"), "enter"),
    **dict.fromkeys(("\x7f", "\x08"), "backspace"),
    "\x1b[5~": "page up",
    "\x1b[6~": "page down",
    "\x1b[Z": "back tab",
    "\t": "tab",
    "\x1b": "escape",
}


def is_begun(text: str) -> bool:
    """True if the text ends with the beginning of a key's sequence. An Escape alone counts, because every sequence begins with it."""
    return _BEGUN.search(text) is not None


def keys_in(text: str) -> Iterator[str]:
    """Yield the name of each key. The name of a printable key is its character. Unknown keys are left out."""
    for found in _KEY.finditer(text):
        key = _NAMES.get(found[0], found[0])
        if len(key) > 1 and key.startswith("\x1b"):
            continue
        if key.isprintable():
            yield key
