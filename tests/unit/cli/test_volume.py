"""A pool over time: moments as people write them, what is drawn, and how it looks in characters, files and figures."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headrace.errors import BadInput
from headrace.ids import PoolName, TreeName
from headrace.installation.extras import MissingExtra
from headrace.wire.history import Delivery, HistoryPoint, IntegralPoint, PoolHistory, Savings, Spread
from headrace.wire.integral import Volume
from headrace.wire.lost_work import LostWork, LostWorkTold
from headrace.wire.preemption import PreemptionReason
from headrace_cli.commands.pools.volume import chart_file
from headrace_cli.commands.pools.volume.chart import LineKind, amount_unit, pool_chart, savings_unit
from headrace_cli.commands.pools.volume.chart_text import amount_ticks, chart_texts
from headrace_cli.commands.pools.volume.fairness import fairness_facts
from headrace_cli.commands.pools.volume.summary import history_json, summary, summary_title
from headrace_cli.show.times import parse_timestamp_ms, time_ticks, timestamp

#: 2026-11-20, a Friday.
MIDNIGHT_S = int(datetime(2026, 11, 20, tzinfo=UTC).timestamp())
HOUR_S = 3_600
NOW_MS = (MIDNIGHT_S + 18 * HOUR_S) * 1_000


def at(hours: float) -> int:
    return (MIDNIGHT_S + int(hours * HOUR_S)) * 1_000


# --- moments ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("now", at(18)),
        ("6h", at(12)),
        ("90s", at(18) - 90_000),
        ("1.5d", at(-18)),
        ("17:30", at(17.5)),
        ("18:00:01", at(-6) + 1_000),
        ("2026-11-20T06:00", at(6)),
        ("2026-11-20 06:00", at(6)),
        ("2026-11-20", at(0)),
        ("2026-11-20T06:00+02:00", at(4)),
        ("2026-11-20T06:00Z", at(6)),
    ],
)
def test_a_moment_is_so_long_ago_or_on_the_clock_or_on_a_day(text: str, expected: int) -> None:
    assert parse_timestamp_ms(text, place="--since", now_ms=NOW_MS, zone=UTC) == expected


def test_a_moment_without_a_zone_is_one_of_the_zone_that_is_told() -> None:
    east = timezone(timedelta(hours=3))

    assert parse_timestamp_ms("2026-11-20T06:00", place="--since", now_ms=NOW_MS, zone=east) == at(3)
    assert parse_timestamp_ms("06:00", place="--since", now_ms=NOW_MS, zone=east) == at(3)


@pytest.mark.parametrize("text", ["", "5", "yesterday", "25:00", "6hours", "2026-13-01", "-6h", "6 h 5 m"])
def test_what_is_no_moment_is_refused_with_what_would_do(text: str) -> None:
    with pytest.raises(BadInput, match="expected a duration such as 90s, 6h or 7d, or a time"):
        parse_timestamp_ms(text, place="--since", now_ms=NOW_MS, zone=UTC)


@pytest.mark.parametrize("year", [1970, 2026, 9999])
def test_times_of_all_years_that_a_calendar_has_are_shown(year: int) -> None:
    moment = datetime(year, 12, 3, 18, 0, 5, tzinfo=UTC)
    assert timestamp(moment.timestamp(), UTC) == f"{year}-12-03 18:00:05"


def test_a_length_of_time_before_the_epoch_is_the_epoch() -> None:
    assert parse_timestamp_ms("2d", place="--since", now_ms=86_400_000, zone=UTC) == 0


def test_marks_of_a_day_are_round_and_name_each_day_once() -> None:
    ticks = time_ticks(MIDNIGHT_S + 5 * HOUR_S, MIDNIGHT_S + 29 * HOUR_S, 5, UTC)

    assert [(int(place - MIDNIGHT_S) // HOUR_S, label) for place, label in ticks] == [
        (6, "Nov 20 06:00"),
        (12, "12:00"),
        (18, "18:00"),
        (24, "Nov 21"),
    ]


def test_marks_of_seconds_tell_seconds_and_marks_of_weeks_days() -> None:
    seconds = time_ticks(MIDNIGHT_S + 1.5, MIDNIGHT_S + 7.5, 4, UTC)
    weeks = time_ticks(MIDNIGHT_S, MIDNIGHT_S + 20 * 86_400, 6, UTC)

    assert [label for _, label in seconds] == ["Nov 20 00:00:02", "00:00:04", "00:00:06"]
    assert [label for _, label in weeks] == ["Nov 20", "Nov 24", "Nov 28", "Dec 2", "Dec 6", "Dec 10"]


@given(st.integers(0, 4 * 10**9), st.integers(0, 10**8), st.integers(2, 20))
def test_always_marks_are_within_the_time_in_order_and_few(start: int, span: int, most: int) -> None:
    ticks = time_ticks(start, start + span, most, UTC)

    places = [place for place, _ in ticks]
    assert len(places) <= most
    assert places == sorted(set(places))
    assert all(start <= place <= start + span for place in places)


def test_a_moment_is_told_in_the_zone_that_is_asked_for() -> None:
    assert timestamp(MIDNIGHT_S, timezone(timedelta(hours=3))) == "2026-11-20 03:00:00"


# --- the picture ------------------------------------------------------------------------------------------------------


def a_point(stretch: int, cores: float = 0, saved: float | None = None, **changes: object) -> HistoryPoint:
    """An hour of a burst pool of flow 100 and burst 500 cores, or of one without where nothing is said of savings."""
    usage = Spread(cores * 100, cores * 100, cores * 100)
    integral = None
    if saved is not None:
        amount = saved * 100 * HOUR_S
        integral = IntegralPoint(10_000, 50_000, 100 * 2_400 * HOUR_S, Savings(amount, amount, amount))
    point = HistoryPoint(stretch, at(stretch), 360, False, usage, usage, usage, 0, 100_000, integral)
    return msgspec.structs.replace(point, **changes)


def a_history(*points: HistoryPoint, hours: int = 24, resource: str = "cpu") -> PoolHistory:
    return PoolHistory(PoolName("nightly"), TreeName("default"), resource, at(0), at(hours), list(points))


def test_a_pool_with_an_integral_guarantee_has_two_panels_and_any_other_one() -> None:
    both = pool_chart(a_history(a_point(0, saved=1)))
    one = pool_chart(a_history(a_point(0)))

    assert [panel.title for panel in both.panels] == ["usage, demand and guarantees", "savings"]
    assert [line.label for line in both.panels[0].lines] == ["usage", "demand", "fair share", "flow", "burst guarantee"]
    assert [line.label for line in both.panels[1].lines] == ["saved", "capacity"]
    assert [[line.label for line in panel.lines] for panel in one.panels] == [["usage", "demand", "fair share"]]


def test_what_integral_guarantees_come_on_top_of_is_said() -> None:
    (panel, _) = pool_chart(a_history(a_point(0, saved=1, strong_guarantee=20_000))).panels

    assert [(line.label, line.values) for line in panel.lines[3:]] == [
        ("strong guarantee", [200.0]),
        ("strong + flow", [300.0]),
        ("strong + burst guarantee", [700.0]),
    ]


def test_lines_are_broken_where_nothing_is_known() -> None:
    drawn = pool_chart(a_history(a_point(0, 1), a_point(1, 2), a_point(5, 3, after_gap=True)))

    usage = drawn.panels[0].lines[0]
    assert drawn.gaps == [(at(1) / 1000, at(5) / 1000)]
    assert [math.isnan(value) for value in usage.values] == [False, False, True, False]
    assert usage.runs() == [range(2), range(3, 4)]


def test_a_demand_that_towers_over_everything_leaves_the_picture_at_the_top_and_is_told() -> None:
    (panel,) = pool_chart(a_history(a_point(0, 10, demand=Spread(90_000, 90_000, 90_000)))).panels
    (modest,) = pool_chart(a_history(a_point(0, 10, demand=Spread(1_200, 1_200, 1_200)))).panels
    (waiting,) = pool_chart(a_history(a_point(0, 0, demand=Spread(900, 900, 900)))).panels

    assert (panel.top, panel.lines[1].label) == (15, "demand (up to 900)")
    assert (modest.top, modest.lines[1].label) == (12, "demand")
    assert (waiting.top, waiting.lines[1].label) == (9, "demand")


def test_time_since_the_last_sample_is_a_gap_once_another_one_should_have_come() -> None:
    fresh = msgspec.structs.replace(a_history(a_point(0, 1), hours=5), known_until_ms=at(5))
    stale = msgspec.structs.replace(fresh, known_until_ms=at(1))

    assert pool_chart(fresh).gaps == []
    assert pool_chart(stale).gaps == [(at(0) / 1000, at(5) / 1000)]


def test_units_follow_the_size_of_what_is_drawn() -> None:
    assert amount_unit("cpu", 10).name == "cores"
    assert (amount_unit("memory", 2**41).name, amount_unit("memory", 2**25).name) == ("TiB", "MiB")
    assert savings_unit("cpu", 35_999 * 100).name == "core-seconds"
    assert savings_unit("cpu", 36_000 * 100).name == "core-hours"
    assert savings_unit("memory", 2.0**40 * 86_400).name == "TiB-hours"
    assert savings_unit("user_slots", 100).name == "slot-seconds"


# --- characters -------------------------------------------------------------------------------------------------------


def drawn_lines(history: PoolHistory, width: int = 60, rows: int = 6) -> list[str]:
    texts = chart_texts(pool_chart(history), width, rows, colours=False, ascii_only=True, zone=UTC)
    return [line.rstrip() for text in texts for line in text.plain.splitlines()]


EXPECTED = """\
cores: usage, demand and guarantees
      |~~~~~~~~~~~~~~~~~########~~~~~~~~~~~~~~~~~~~~~~~~~~
  400 +                ##      #
      |                #       ##
  200 +                #        #
      |---------------##--------#-------------------------
    0 +################         ##########################
      ++-------------------------+------------------------+
       Nov 20                  12:00                 Nov 21
       # usage   + demand   o fair share   - flow
       ~ burst guarantee
core-hours: savings
      |---------------------------------------------------
2,000 +
      |
1,000 +
      |        #########
    0 +########        ###################################
      ++-------------------------+------------------------+
       Nov 20                  12:00                 Nov 21
       # saved   - capacity""".splitlines()


def test_a_picture_in_letters_shows_a_burst_and_the_savings_that_it_takes() -> None:
    points = [a_point(hour, 500 if 8 <= hour < 12 else 0, saved=hour * 100 if hour < 8 else 0) for hour in range(24)]

    assert drawn_lines(a_history(*points)) == EXPECTED


@pytest.mark.parametrize("width", [40, 61, 100, 200])
@pytest.mark.parametrize(
    "history",
    [
        a_history(),
        a_history(a_point(0, 1)),
        a_history(a_point(0, 1, saved=0), a_point(9, 1_000_000, saved=5, after_gap=True)),
        a_history(a_point(1, 0.01), hours=2),
    ],
    ids=["empty", "one point", "a gap", "small"],
)
def test_no_line_is_wider_than_there_is_room(history: PoolHistory, width: int) -> None:
    for colours in (False, True):
        texts = chart_texts(pool_chart(history), width, 12, colours=colours, ascii_only=False, zone=UTC)
        assert max(len(line.rstrip()) for text in texts for line in text.plain.splitlines()) <= width


def test_letters_tell_lines_apart_where_there_are_no_colours_and_dots_where_there_are() -> None:
    history = a_history(*[a_point(hour, hour) for hour in range(24)])

    letters = chart_texts(pool_chart(history), 60, 6, colours=False, ascii_only=True, zone=UTC)[0].plain
    dots = chart_texts(pool_chart(history), 60, 6, colours=True, ascii_only=False, zone=UTC)[0]

    assert letters.isascii()
    assert any(0x2800 < ord(letter) <= 0x28FF for letter in dots.plain)
    assert {str(span.style) for span in dots.spans} >= {"bright_cyan", "yellow", "green"}


@given(st.floats(1e-3, 1e15) | st.integers(-3, 15).map(lambda power: 10.0**power * (1 - 1e-16)), st.integers(3, 12))
@example(0.009999999999999998, 5)
def test_always_figures_of_an_axis_begin_at_zero_and_stay_within_it(top: float, most: int) -> None:
    ticks = amount_ticks(top, most)

    assert ticks[0] == 0
    assert 2 <= len(ticks) <= most
    assert ticks[-1] <= top * (1 + 1e-9)


# --- files ------------------------------------------------------------------------------------------------------------


def test_a_file_is_drawn_as_png_or_svg(tmp_path: Path) -> None:
    history = a_history(*[a_point(hour, hour, saved=hour) for hour in range(24)])
    for name in ("a.png", "a.svg"):
        chart_file.draw(pool_chart(history), tmp_path / name, UTC)

    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    svg = (tmp_path / "a.svg").read_text()
    assert "<svg" in svg
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.png", "a.svg"]


def test_the_same_history_gives_the_same_bytes(tmp_path: Path) -> None:
    drawn = pool_chart(a_history(a_point(0, 1, saved=1), a_point(9, 2, saved=2, after_gap=True)))
    for name in ("a.svg", "b.svg"):
        chart_file.draw(drawn, tmp_path / name, UTC)

    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


@pytest.mark.parametrize("points", [[], [a_point(3, 2, saved=1)]], ids=["empty", "one point"])
def test_little_can_be_drawn_too(points: list[HistoryPoint], tmp_path: Path) -> None:
    chart_file.draw(pool_chart(a_history(*points)), tmp_path / "a.png", UTC)

    assert (tmp_path / "a.png").stat().st_size > 1_000


@pytest.mark.parametrize("name", ["a.gif", "a", "missing/a.png", "."])
def test_where_no_picture_can_be_written_that_is_said_first(name: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="--plot"):
        chart_file.check_file(tmp_path / name)


def test_without_the_library_the_error_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)

    with pytest.raises(MissingExtra, match=r"in a clone: uv tool install '\.\[plots\]'"):
        chart_file.check_file(tmp_path / "a.png")


def test_whoever_asks_for_no_file_waits_for_no_library() -> None:
    words = "import sys, headrace_cli.commands.pools.pool; print(sorted({'matplotlib', 'plotille'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", words], capture_output=True, text=True, check=True)

    assert done.stdout == "[]\n"


# --- figures ----------------------------------------------------------------------------------------------------------


def cells(history: PoolHistory) -> dict[str, list[str]]:
    made = summary(history)
    columns = [[str(cell) for cell in column.cells] for column in made.columns]
    return {row[0]: list(row[1:]) for row in zip(*columns, strict=True)}


def test_the_summary_has_means_by_samples_and_extremes() -> None:
    busy = a_point(1, 300, saved=20, samples=90, usage=Spread(30_000, 0, 50_000))

    found = cells(a_history(a_point(0, 0, saved=50, samples=30), busy))

    assert found["usage"] == ["300", "225", "0", "500", "cores"]
    assert found["flow"] == ["100", "", "", "", "cores"]
    assert found["burst guarantee"] == ["500", "", "", "", "cores"]
    assert found["saved"] == ["20", "", "20", "50", "core-hours"]
    assert found["capacity"] == ["2,400", "", "", "", "core-hours"]
    assert "strong guarantee" not in found


def test_the_summary_of_nothing_has_dashes() -> None:
    assert cells(a_history())["usage"] == ["–", "–", "–", "–", "cores"]


def test_the_title_counts_samples_and_gaps() -> None:
    title = summary_title(a_history(a_point(0), a_point(5, after_gap=True, samples=1)))

    assert title.plain.endswith("(361 samples, 1 gap of 5h together)")


def test_json_is_in_cores_and_core_seconds() -> None:
    history = a_history(a_point(1, 2.5, saved=1, strong_guarantee=150))

    (point,) = json.loads(json.dumps(history_json(history)))["points"]

    assert point["at"] == "2026-11-20T01:00:00.000Z"
    assert point["usage"] == {"mean": 2.5, "least": 2.5, "most": 2.5}
    assert (point["strong_guarantee"], point["resource_flow"], point["burst_guarantee"]) == (1.5, 100, 500)
    assert point["accumulated_resource_volume"] == {"last": 3_600, "least": 3_600, "most": 3_600}
    assert point["integral_pool_capacity"] == 100 * 86_400


def test_roles_of_lines_have_a_look_everywhere() -> None:
    assert set(chart_file._COLOURS) == set(chart_file._LOOKS) == set(LineKind)


# --- how fair it was --------------------------------------------------------------------------------------------------


def lost(hour: int, reason: PreemptionReason, runs: int, core_hours: float) -> LostWork:
    return LostWork(at(hour), reason, runs, Volume(cpu=int(core_hours * 100 * HOUR_S)))


def told(*work: LostWork) -> LostWorkTold:
    return LostWorkTold(PoolName("nightly"), TreeName("default"), list(work))


def facts(history: PoolHistory, work: LostWorkTold | None) -> dict[str, str]:
    table = fairness_facts(history, work)
    labels, words = ([str(cell) for cell in column.cells] for column in table.columns)
    return dict(zip(labels, words, strict=True))


def test_the_facts_say_what_was_delivered_missed_waited_for_and_lost() -> None:
    owed = Spread(400, 400, 400)
    history = a_history(
        a_point(0, 8, fair_share=owed, strong_guarantee=300, delivery=Delivery(400, 0.0)),
        a_point(10, 0, fair_share=owed, strong_guarantee=300, delivery=Delivery(0, 1.0, 250)),
    )
    work = told(lost(0, PreemptionReason.PREEMPTION, 3, 20), lost(1, PreemptionReason.RESOURCE_LIMITS_VIOLATED, 1, 2))

    assert facts(history, work) == {
        "delivered": "50.0% of its fair share",
        "below guarantee": "50.0% of the time, 5h, while it wanted more",
        "smallest wait": "a job of cpu 2.5",
        "lost work": f"at most 22 core-hours in 4 runs since {timestamp(at(0) / 1000)}: 3 by preemption, 1 by resource_limits_violated",
    }


def test_a_time_in_which_nothing_went_wrong_says_so() -> None:
    history = a_history(a_point(0, 2, delivery=Delivery(200, 0.0)))

    expected = {
        "delivered": "100.0% of its fair share",
        "smallest wait": "no job waited",
        "lost work": "none to preemption",
    }
    assert facts(history, told()) == expected


def test_figures_that_nobody_tells_are_left_out() -> None:
    assert facts(a_history(a_point(0, 2)), None) == {}


def test_lost_work_is_drawn_from_the_first_loss_of_its_hour_on() -> None:
    history = a_history(*(a_point(n, 4, at_ms=at(n / 4)) for n in range(5)))
    work = msgspec.structs.replace(lost(0, PreemptionReason.PREEMPTION, 1, 20), first_ms=at(0) + HOUR_S * 400)

    (panel,) = [panel for panel in pool_chart(history, [work]).panels if panel.title.startswith("lost")]
    assert list(panel.lines[0].values) == [0, 0, 20, 20, 0]


def test_the_panels_of_fairness_are_drawn_when_they_are_asked_for_and_have_something() -> None:
    history = a_history(
        a_point(0, 4, fair_share=Spread(800, 800, 800), delivery=Delivery(400, 0.0, 250)),
        a_point(1, 8, delivery=Delivery(800, 0.0)),
    )
    work = [lost(0, PreemptionReason.PREEMPTION, 1, 20), lost(0, PreemptionReason.PREEMPTION, 1, 4)]

    (_, delivered, waiting, by_hour) = pool_chart(history, work).panels
    assert (delivered.unit, delivered.lines[0].values) == ("%", [50.0, 100.0])
    assert waiting.lines[0].values[0] == 2.5
    assert math.isnan(waiting.lines[0].values[1])
    assert (by_hour.unit, by_hour.lines[0].values) == ("core-hours", [24.0, 0.0])
    assert len(pool_chart(history).panels) == 1
    assert [panel.title for panel in pool_chart(a_history(a_point(0, 1)), []).panels] == [
        "usage, demand and guarantees"
    ]
