"""`headrace pool …` and `headrace tree …` as a person changes configuration with them."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace_agent.host import facts
from tests.support.headrace_up import Up
from tests.support.loaded_modules import loaded_by

WITHOUT_ISOLATION = (
    "jobs run as root, so they can read the agent's key"
    if facts.is_root()
    else "jobs run as the agent's own account, so they can read its key"
)


@pytest.fixture(scope="module")
def up() -> Iterator[Up]:
    with Up(nodes=("alpha:cpu=2,memory=2G",)) as running:
        yield running


def test_a_look_at_pools_loads_neither_what_services_run_on_nor_what_other_commands_need(up: Up) -> None:
    loaded = loaded_by("pool", "list", environment=up.environment)

    assert "<Root>" in loaded.printed
    assert loaded.libraries <= {"anyio", "attr", "attrs", "cyclopts", "msgspec", "nats", "rich", "typing_extensions"}
    assert not {"headrace.archives", "headrace.runtime.service", "headrace.tree_file.pools"} & loaded.modules
    assert "headrace_cli.commands.pools.changes" not in loaded.modules
    assert (
        not {"argparse", "http.server", "importlib.metadata", "rich._emoji_codes", "tarfile", "tomllib"}
        & loaded.modules
    )


@pytest.mark.parametrize(
    "words", ["whoami", "node list", "service figures", "op list", "run --dry-run --pool research -- true"]
)
def test_a_look_loads_nothing_that_makes_keys_draws_bars_or_packs_files(up: Up, words: str) -> None:
    loaded = loaded_by(*words.split(), environment=up.environment)

    assert not {"cryptography", "headrace_cli.agent.token", "rich.progress", "tarfile"} & loaded.modules


def test_groups_are_made_changed_and_named_in_access_lists(up: Up) -> None:
    me = json.loads(up.run("whoami", "--json").stdout)["user"]
    assert "group crew made: 2 members" in up.run("group", "create", "crew", me, "ada").stdout
    up.run("group", "add", "crew", "ben")
    up.run("group", "remove", "crew", "ada")
    assert [*json.loads(up.run("group", "get", "crew", "--json").stdout)["members"]] == [me, "ben"]
    year = time.strftime("%Y-")
    assert up.run("group", "get", "crew").stdout.count(year) == 3  # when it was made, and its two members added
    assert up.run("group", "list").stdout.count(year) == 1
    assert "did you mean crew?" in up.run("group", "add", "crw", "cleo", expect=4).stderr
    assert "`headrace group delete crew` deletes the group" in up.run("group", "remove", "crew", expect=2).stderr
    assert "groups         crew" in up.run("whoami").stdout

    misspelt = up.run("pool", "create", "shore", "access/use=[ada; group:crw]").stderr
    assert "there is no group 'crw' in Headrace (did you mean crew?)" in " ".join(misspelt.split())
    assert up.run("pool", "set", "shore", "access/use=group:crew").stderr == ""
    assert f"{me}, in crew: may do everything, as an administrator" in up.run("pool", "explain", "shore").stdout
    assert "deleted" in up.run("group", "delete", "crew").stdout
    assert json.loads(up.run("group", "list", "--json").stdout) == {"groups": []}
    up.run("pool", "remove", "shore")


def exported(up: Up) -> Any:
    return json.loads(up.run("pool", "export", "--json").stdout)["pools"]


def test_attributes_are_set_by_name_by_part_and_by_alias(up: Up) -> None:
    up.run("pool", "create", "lab", "weight=2", "max_operation_count=7", "abc={id=1}")
    up.run(
        "pool", "set", "lab", "integral_guarantees/resource_flow={cpu=1}", "integral_guarantees.guarantee_type=burst"
    )
    done = up.run("pool", "set", "lab", "min_share_resources=cpu=1,memory=1G", "weight=")

    assert "burst pool lab has no burst_guarantee_resources" in done.stderr
    assert exported(up)["lab"] == {
        "strong_guarantee_resources": {"cpu": 1, "memory": "1GiB"},
        "integral_guarantees": {"guarantee_type": "burst", "resource_flow": {"cpu": 1}},
        "max_operation_count": 7,
        "abc": {"id": 1},
    }
    up.run("pool", "remove", "lab")


@pytest.mark.parametrize(
    ("words", "said", "status"),
    [
        (("total_operation_count=5",), "did you mean max_operation_count?", 2),
        (("weight=0", "mode=x"), "2 values cannot be used", 2),
        (("wieght=1",), "did you mean weight?", 2),
        (("max_running=3",), "did you mean max_running_operation_count?", 2),
        (("weight",), "key=value", 2),
        (("max_running_operation_count=3", "max_operation_count=2"), "/box has 3, more than its", 4),
        (("config_preset=gone",), "there is no preset gone: the tree has no presets", 4),
    ],
)
def test_what_is_wrong_is_told_before_or_when_it_is_asked(
    up: Up, words: tuple[str, ...], said: str, status: int
) -> None:
    if "box" not in exported(up):
        up.run("pool", "create", "box")

    assert said in up.run("pool", "set", "box", *words, expect=status).stderr
    assert exported(up)["box"] == {}


def test_a_dry_run_shows_figures_and_broken_rules_and_changes_nothing(up: Up, tmp_path: Path) -> None:
    up.run("pool", "create", "top", "strong_guarantee_resources/cpu=1")
    file = tmp_path / "pools.yaml"
    file.write_text("pools: {top: {strong_guarantee_resources: {cpu: 2}, pools: {new: {weight: 3}}}}")
    before = exported(up)
    good = up.run("pool", "import", str(file), "--keep", "--dry-run")
    file.write_text("pools: {top: {mode: fifo, pools: {a: {weight: 0, strong_guarantee_resources: {cpu: 2}}}}}")
    bad = up.run("pool", "import", str(file), "--keep", "--dry-run", expect=4)
    refused = up.run("pool", "import", str(file), "--keep", expect=4)

    assert '    strong_guarantee_resources: {"cpu":1} -> {"cpu":2}' in good.stdout.splitlines()
    assert "+ /top/new" in good.stdout
    for said in (bad.stderr, refused.stderr):
        assert "3 rules are broken" in said
        assert "pools.a.weight: 0 cannot be used" in said
        assert "/top is a fifo pool, but has the child pools a" in said
        assert "/top/a has a guarantee of 2 cpu, but its parent /top has no guarantee of cpu" in said
    assert exported(up) == before
    up.run("pool", "remove", "top")


def test_what_was_exported_is_imported_and_a_file_takes_away_what_it_does_not_name(up: Up, tmp_path: Path) -> None:
    up.run("pool", "create", "one", "weight=2")
    up.run("pool", "create", "two", "--parent", "one", "mode=fifo")
    file = tmp_path / "pools.yaml"
    file.write_text(up.run("pool", "export", "--options").stdout)
    before = exported(up)

    assert "nothing changes" in up.run("pool", "import", str(file), "--dry-run").stdout
    up.run("pool", "move", "two", "--parent", "<Root>")
    up.run("pool", "rename", "two", "three")
    up.run("pool", "set", "one", "weight=5")
    again = up.run("pool", "import", str(file)).stdout

    assert "- /three" in again
    assert "+ /one/two" in again
    assert exported(up) == before
    up.run("pool", "remove", "one", "--recursive")


def test_an_import_that_takes_much_away_is_confirmed_first(up: Up, tmp_path: Path) -> None:
    for name in exported(up):
        up.run("pool", "remove", name, "--recursive")
    for name in ("one", "two", "three"):
        up.run("pool", "create", name)
    file = tmp_path / "pools.yaml"
    file.write_text("pools: {one: {}}")
    before = exported(up)
    asked = up.run("pool", "import", str(file), expect=4)
    looked = up.run("pool", "import", str(file), "--dry-run")

    for done in (asked, looked):
        assert {"- /two", "- /three"} <= set(done.stdout.splitlines())
        assert "2 of 3 pools are removed: three, two" in done.stderr
    assert "add --yes to confirm" in asked.stderr
    assert exported(up) == before
    operation = up.start_operation("--pool", "two", "--", "sleep", "600")
    file.write_text("pools: {one: {}, three: {}}")
    in_use = up.run("pool", "import", str(file), expect=4)
    assert "1 of 3 pools are removed: two; 1 operation continues" in " ".join(in_use.stderr.split())
    up.run("pool", "import", str(file), "--yes")
    assert set(exported(up)) == {"one", "three"}
    assert '"two"' in up.run("op", "get", operation, "--json").stdout
    up.run("op", "abort", operation)
    up.run("pool", "import", str(file), "--yes")
    for name in ("one", "three"):
        up.run("pool", "remove", name)


def test_guarantees_are_given_from_pool_to_pool(up: Up) -> None:
    up.run("pool", "create", "giver", "strong_guarantee_resources/cpu=2")
    up.run("pool", "create", "taker")
    up.run("pool", "transfer", "giver", "taker", "strong_guarantee_resources/cpu=0.5")
    refused = up.run("pool", "transfer", "giver", "taker", "max_operation_count=1", expect=4)

    assert exported(up)["giver"] == {"strong_guarantee_resources": {"cpu": 1.5}}
    assert exported(up)["taker"] == {"strong_guarantee_resources": {"cpu": 0.5}}
    assert "at most what /giver has; none is set" in refused.stderr
    up.run("pool", "remove", "giver")
    up.run("pool", "remove", "taker")


def test_trees_are_made_listed_changed_and_removed(up: Up) -> None:
    up.run("tree", "create", "gpu", "main_resource=gpu", "node_filter=gpu")
    up.run("tree", "set", "gpu", "integral_guarantees/smooth_period=30s")
    up.run("pool", "create", "leaving", "weight=2")
    up.run("pool", "move", "leaving", "--tree", "gpu")
    shown = up.run("tree", "get", "gpu").stdout
    listed = {tree["tree"]: tree["pools"] for tree in json.loads(up.run("tree", "list", "--json").stdout)["trees"]}

    assert ["integral_guarantees", "{smooth_period:", "30s}"] in [line.split() for line in shown.splitlines()]
    assert listed["gpu"] == 1
    assert "leaving" not in exported(up)
    assert "did you mean gpu?" in up.run("tree", "get", "gup", expect=4).stderr
    assert (
        "is less than fair_share_starvation_timeout, 200000 ms"
        in up.run("tree", "set", "gpu", "fair_share_starvation_timeout=200s", expect=4).stderr
    )
    assert "is a tree with 1 pools" in up.run("tree", "remove", "gpu", expect=4).stderr
    up.run("tree", "remove", "gpu", "--recursive")
    assert "gpu" not in up.run("tree", "list").stdout


def test_what_can_be_set_is_listed_without_a_running_headrace(up: Up) -> None:
    rows = json.loads(up.run("pool", "attributes", "resource_flow", "--json").stdout)["attributes"]

    assert [row["name"] for row in rows] == ["integral_guarantees/resource_flow"]
    assert "preemption_satisfaction_threshold" in up.run("tree", "options", "satisfaction").stdout


def node_states(up: Up) -> list[str]:
    return [node["state"] for node in json.loads(up.run("node", "list", "--json").stdout)["nodes"]]


def wait_for_states(up: Up, states: list[str]) -> None:
    wait_until(lambda: node_states(up) == states)


def wait_until(is_so: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.1)


def test_a_node_filter_leaves_nodes_out_and_lets_them_in_again(up: Up) -> None:
    up.run("tree", "set", "default", "node_filter=ssd & !old")
    wait_for_states(up, ["outside"])
    up.run("tree", "set", "default", "node_filter=")
    wait_for_states(up, ["online"])

    assert "node_filter" in up.run("tree", "set", "default", "node_filter=ssd &", expect=2).stderr


def test_a_tree_that_requires_isolation_gives_nothing_to_a_node_without_and_says_why_to_everybody(up: Up) -> None:
    up.run("tree", "set", "default", "require_isolation=true")
    wait_for_states(up, ["unisolated"])
    (allocator,) = (each for each in up.processes() if each.role == "allocator")
    os.kill(allocator.pid, signal.SIGKILL)
    operation = up.start_operation("--", "true")
    wait_for_states(up, ["unisolated"])

    told = f"the tree requires isolation (require_isolation), and the node has none: {WITHOUT_ISOLATION}"
    (node,) = json.loads(up.run("node", "list", "--json").stdout)["nodes"]
    assert (node["isolation"], node["isolation_detail"], node["left_out"]) == ("none", WITHOUT_ISOLATION, told)
    shown = [" ".join(line.split()) for line in up.run("node", "get", "alpha").stdout.splitlines()]
    assert f"isolation none: {WITHOUT_ISOLATION}" in shown
    assert told in " ".join(up.run("node", "get", "alpha").stdout.split())
    said = " ".join(up.run("op", "explain", operation).stdout.split())
    assert f"the tree requires isolation, and alpha has none: {WITHOUT_ISOLATION}" in said
    log = up.state / "logs" / "agent-alpha.log"
    wait_until(lambda: any("left out by the tree" in line and told in line for line in log.read_text().splitlines()))
    up.run("tree", "set", "default", "require_isolation=false")
    up.run("op", "wait", operation)


def test_pools_and_operations_show_their_shares(up: Up) -> None:
    up.run("pool", "create", "studio", "--guarantee", "cpu=1")
    operation = up.start_operation("--pool", "studio", "--", "sleep", "1000")

    assert "─ studio" in up.run("pool", "tree").stdout
    assert operation in up.run("pool", "tree", "--operations").stdout
    assert json.loads(up.run("pool", "tree", "--json").stdout)["pools"][0]["name"] == "<Root>"
    assert "  integral part" in up.run("pool", "get", "studio").stdout
    assert re.search(r"^fair share +cpu \d", up.run("op", "get", operation).stdout, re.MULTILINE)
    assert "  integral part" in up.run("op", "get", operation, "--shares").stdout
    assert json.loads(up.run("op", "get", operation, "--json").stdout)["share"]["parent"] == "studio"
    up.run("op", "abort", operation)


def test_a_pool_shows_which_options_of_starvation_and_preemption_are_in_force_and_where_they_come_from(up: Up) -> None:
    up.run("pool", "create", "patient", "fair_share_starvation_timeout=90s")
    up.run("pool", "create", "/patient/most-patient", "preemption_exempt_time=5m")

    def lines(pool: str) -> list[str]:
        return [" ".join(line.split()) for line in up.run("pool", "get", pool).stdout.splitlines()]

    wait_until(lambda: "fair_share_starvation_timeout 90s own" in lines("patient"))
    wait_until(lambda: "preemption_exempt_time 5m own" in lines("most-patient"))
    assert "fair_share_starvation_timeout 90s pool patient" in lines("most-patient")
    assert "allocation_preemption_timeout 10s default" in lines("most-patient")
    assert not any(line.endswith(" own") for line in lines("/"))


def test_it_is_told_when_an_operation_that_waits_and_its_pool_will_starve(up: Up) -> None:
    up.run("pool", "create", "greedy")
    up.run("pool", "create", "short")
    options = "allocation_count_preemption_timeout_coefficient", "fair_share_starvation_timeout"
    up.run("tree", "set", "default", f"{options[0]}=10", f"{options[1]}=100s")
    greedy = up.start_operation("--pool", "greedy", "--jobs", "2", "--cpu", "1", "--", "sleep", "1000")
    wait_until(lambda: "2 running" in up.run("op", "get", greedy).stdout)
    operation = up.start_operation("--pool", "short", "--jobs", "5", "--cpu", "1", "--", "sleep", "1000")

    def outlooks(*words: str) -> list[dict[str, Any]]:
        answer = json.loads(up.run(*words, "--json").stdout)
        found: list[dict[str, Any]] = answer.get("trees", {}).get("default", answer)["starvation_outlooks"]
        return found

    def told_after_ms(*words: str) -> list[tuple[str, int]]:
        """Names, with the time from the first update below the fair share to the moment at which each starves."""
        moments = (
            (each["starves_for_fair_share_at_ms"], each["below_fair_share_since_ms"]) for each in outlooks(*words)
        )
        names = [each["name"] for each in outlooks(*words)]
        return [(name, (at_ms or 0) - since_ms) for name, (at_ms, since_ms) in zip(names, moments, strict=True)]

    wait_until(lambda: told_after_ms("op", "explain", operation) == [(operation, 50_001), ("short", 100_001)])
    assert told_after_ms("op", "get", operation) == [(operation, 50_001), ("short", 100_001)]
    assert told_after_ms("pool", "get", "short") == [("short", 100_001)]
    for words in (("op", "explain", operation), ("op", "get", operation), ("pool", "get", "short")):
        lines = [" ".join(line.split()) for line in up.run(*words).stdout.splitlines()]
        assert any(line.startswith("below fair share for ") and "; it starves in " in line for line in lines)
        assert any(line.startswith("pool short below its fair share for ") for line in lines) == (words[0] == "op")
    up.run("op", "abort", operation)
    up.run("op", "abort", greedy)
    up.run("tree", "set", "default", f"{options[0]}=1", f"{options[1]}=30s")
