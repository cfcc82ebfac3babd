"""Lists of rows below heads, as wide as they need to be and wider than the screen."""

from __future__ import annotations

import io
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from headrace_cli.show.tables import table

HEADS = ("operation", "fair\nshare", "memory", "title")
FIGURES = ("fair\nshare", "memory")
#: No cell ends in blanks, which Rich cuts off in columns of figures.
_WORDS = st.text(st.sampled_from("ab é漢字-./…"), max_size=12).map(str.rstrip)
_CELLS = _WORDS | st.builds(Text, _WORDS, style=st.sampled_from(["", "red", "bold dim"])) | st.just("two\nlines")
_ROWS = st.lists(st.tuples(*[_CELLS] * len(HEADS)), max_size=6)


def printed(made: Table, width: int) -> list[str]:
    """The lines, without colours and the blanks behind them."""
    stream = io.StringIO()
    Console(file=stream, width=width, color_system=None).print(made, markup=False)
    return [line.rstrip() for line in stream.getvalue().splitlines()]


def coloured(made: Table) -> str:
    stream = io.StringIO()
    Console(file=stream, width=60, force_terminal=True, color_system="standard", legacy_windows=False).print(made)
    return stream.getvalue()


@given(_ROWS)
def test_where_there_is_room_a_list_looks_as_rich_lays_it_out(rows: list[tuple[str | Text, ...]]) -> None:
    own, of_rich = table(*HEADS, right=FIGURES), Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for head in HEADS:
        of_rich.add_column(head, justify="right" if head in FIGURES else "left", no_wrap=head in FIGURES)
    for row in rows:
        own.add_row(*row)
        of_rich.add_row(*row)

    assert printed(own, 200) == printed(of_rich, 200)


@pytest.mark.parametrize("kind", [str, Text])
def test_a_tabulator_or_a_sign_without_a_width_moves_nothing_behind_it(kind: type[str] | type[Text]) -> None:
    made = table("operation", "title", "state")
    for title in ("a\tb", "b\ac", "plain"):
        made.add_row("op", kind(title), "runs")

    assert [line.index("runs") for line in printed(made, 60)[1:]] == [22, 22, 22]
    assert printed(made, 60)[1:3] == ["op         a       b  runs", "op         bc         runs"]


def test_cells_rows_and_columns_keep_their_colours() -> None:
    made = table("operation", "state")
    made.columns[0].style = "bold"
    made.add_row("a", Text("failed", style="red"))
    made.add_row("b", Text.assemble("it ", ("runs", "green")), style="dim")

    assert coloured(made).splitlines()[1:] == [
        "\x1b[1ma\x1b[0m\x1b[1m        \x1b[0m  \x1b[31mfailed\x1b[0m ",
        "\x1b[1;2mb\x1b[0m\x1b[1;2m        \x1b[0m\x1b[2m  \x1b[0m\x1b[2mit \x1b[0m\x1b[2;32mruns\x1b[0m",
    ]


def test_rich_lays_out_no_row_of_a_long_list(monkeypatch: pytest.MonkeyPatch) -> None:
    laid_out = Mock(side_effect=Console.render_lines)
    monkeypatch.setattr(Console, "render_lines", lambda *given, **options: laid_out(*given, **options))
    made = table("figure", "value", right=("value",))
    for at in range(1_000):
        made.add_row(f"figure-{at}", str(at))

    assert len(printed(made, 80)) == 1_001
    assert laid_out.call_count <= 2 * len(made.columns)


_SHORT = st.text(st.sampled_from("ab é漢字-./…"), min_size=1, max_size=40).map(lambda text: text.strip() or "x")


@given(
    st.lists(st.tuples(_SHORT, _SHORT, _SHORT, _SHORT), min_size=1, max_size=6),
    st.integers(30, 120),
    st.sampled_from(HEADS),
)
def test_always_a_cut_list_has_one_line_a_row_that_fits(rows: list[tuple[str, ...]], width: int, cut: str) -> None:
    heads = tuple(head.replace("\n", " ") for head in HEADS)
    made = table(*heads, cut=cut.replace("\n", " "))
    for number, row in enumerate(rows):
        made.add_row(f"{number}"[:1], *row[1:])

    lines = printed(made, width)

    assert len(lines) == 1 + len(rows)
    assert all(cell_len(line) <= width for line in lines)
    assert [line[0] for line in lines[1:]] == [f"{number}" for number in range(len(rows))]


def test_what_is_cut_ends_in_an_ellipsis_and_columns_behind_go_first() -> None:
    made = table("operation", "waits for", "done", "title", right=("done",), cut="waits for")
    made.add_row("train", "no node has free resources for a job", "0/20", "the title")

    assert printed(made, 46) == [
        "operation  waits for                      done",
        "train      no node has free resources f…  0/20",
    ]
    assert printed(made, 200)[1] == "train      no node has free resources for a job  0/20  the title"
