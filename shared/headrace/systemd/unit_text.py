"""The text of systemd units. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from headrace.errors import BadInput


class SystemdUnit(msgspec.Struct, frozen=True):
    """A unit of systemd: its file name and its text."""

    name: str
    text: str


def command_line(words: Sequence[str]) -> str:
    """Return the words quoted for `ExecStart=`. Raises `BadInput` for words that no unit can contain."""
    return " ".join(quoted(word).replace("$", "$$") for word in words)


def quoted(word: str) -> str:
    """Return a path or another word quoted for a setting in which systemd does not replace variables such as `$HOME`. Raises `BadInput`."""
    if not word.isprintable():
        raise BadInput("a path or setting for the unit", word, "printable characters")
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped}"' if escaped != word or not word or any(each in word for each in " ';$") else word
