"""`headrace run --dry-run`, typed at a running Headrace: it tells what would become of a start, and nothing is recorded."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from random import randbytes
from typing import Any

import pytest

from tests.support.headrace_up import Up

pytestmark = pytest.mark.long

TRUE = ("--", "true")


@pytest.fixture(scope="module")
def up() -> Iterator[Up]:
    running = Up(nodes=("alpha:cpu=4,memory=4G", "beta:cpu=2,memory=4G"))
    running.environment["HEADRACE_ADMISSION_MOST_ARCHIVE_BYTES"] = "1000000"
    with running:
        running.run("pool", "create", "research")
        running.run("pool", "create", "busy", "max_running_operation_count=1")
        running.run("pool", "create", "closed", "max_operation_count=0")
        running.run("pool", "create", "small", "resource_limits/cpu=2")
        running.run("run", "--pool", "busy", "--jobs", "4", "--id", "of-busy-0001", "--", "sleep", "600")
        yield running


@pytest.fixture(autouse=True)
def _nothing_is_recorded(up: Up) -> Iterator[None]:
    def all_there_is() -> list[object]:
        pools = json.loads(up.run("pool", "list", "--json").stdout)["pools"]
        operations = json.loads(up.run("op", "list", "--json").stdout)["operations"]
        lines = up.run("service", "figures", "admission").stdout.splitlines()
        archives = [line.split() for line in lines if "archive" in line]
        return [archives, [each["name"] for each in pools], [each["operation"] for each in operations]]

    before = all_there_is()
    yield
    assert all_there_is() == before


def tried(up: Up, *words: str) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(up.run("run", "--dry-run", "--json", *words, *TRUE).stdout)
    return answer


@pytest.mark.long
def test_the_pool_the_nodes_and_the_shares_before_and_after_are_told(up: Up) -> None:
    words = ("--pool", "research", "--jobs", "8")
    told = tried(up, *words)
    said = up.run("run", "--dry-run", *words, *TRUE)

    assert [(each["pool"], each["waiting"]) for each in told["places"]] == [("research", None)]
    here = told["trees"]["default"]
    assert here["fit"]["nodes"]["large_enough"] == 2
    assert here["fit"]["jobs_at_once"] == 6
    shares = {each["name"]: each for each in here["shares"]["elements"]}
    assert shares["research"]["before"]["fair_resources"]["cpu"] == 0
    assert shares["research"]["after"]["fair_resources"]["cpu"] == 3
    assert "2 take jobs, 2 could ever run a job" in said.stdout
    assert "supposed-1 (new)" in said.stdout
    assert "dry run: nothing was recorded" in said.stderr


def test_the_limit_that_it_would_wait_for_is_named_with_its_place(up: Up) -> None:
    told = tried(up, "--pool", "busy")
    said = up.run("run", "--dry-run", "--pool", "busy", *TRUE).stdout

    (waiting,) = [each["waiting"] for each in told["places"]]
    assert (waiting["blocked_by"], waiting["running"], waiting["limit"], waiting["place"]) == ("busy", 1, 1, 1)
    assert "1 of 1 operations run in busy" in said
    supposed = next(each for each in told["trees"]["default"]["shares"]["elements"] if each["name"] == "supposed-1")
    assert supposed["after"]["fair_resources"]["cpu"] == 0


def test_an_ephemeral_pool_that_would_be_made_is_told_and_the_nearest_name(up: Up) -> None:
    told = tried(up, "--pool", "reserch")
    said = up.run("run", "--dry-run", "--pool", "reserch", *TRUE)

    assert told["places"][0]["made"][0]["name"] == "reserch"
    assert told["near"] == ["research"]
    assert "reserch (ephemeral" in said.stdout
    assert "did you mean research" in said.stderr


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (("--pool", "closed"), 4, "max_operation_count"),
        (("--pool", "nowhere", "--existing-pool"), 4, "no pool 'nowhere'"),
        (("--pool-tree", "nowhere"), 4, "no tree 'nowhere'"),
        (("--id", "of-busy-0001", "--jobs", "9"), 4, "exists already"),
        (("--jobs", "0"), 2, "--jobs"),
        (("--pool", "<Root>"), 4, "below the root"),
    ],
)
def test_what_would_be_refused_is_refused_as_the_start_is(
    up: Up, words: tuple[str, ...], status: int, said: str
) -> None:
    tried = up.run("run", "--dry-run", *words, *TRUE, expect=None)
    real = up.run("run", *words, *TRUE, expect=None)

    assert said in tried.stderr
    assert (tried.returncode, tried.stderr) == (status, real.stderr)
    assert real.returncode == status


def test_jobs_that_no_node_could_ever_run_are_told_so(up: Up) -> None:
    told = tried(up, "--pool", "research", "--cpu", "5")
    said = up.run("run", "--dry-run", "--pool", "research", "--cpu", "5", *TRUE).stdout

    assert [each["kind"] for each in told["trees"]["default"]["fit"]["causes"]] == ["larger_than_every_node"]
    after = {each["name"]: each["after"] for each in told["trees"]["default"]["shares"]["elements"]}
    assert after["supposed-1"]["fair_resources"]["cpu"] == after["research"]["fair_resources"]["cpu"] == 0
    assert "0 could ever run a job" in said
    assert "each job is larger than every node" in said


def test_a_gang_is_told_whether_it_can_ever_start(up: Up) -> None:
    gang = ("run", "--dry-run", "--gang")
    fits = up.run(*gang, "--pool", "research", "--jobs", "6", *TRUE).stdout
    too_many = up.run(*gang, "--pool", "research", "--jobs", "7", *TRUE).stdout
    over_the_limit = up.run(*gang, "--pool", "small", "--jobs", "3", *TRUE).stdout

    assert "a gang: all at once or none" in fits
    assert "cannot start" not in fits
    assert (
        "a gang of 7 jobs that cannot start, even if all other jobs end: "
        "all nodes that take its jobs together have resources for 6 of its jobs" in too_many
    )
    assert (
        "a gang of 3 jobs that cannot start, even if all other jobs end: resource_limits of pool small allow 2 of its jobs"
        in over_the_limit
    )


def test_a_gang_beside_other_tasks_is_told_whether_it_can_ever_start(up: Up, tmp_path: Path) -> None:
    (tmp_path / "mixed.yaml").write_text(
        "pool: research\ntasks:\n  many: {command: [x], jobs: 9}\n"
        "  train: {command: [x], jobs: 7, gang: true}\n  serve: {command: [x], gang: true}\n"
    )
    words = ("run", "--dry-run", "--spec", str(tmp_path / "mixed.yaml"))
    said, told = up.run(*words).stdout, json.loads(up.run(*words, "--json").stdout)

    assert "all jobs of train, serve at once or none" in said
    assert (
        "a gang of 8 jobs (tasks train, serve) that cannot start, even if all other jobs end: "
        "all nodes that take its jobs together have resources for 6 of its jobs" in said
    )
    after = {each["name"]: each["after"] for each in told["trees"]["default"]["shares"]["elements"]}
    assert after["supposed-1"]["fair_resources"]["cpu"] > 0


def test_files_are_weighed_and_not_sent(up: Up, tmp_path: Path) -> None:
    (tmp_path / "work.sh").write_text("echo work")

    said = up.run("run", "--dry-run", "--upload", str(tmp_path), "--", "sh", "work.sh")
    (tmp_path / "data").write_bytes(randbytes(2_000_000))
    too_large = up.run("run", "--dry-run", "--upload", str(tmp_path), "--", "sh", "work.sh", expect=4)

    assert "1 file would be sent" in said.stderr
    assert "bytes of archives of all users are stored already" in too_large.stderr


@pytest.mark.long
def test_what_can_never_run_is_warned_of_where_it_is_started() -> None:
    with Up(nodes=("alpha:cpu=2",)) as up:
        # The first operation that there is: what bounds a gang is known only once its own shares are.
        said = up.run("run", "--gang", "--jobs", "3", "--id", "three-workers", *TRUE).stderr
        quiet = up.run("run", "--gang", "--jobs", "2", *TRUE).stderr
        up.run("op", "explain", "three-workers")
        too_large = up.run("run", "--cpu", "3", *TRUE).stderr
        nowhere = up.run("run", "--node-filter", "ssd", *TRUE).stderr
        up.run("pool", "create", "small", "resource_limits/cpu=1")
        above = up.run("run", "--pool", "root.small", "--cpu", "2", *TRUE).stderr
        fits = up.run("run", "--pool", "root.small", "--cpu", "1", *TRUE).stderr
        unknown = up.run("run", "--pool", "root.small.one", *TRUE, expect=4).stderr

    assert (
        "warning: a gang of 3 jobs that cannot start, even if all other jobs end: all nodes that take its jobs together "
        "have resources for 2 of its jobs"
    ) in said
    assert "add nodes or larger nodes" in said
    assert "warning: each job is larger than every node: it asks for cpu 3 (the most any node has is 2)" in too_large
    assert "warning: no node matches ssd" in nowhere
    assert (
        "warning: each job is larger than resource_limits of pool small: it asks for cpu 2, and at most cpu 1" in above
    )
    assert "warning" not in fits
    assert "there is no pool '/small/one'" in unknown
    assert "warning" not in quiet
