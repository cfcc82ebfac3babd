"""Parse YAML, and with it JSON, into plain values whose maps and lists know their line numbers.

Only `true` and `false` are booleans, and only decimal digits are numbers. Everything else is a text as written, so that `no` can
be a pool and `4G` an amount. Keys are texts and occur once in a map. Tags are refused. Parsing is not recursive. A file may have
`MOST_VALUES` values; those of an anchor count again each time that the anchor is used.
"""

from __future__ import annotations

import math
import os
import re
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import yaml

from headrace.files.bounded import LARGEST_FILE_BYTES
from headrace.tree_file.problems import FileProblem, Problems, shown

#: Upper bound of the texts, lists and maps in one file.
MOST_VALUES: Final = 2_000_000
#: Upper bound of the nesting of maps and lists.
MOST_NESTED: Final = 200
#: The file name that stands for standard input.
STDIN: Final = "-"
_MERGE: Final = "<<"
_NULLS: Final = frozenset({"", "~", "null", "Null", "NULL"})
_BOOLEANS: Final = {"true": True, "false": False}
_WHOLE: Final = re.compile(r"[-+]?(?:0|[1-9][0-9]{0,999})\Z")
_NUMBER: Final = re.compile(r"[-+]?[0-9]+\.[0-9]*(?:[eE][-+]?[0-9]+)?\Z")
#: Pattern of a number in JSON. In JSON every text is quoted, so `1e3` is a number; in YAML it is a text that may be a
#: name.
_JSON_NUMBER: Final = re.compile(r"-?[0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?\Z")
_PART: Final = re.compile(r"[.\[]")
_INDEX: Final = re.compile(r"\[([0-9]+)\]")
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Map(dict[str, Any]):
    """A map with its line number, and the line and text of each of its values."""

    def __init__(self, line: int) -> None:
        super().__init__()
        self.line = line
        #: Line and value by key. The keys have dots in place of slashes here, as in the locations of problems.
        self.places: dict[str, tuple[int, Any]] = {}
        #: By key, the text of each value that is a scalar other than null, as it is written in the file.
        self.texts: dict[str, str] = {}


class Listing(list[Any]):
    """A list with its line number, and the line number of each item."""

    def __init__(self, line: int) -> None:
        super().__init__()
        self.line = line
        self.lines: list[int] = []
        #: For each item, the text of a scalar as it is written in the file; None for null, a list or a map.
        self.texts: list[str | None] = []


def read(path: str, problems: Problems) -> bytes:
    """Return the bytes of a file, or of standard input for `-`. Raises `UnusableFile`."""

    def whole(wrong: str, expected: str) -> FileProblem:
        return FileProblem(0, "", "", wrong, expected)

    size = ""
    try:
        if path == STDIN:
            data = sys.stdin.buffer.read(LARGEST_FILE_BYTES + 1)
        else:
            facts = os.stat(path)
            size = f" ({facts.st_size} bytes)"
            if stat.S_ISDIR(facts.st_mode):
                raise problems.unusable(whole("is a directory", "a file, YAML or JSON"))
            with Path(path).open("rb") as file:
                data = file.read(LARGEST_FILE_BYTES + 1)
    except (OSError, ValueError) as error:
        words = error.strerror or str(error) if isinstance(error, OSError) else str(error)
        raise problems.unusable(whole(words, "a file that can be read")) from None
    if len(data) > LARGEST_FILE_BYTES:
        raise problems.unusable(whole(f"is too large{size}", f"at most {LARGEST_FILE_BYTES // 1024**2} MiB"))
    return data


def parse(data: bytes, problems: Problems, expected: str = "a map") -> Map:
    """Return the map in a file, and set `problems.line_of`. Raises `UnusableFile`."""
    root = _parsed(data, problems, expected, Map)
    assert isinstance(root, Map)
    return root


def parse_list(data: bytes, problems: Problems, expected: str = "a list") -> Listing:
    """Return the list in a file, and set `problems.line_of`. Raises `UnusableFile`."""
    root = _parsed(data, problems, expected, Listing)
    assert isinstance(root, Listing)
    return root


def _parsed(data: bytes, problems: Problems, expected: str, kind: type[Map | Listing]) -> Map | Listing:
    with _refused_in_words(problems, expected):
        text = _decoded(data, problems)
        builder = _Builder(problems, _JSON_NUMBER if text.lstrip().startswith(("{", "[")) else _NUMBER)
        for event in yaml.parse(text, Loader=_LOADER):
            builder.on(event)
    root = builder.root
    if root is None:
        raise problems.unusable(FileProblem(1, "", "", "is empty", expected))
    if not isinstance(root, kind):
        raise problems.unusable(FileProblem(builder.line, "", shown(root), f"{shown(root)} was found", expected))
    problems.line_of = lambda place: line_of(root, place)
    return root


def line_of(root: Map | Listing, place: str) -> int:
    """Return the line of a location such as `pools.research.weight` or `pools[0]`.

    If the file has no such location, return the line of the nearest location above it.
    """
    value: Any = root
    line, rest = root.line, place
    while rest:
        if isinstance(value, Map):
            ends = [len(rest), *(match.start() for match in reversed(list(_PART.finditer(rest))))]
            end = next((end for end in ends if rest[:end] in value.places), None)
            if end is None:
                break
            line, value = value.places[rest[:end]]
        else:
            index = _INDEX.match(rest)
            if not isinstance(value, Listing) or index is None or int(index[1]) >= len(value):
                break
            line, value, end = value.lines[int(index[1])], value[int(index[1])], index.end()
        rest = rest[end:].removeprefix(".")
    return line


def _decoded(data: bytes, problems: Problems) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        wrong = f"byte 0x{data[error.start]:02x} is not UTF-8"
        raise problems.unusable(FileProblem(line, "", "", wrong, "a text in UTF-8")) from None


@contextmanager
def _refused_in_words(problems: Problems, expected: str) -> Iterator[None]:
    try:
        yield
        return
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, words = mark.line + 1 if mark else 0, ", ".join(part for part in (error.context, error.problem) if part)
    except yaml.reader.ReaderError as error:
        line, words = 0, f"{error.reason} (character {error.position})"
    except yaml.YAMLError as error:
        line, words = 0, " ".join(str(error).split())
    raise problems.unusable(FileProblem(line, "", "", f"cannot be read as YAML or JSON ({words})", expected))


class _Open:
    """A list or map that is still being parsed, and the key whose value comes next."""

    def __init__(self, value: Listing | Map, anchor: str | None) -> None:
        self.value = value
        self.anchor = anchor
        #: Line and text of the key, and True if the key is an unquoted text.
        self.key: tuple[int, str, bool] | None = None
        self.size = 1


class _Builder:
    """Builds values from the events of the parser, one after another."""

    def __init__(self, problems: Problems, number: re.Pattern[str]) -> None:
        self.root: Any = None
        #: Line of the root.
        self.line = 1
        self._problems = problems
        self._number = number
        self._open: list[_Open] = []
        #: By anchor: the value, its text if it is a scalar, and the number of values in it.
        self._anchors: dict[str, tuple[Any, str | None, int]] = {}
        self._documents = 0

    def on(self, event: Any) -> None:
        line = event.start_mark.line + 1
        if getattr(event, "tag", None) is not None:
            raise self._refused(line, f"the tag {event.tag}", "values without tags")
        match event:
            case yaml.DocumentStartEvent():
                self._documents += 1
                if self._documents > 1:
                    raise self._refused(line, "a second document begins here", "one document")
            case yaml.ScalarEvent():
                quoted = event.style in ("'", '"', "|", ">")
                value = event.value if quoted else self._plain(event.value)
                self._put(line, value, event.value, 1, event.anchor, is_plain=not quoted)
            case yaml.AliasEvent():
                if event.anchor not in self._anchors:
                    raise self._refused(line, f"*{event.anchor} refers to no anchor", "an anchor above")
                self._put(line, *self._anchors[event.anchor], None)
            case yaml.SequenceStartEvent() | yaml.MappingStartEvent():
                if len(self._open) == MOST_NESTED:
                    raise self._refused(line, "nested too deep", f"at most {MOST_NESTED} levels of maps and lists")
                container = Listing(line) if isinstance(event, yaml.SequenceStartEvent) else Map(line)
                self._open.append(_Open(container, event.anchor))
            case yaml.SequenceEndEvent() | yaml.MappingEndEvent():
                done = self._open.pop()
                self._put(done.value.line, done.value, None, done.size, done.anchor)

    def _refused(self, line: int, wrong: str, expected: str) -> Exception:
        return self._problems.unusable(FileProblem(line, "", "", wrong, expected))

    def _put(
        self, line: int, value: Any, text: str | None, size: int, anchor: str | None, *, is_plain: bool = False
    ) -> None:
        """Add a value to the innermost open list or map, or make it the root."""
        if anchor is not None:
            self._anchors[anchor] = (value, text, size)
        if not self._open:
            self.root, self.line = value, line
            return
        above = self._open[-1]
        above.size += size
        if above.size > MOST_VALUES:
            raise self._refused(line, "too many values", f"at most {MOST_VALUES} in one file")
        if isinstance(above.value, Listing):
            above.value.append(value)
            above.value.lines.append(line)
            above.value.texts.append(None if value is None else text)
        elif above.key is None:
            if isinstance(value, Map | Listing):
                raise self._refused(line, f"{shown(value)} as a key", "a key that is a text")
            above.key = (line, text or "", is_plain)
        else:
            key, above.key = above.key, None
            self._enter(above.value, *key, value, text)

    def _enter(self, into: Map, line: int, key: str, is_plain: bool, value: Any, text: str | None) -> None:
        place = key.replace("/", ".")
        if key in into:
            wrong = f"is in the map twice; line {into.places[place][0]} has it already"
            self._problems.found.append(FileProblem(line, key, "", wrong, "each key once"))
            return
        # In quotes it is a key as any other. So a key of this name that somebody gave a pool leaves an export readable.
        if is_plain and key == _MERGE:
            self._problems.found.append(FileProblem(line, _MERGE, "", "maps are not merged", "keys written out"))
            return
        into[key] = value
        into.places[place] = (line, value)
        if text is not None and value is not None:
            into.texts[key] = text

    def _plain(self, text: str) -> Any:
        """Return the value of a scalar without quotes."""
        if text in _NULLS:
            return None
        if text in _BOOLEANS:
            return _BOOLEANS[text]
        if _WHOLE.match(text):
            return int(text)
        number = float(text) if self._number.match(text) else math.nan
        return number if math.isfinite(number) else text
