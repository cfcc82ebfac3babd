"""The two outputs of a command: answers go to stdout, everything said about them to stderr.

A terminal gets colours and tables fitted to its width. Anything else gets plain text as wide as it must be, so that no
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

from headrace_cli.show.plain_values import indented_json, plain

_WIDE = 10_000
#: Controls that change the direction of writing, so that a text reads otherwise than it is.
_DIRECTIONS: Final = (*range(0x202A, 0x202F), *range(0x2066, 0x206A))
#: The pictures of control characters, but for the end of a line and the tabulator.
_SIGNS = {code: 0x2400 + code for code in range(32) if chr(code) not in "\n\t"}
_SIGNS |= {0x7F: 0x2421} | dict.fromkeys([*range(0x80, 0xA0), *_DIRECTIONS], 0xFFFD)
#: The same characters in a JSON string, which leaves them as they are otherwise.
_JSON_ESCAPES: Final = {code: f"\\u{code:04x}" for code in (*range(0x7F, 0xA0), *_DIRECTIONS)}
#: A sequence that sets colours, bold, italic or underlined. Others could hide text, or command the terminal.
_COLOUR: Final = r"0?[0-4]?|7|2[1-47]|39|49|[34][0-7]|9[0-7]|10[0-7]|[34]8[:;](?:5[:;]\d{1,3}|2(?:[:;]\d{1,3}){3})"
_COLOURS: Final = re.compile(rf"(\x1b\[(?:{_COLOUR})(?:;(?:{_COLOUR}))*m)")
_COLOURS_END: Final = "\x1b[0m"


#: Stand in for signs that a terminal without them would not show.
_IN_ASCII: Final = str.maketrans("│├└─…–«»→↑↓×", '||`-~-"">^vx')


def harmless(text: str, *, with_colours: bool = False) -> str:
    """Return a text of foreign origin as a terminal may show it: with pictures in place of control characters.

    Line ends and tabulators stay, and `with_colours` sequences that only set colours; colours end with the text.
    """
    if text.isprintable():
        return text
    if not with_colours:
        return text.translate(_SIGNS)
    parts = _COLOURS.split(text)
    shown = "".join(part if at % 2 else part.translate(_SIGNS) for at, part in enumerate(parts))
    return shown + _COLOURS_END if len(parts) > 1 else shown


def harmless_json(data: bytes) -> str:
    """Return JSON with the same meaning that commands no terminal."""
    return data.decode() if data.isascii() and b"\x7f" not in data else data.decode().translate(_JSON_ESCAPES)


class Screen:
    """The two streams of one command."""

    def __init__(self, *, json: bool = False) -> None:
        self.json = json
        #: Each JSON document stands on a line of its own.
        self.one_line = False
        self.out = _console(stderr=False)
        self.err = _console(stderr=True)

    def show(self, answer: msgspec.Struct | Mapping[str, object], table: Table | Text) -> None:
        """The answer: as JSON where that was asked for, else as the table. In JSON a list has its name."""
        if self.json and self.one_line:
            self.print_line(answer)
        elif self.json:
            sys.stdout.write(harmless_json(indented_json(answer)) + "\n")
        else:
            self.print(table)

    @property
    def width(self) -> int:
        """Columns that an answer may take."""
        return self.out.width

    def print(self, *things: Table | Text | str) -> None:
        """Prints to stdout. If that is no terminal, the blanks that fill a table's lines are left out."""
        if self.out.is_terminal:
            self.out.print(*things, sep="\n", markup=False)
            return
        with self.out.capture() as captured:
            self.out.print(*things, sep="\n", markup=False)
        sys.stdout.write("".join(line.rstrip() + "\n" for line in captured.get().splitlines()))

    def show_line(self, answer: msgspec.Struct, line: str) -> None:
        """The answer as JSON, or one line about it."""
        self.show(answer, Text(line))

    def print_line(self, value: object) -> None:
        """One JSON value on one line."""
        sys.stdout.write(harmless_json(msgspec.json.encode(plain(value))) + "\n")
        sys.stdout.flush()

    def print_raw(self, text: str | bytes, *, error: bool = False, end: str = "\n") -> None:
        """Print a text without folding, to stderr if it is an `error`: every byte as it is, but for a terminal `harmless`."""
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
        """Says a line about the answer on stderr. A `whole` one, which holds a command to be copied, is not broken."""
        self.err.print(Text(text, style=style), soft_wrap=whole)


class _HarmlessConsole(Console):
    """Shows signs in place of control characters: a title or a reason could command the terminal of whoever lists it."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            text = segment.text
            if not (text.isascii() or draws_more_than_ascii(self)):
                text = text.translate(_IN_ASCII)
            yield segment if segment.control else segment._replace(text=harmless(text))


def draws_more_than_ascii(console: Console) -> bool:
    """True if its terminal shows bars and branches."""
    return console.encoding.lower().startswith("utf")


def _console(*, stderr: bool) -> Console:
    stream = sys.stderr if stderr else sys.stdout
    if isinstance(stream, io.TextIOWrapper) and not stream.encoding.lower().startswith("utf"):
        stream.reconfigure(errors="replace")  # names may have signs that the terminal has not
    if stream.isatty():
        return _HarmlessConsole(stderr=stderr, highlight=False, emoji=False)
    return _HarmlessConsole(
        stderr=stderr, highlight=False, emoji=False, width=_WIDE, color_system=None, force_terminal=False
    )
