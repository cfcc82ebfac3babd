"""The command `headrace top`: the cluster at a glance, live."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import anyio
import msgspec
from rich.console import RenderableType
from rich.text import Text

from headrace.bus import BusError
from headrace.client import Client, Refused, Unanswered
from headrace_cli.live.terminal import RESIZED, Terminal, opened_terminal, why_not_live
from headrace_cli.session import InTree, Switch, checked_interval_s, talk
from headrace_cli.show.screen import Screen, draws_more_than_ascii
from headrace_cli.top.asking import Asking
from headrace_cli.top.cluster_report import document
from headrace_cli.top.frame import HELP, frame, page, whole
from headrace_cli.top.sections import Pen, entries_of
from headrace_cli.top.view import Action, Opened, View, on_key

#: Width of a frame that is written to a file, in characters.
_OF_A_FILE: Final = 160
#: Shortest time between two frames, in seconds. The eye sees no more, and each frame takes time on a slow link.
_BETWEEN_FRAMES_S: Final = 0.1


def top(*, once: Switch = False, interval: float = 2.0, common: InTree | None = None) -> int:
    """Show the cluster live: resources in use, pools, operations, nodes, starvation and preemptions. `?` explains the keys.

    If the output is not a terminal, it prints one frame, as with `--once`. With `--json` it prints one document.

    Examples of use:

        headrace top

        headrace top --once

        headrace top --json | jq .cluster

    Parameters
    ----------
    once
        Print one frame as text.
    interval
        Seconds between two updates of the display.
    """
    interval_s = checked_interval_s(interval)

    async def work(client: Client, screen: Screen) -> None:
        reason = why_not_live(screen)
        if once or screen.json or reason:
            if reason.startswith("TERM"):
                screen.say(f"{reason}, so only one frame is printed")
            await _print(client, screen)
            return
        with opened_terminal(screen) as terminal:
            await _Live(client, terminal, interval_s).run()

    return talk(common, work, tells_silence=False)


async def _print(client: Client, screen: Screen) -> None:
    asking = Asking(client, 1.0, lambda: None)
    await asking.once()
    if screen.json:
        screen.show(document(asking.report()), Text())
        return
    width = screen.width if screen.out.is_terminal else _OF_A_FILE
    screen.print(*whole(asking.report(), Pen(width, ascii_only=not draws_more_than_ascii(screen.out))))


class _Live:
    """The live display: shows answers as they arrive, and obeys keys."""

    def __init__(self, client: Client, terminal: Terminal, interval_s: float) -> None:
        self._terminal = terminal
        self._interval_s = interval_s
        self._asking = Asking(client, interval_s, self._wake)
        self._view = View()
        self._page: Sequence[RenderableType] = ()
        self._woken = anyio.Event()
        self._opened = anyio.Event()
        self._confirmed = anyio.Event()

    async def run(self) -> None:
        await self._asking.once()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._asking.keep_up)
            tasks.start_soon(self._keep_page)
            tasks.start_soon(self._terminal.listen, self._on_key)
            tasks.start_soon(self._do_actions)
            while not self._view.is_over:
                self._paint()
                await anyio.sleep(_BETWEEN_FRAMES_S)
                await self._woken.wait()
                self._woken = anyio.Event()
            tasks.cancel_scope.cancel()

    def _wake(self) -> None:
        self._woken.set()

    def _on_key(self, key: str) -> None:
        if key != RESIZED:
            before = self._view.opened
            self._view = on_key(self._view, key, entries_of(self._asking.report(), self._view, self._pen()))
            if self._view.opened != before:
                self._page = ()
                self._opened.set()
            self._asking.is_hidden = self._view.opened is not None
            if self._view.confirmed is not None:
                self._confirmed.set()
        self._wake()

    def _pen(self) -> Pen:
        width = self._terminal.size[0]
        return Pen(width, ascii_only=not self._terminal.draws_blocks, longest_bar=width)

    def _paint(self) -> None:
        pen, height = self._pen(), self._terminal.size[1]
        if self._view.shows_help:
            lines = page([Text(HELP)], self._view, pen, height, self._terminal.lines)
        elif self._view.opened is not None:
            title = Text(f"{self._view.opened.kind} {self._view.opened.name}", style="bold reverse")
            lines = page([title, *self._page], self._view, pen, height, self._terminal.lines)
        else:
            lines = frame(self._asking.report(), self._view, pen, height, self._terminal.lines)
        self._terminal.paint(lines)

    async def _do_actions(self) -> None:
        """Do the actions that the user confirmed, one after the other, and show the result of each."""
        while True:
            await self._confirmed.wait()
            self._confirmed = anyio.Event()
            action, self._view = self._view.confirmed, msgspec.structs.replace(self._view, confirmed=None)
            if action is not None:
                note = await self._done(action)
                self._view = msgspec.structs.replace(self._view, note=note)
                self._wake()

    async def _done(self, action: Action) -> str:
        try:
            return await self._asking.act(action)
        except (Unanswered, Refused, BusError) as error:
            return str(error)

    async def _keep_page(self) -> None:
        """Request the opened page, at once and then at each interval."""
        while True:
            opened = self._view.opened
            if opened is not None:
                await self._fetch(opened)
            self._opened = anyio.Event()
            if self._view.opened == opened:
                with anyio.move_on_after(self._interval_s):
                    await self._opened.wait()

    async def _fetch(self, opened: Opened) -> None:
        try:
            made: Sequence[RenderableType] = await self._asking.page(opened, self._terminal.size[0])
        except (Unanswered, Refused, BusError) as error:
            made = [Text(str(error), style="red")]
        if self._view.opened == opened:
            self._page = made
            self._wake()
