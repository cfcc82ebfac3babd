"""docs/how-to/workflows.md: its workflow of Snakemake runs, fails with a reason and is cancelled; its script for Nextflow runs."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import headrace
from headrace.resources import Resources
from headrace.wire.operations import OperationState, OperationView
from tests.support.headrace_up import Up

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "workflows.md"
SNAKEMAKE = [sys.executable, "-m", "snakemake", "--seconds-between-status-checks", "1"]


@pytest.fixture(scope="module")
def up() -> Iterator[Up]:
    with Up(nodes=("alpha:cpu=4,memory=4G",)) as running:
        yield running


def begun(up: Up, folder: Path, command: list[str]) -> subprocess.Popen[str]:
    environment = os.environ | {"HEADRACE_STATE": str(up.state), "HOME": str(folder)}
    return subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def operations(up: Up, title: str) -> list[OperationView]:
    with headrace.Client(state=up.state) as client:
        return [client.wait(view.operation) for view in client.list() if view.spec.title.startswith(title)]


@pytest.mark.long
def test_the_snakefile_of_the_page_runs_with_the_resources_of_its_rules(up: Up, tmp_path: Path) -> None:
    [snakefile] = re.findall(r"(?ms)^```snakemake\n(.*?)^```$", PAGE.read_text())
    [words] = re.findall(r"(?m)^\$ snakemake (.*)$", PAGE.read_text())
    (tmp_path / "Snakefile").write_text(snakefile)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "A.txt").write_text("one two\nthree\n")
    (tmp_path / "data" / "B.txt").write_text("four five\n")

    with begun(up, tmp_path, [*SNAKEMAKE, *words.split()]) as snakemake:
        said, _ = snakemake.communicate(timeout=120)

    assert snakemake.returncode == 0, said
    assert (tmp_path / "total.txt").read_text() == "5\n"
    counts, [total] = operations(up, "snakemake count"), operations(up, "snakemake total")
    assert [view.spec.resources for view in counts] == [Resources(user_slots=1, cpu=200, memory=400_000_000)] * 2
    assert {view.spec.time_limit_ms for view in counts} == {600_000}
    assert {view.spec.pool for view in (*counts, total)} == {"research"}
    assert len(list((tmp_path / ".snakemake" / "headrace_logs").iterdir())) == 3


@pytest.mark.long
def test_a_job_of_snakemake_that_fails_says_why_and_names_its_output(up: Up, tmp_path: Path) -> None:
    (tmp_path / "Snakefile").write_text("rule broken:\n    shell: 'echo last words; exit 3'\n")

    with begun(up, tmp_path, [*SNAKEMAKE, "--executor", "headrace", "--jobs", "1"]) as snakemake:
        said, _ = snakemake.communicate(timeout=120)

    [view] = operations(up, "snakemake broken")
    assert snakemake.returncode == 1
    assert f"operation {view.operation} is failed" in said
    [log] = (tmp_path / ".snakemake" / "headrace_logs").iterdir()
    assert str(log) in said
    assert "last words" in log.read_text()


@pytest.mark.long
def test_ctrl_c_aborts_the_operations_of_snakemake(up: Up, tmp_path: Path) -> None:
    (tmp_path / "Snakefile").write_text("rule endless:\n    shell: 'echo begun; sleep 600'\n")

    with begun(up, tmp_path, [*SNAKEMAKE, "--executor", "headrace", "--jobs", "1"]) as snakemake:
        assert snakemake.stdout is not None
        for line in snakemake.stdout:
            if "rule endless" in line:
                break
        with headrace.Client(state=up.state) as client:
            while not [view for view in client.list() if view.spec.title.startswith("snakemake endless")]:
                pass
        snakemake.send_signal(signal.SIGINT)
        snakemake.communicate(timeout=120)

    [view] = operations(up, "snakemake endless")
    assert view.state is OperationState.ABORTED
    assert "the workflow was cancelled" in view.reason


@pytest.mark.long
def test_the_script_for_nextflow_runs_a_task_as_an_operation(up: Up, tmp_path: Path) -> None:
    [script] = re.findall(r'(?ms)^    """\n(    headrace run.*?)    """$', PAGE.read_text())
    for written, value in {"task.cpus": "2", "task.memory.toMega()": "400", "words": "words.txt"}.items():
        assert f"${{{written}}}" in script
        script = script.replace(f"${{{written}}}", value)
    (tmp_path / "words.txt").write_text("one two three\n")
    # Nextflow reads two backslashes as one.
    (tmp_path / ".command.sh").write_text(script.replace("\\\\", "\\"))
    folder = str(Path(sys.executable).parent)

    with begun(
        up, tmp_path, ["env", f"PATH={folder}:{os.environ['PATH']}", "bash", "-ue", ".command.sh"]
    ) as script_run:
        said, _ = script_run.communicate(timeout=60)

    assert script_run.returncode == 0, said
    assert (tmp_path / "count.txt").read_text() == "3\n"
    sizes = [Resources(user_slots=1, cpu=200, memory=400 * 2**20)]
    assert [
        view.spec.resources for view in operations(up, "") if view.spec.argv[0] == "sh" and not view.spec.title
    ] == sizes
