"""`headrace pool volume` against a running Headrace: figures, characters, files, JSON, and what it says of unusable input."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.headrace_up import Up

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def up() -> Iterator[Up]:
    """A burst pool whose operation has come and gone, recorded five times a second."""
    running = Up(nodes=("alpha:cpu=2,memory=2G",))
    running.environment["HEADRACE_FAIR_SHARE_HISTORY_PERIOD_MS"] = "200"
    with running:
        running.run("pool", "create", "nightly", "--integral", "burst", "--flow", "cpu=0.5", "--burst", "cpu=1.5")
        words = ("run", "--pool", "nightly", "--cpu", "1", "--", "sh", "-c", "until [ -e go ]; do sleep 0.05; done")
        operation = running.run(*words).stdout.strip()
        wait_recorded(running, usage=1)
        (running.state / "go").touch()
        running.run("op", "wait", operation)
        wait_recorded(running, usage=0)
        yield running


def wait_recorded(up: Up, *, usage: float) -> None:
    """Until the last sample of the pool says so: an operation is over before its end is in the record."""
    while not (found := points(up, "nightly", "--points", "4000")) or found[-1]["usage"]["mean"] != usage:
        time.sleep(0.1)


def points(up: Up, *words: str) -> Any:
    return json.loads(up.run("pool", "volume", *words, "--json").stdout)["points"]


@pytest.mark.long
def test_an_operation_and_the_savings_of_its_pool_are_in_the_record(up: Up) -> None:
    found = points(up, "nightly", "--points", "4000")

    assert max(point["usage"]["most"] for point in found) == 1
    assert found[-1]["usage"]["mean"] == 0
    assert {point["burst_guarantee"] for point in found if point["resource_flow"]} == {1.5}
    assert {point["integral_pool_capacity"] for point in found if point["resource_flow"]} == {0.5 * 86_400}
    assert found[-1]["accumulated_resource_volume"]["last"] > 0


def test_both_pictures_are_drawn_in_characters_below_the_figures(up: Up) -> None:
    shown = up.run("pool", "volume", "nightly").stdout

    assert "cpu of nightly" in shown
    assert re.search(r"^burst guarantee +1\.5 +cores", shown, re.MULTILINE)
    assert "cores: usage, demand and guarantees" in shown
    assert "core-hours: savings" in shown or "core-seconds: savings" in shown
    assert max(map(len, shown.splitlines())) <= 100


def test_a_dash_draws_the_pictures_alone(up: Up) -> None:
    shown = up.run("pool", "volume", "nightly", "--since", "10m", "--plot", "-").stdout

    assert "# usage" in shown
    assert "mean" not in shown


@pytest.mark.parametrize(("name", "begins"), [("nightly.png", b"\x89PNG"), ("nightly.svg", b"<?xml")])
def test_a_file_is_written_where_it_was_asked_for(up: Up, tmp_path: Path, name: str, begins: bytes) -> None:
    done = up.run("pool", "volume", "nightly", "--plot", str(tmp_path / name))

    assert (tmp_path / name).read_bytes().startswith(begins)
    assert done.stdout == ""
    assert f"wrote {tmp_path / name}" in done.stderr


def test_memory_and_the_whole_tree_have_a_record_too(up: Up) -> None:
    assert points(up, "<Root>", "--resource", "memory")[-1]["total"] == 2 * 2**30
    assert points(up, "<Root>")[-1]["total"] == 2


def test_a_time_without_records_is_no_error(up: Up) -> None:
    done = up.run("pool", "volume", "nightly", "--since", "2001-01-01", "--until", "2001-01-02")

    assert "nothing was recorded in this period" in done.stderr


@pytest.mark.parametrize(
    ("words", "said", "status"),
    [
        (("nigthly",), "did you mean nightly?", 4),
        (("nightly", "--since", "1h", "--until", "2h"), "a time before --until", 2),
        (("nightly", "--plot", "picture.gif"), "--plot: 'picture.gif' cannot be used", 2),
        (("nightly", "--points", "0"), "1 to 4000", 2),
        (("nightly", "--resource", "disk"), "disk", 2),
    ],
)
def test_unusable_input_is_told_and_nothing_is_drawn(up: Up, words: tuple[str, ...], said: str, status: int) -> None:
    done = up.run("pool", "volume", *words, expect=status)

    assert said in done.stdout + done.stderr
    assert not (up.state / "picture.gif").exists()


def test_single_fields_of_a_pool_are_printed_bare(up: Up) -> None:
    saved = float(up.run("pool", "get", "nightly", "accumulated_resource_volume/cpu").stdout)
    two = up.run("pool", "get", "nightly", "specified_resource_flow.cpu", "integral_guarantee_type").stdout
    as_json = json.loads(
        up.run("pool", "get", "nightly", "specified_burst_ratio", "integral_pool_capacity/cpu", "--json").stdout
    )
    root = up.run("pool", "get", "<Root>", "resource_distribution_info/distributed_resources/cpu").stdout

    assert saved > 0
    assert two == "specified_resource_flow.cpu\t0.5\nintegral_guarantee_type\tburst\n"
    assert as_json == {"specified_burst_ratio": 0.75, "integral_pool_capacity/cpu": 0.5 * 86_400}
    assert root == "1.5\n"


def test_a_field_that_a_pool_does_not_have_is_null_and_one_that_none_has_is_refused(up: Up) -> None:
    up.run("pool", "create", "plain")
    nothing = up.run("pool", "get", "plain", "integral_pool_capacity/cpu")
    unknown = up.run("pool", "get", "plain", "integral_pool_capacty", expect=2)

    assert nothing.stdout == "null\n"
    assert "only pools with an integral guarantee have it" in nothing.stderr
    assert "did you mean integral_pool_capacity" in unknown.stderr


def test_a_pool_is_shown_with_flow_burst_savings_and_capacity(up: Up) -> None:
    shown = up.run("pool", "get", "nightly").stdout

    for words in (r"flow +\S+ +0\.5", r"burst guarantee +\S+ +1\.5", r"capacity +\S+ +12·h", r"saved +\S+ +\S+·s"):
        assert re.search(words, shown), f"{words} in\n{shown}"
    assert "not promised" in up.run("pool", "get", "<Root>").stdout
