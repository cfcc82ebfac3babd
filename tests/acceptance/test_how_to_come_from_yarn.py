"""docs/how-to/come-from-yarn.md: the commands as they stand there, and what a person meets who imports a file of their own."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.headrace_up import Up
from tests.support.typed_pages import typed

pytestmark = pytest.mark.long

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "how-to" / "come-from-yarn.md"
SAMPLES = DOCS.parent / "tests" / "unit" / "yarn" / "files"
CODES = DOCS.parent / "services" / "headrace_cli" / "yarn"


@pytest.fixture(scope="module")
def up() -> Iterator[Up]:
    with Up(nodes=("alpha:cpu=4,memory=2G",)) as running:
        for name in ("fair-scheduler.xml", "yarn-site.xml"):
            shutil.copy(DOCS / "examples" / name, running.state)
        # A job runs only once the cluster has a size, of which percentages are taken.
        running.run("run", "--wait", "--", "true")
        yield running


def exported(up: Up) -> Any:
    return json.loads(up.run("pool", "export", "--options", "--json").stdout)


def test_every_command_of_the_page_does_what_it_says(up: Up) -> None:
    said = typed(up, PAGE)
    whole = "pool import fair-scheduler.xml --yarn-site yarn-site.xml"

    assert "+ /people" in said[f"{whole} --dry-run"]
    assert 'preemption_policy: "yarn"' in said[f"{whole} --dry-run"]
    assert "dry run: nothing was changed" in said[f"{whole} --dry-run"]
    for warning in (
        "warning: fair-scheduler.xml:9: W09 root.reports maxAMShare: ",
        "warning: fair-scheduler.xml:12: W02 root.people maxResources: a percentage becomes 1 GiB memory, 2 cpu",
        "warning: fair-scheduler.xml:14: W13 userMaxAppsDefault: ",
    ):
        assert warning in said[whole]
    assert exported(up)["pools"] == {
        "reports": {
            "weight": 3,
            "strong_guarantee_resources": {"cpu": 1, "memory": "512MiB"},
            "preemption": "off",
        },
        "people": {
            "weight": 1,
            "resource_limits": {"cpu": 2, "memory": "1GiB"},
            "create_ephemeral_subpools": True,
            "ephemeral_subpool_config": {"max_running_operation_count": 4},
        },
        "default": {"weight": 1},
    }
    options = exported(up)["options"]
    assert options["fair_share_starvation_timeout"] == "1m"
    assert options["yarn"] == {"enabled": True}  # 15 seconds are the default
    assert options["preemption_policy"] == "yarn"
    assert options["placement_rules"] == ["specified", "nested_user default people", "default"]
    assert options["use_pool_satisfaction_for_scheduling"] is True  # what the file says nothing of stays


def test_a_second_import_changes_nothing_and_an_operation_without_a_pool_runs_below_the_hub(up: Up) -> None:
    up.run("pool", "import", "fair-scheduler.xml", "--yarn-site", "yarn-site.xml")

    again = up.run("pool", "import", "fair-scheduler.xml", "--yarn-site", "yarn-site.xml")
    assert "nothing changes" in again.stdout
    operation = up.start_operation("--", "sleep", "60")
    pools = {each["name"]: each for each in json.loads(up.run("pool", "list", "--json").stdout)["pools"]}
    (own,) = [name for name, pool in pools.items() if pool["parent"] == "people"]
    assert own.startswith("people$")
    assert (
        f"{own} (ephemeral), by the placement rule `nested_user default people`"
        in up.run("op", "get", operation).stdout
    )
    up.run("op", "abort", operation)


def test_queues_of_policy_fair_share_memory_alone(up: Up) -> None:
    (up.state / "fair.xml").write_text(
        "<allocations><queue name='a'><weight>3</weight></queue><queue name='b'/></allocations>"
    )
    up.run("pool", "import", "fair.xml", "--yarn-site", "yarn-site.xml", "--yes")
    assert exported(up)["options"]["yarn"]["memory_only"] is True
    up.run("pause", "starts")
    # By cores b would have far more than its part; 8 jobs fill the memory.
    operations = [
        up.start_operation("--pool", pool, "--jobs", "20", "--cpu", cpu, "--memory", "256M", "--", "sleep", "600")
        for pool, cpu in (("a", "0.1"), ("b", "0.5"))
    ]
    up.run("resume", "starts")
    running = [0, 0]
    while sum(running) < 8:
        told = [json.loads(up.run("op", "get", each, "--json").stdout) for each in operations]
        running = [each["places"]["running_jobs"] if each["places"] else 0 for each in told]
    for each in operations:
        up.run("op", "abort", each)

    assert running == [6, 2]


def test_json_has_the_plan_and_the_warnings(up: Up) -> None:
    done = up.run("pool", "import", "fair-scheduler.xml", "--dry-run", "--json")
    plan = json.loads(done.stdout)

    assert [text.split()[1] for text in plan["warnings"] if text.startswith("fair-scheduler.xml:")] == [
        *("W16", "W09", "W02", "W13")
    ]
    assert plan["dry_run"] is True


def test_a_pool_that_the_file_does_not_name_is_taken_away_unless_it_is_kept(up: Up) -> None:
    up.run("pool", "create", "other")

    assert "- /other" in up.run("pool", "import", "fair-scheduler.xml", "--dry-run").stdout
    assert "- /other" not in up.run("pool", "import", "fair-scheduler.xml", "--dry-run", "--keep").stdout
    up.run("pool", "remove", "other")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "<allocations>\n<queue name='a'>\n<weight>heavy</weight></queue></allocations>",
            "bad.xml:3: root.a weight: heavy",
        ),
        (
            "<!DOCTYPE a [<!ENTITY b SYSTEM '/etc/hostname'>]><allocations>&b;</allocations>",
            "bad.xml:1: a document type",
        ),
        ("<configuration/>", "bad.xml:1: the top element is <configuration>; expected <allocations>"),
        (
            "<allocations>" + " " * 16 * 2**20 + "</allocations>",
            "is too large (16777243 bytes); expected at most 16 MiB",
        ),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_before_anybody_is_asked(up: Up, text: str, said: str) -> None:
    (up.state / "bad.xml").write_text(text)
    before = exported(up)

    assert said in up.run("pool", "import", "bad.xml", expect=2).stderr
    assert exported(up) == before


def test_a_site_file_goes_with_an_allocation_file_only_and_a_tree_must_be_there(up: Up) -> None:
    (up.state / "pools.yaml").write_text("pools: {}")

    done = up.run("pool", "import", "pools.yaml", "--yarn-site", "yarn-site.xml", expect=2)
    assert "Only a fair-scheduler.xml can be imported together with yarn-site.xml" in done.stderr
    assert up.run("pool", "import", "fair-scheduler.xml", "--tree", "nowhere", expect=None).returncode in (3, 4)


@pytest.mark.parametrize("name", sorted(each.name for each in SAMPLES.glob("*.xml")))
def test_files_of_others_are_taken_by_the_service_as_a_whole_and_once(up: Up, name: str) -> None:
    shutil.copy(SAMPLES / name, up.state)

    assert f"{name} is in force" in up.run("pool", "import", name, "--yes").stdout
    assert "nothing changes" in up.run("pool", "import", name).stdout


def test_every_code_that_there_is_stands_on_the_page() -> None:
    used = set(re.findall(r'"(W[0-9]{2})"', "".join(each.read_text() for each in CODES.glob("*.py"))))

    assert used == set(re.findall(r"W[0-9]{2}", PAGE.read_text().partition("## The codes")[2]))
