"""docs/how-to/workflows.md: its recipes for Airflow run in Airflow itself, against a real `headrace up`."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

import headrace
from headrace.resources import Resources
from headrace.wire.operations import OperationState, OperationView
from tests.support.headrace_up import Up

ROOT: Final = Path(__file__).parents[2]
PINS: Final = Path(__file__).with_name("airflow.txt")
#: A virtual environment with Airflow, and Headrace beside it. It is kept for the next run.
VENV: Final = ROOT / "build" / "recipes" / "airflow"
PYTHON: Final = VENV / "bin" / "python"
DAG: Final = """\
import json
import sys

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG

{operator}
with DAG("recipe", schedule=None) as dag:
    in_shell = {in_shell}
    as_operator = {as_operator}
    reader = BashOperator(task_id="reader", bash_command="echo {{{{ ti.xcom_pull('count') }}}} > {folder}/read")
    as_operator >> reader

if __name__ == "__main__":
    run = dag.test()
    print("states", json.dumps({{each.task_id: each.state for each in run.get_task_instances()}}))
"""


def install(*words: str) -> None:
    command = [str(PYTHON), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *words]
    subprocess.run(command, check=True, cwd=ROOT)


@pytest.fixture(scope="module")
def airflow(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of commands in the virtual environment, with a database of Airflow."""
    stamp = VENV / "pins.txt"
    if not stamp.exists() or stamp.read_text() != PINS.read_text():
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(VENV)], check=True)
        install("--requirement", str(PINS))
        stamp.write_text(PINS.read_text())
    install("--no-deps", "--force-reinstall", ".")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HEADRACE_", "AIRFLOW"))}
    home = tmp_path_factory.mktemp("airflow")
    (home / "dags").mkdir()
    made = kept | {
        "PATH": f"{VENV / 'bin'}:{os.environ['PATH']}",
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW_HOME": str(home),
    }
    subprocess.run([VENV / "bin" / "airflow", "db", "migrate"], env=made, check=True, stdout=subprocess.DEVNULL)
    return made


@pytest.fixture(scope="module")
def up() -> Iterator[Up]:
    with Up(nodes=("alpha:cpu=4,memory=4G",)) as running:
        yield running


class Workflow:
    """The recipes of the page as one workflow, in a folder of its own with the script that it runs."""

    def __init__(self, airflow: dict[str, str], up: Up, folder: Path, script: str) -> None:
        self.folder = folder
        page = (ROOT / "docs" / "how-to" / "workflows.md").read_text()
        section = page.partition("\n## Airflow\n")[2].partition("\n## ")[0]
        in_shell, operator, as_operator = re.findall(r"(?ms)^```python\n(.*?)^```$", section)
        assert in_shell.count("/shared/project") == 1
        in_shell = (
            in_shell.replace("/shared/project", str(folder)).replace('"count"', '"in_shell"').replace("\n", "\n    ")
        )
        as_operator = as_operator.partition("=")[2].strip()
        self._dag = Path(airflow["AIRFLOW_HOME"]) / "dags" / "recipe.py"
        self._dag.write_text(
            DAG.format(folder=folder, operator=operator, in_shell=in_shell.strip(), as_operator=as_operator)
        )
        (folder / "count.sh").write_text(f"#!/bin/sh\n{script}\n")
        (folder / "count.sh").chmod(0o755)
        self._environment = airflow | {"HEADRACE_STATE": str(up.state)}

    def run(self) -> tuple[dict[str, str], str]:
        """Runs the workflow. Returns the states of its tasks, and what it said."""
        command, environment = [PYTHON, self._dag], self._environment
        done = subprocess.run(
            command, cwd=self.folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        assert done.returncode == 0, done.stdout
        [states] = re.findall(r"(?m)^states (.*)$", done.stdout)
        return json.loads(states), done.stdout


def operations(up: Up, folder: Path) -> list[OperationView]:
    """The operations of this folder: that of `headrace run`, which has no title, and that of the operator."""
    with headrace.Client(state=up.state) as client:
        views = [client.wait(view.operation) for view in client.list()]
    return sorted(
        (view for view in views if view.spec.working_directory == str(folder)), key=lambda view: view.spec.title
    )


def test_the_tasks_of_the_page_run_as_operations_and_a_later_task_reads_a_result(
    airflow: dict[str, str], up: Up, tmp_path: Path
) -> None:
    states, said = Workflow(airflow, up, tmp_path, "echo counted $1; echo $1 >> counted").run()

    assert states == {"in_shell": "success", "count": "success", "reader": "success"}, said
    in_shell, as_operator = operations(up, tmp_path)
    assert (in_shell.spec.resources.cpu, in_shell.state) == (200, OperationState.COMPLETED)
    assert as_operator.spec.resources == Resources(user_slots=1, cpu=200, memory=2**30)
    assert as_operator.spec.title == "recipe count"
    day = as_operator.spec.argv[1]
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", day)
    assert in_shell.spec.argv[1] == day
    assert (tmp_path / "counted").read_text() == f"{day}\n{day}\n"
    assert f"counted {day}" in said
    assert (tmp_path / "read").read_text().strip() == as_operator.operation


def test_tasks_fail_if_their_operations_fail_and_say_why(airflow: dict[str, str], up: Up, tmp_path: Path) -> None:
    states, said = Workflow(airflow, up, tmp_path, "echo last words of $0; exit 3").run()

    assert states == {"in_shell": "failed", "count": "failed", "reader": "upstream_failed"}, said
    views = operations(up, tmp_path)
    assert [view.state for view in views] == [OperationState.FAILED] * 2
    assert f"operation {views[1].operation} is failed" in said
    # Both logs have the output, and what runs the workflow prints each line of a log twice.
    assert said.count("last words of ./count.sh") == 4, said
