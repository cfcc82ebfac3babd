"""Pages whose commands can be typed from top to bottom: each does what the page says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from docs.generate.readme_capture import captured, shown, steady
from tests.support.headrace_up import Up
from tests.support.typed_pages import table_lines, typed, typed_lines

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
LAPTOP = ("alpha:cpu=4,memory=4G",)


def until_owed(up: Up) -> Callable[[str], None]:
    """Waits, before shares are looked at, until each operation that was started is owed some."""

    def wait(line: str) -> None:
        words = line.split()
        if words[:2] == ["run", "--id"]:
            for _ in range(200):
                share = msgspec.json.decode(up.run("op", "get", words[2], "--json").stdout)["share"]
                if share and share["fair_share"]["total"]["cpu"]:
                    return
            raise AssertionError(f"{words[2]} is owed nothing")

    return wait


def test_the_readme_leads_to_an_operation_and_its_log() -> None:
    with Up(nodes=LAPTOP) as up:
        said = typed(up, ROOT / "README.md")

    assert said["op logs first-steps --job 7"] == "job 7\n"
    assert "completed: 20 of 20 jobs" in said["op wait first-steps"]


@pytest.mark.long
def test_the_first_tree_of_pools_has_the_shares_that_the_page_shows() -> None:
    page = DOCS / "how-to" / "first-pool-tree.md"
    with Up(nodes=LAPTOP) as up:
        said = typed(up, page, until_owed(up))

    shown = page.read_text().partition("fair share  demand\n")[2].partition("```")[0]
    shares = {line.split()[-5]: line.split()[-2] for line in said["pool tree"].splitlines()}
    assert len(shown.splitlines()) == 5
    for line in shown.splitlines():
        assert shares[line.split()[-5]] == line.split()[-2]


@pytest.mark.long
def test_arrays_are_run_as_the_page_says() -> None:
    with Up(nodes=LAPTOP) as up:
        said = typed(up, DOCS / "how-to" / "run-an-array.md")

    assert said["op logs array-one --job 7"] == "part 7 of 12\n"
    assert said["op logs array-two --job 1"] == "found river\n"
    assert "failed" in said["op get array-four --jobs"]


@pytest.mark.long
def test_what_jobs_used_is_shown_as_the_page_says() -> None:
    with Up(nodes=LAPTOP) as up:
        said = typed(up, DOCS / "how-to" / "ask-for-what-you-use.md")

    assert "asked for 512 MiB, used at most" in said["op efficiency guess"]
    assert "suggestion  headrace run --memory " in said["op efficiency guess"]
    assert "guess" in said["op list --sort unused-memory --limit 10"]


@pytest.mark.long
def test_usage_is_added_up_as_the_page_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with Up(nodes=LAPTOP) as up:
        said = typed(up, DOCS / "how-to" / "usage.md")

    assert ",2,2," in said["usage --by user,pool --since 30d --csv"]
    assert "counted" in said["usage --by day,operation --since 7d"]
    assert "cost, EUR" in said["usage --by tree --cost"]


@pytest.mark.long
def test_operations_run_after_others_as_the_page_says() -> None:
    with Up(nodes=LAPTOP) as up:
        said = typed(up, DOCS / "how-to" / "run-after.md")

    assert "it waits for the end of train-one" in said["op explain report-one"]
    assert "completed" in said["op wait report-one"]
    assert "operation train-two is failed" in said["op get report-two"]
    assert said["op logs merge-one --job 3"] == "part 3\n"


@pytest.mark.long
def test_groups_are_made_and_used_as_the_page_says() -> None:
    with Up(nodes=LAPTOP) as up:
        said = typed(up, DOCS / "how-to" / "groups.md")

    assert "did you mean research?" in next(text for line, text in said.items() if line.startswith("group get reserch"))
    assert "may do everything, as an administrator" in said["pool explain lab"]


@pytest.mark.long
def test_every_command_beside_one_of_slurm_does_what_it_says() -> None:
    with Up(nodes=LAPTOP) as up:
        said = typed_lines(up, table_lines((DOCS / "how-to" / "come-from-slurm.md").read_text()))

    assert len(said) > 30
    (refused,) = [text for line, text in said.items() if line.startswith("op explain array-one")]
    assert "array-one" in refused


@pytest.mark.long
def test_every_question_is_answered_by_the_command_beside_it() -> None:
    page = ROOT / "docs" / "questions.md"
    with Up(nodes=LAPTOP) as up:
        typed(up, page)
        said = typed_lines(up, table_lines(page.read_text()))

    assert "resource_limits of pool students" in said["op explain theirs-one"]
    assert "mine-one" in said["op get mine-one --jobs"]


@pytest.mark.long
def test_troubles_starts_and_stops_and_the_command_line_are_as_the_pages_say() -> None:
    with Up(nodes=LAPTOP) as up:
        said: dict[str, str] = {}
        for page in ("how-to/troubles.md", "how-to/start-and-stop.md", "reference/command-line.md"):
            said |= typed(up, DOCS / page)

    assert said["op logs fails-once --stderr"] == "no model found\n"
    assert "larger than" in said["op explain too-large"]
    assert msgspec.json.decode(said["node list --json"])


@pytest.mark.long
def test_taking_a_host_out_and_holding_jobs_back_is_as_the_page_says() -> None:
    with Up(nodes=("host-17:cpu=2,memory=2G",)) as up:
        said = typed(up, DOCS / "how-to/maintenance.md")

    (nodes,) = [text for line, text in said.items() if line.startswith("node list")]
    assert "drained" in nodes


@pytest.mark.long
def test_a_host_on_which_jobs_fail_is_shown_and_cleared_as_the_page_says() -> None:
    with Up(nodes=("host-17:cpu=2,memory=2G",)) as up:
        said = typed(up, DOCS / "how-to/failing-hosts.md")

    assert "jobs may start on it again" in said["node undrain host-17"]


@pytest.mark.long
def test_the_way_of_an_operation_is_traced_as_the_page_shows() -> None:
    with Up() as up:

        def until_it_is_over(line: str) -> None:
            if "--id slow-start" in line:
                up.run("op", "wait", "slow-start")

        said = typed(up, DOCS / "how-to/trace-a-slow-start.md", until_it_is_over)

    assert "start request" in said["trace slow-start"]


@pytest.mark.long
def test_fields_and_attributes_are_given_as_the_reference_shows() -> None:
    with Up() as up:
        up.run("pool", "create", "nightly")
        typed(up, DOCS / "reference/fields.md")
        up.run("pool", "create", "research", "integral_guarantees={guarantee_type=relaxed}")
        (up.state / "pools.yaml").write_text(up.run("pool", "export").stdout)
        typed(up, DOCS / "reference/pools.md")


@pytest.mark.long
def test_the_picture_in_the_readme_is_what_the_command_shows() -> None:
    assert steady(captured()) == steady(shown()), "run: make docs-capture"
