"""Live terminals: what is written turns one frame into the next and is little, and keys are told by name."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as some
from rich.console import Console
from rich.segment import Segment, Segments
from rich.style import Style

from headrace_cli.live.keys import is_begun, keys_in
from headrace_cli.live.painting import changes
from tests.support.live_terminal import ScreenOfCells

WIDTH, HEIGHT = 24, 4
STYLES = some.sampled_from([None, Style(bold=True), Style(color="red"), Style(reverse=True)])
LINES = some.lists(
    some.lists(some.tuples(some.text("ab █", max_size=8), STYLES).map(lambda each: Segment(*each)), max_size=3),
    max_size=HEIGHT,
)


def written(before: list[list[Segment]], after: list[list[Segment]]) -> str:
    made = changes(before, after)
    stream = io.StringIO()
    if made:
        console = Console(file=stream, force_terminal=True, width=WIDTH, height=HEIGHT, color_system="standard")
        console.print(Segments(made), end="", soft_wrap=True)
    return stream.getvalue()


def text_of(lines: list[list[Segment]]) -> list[str]:
    found = ["".join(segment.text for segment in line).rstrip() for line in lines]
    return found + [""] * (HEIGHT - len(found))


@given(some.lists(LINES, min_size=1, max_size=4))
def test_whatever_stood_there_the_frame_does(frames: list[list[list[Segment]]]) -> None:
    screen = ScreenOfCells(WIDTH, HEIGHT)
    before: list[list[Segment]] = []
    for frame in frames:
        screen.write(written(before, frame))
        before = frame
        assert screen.lines == text_of(frame)


@given(LINES)
def test_the_same_frame_again_writes_nothing(frame: list[list[Segment]]) -> None:
    assert written(frame, frame) == ""


def test_a_figure_that_changes_costs_a_move_and_the_figure() -> None:
    line = "research  33.3%  running"

    assert written([[Segment(line)]], [[Segment(line.replace("33.3", "34.3"))]]) == "\x1b[1;12H4"


def test_what_is_near_is_written_at_once_and_what_is_far_is_moved_to() -> None:
    before, after = [[Segment("1 2      of    10 12")]], [[Segment("3 4      of    10 15")]]

    assert written(before, after) == "\x1b[1;1H3 4\x1b[1;20H5"


def test_a_row_that_only_looks_otherwise_is_written() -> None:
    assert "\x1b[7m" in written([[Segment("a row")]], [[Segment("a row", Style(reverse=True))]])


@pytest.mark.parametrize(
    ("sent", "keys"),
    [
        ("q", ["q"]),
        ("\x1b[A\x1bOB\x1b[5~", ["up", "down", "page up"]),
        ("\x1b", ["escape"]),
        ("\x1b\x1b[Z\t\r\x7f", ["escape", "back tab", "tab", "enter", "backspace"]),
        ("\x1b[1;5C\x1b[200~\x00é?", ["é", "?"]),
    ],
)
def test_keys_are_told_by_name(sent: str, keys: list[str]) -> None:
    assert list(keys_in(sent)) == keys


def test_the_beginning_of_a_key_is_waited_for() -> None:
    assert [is_begun(text) for text in ("\x1b", "q\x1b[", "\x1b[1;5", "\x1bO", "\x1b[A", "q")] == [
        True, True, True, True, False, False,
    ]  # fmt: skip
