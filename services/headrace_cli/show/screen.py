"""The two outputs of a command: answers go to stdout, and all remarks about them go to stderr.

A terminal gets colours and tables that fit its width. Any other output gets plain text as wide as needed, so that no
name in a pipe is ever cut. NO_COLOR and TERM=dumb are honoured.
"""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from headrace.errors import DIRECTIONS, without_control_characters
from headrace.wire.plain_values import indented_json, plain

_WIDE = 10_000
#: JSON escapes for control characters that the JSON encoder leaves unescaped.
_JSON_ESCAPES: Final = {code: f"\\u{code:04x}" for code in (*range(0x7F, 0xA0), *DIRECTIONS)}
#: Pattern of the parts of a terminal sequence that set colours, bold, italic or underline. Other sequences could hide text or control the
#: terminal.
_COLOUR: Final = r"0?[0-4]?|7|2[1-47]|39|49|[34][0-7]|9[0-7]|10[0-7]|[34]8[:;](?:5[:;]\d{1,3}|2(?:[:;]\d{1,3}){3})"
_COLOURS: Final = re.compile(rf"(\x1b\[(?:{_COLOUR})(?:;(?:{_COLOUR}))*m)")
_COLOURS_END: Final = "\x1b[0m"


#: ASCII replacements for characters that a terminal without UTF-8 cannot show.
_IN_ASCII: Final = str.maketrans("│├└─…–«»→↑↓×", '||`-~-"">^vx')


def harmless(text: str, *, with_colours: bool = False) -> str:
    """Return a text from outside as a terminal may show it, with symbols in place of control characters.

    Line feeds and tabs stay. With `with_colours`, sequences that only set colours stay too, and the colours end with
    the text.
    """
    if text.isprintable() or not with_colours:
        return without_control_characters(text)
    parts = _COLOURS.split(text)
    shown = "".join(part if at % 2 else without_control_characters(part) for at, part in enumerate(parts))
    return shown + _COLOURS_END if len(parts) > 1 else shown


def one_harmless_line(text: str) -> str:
    """Return a text from outside as one line without control characters."""
    return " ".join(harmless(text).splitlines())


def harmless_json(data: bytes) -> str:
    """Return the JSON with control characters escaped, so that it cannot control a terminal. Its meaning stays the same."""
    return data.decode() if data.isascii() and b"\x7f" not in data else data.decode().translate(_JSON_ESCAPES)


#: If a cell begins with one of these characters, a spreadsheet takes the cell for a formula.
_FORMULA_STARTS: Final = tuple("=+-@\t\r\n")


def harmless_cell(text: str) -> str:
    """Return a text as a cell of CSV. A text that a spreadsheet would take for a formula gets an apostrophe before it."""
    return f"'{text}" if text.startswith(_FORMULA_STARTS) else text


class Screen:
    """The stdout and stderr of one command."""

    def __init__(self, *, json: bool = False) -> None:
        self.json = json
        #: True: print each JSON document on one line.
        self.one_line = False
        self.out = _console(stderr=False)
        self.err = _console(stderr=True)

    def show(self, answer: msgspec.Struct | Mapping[str, object], table: Table | Text) -> None:
        """Print the answer: as JSON if the user asked for JSON, else as `table`. An answer is never a bare list: lists are named fields."""
        if self.json:
            self.show_json(answer)
        else:
            self.print(table)

    def show_json(self, answer: msgspec.Struct | Mapping[str, object]) -> None:
        """Print the answer as JSON."""
        if self.one_line:
            self.print_line(answer)
        else:
            sys.stdout.write(harmless_json(indented_json(answer)) + "\n")

    def widen(self) -> None:
        """From now on, do not fit answers to the width of the terminal."""
        self.out.width = _WIDE

    @property
    def width(self) -> int:
        """Return the width for answers, in characters."""
        return self.out.width

    def print(self, *things: Table | Text | str) -> None:
        """Print to stdout. If stdout is not a terminal, the blanks at the ends of a table's lines are left out."""
        if self.out.is_terminal:
            self.out.print(*things, sep="\n", markup=False)
            return
        with self.out.capture() as captured:
            self.out.print(*things, sep="\n", markup=False)
        sys.stdout.write("".join(line.rstrip() + "\n" for line in captured.get().splitlines()))

    def show_line(self, answer: msgspec.Struct, line: str) -> None:
        """Print the answer as JSON, or the given line about it."""
        self.show(answer, Text(line))

    def print_line(self, value: object) -> None:
        """Print one JSON value on one line."""
        sys.stdout.write(harmless_json(msgspec.json.encode(plain(value))) + "\n")
        sys.stdout.flush()

    def print_raw(self, text: str | bytes, *, error: bool = False, end: str = "\n") -> None:
        """Print a text without wrapping, to stderr if it is an `error`.

        A terminal gets the text made `harmless`; any other output gets every byte unchanged.
        """
        stream, console = (sys.stderr, self.err) if error else (sys.stdout, self.out)
        if stream.isatty():
            shown = text if isinstance(text, str) else text.decode(errors="replace")
            has_colours = console.color_system is not None and not console.no_color
            stream.write(harmless(shown.removesuffix("\r"), with_colours=has_colours) + end)
        elif isinstance(text, bytes):
            stream.flush()
            stream.buffer.write(text + end.encode())
        else:
            stream.write(text + end)
        stream.flush()

    def say(self, text: str, *, style: str = "", whole: bool = False) -> None:
        """Print a line about the answer on stderr. A `whole` line is not wrapped, because it contains a command to be copied."""
        self.err.print(Text(text, style=style), soft_wrap=whole)


class _HarmlessConsole(Console):
    """A console that shows symbols in place of control characters.

    Otherwise the title of an operation, or a reason, could control the terminal of everyone who lists it.
    """

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            text = segment.text
            if not (text.isascii() or draws_more_than_ascii(self)):
                text = text.translate(_IN_ASCII)
            yield segment if segment.control else segment._replace(text=harmless(text))


def draws_more_than_ascii(console: Console) -> bool:
    """True if the console's encoding can show bars and branches."""
    return console.encoding.lower().startswith("utf")


def _console(*, stderr: bool) -> Console:
    stream = sys.stderr if stderr else sys.stdout
    if isinstance(stream, io.TextIOWrapper) and not stream.encoding.lower().startswith("utf"):
        stream.reconfigure(errors="replace")  # names may contain characters that the terminal lacks
    if stream.isatty():
        return _HarmlessConsole(stderr=stderr, highlight=False, emoji=False)
    return _HarmlessConsole(
        stderr=stderr, highlight=False, emoji=False, width=_WIDE, color_system=None, force_terminal=False
    )
