"""`headrace top` and `--watch` in a real terminal, which becomes narrower and wider, and where there is none."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator

import pytest

from tests.support.headrace_up import HEADRACE, Up
from tests.support.live_terminal import LiveTerminal


@pytest.fixture(scope="module")
def up() -> Iterator[Up]:
    with Up(
        nodes=("alpha:cpu=2,memory=2G", "a-node-with-a-name-that-is-longer-than-a-column:cpu=1,memory=1G")
    ) as running:
        running.run("pool", "create", "research", "strong_guarantee_resources/cpu=1")
        running.run("pool", "create", "the-pictures-of-the-third-telescope", "--parent", "research")
        running.run(
            "run",
            "--pool",
            "the-pictures-of-the-third-telescope",
            "--id",
            "of-the-night",
            "--jobs",
            "9",
            "--",
            "sleep",
            "600",
        )
        running.run("run", "--pool", "research", "--id", "of-the-day", "--title", "a title", "--", "sleep", "600")
        yield running


def live(up: Up, *words: str, width: int = 80, height: int = 24, **environment: str) -> LiveTerminal:
    return LiveTerminal([*HEADRACE, *words], {**up.environment, **environment}, width, height)


def test_top_shows_the_cluster_opens_its_rows_and_leaves_the_terminal_as_it_was(up: Up) -> None:
    with live(up, "top", "--interval", "0.2") as terminal:
        for begin in ("research", "of-the-night", "a-node-with-a-name-that-i…", "? help"):
            terminal.until(lambda lines, begin=begin: any(line.lstrip("├└─ ").startswith(begin) for line in lines))  # type: ignore[misc]
        assert any("cpu 3 of 3" in line for line in terminal.screen.lines)

        for width, height in ((60, 24), (80, 24), (60, 12), (120, 40)):
            terminal.resize(width, height)
            assert terminal.until_text("? help")[height - 1].startswith("? help")

        terminal.type("2")
        terminal.type("/day\r")
        terminal.until(lambda lines: not any("of-the-night" in line for line in lines))
        terminal.type("\r")
        terminal.until_text("each needs cpu 1")
        terminal.type("\x1b")
        terminal.until_text("filter: day")
        terminal.type("\x1b")
        terminal.until_text("of-the-night")
        terminal.type("1\x1b[B\r")
        terminal.until_text("estimated guarantee")
        terminal.type("q?")
        terminal.until_text("Red: the pool starves")
        terminal.type("xq")
        assert terminal.end() == 0
    assert terminal.written.rindex("\x1b[?1049l") > terminal.written.rindex("\x1b[?1049h")
    assert terminal.written.rindex("\x1b[?25h") > terminal.written.rindex("\x1b[?25l")


def test_top_writes_less_than_a_frame_where_little_changes_and_no_colour_where_none_is_wanted(up: Up) -> None:
    with live(up, "top", "--interval", "0.2", NO_COLOR="1") as terminal:
        terminal.until_text("of-the-night")
        begun = len(terminal.written)
        terminal.type("2")
        terminal.until(lambda lines: True)
        terminal.type("?")
        terminal.until_text("Red: the pool starves")
        terminal.type("?")
        terminal.until_text("of-the-night")
        terminal.type("q")
        assert terminal.end() == 0
    assert len(terminal.written) - begun < 3 * begun
    assert "\x1b[7m" in terminal.written
    assert not any(f"\x1b[{code}m" in terminal.written for code in ("31", "32", "33", "36", "1;36", "2;32"))


def test_ctrl_c_ends_top_with_its_status(up: Up) -> None:
    with live(up, "top") as terminal:
        terminal.until_text("of-the-night")
        terminal.type("\x03")
        assert terminal.end() == 130
    assert "Traceback" not in terminal.written
    assert terminal.written.rstrip().endswith("\x1b[?1049l")


def test_a_service_that_does_not_answer_is_named_until_it_does(up: Up) -> None:
    (allocator,) = (process.pid for process in up.processes() if process.role == "allocator")
    with live(up, "top", "--interval", "0.2", width=100) as terminal:
        terminal.until_text("? help")
        os.kill(allocator, signal.SIGSTOP)
        try:
            terminal.until_text("the allocator does not answer: nodes are shown as of ")
            assert any("cpu 3 of 3" in line for line in terminal.screen.lines)
        finally:
            os.kill(allocator, signal.SIGCONT)
        terminal.until(lambda lines: not any("does not answer" in line for line in lines))
        terminal.type("q")
        assert terminal.end() == 0


def test_without_a_terminal_top_prints_one_frame_and_with_json_one_document(up: Up) -> None:
    said = up.run("top")

    assert "cpu 3 of 3" in said.stdout
    assert "the-pictures-of-the-third-telescope" in said.stdout
    assert "a-node-with-a-name-that-is-longer-than-a-column" in said.stdout
    assert "\x1b" not in said.stdout
    told = json.loads(up.run("top", "--json").stdout)
    assert {each["name"] for each in told["pools"]} == {"<Root>", "research", "the-pictures-of-the-third-telescope"}
    assert told["cluster"]["nodes_online"] == 2


def test_a_terminal_that_cannot_move_its_cursor_is_told_so(up: Up) -> None:
    with LiveTerminal(["env", "TERM=dumb", *HEADRACE, "top"], up.environment, 100, 40) as terminal:
        assert terminal.end() == 0
    assert "TERM=dumb cannot move its cursor, so only one frame is printed" in terminal.written
    assert "of-the-night" in terminal.written
    assert "\x1b" not in terminal.written


@pytest.mark.parametrize(
    "words",
    [
        ("op", "list"),
        ("pool", "list"),
        ("pool", "tree"),
        ("pool", "starving"),
        ("node", "list"),
        ("service", "list"),
        ("tree", "list"),
    ],
)
def test_every_list_is_watched_until_ctrl_c(up: Up, words: tuple[str, ...]) -> None:
    with live(up, *words, "--watch", "--interval", "0.1", width=60) as terminal:
        terminal.until(lambda lines: any(line and not line[0].isdigit() for line in lines))
        terminal.resize(80, 24)
        terminal.until_text("q ends it")
        terminal.type("\x03")
        assert terminal.end() == 130


def test_a_watched_list_is_a_document_a_line(up: Up) -> None:
    with up.begin("node", "list", "--watch", "--json", "--interval", "0.1") as watched:
        assert watched.stdout is not None
        told = [json.loads(watched.stdout.readline()) for _ in range(3)]
        watched.send_signal(signal.SIGINT)
        watched.stdout.read()
        assert watched.wait(30) == 130
    assert {len(each["nodes"]) for each in told} == {2}


def test_an_interval_that_is_none_is_refused(up: Up) -> None:
    assert (
        "a number of seconds from 0.1 to 86400" in up.run("node", "list", "--watch", "--interval", "0", expect=2).stderr
    )
    assert "a number of seconds from 0.1 to 86400" in up.run("top", "--interval", "nan", expect=2).stderr


def test_a_tree_that_there_is_not_is_refused(up: Up) -> None:
    assert "there is no" in up.run("top", "--tree", "nowhere", expect=4).stderr
    assert "cpu 3 of 3" in up.run("top", "--tree", "default").stdout


def test_top_tells_who_starves_and_who_made_room_for_that(up: Up) -> None:
    up.run("tree", "set", "default", "fair_share_starvation_timeout=100ms", "fair_share_starvation_tolerance=1")
    up.run("pool", "create", "guests", "strong_guarantee_resources/cpu=1")
    with live(up, "top", "--interval", "0.2", width=120, height=40) as terminal:
        terminal.until_text("5 preemptions: none")
        up.run("run", "--pool", "guests", "--id", "of-a-guest", "--jobs", "3", "--", "sleep", "600")
        terminal.until(lambda lines: any("for of-a-guest, which starves" in line for line in lines))
        terminal.type("5\r")
        terminal.until_text("is running: it holds a running slot")
        terminal.type("\x1b")
        terminal.until(lambda lines: any(line.startswith("of-a-guest") and "guests" in line for line in lines))
        terminal.type("q")
        assert terminal.end() == 0


@pytest.mark.long
def test_the_progress_that_jobs_tell_is_shown_with_their_operation() -> None:
    tell = 'echo 0.$((HEADRACE_JOB_INDEX + 4)) > "$HEADRACE_PROGRESS"; echo up; exec sleep 600'
    with Up() as up:
        up.run("run", "--pool", "p", "--jobs", "2", "--id", "tells-it-all", "--", "sh", "-c", tell)
        up.wait_line("tells-it-all", "up", times=2)
        told: list[dict[str, object]] = []
        while not told or told[0]["jobs"] != 2:
            told = json.loads(up.run("top", "--once", "--json").stdout)["progress"]
        top, got = up.run("top", "--once").stdout, up.run("op", "get", "tells-it-all").stdout

    assert told == [{"operation": "tells-it-all", "jobs": 2, "thousandths": 900}]
    assert "0/2 45%" in top
    assert "45% of all jobs; job 0 40%, job 1 50%" in got
