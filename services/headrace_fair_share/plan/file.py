"""Reading YAML (and with it JSON) into values that know the line on which they stand.

Scalars stay the text that a person wrote, so that `no` can be a pool and `4G` or `0.30` an amount; who reads a value says what it
must be. Nothing is constructed from tags. Keys may not stand twice in a map. Parsing is flat: however deep a file is nested, it
costs no stack; anchors may be used, but what they stand for counts each time, up to `MOST_VALUES`.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from headrace.wire.plan import PlanProblem

__all__ = ["LARGEST_FILE_BYTES", "MOST_VALUES", "STDIN", "Listing", "Map", "Text", "Unusable", "Value", "parse", "read"]

LARGEST_FILE_BYTES: Final = 16 * 1024**2
#: Texts, lists and maps in one file.
MOST_VALUES: Final = 2_000_000
#: As a file's name: what comes on standard input.
STDIN: Final = "-"
_MERGE: Final = "<<"
_LONGEST_SHOWN: Final = 60
_NULLS: Final = frozenset({"", "~", "null", "Null", "NULL"})
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Unusable(Exception):
    """Nothing can be made of the file as a whole."""

    def __init__(self, problem: PlanProblem) -> None:
        super().__init__(problem.wrong)
        self.problem = problem


@dataclass(frozen=True, slots=True)
class Text:
    """A scalar, as it stands there."""

    line: int
    text: str
    quoted: bool = False
    size: int = 1

    @property
    def is_null(self) -> bool:
        return not self.quoted and self.text in _NULLS

    def shown(self) -> str:
        text = self.text if len(self.text) <= _LONGEST_SHOWN else self.text[: _LONGEST_SHOWN - 3] + "..."
        return repr(text) if self.quoted or not text.isprintable() or not text else text


@dataclass(slots=True)
class Listing:
    """A list."""

    line: int
    items: list[Value] = field(default_factory=list)
    size: int = 1

    def shown(self) -> str:
        return "a list"


@dataclass(slots=True)
class Map:
    """A map from keys, which are text, to the line of the key and its value."""

    line: int
    entries: dict[str, tuple[int, Value]] = field(default_factory=dict)
    size: int = 1

    def shown(self) -> str:
        return "a map" if self.entries else "an empty map"


Value = Text | Listing | Map


def read(path: str) -> bytes:
    """The bytes of a file, or of standard input. Raises `Unusable`."""
    try:
        if path == STDIN:
            data = sys.stdin.buffer.read(LARGEST_FILE_BYTES + 1)
        else:
            if stat.S_ISDIR(os.stat(path).st_mode):
                raise Unusable(PlanProblem(0, "", "", "is a directory", "a file, YAML or JSON"))
            with Path(path).open("rb") as file:
                data = file.read(LARGEST_FILE_BYTES + 1)
    except (OSError, ValueError) as error:
        words = error.strerror or str(error) if isinstance(error, OSError) else str(error)
        raise Unusable(PlanProblem(0, "", "", words, "a file that can be read")) from None
    if len(data) > LARGEST_FILE_BYTES:
        expected = f"at most {LARGEST_FILE_BYTES // 1024**2} MiB"
        raise Unusable(PlanProblem(0, "", "", "is too large", expected))
    return data


def parse(data: bytes, problems: list[PlanProblem]) -> Map:
    """The map that a file is; keys that stand twice are put to `problems`. Raises `Unusable`."""
    with _refused_in_words():
        return _document(_decoded(data), problems)


def _decoded(data: bytes) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        wrong = f"byte 0x{data[error.start]:02x} is not UTF-8"
        raise Unusable(PlanProblem(line, "", "", wrong, "a text in UTF-8")) from None


@contextmanager
def _refused_in_words() -> Iterator[None]:
    try:
        yield
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        words = ", ".join(part for part in (error.context, error.problem) if part)
        raise Unusable(_not_yaml(mark.line + 1 if mark else 0, words)) from None
    except yaml.reader.ReaderError as error:
        raise Unusable(_not_yaml(0, f"{error.reason} (character {error.position})")) from None
    except yaml.YAMLError as error:
        raise Unusable(_not_yaml(0, " ".join(str(error).split()))) from None


def _not_yaml(line: int, words: str) -> PlanProblem:
    return PlanProblem(line, "", "", f"cannot be read as YAML or JSON ({words})", "a map with total, pools, operations")


def _document(text: str, problems: list[PlanProblem]) -> Map:
    builder = _Builder(problems)
    for event in yaml.parse(text, Loader=_LOADER):
        builder.on(event)
    root = builder.root
    expected = "a map with total, pools, operations"
    if root is None or (isinstance(root, Text) and root.is_null):
        raise Unusable(PlanProblem(1, "", "", "is empty", expected))
    if not isinstance(root, Map):
        raise Unusable(PlanProblem(root.line, "", root.shown(), f"{root.shown()} stands here", expected))
    return root


class _Open:
    """A list or map that is being read, with the key that waits for its value."""

    def __init__(self, value: Listing | Map, anchor: str | None) -> None:
        self.value = value
        self.anchor = anchor
        self.key: Text | None = None


class _Builder:
    """Values from what the parser reports, one event after another."""

    def __init__(self, problems: list[PlanProblem]) -> None:
        self.root: Value | None = None
        self._problems = problems
        self._open: list[_Open] = []
        self._anchors: dict[str, Value] = {}
        self._documents = 0

    def on(self, event: Any) -> None:
        line = event.start_mark.line + 1
        match event:
            case yaml.DocumentStartEvent():
                self._documents += 1
                if self._documents > 1:
                    raise Unusable(PlanProblem(line, "", "", "a second document begins here", "one document"))
            case yaml.ScalarEvent():
                quoted = event.style in ("'", '"', "|", ">")
                self._put(Text(line, event.value, quoted=quoted), event.anchor)
            case yaml.AliasEvent():
                if event.anchor not in self._anchors:
                    raise Unusable(PlanProblem(line, "", "", f"*{event.anchor} stands for nothing", "an anchor above"))
                self._put(self._anchors[event.anchor], None)
            case yaml.SequenceStartEvent():
                self._open.append(_Open(Listing(line), event.anchor))
            case yaml.MappingStartEvent():
                self._open.append(_Open(Map(line), event.anchor))
            case yaml.SequenceEndEvent() | yaml.MappingEndEvent():
                done = self._open.pop()
                self._put(done.value, done.anchor)

    def _put(self, value: Value, anchor: str | None) -> None:
        """Puts a value where it belongs; its own places are kept when it comes from an anchor."""
        if anchor is not None:
            self._anchors[anchor] = value
        if not self._open:
            self.root = value
            return
        above = self._open[-1]
        above.value.size += value.size
        if above.value.size > MOST_VALUES:
            raise Unusable(PlanProblem(value.line, "", "", "too many values", f"at most {MOST_VALUES} in one file"))
        if isinstance(above.value, Listing):
            above.value.items.append(value)
        elif above.key is None:
            if not isinstance(value, Text):
                raise Unusable(PlanProblem(value.line, "", "", f"{value.shown()} as a key", "a key that is a text"))
            above.key = value
        else:
            key, above.key = above.key, None
            self._enter(above.value, key, value)

    def _enter(self, into: Map, key: Text, value: Value) -> None:
        if key.text in into.entries:
            wrong = f"stands twice in one map; line {into.entries[key.text][0]} has it already"
            self._problems.append(PlanProblem(key.line, key.text, "", wrong, "each key once"))
            return
        if key.text == _MERGE:
            self._problems.append(PlanProblem(key.line, _MERGE, "", "maps are not merged", "keys written out"))
            return
        into.entries[key.text] = (key.line, value)
