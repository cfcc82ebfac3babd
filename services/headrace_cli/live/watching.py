"""The option `--watch`: show a list again and again, until Ctrl-C."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Final

import anyio
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from headrace.bus import BusError
from headrace.client import Unanswered
from headrace.client.asking import LONGEST_ABSENCE_S
from headrace.counted import counted
from headrace.runtime.clock import SystemClock
from headrace_cli.live.terminal import Terminal, opened_terminal, why_not_live
from headrace_cli.show.screen import Screen

_ENDS: Final = "q"


class _Gathering(Screen):
    """A screen that collects everything that is printed, for one frame."""

    def __init__(self) -> None:
        super().__init__()
        self.gathered: list[RenderableType] = []

    def print(self, *things: Table | Text | str) -> None:
        self.gathered += [Text(thing) if isinstance(thing, str) else thing for thing in things]

    def say(self, text: str, *, style: str = "", whole: bool = False) -> None:
        self.gathered.append(Text(text, style=style))


async def watch(screen: Screen, show_once: Callable[[Screen], Awaitable[object]], interval_s: float) -> None:
    """Call `show_once`, show the result and wait, again and again until cancelled. Raises what `show_once` raises.

    A server that does not answer for up to a minute is tolerated.
    """
    if screen.json or why_not_live(screen):
        screen.one_line = True

        async def show_and_part() -> None:
            await show_once(screen)
            if not screen.json:
                screen.print_raw("")

        await _repeat(show_and_part, screen.say, interval_s)
        return
    with opened_terminal(screen) as terminal:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_show, terminal, show_once, interval_s)
            await terminal.listen(lambda key: tasks.cancel_scope.cancel() if key == _ENDS else None)
            tasks.cancel_scope.cancel()


async def _show(terminal: Terminal, show_once: Callable[[Screen], Awaitable[object]], interval_s: float) -> None:
    shown: list[RenderableType] = []

    def paint(words: str, style: str) -> None:
        width, height = terminal.size
        head = Text(f"{_now()}, every {interval_s:g}s, q ends it", style="dim")
        lines = [line for thing in shown for line in terminal.lines(thing, width)]
        room = height - (2 if words else 1)
        if len(lines) > room:
            left_out = Text(f"… {counted(len(lines) - room + 1, 'more line')}", style="yellow")
            lines[room - 1 :] = terminal.lines(left_out, width)
        terminal.paint(terminal.lines(head, width) + terminal.lines(Text(words, style), width)[: bool(words)] + lines)

    async def paint_once() -> None:
        screen = _Gathering()
        await show_once(screen)
        shown[:] = screen.gathered
        paint("", "")

    await _repeat(paint_once, lambda words: paint(words, "red"), interval_s)


async def _repeat(show_once: Callable[[], Awaitable[object]], say: Callable[[str], None], interval_s: float) -> None:
    clock = SystemClock()
    answered_s: float | None = None
    while True:
        try:
            await show_once()
            answered_s = clock.steady_s()
        except (Unanswered, BusError) as error:
            if answered_s is None or clock.steady_s() - answered_s > LONGEST_ABSENCE_S:
                raise
            say(str(error))
        await anyio.sleep(interval_s)


def _now() -> str:
    return datetime.fromtimestamp(SystemClock().wall_ms() / 1000).astimezone().strftime("%H:%M:%S")
