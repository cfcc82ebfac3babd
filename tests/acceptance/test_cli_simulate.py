"""`headrace simulate`, typed without a running Headrace."""

from __future__ import annotations

import csv
import gzip
import re
import signal
import time
from pathlib import Path

import msgspec
import psutil
import pytest

from headrace.wire.simulation import Simulation
from tests.support.headrace_up import Up
from tests.support.typed_pages import typed

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "try-your-workload.md"
NODES = ("--nodes", "1:cpu=4,memory=8G")
#: Ten jobs of two users on a node with four cores.
TABLE = "name,user,account,submit,run,cpu,memory,wait\n" + "".join(
    f"{user}-{number},{user},{account},{number * every},{run},{cpu},1G,5\n"
    for user, account, every, run, cpu in (("ann", "research", 10, 60, 2), ("bob", "adhoc", 15, 30, 1))
    for number in range(5)
)
SACCT = (
    "JobID|User|Group|Account|Partition|Submit|Start|End|ElapsedRaw|State|AllocCPUS|NNodes|ReqMem|AllocTRES|TimelimitRaw\n"
    + "".join(
        f"{number}|{user}|users|{account}|main|2026-10-01T10:00:0{number}|2026-10-01T10:05:00|2026-10-01T10:06:00|60|COMPLETED|2|1|2G||10\n"
        for number, (user, account) in enumerate((("anna", "research"), ("bob", "adhoc")) * 4)
    )
)


@pytest.fixture
def up(tmp_path: Path) -> Up:
    """Where commands are typed. Nothing of Headrace runs."""
    (tmp_path / "jobs.csv").write_text(TABLE)
    return Up(state=tmp_path)


def test_a_table_of_jobs_is_simulated_under_two_configurations(up: Up) -> None:
    (up.state / "pools.yaml").write_text("pools: {research: {weight: 3}, adhoc: {}}\n")
    words = ("simulate", "jobs.csv", *NODES, "--compare", "pools.yaml", "--jobs", "out.csv", "--report", "page.html")
    done = up.run(*words, "--json")
    answer = msgspec.json.decode(done.stdout, type=Simulation)
    with (up.state / "out.csv").open() as file:
        rows = list(csv.DictReader(file))

    assert [each.name for each in answer.setups] == ["native", "pools"]
    assert [each.cluster.completed for each in answer.setups] == [10, 10]
    assert (answer.jobs, answer.recorded and answer.recorded.median_ms) == (10, 5_000)
    assert [row["job"] for row in rows if row["configuration"] == "pools"].count("ann-3") == 1
    assert next(row["submitted"] for row in rows if row["job"] == "bob-2") == "30"
    assert all(float(row["ended"]) > float(row["started"]) >= float(row["submitted"]) for row in rows)
    assert re.search(r"^simulated 100 % \((native|pools): ", done.stderr, re.MULTILINE)
    assert (up.state / "page.html").read_text().count("<svg") > 2
    assert sorted(path.name for path in up.state.iterdir()) == ["jobs.csv", "out.csv", "page.html", "pools.yaml"]


@pytest.mark.long
def test_the_same_workload_gives_the_same_bytes_however_it_is_read(up: Up) -> None:
    (up.state / "jobs.gz").write_bytes(gzip.compress(TABLE.encode()))
    first = up.run("simulate", "jobs.csv", *NODES, "--json").stdout

    assert up.run("simulate", "jobs.csv", *NODES, "--json").stdout == first
    assert up.run("simulate", "jobs.gz", *NODES, "--json").stdout == first
    table = up.run("simulate", "jobs.csv", *NODES, "--policy", "native,yarn,fifo").stdout
    assert table.startswith("table: 10 jobs of 2 users on 1 node with 4 cores")
    assert all(re.search(rf"^{name} +\d", table, re.MULTILINE) for name in ("native", "yarn", "fifo"))
    assert re.search("^recorded +–", table, re.MULTILINE)


@pytest.mark.long
def test_files_that_cannot_be_used_are_refused_with_their_names(up: Up) -> None:
    (up.state / "half.gz").write_bytes(gzip.compress(TABLE.encode())[:40])
    (up.state / "nothing").write_text("")

    def refused(*words: str) -> str:
        return up.run("simulate", *words, expect=2).stderr

    assert "no-such.csv: the file cannot be used: No such file or directory" in refused("no-such.csv", *NODES)
    assert ".: the file cannot be used: Is a directory" in refused(".", *NODES)
    assert "half.gz: the file cannot be used: Compressed file ended" in refused("half.gz", "--format", "table", *NODES)
    assert "nothing: the format cannot be recognized" in refused("nothing", *NODES)
    assert "--nodes: the workload (table) has no nodes" in refused("jobs.csv")
    assert "no-such.yaml" in refused("jobs.csv", *NODES, "--pools", "no-such.yaml")
    assert "--kept-fraction" in refused("jobs.csv", *NODES, "--kept-fraction", "2")
    assert "--report" in refused("jobs.csv", *NODES, "--report", "no-such/page.html")
    assert "a file in a folder that exists" in refused("jobs.csv", *NODES, "--jobs", "no-such/out.csv")
    assert "--report: '.'" in refused("jobs.csv", *NODES, "--report", ".")


@pytest.mark.long
def test_damaged_lines_are_counted_and_strict_refuses_them(up: Up) -> None:
    (up.state / "jobs.csv").write_bytes(TABLE.encode() + b"x,ann,research,soon,1,1,1G,\n\xff,ann\n")
    said = up.run("simulate", "jobs.csv", *NODES, "--jobs", "out.csv").stdout
    (up.state / "out.csv").unlink()
    strict = up.run("simulate", "jobs.csv", *NODES, "--strict", "--jobs", "out.csv", expect=2).stderr

    assert "damaged: 2 lines (line 12: " in said
    assert "jobs.csv, line 12: " in strict
    assert "2 lines cannot be read" in strict
    assert not (up.state / "out.csv").exists()


@pytest.mark.long
def test_ctrl_c_ends_the_simulation_and_leaves_nothing(up: Up) -> None:
    asking = up.begin("simulate", "jobs.csv", *NODES, "--jobs", "out.csv", "--report", "page.html")
    itself = psutil.Process(asking.pid)
    while not (simulating := [each for each in itself.children() if "headrace_simulator" in each.cmdline()]):
        time.sleep(0.005)
    while not (up.state / "out.csv.new").exists():
        time.sleep(0.005)
    simulating[0].suspend()
    asking.send_signal(signal.SIGINT)

    assert asking.wait() == 130
    assert not simulating[0].is_running()
    assert "Traceback" not in asking.communicate()[1]
    assert [path.name for path in up.state.iterdir()] == ["jobs.csv"]


@pytest.mark.long
def test_all_processes_of_a_simulation_end_with_a_command_that_is_killed(up: Up) -> None:
    (up.state / "jobs.csv").write_text("submit,run\n" + "".join(f"{n},{n % 97}\n" for n in range(20_000)))
    asking = up.begin("simulate", "jobs.csv", *NODES, "--policy", "native,fifo")
    itself = psutil.Process(asking.pid)
    while len(simulating := itself.children(recursive=True)) < (3 if len(itself.cpu_affinity()) > 1 else 1):
        time.sleep(0.01)
    asking.kill()
    asking.communicate()

    assert asking.returncode == -signal.SIGKILL
    assert psutil.wait_procs(simulating, timeout=60)[1] == []


@pytest.mark.long
def test_a_month_of_slurm_is_simulated_as_the_page_says(up: Up) -> None:
    (up.state / "last-month.txt").write_text(SACCT)
    said = typed(up, PAGE)

    assert len(said) == 6
    assert all("sacct: 8 jobs of 2 users on 2 nodes with 8 cores" in each for each in said.values())
    assert (up.state / "report.html").read_text().startswith("<!doctype html>")
    with (up.state / "jobs.csv").open() as file:
        assert {(row["user"], row["pool"]) for row in csv.DictReader(file)} == {("anna", "vision"), ("bob", "adhoc")}
