"""The two outputs of a command: answers go to stdout, everything said about them to stderr.

A terminal gets colours and tables fitted to its width. Anything else gets plain text as wide as it must be, so that no
name in a pipe is ever cut. NO_COLOR and TERM=dumb are honoured.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from headrace_cli.show.plain_values import plain, print_json

_WIDE = 10_000
#: The pictures of control characters, but for the end of a line and the tabulator.
_SIGNS = {code: 0x2400 + code for code in range(32) if chr(code) not in "\n\t"}
_SIGNS |= {0x7F: 0x2421} | dict.fromkeys(range(0x80, 0xA0), 0xFFFD)


#: Stand in for signs that a terminal without them would not show.
_IN_ASCII: Final = str.maketrans("│├└─…–«»→↑↓×", '||`-~-"">^vx')


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
            print_json(answer, sys.stdout)
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
        sys.stdout.write(msgspec.json.encode(plain(value)).decode() + "\n")
        sys.stdout.flush()

    def print_raw(self, line: str, *, error: bool = False) -> None:
        """A line as it is: neither colours nor folding. To stderr if it is an `error`."""
        stream = sys.stderr if error else sys.stdout
        stream.write(line + "\n")
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
            if not text.isprintable():
                text = text.translate(_SIGNS)
            yield segment if segment.control else segment._replace(text=text)


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
