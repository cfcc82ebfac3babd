"""The terminal of a command with a live display. However the command ends, the terminal is restored."""

from __future__ import annotations

import codecs
import os
import signal
import sys
import termios
import tty
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final

import anyio
from rich.console import Console, RenderableType
from rich.control import Control
from rich.segment import Segment, Segments

from headrace_cli.live.keys import is_begun, keys_in
from headrace_cli.live.painting import changes
from headrace_cli.show.screen import Screen, draws_more_than_ascii

#: Name of the key that stands for a new size of the terminal.
RESIZED: Final = "resized"
#: Seconds in which the rest of a key's characters arrives, even over a slow link.
_REST_OF_KEY_S: Final = 0.1


class Terminal:
    """The screen, which remembers what was painted last, and the keys."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._painted: list[list[Segment]] = []
        self._size = (0, 0)

    @property
    def size(self) -> tuple[int, int]:
        """Return the present number of columns and lines."""
        return os.get_terminal_size(sys.stdout.fileno())

    @property
    def draws_blocks(self) -> bool:
        """True if the terminal shows more than ASCII."""
        return draws_more_than_ascii(self._console)

    def lines(self, thing: RenderableType, width: int) -> list[list[Segment]]:
        """Return the lines of a renderable thing at the given width."""
        options = self._console.options.update(width=width, height=None)
        return self._console.render_lines(thing, options, pad=False)

    def paint(self, lines: Iterable[list[Segment]]) -> None:
        """Show these lines from the top of the screen on. Only what differs from the last frame is written."""
        size = width, height = self.size
        cut = [Segment.adjust_line_length(line, width, pad=False) for line in lines][:height]
        made: list[Segment] = []
        if size != self._size:
            made.append(Control.clear().segment)
            self._size, self._painted = size, []
        made += changes(self._painted, cut)
        self._painted = cut
        if made:
            self._console.print(Segments(made), end="", soft_wrap=True)

    async def listen(self, on_key: Callable[[str], None]) -> None:
        """Call `on_key` with each key, and with `RESIZED`, until cancelled or until the input ends."""
        async with anyio.create_task_group() as tasks:

            async def watch_size() -> None:
                with anyio.open_signal_receiver(signal.SIGWINCH) as signals:
                    async for _ in signals:
                        on_key(RESIZED)

            tasks.start_soon(watch_size)
            await self._read(on_key)
            tasks.cancel_scope.cancel()

    async def _read(self, on_key: Callable[[str], None]) -> None:
        stdin, decoder, text = sys.stdin.fileno(), codecs.getincrementaldecoder("utf-8")("replace"), ""
        while True:
            with anyio.move_on_after(_REST_OF_KEY_S if text else None) as waited:
                await anyio.wait_readable(stdin)
            if not waited.cancelled_caught:
                data = os.read(stdin, 1024)
                if not data:
                    return
                text += decoder.decode(data)
                if is_begun(text):
                    continue
            for key in keys_in(text):
                on_key(key)
            text = ""


def why_not_live(screen: Screen) -> str:
    """Return why this terminal cannot show a live display, or an empty string."""
    if not (screen.out.is_terminal and sys.stdin.isatty()):
        return "this is not a terminal"
    if screen.out.is_dumb_terminal:
        return f"TERM={os.environ.get('TERM', '')} cannot move its cursor"
    return ""


@contextmanager
def opened_terminal(screen: Screen) -> Iterator[Terminal]:
    """Take the whole screen for the block, and each key as it is typed. Ctrl-C interrupts as usual."""
    stdin, console = sys.stdin.fileno(), screen.out
    before = termios.tcgetattr(stdin)
    try:
        tty.setcbreak(stdin)
        now = termios.tcgetattr(stdin)
        now[6][termios.VSUSP] = b"\0"  # after Ctrl-Z, a shell would run on this display's screen
        termios.tcsetattr(stdin, termios.TCSANOW, now)
        console.set_alt_screen(True)
        console.show_cursor(False)
        yield Terminal(console)
    finally:
        try:
            console.show_cursor(True)
            console.set_alt_screen(False)
        finally:
            termios.tcsetattr(stdin, termios.TCSADRAIN, before)
