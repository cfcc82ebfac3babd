"""What `headrace simulate` prints and writes of a simulation, and how it reads the sizes of nodes and the rules of pools."""

from __future__ import annotations

import io
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from headrace.errors import BadInput
from headrace.ids import ROOT_POOL, PoolName
from headrace.resources import Resources
from headrace.tree_file.problems import UnusableFile
from headrace.wire.pool_changes import SetOptions
from headrace.wire.simulation import (
    NodesOf,
    PoolOf,
    SimulatedCluster,
    SimulatedPerson,
    SimulatedPool,
    SimulatedSetup,
    Simulation,
    Waits,
)
from headrace_cli.simulate.options import parse_nodes, parse_policies, read_rules, setups_of
from headrace_cli.simulate.report import page_of
from headrace_cli.simulate.tables import notes, simulation_tables, simulation_title

EVIL = "<script>alert(1)</script>"
MINUTE_MS = 60_000
WAITS = Waits(4, MINUTE_MS, 5 * MINUTE_MS, 6 * MINUTE_MS, 2.5)
CLUSTER = SimulatedCluster(
    makespan_ms=60 * MINUTE_MS,
    utilisation=0.8,
    saturated_ms=30 * MINUTE_MS,
    idle_fraction=0.06,
    share_error=0.1,
    peak=1.0,
    completed=3,
    failed=1,
    never_started=1,
    refused=2,
    job_runs=5,
)
SERIES = [0.0, 2.0, 4.0, 3.0]


def pool(name: str, path: str, usage: float, **more: int) -> SimulatedPool:
    return SimulatedPool(
        pool=PoolName(name),
        path=path,
        operations=4,
        never_started=0,
        refused=0,
        usage=usage,
        fair_share=3.0,
        demand=5.0,
        guarantee=1.5,
        owed=0.25,
        lost_usage=0.5,
        preemptions=1,
        starving_ms=more.get("starving_ms", 0),
        waits=WAITS,
        usage_series=SERIES if usage else [0.0] * 4,
        fair_share_series=SERIES,
        demand_series=[0.0, 400.0, 9.0, 3.0],
    )


def setup(name: str, *pools: SimulatedPool) -> SimulatedSetup:
    persons = [SimulatedPerson(f"user-{number}", 1, 1.0, WAITS) for number in range(12)]
    return SimulatedSetup(name, CLUSTER, WAITS, [pool(ROOT_POOL, "/", 2.0), *pools], persons, 946_684_800_000, 900_000)


def simulation(*setups: SimulatedSetup, has_dates: bool = False) -> Simulation:
    return Simulation(
        format="table",
        resource="cpu",
        capacity=4.0,
        nodes=1,
        jobs=10,
        since_ms=946_684_800_000,
        has_dates=has_dates,
        setups=list(setups),
        left_out={"never started": 2},
        damaged=[(7, "run is 'x'")],
        damaged_count=1,
        notes=["10 jobs have no time limit"],
    )


def printed(answer: Simulation) -> list[str]:
    out = io.StringIO()
    console = Console(file=out, width=200, color_system=None)
    console.print(*simulation_title(answer), *simulation_tables(answer), sep="\n")
    return [line.rstrip() for line in out.getvalue().splitlines()]


def test_the_first_lines_say_what_was_simulated_and_what_was_left_out() -> None:
    lines = printed(simulation(setup("native")))

    assert lines[:3] == [
        "table: 10 jobs of 12 users on 1 node with 4 cores, 1h long",
        "left out: 2 jobs (2 never started)",
        "damaged: 1 line (line 7: run is 'x')",
    ]
    assert "2000-01-01 00:00 to 2000-01-01 01:00 UTC" in printed(simulation(setup("native"), has_dates=True))[0]


def test_each_configuration_has_a_row_and_recorded_waits_have_one_too() -> None:
    answer = msgspec.structs.replace(simulation(setup("native"), setup("yarn")), recorded=WAITS)
    rows = {line.split()[0]: line.split()[1:] for line in printed(answer) if line}

    figures = ["80%", "30m", "10%", "6%", "1h", "0.5", "1m", "5m", "2.5", "3"]
    assert rows["recorded"] == ["–"] * 6 + ["1m", "5m", "2.5", "–"]
    assert [line.split()[1:] for line in printed(answer) if line.startswith(("native ", "yarn "))] == [figures] * 2


def test_pools_are_drawn_as_a_tree_and_ten_users_are_listed() -> None:
    answer = simulation(setup("native", pool("a", "/a", 1.5, starving_ms=90_000), pool("b", "/a/b", 0.0)))
    lines = printed(answer)

    assert next(line for line in lines if "└─ a" in line).split() == (
        ["└─", "a", "4", "1.5", "3", "0.25", "0.5", "1m30s", "1m", "5m", "2.5"]
    )
    assert any(line.startswith("   └─ b") for line in lines)
    assert sum(line.startswith("user-") for line in lines) == 10


def test_a_large_share_error_is_explained_by_what_was_idle() -> None:
    found = list(notes(simulation(setup("native"), setup("yarn"))))
    small = msgspec.structs.replace(setup("native"), cluster=msgspec.structs.replace(CLUSTER, share_error=0.05))

    assert found[0] == "10 jobs have no time limit"
    assert found[1].startswith("native: while the cluster was saturated, 10% of it was owed")
    assert "6% of the cluster was idle" in found[1]
    assert len(list(notes(simulation(small)))) == 1


@pytest.mark.parametrize("has_dates", [True, False])
def test_the_page_escapes_all_names_and_needs_nothing_else(has_dates: bool) -> None:
    evil = setup(EVIL, pool(EVIL, f"/{EVIL}", 1.0), pool("unused", "/unused", 0.0))
    evil = msgspec.structs.replace(evil, notes=[EVIL], persons=[SimulatedPerson(EVIL, 1, 1.0, WAITS)])
    page = page_of(simulation(evil, setup("native"), has_dates=has_dates))

    assert "<script" not in page
    assert "http" not in page
    assert page.count("&lt;script&gt;") >= 6
    # Charts of the waits, of two pools of the first configuration, and of the root of the second.
    assert page.count("<svg") == 4
    assert ("Jan 1" in page) is has_dates
    assert page == page_of(simulation(evil, setup("native"), has_dates=has_dates))


def test_control_characters_are_not_printed() -> None:
    assert "\x1b" not in "\n".join(printed(simulation(setup("a\x1bb", pool("c\x1bd", "/c\x1bd", 1.0)))))


def test_nodes_have_a_number_and_a_size() -> None:
    size = Resources(user_slots=1_000, cpu=400, gpu=2, memory=16 * 2**30)

    assert parse_nodes("32:cpu=4,memory=16G,gpu=2,tags=ssd+fast") == NodesOf(32, size, ["ssd", "fast"])
    assert parse_nodes("1:cpu=0.5,user_slots=3").size == Resources(user_slots=3, cpu=50)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("cpu=4", "such as 32:cpu=4"),
        ("0:cpu=4", "such as 32:cpu=4"),
        ("٣:cpu=4", "such as 32:cpu=4"),
        ("9999999:cpu=4", "at most 100000"),
        ("3:", "such as 32:cpu=4"),
        ("3:cpus=4", "did you mean cpu?"),
        ("3:cpu=4,cpu=5", "given twice"),
        ("3:cpu=x", "a number of cores"),
        ("3:cpu=4,memory=16", "with a unit"),
        ("3:cpu=0", "more than 0 cores"),
        ("3:memory=4G", "more than 0 cores"),
        ("3:cpu=4,tags=A B", "a-z"),
        ("3:cpu=4,", "such as 32:cpu=4"),
    ],
)
def test_nodes_that_cannot_be_used_are_refused_with_what_is_accepted(text: str, wanted: str) -> None:
    with pytest.raises(BadInput, match="--nodes") as refused:
        parse_nodes(text)

    assert wanted in str(refused.value)


def test_rules_are_a_list_of_maps(tmp_path: Path) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text('- {pool: vision, user: "an*", group: 17}\n- pool: adhoc\n')

    assert read_rules(str(file)) == [PoolOf(PoolName("vision"), "an*", "17"), PoolOf(PoolName("adhoc"))]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("pool: a\n", "rules.yaml:1: a map was found; expected a list of rules"),
        ("", "is empty"),
        ("- {pool: a}\n- {pool: b, usr: c}\n", "rules.yaml:2: [1].usr: unknown key; did you mean user?"),
        ("- {user: a}\n", "rules.yaml:1: [0]: a rule without a pool"),
        ("- {pool: a, user: [b]}\n", "rules.yaml:1: [0].user: a list was found"),
        ("- {pool: a/b}\n", "rules.yaml:1: [0].pool: a/b cannot be used"),
        ("- a\n", "rules.yaml:1: [0]: a was found"),
        ("- {pool: [}\n", "rules.yaml:1"),
    ],
)
def test_rules_that_cannot_be_used_are_refused_with_their_line(tmp_path: Path, text: str, wanted: str) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text(text)

    with pytest.raises(UnusableFile) as refused:
        read_rules(str(file))

    assert wanted in str(refused.value)


def test_each_policy_and_each_file_is_a_configuration(tmp_path: Path) -> None:
    folder = tmp_path / "other"
    folder.mkdir()
    files = [tmp_path / "pools.yaml", folder / "pools.yaml"]
    for file in files:
        file.write_text("pools: {a: {weight: 2}}\n")
    native, yarn, fifo, *others = setups_of(files[0], files, parse_policies("native,yarn, fifo"), [], print)

    assert [each.name for each in (native, yarn, fifo, *others)] == ["native", "yarn", "fifo", "pools", "pools 2"]
    assert isinstance(yarn.changes[-1], SetOptions)
    assert yarn.changes[:-1] == native.changes
    assert fifo.is_fifo
    assert others[0].changes == native.changes


def test_policies_and_percentages_that_cannot_be_used_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "fair-scheduler.xml"
    file.write_text('<allocations><queue name="a"><maxResources>50.0%</maxResources></queue></allocations>')

    with pytest.raises(BadInput, match="did you mean yarn"):
        parse_policies("native,yarm")
    with pytest.raises(BadInput, match="given twice"):
        parse_policies("fifo,fifo")
    with pytest.raises(BadInput, match="Add --nodes"):
        setups_of(file, [], ["native"], [], print)
    assert setups_of(file, [], ["native"], [parse_nodes("2:cpu=4,memory=8G")], print)[0].changes
