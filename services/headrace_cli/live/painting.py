"""The difference between two frames of a terminal, as the fewest writes that turn the first into the second. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby, zip_longest
from typing import Final

from rich.cells import cell_len
from rich.control import Control
from rich.segment import ControlType, Segment
from rich.style import Style

#: A character and its style. The character is empty in the second column of a wide character.
Cell = tuple[str, Style | None]
Line = Sequence[Segment]

_BLANK: Final[Cell] = (" ", None)
#: If at most this many unchanged characters lie between two changes, writing them again is as cheap as moving the cursor past them.
_CHEAPER_THAN_A_MOVE: Final = 8


def changes(before: Sequence[Line], after: Sequence[Line]) -> list[Segment]:
    """Return the writes that turn the lines `before`, which begin at the top of the screen, into the lines `after`.

    The list is empty if both are the same.
    """
    made: list[Segment] = []
    for y, (old_line, new_line) in enumerate(zip_longest(before, after, fillvalue=())):
        old, new = _cells(old_line), _cells(new_line)
        for begin, end in _runs(old, new):
            made.append(Control.move_to(begin, y).segment)
            made += _pieces(new[begin:end])
        if len(old) > len(new):
            made.append(Control.move_to(len(new), y).segment)
            made.append(Control((ControlType.ERASE_IN_LINE, 0)).segment)
    return made


def _cells(line: Line) -> list[Cell]:
    """Return one cell for each column, without the blanks at the end."""
    made: list[Cell] = []
    for segment in line:
        for character in "" if segment.control else segment.text.rstrip("\n"):
            width = cell_len(character)
            if not width and made:
                made[-1] = (made[-1][0] + character, made[-1][1])
                continue
            looks_blank = character == " " and not _is_seen_on_blanks(segment.style)
            made.append(_BLANK if looks_blank else (character, segment.style))
            made += [("", segment.style)] * (width - 1)
    while made and made[-1] == _BLANK:
        made.pop()
    return made


def _is_seen_on_blanks(style: Style | None) -> bool:
    return style is not None and bool(style.bgcolor or style.reverse or style.underline)


def _runs(old: Sequence[Cell], new: Sequence[Cell]) -> Iterator[tuple[int, int]]:
    """Yield the ranges of columns that differ, each as its first column and the column after its last. Close ranges are joined."""
    begin = end = -1
    for x, (was, cell) in enumerate(zip_longest(old[: len(new)], new, fillvalue=_BLANK)):
        if was == cell:
            continue
        if begin >= 0 and x - end > _CHEAPER_THAN_A_MOVE:
            yield begin, end
            begin = -1
        begin, end = (begin if begin >= 0 else x), x + 1
    if begin >= 0:
        yield begin, end


def _pieces(cells: Sequence[Cell]) -> list[Segment]:
    return [
        Segment("".join(character for character, _ in some), style)
        for style, some in groupby(cells, key=lambda cell: cell[1])
    ]
