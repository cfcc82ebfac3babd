"""An operator's pause: no job starts, and what was given out goes on."""

from __future__ import annotations

from headrace.pools import TreeOptions
from tests.support.allocating import Desk, an_operation, cores


def test_nothing_starts_while_starts_are_paused_and_the_reason_is_told() -> None:
    desk = Desk({"n": cores(4, slots=9)})
    desk.start(an_operation("op"))
    desk.share(op=1.0)
    desk.engine.on_options(TreeOptions(pause_starts=True), desk.now)

    held, _ = desk.beat("n")
    assert (held.start, held.extend, held.take_back) == ([], [], [])
    assert desk.reasons("op")[0] == "starts are paused in this tree; `headrace resume starts` ends the pause"

    desk.engine.on_options(TreeOptions(pause_starts=False), desk.now)
    assert len(desk.beat("n")[0].start) == 4
