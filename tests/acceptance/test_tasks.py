"""Operations with jobs of several kinds, by the page that describes them, and through kills of the services."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

import headrace
from headrace.client import task
from headrace.errors import BadInput
from tests.support.headrace_up import Up
from tests.support.typed_pages import typed

pytestmark = pytest.mark.long

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "several-kinds-of-jobs.md"
#: Each job says its task and waits until it may end. The node has three cores, so two workers wait at first.
FILE = """
tries: 3
tasks:
  server:
    command: [sh, -c, 'echo I am $HEADRACE_TASK; until [ -e go ]; do sleep 0.05; done']
    cpu: 2
  worker:
    command: [sh, -c, 'echo I am $HEADRACE_TASK $HEADRACE_TASK_INDEX; until [ -e go ]; do sleep 0.05; done']
    jobs: 3
"""

#: Each of two jobs of different sizes ends once both run.
GANG = """
gang: true
tasks:
  small: {command: [sh, -c, 'touch small.$HEADRACE_ATTEMPT; until [ -e large.1 ]; do sleep 0.05; done']}
  large: {command: [sh, -c, 'touch large.$HEADRACE_ATTEMPT; until [ -e small.1 ]; do sleep 0.05; done'], cpu: 2}
"""


#: Two jobs alone, and a gang of two tasks. The first run of `left` fails once it is told so.
MIXED = """
retry_backoff: 100ms
tasks:
  alone:
    command:
      - sh
      - -c
      - |
        echo alone $HEADRACE_TASK_INDEX; touch alone.$HEADRACE_TASK_INDEX.$HEADRACE_ATTEMPT
        until [ -e end ]; do sleep 0.05; done
    jobs: 2
  left:
    command:
      - sh
      - -c
      - |
        touch left.$HEADRACE_ATTEMPT
        until [ -e end ]; do if [ $HEADRACE_ATTEMPT = 1 -a -e fail ]; then exit 1; fi; sleep 0.05; done
    gang: true
  right:
    command: [sh, -c, 'touch right.$HEADRACE_ATTEMPT; until [ -e end ]; do sleep 0.05; done']
    cpu: 3
    gang: true
"""


async def test_tasks_run_as_the_page_says_and_keep_their_commands_through_kills_of_services(tmp_path: Path) -> None:
    with Up(nodes=("alpha:cpu=3,memory=4G",)) as up:
        said = typed(up, PAGE)
        await a_program_starts_tasks(up)
        keeps_tasks_through_kills(up, tmp_path)
        reruns_what_failed(up, tmp_path)

    assert "0: the workers are up" in said["op logs launcher-and-workers"]
    logs = said["op logs trainers-and-samples"]
    assert all(line in logs for line in ("0: both are up", "1: both are up", "2: sample 0", "5: sample 3"))
    assert "1: hello from worker 0" in said["op logs server-and-workers"]
    assert "0: all are done" in said["op logs server-and-workers"]
    rows = [line.split() for line in said["op get server-and-workers"].splitlines()]
    assert ["server", "1", "1", "0", "cpu", "2,"] in [row[:6] for row in rows]
    assert ["worker", "3", "3", "0", "cpu", "1"] in [row[:6] for row in rows]
    jobs = [line.split()[:4] for line in said["op get server-and-workers --jobs"].splitlines()[-4:]]
    assert jobs == [["0", "server", "1", "completed"], *([str(n), "worker", "1", "completed"] for n in (1, 2, 3))]
    assert "worker:" in said["op get server-and-workers --spec"]


def test_all_tasks_of_a_gang_start_together_though_the_allocator_is_killed_meanwhile(tmp_path: Path) -> None:
    """The allocator is killed while it holds resources for the large job, and another operation uses those of the small job."""
    together = tmp_path / "together"
    together.mkdir()
    (tmp_path / "gang.yaml").write_text(GANG)
    held = "a gang of 2 jobs: resources for 1 of them on 1 node are held"
    with Up(nodes=("alpha:cpu=3",)) as up:
        until_go = f"echo up; until [ -e {tmp_path}/go-filler ]; do sleep 0.1; done"
        up.run("run", "--id", "filler", "--", "sh", "-c", until_go)
        up.wait_line("filler", "up")
        up.run("run", "--spec", str(tmp_path / "gang.yaml"), "--cwd", str(together), "--id", "gang-of-tasks")
        wait_explained(up, held)
        [found] = [each for each in up.processes() if each.role == "allocator"]
        os.kill(found.pid, signal.SIGKILL)
        wait_explained(up, held, unlike=found.pid)
        assert list(together.iterdir()) == []
        (tmp_path / "go-filler").touch()
        up.run_until_over("gang-of-tasks")

        view = json.loads(up.run("op", "get", "gang-of-tasks", "--json").stdout)["operation"]

    assert (view["state"], view["completed_jobs"], view["failed_jobs"]) == ("completed", 2, 0)
    assert sorted(path.name for path in together.iterdir()) == ["large.1", "small.1"]


def test_a_gang_of_some_tasks_starts_together_beside_the_jobs_of_another_task_through_kills(tmp_path: Path) -> None:
    """The gang lacks three cores while other jobs of its operation run. The allocator and admission are killed meanwhile and afterwards."""
    together = tmp_path / "together"
    together.mkdir()
    (tmp_path / "mixed.yaml").write_text(MIXED)
    held = "a gang of 2 jobs (tasks left, right): resources for 1 of them on 1 node are held"
    with Up(nodes=("alpha:cpu=6",)) as up:
        until_go = f"echo up; until [ -e {tmp_path}/go-filler ]; do sleep 0.1; done"
        up.run("run", "--id", "filler", "--cpu", "4", "--", "sh", "-c", until_go)
        up.wait_line("filler", "up")
        up.run("run", "--spec", str(tmp_path / "mixed.yaml"), "--cwd", str(together), "--id", "gang-of-tasks")
        up.wait_line("gang-of-tasks", "alone 0")
        wait_explained(up, held)
        kill(up, "allocator")
        wait_explained(up, held, unlike=0)
        assert sorted(path.name for path in together.iterdir()) == ["alone.0.1"]
        (tmp_path / "go-filler").touch()
        wait_there(together, "left.1", "right.1", "alone.1.1")
        kill(up, "admission")
        kill(up, "allocator")
        (together / "fail").touch()
        wait_there(together, "left.2", "right.2")
        assert {path.name for path in together.iterdir() if path.name.startswith("alone")} == {"alone.0.1", "alone.1.1"}
        (together / "end").touch()
        up.run_until_over("gang-of-tasks")

        view = json.loads(up.run("op", "get", "gang-of-tasks", "--json").stdout)["operation"]
        written = up.run("op", "get", "gang-of-tasks", "--spec").stdout

    assert (view["state"], view["completed_jobs"]) == ("completed", 4)
    assert {number: ends["counts"] for number, ends in view["task_ends"].items()} == {
        "0": {"completed": 2},
        "1": {"completed": 1, "failed": 1},
        "2": {"completed": 1, "aborted": 1},
    }
    assert written.count("gang: true") == 2


def kill(up: Up, role: str) -> None:
    """Kill a service, and wait until the next process of the service answers."""
    [found] = [each for each in up.processes() if each.role == role]
    os.kill(found.pid, signal.SIGKILL)
    for _ in range(300):
        if any(each.role == role and each.pid != found.pid for each in up.processes()):
            return
        time.sleep(0.1)
    raise AssertionError(f"no new process of {role}")


def wait_there(folder: Path, *names: str) -> None:
    """Wait until a folder has files of these names."""
    for _ in range(600):
        there = {path.name for path in folder.iterdir()}
        if set(names) <= there:
            return
        time.sleep(0.1)
    raise AssertionError(there)


def wait_explained(up: Up, words: str, *, unlike: int = 0) -> None:
    """Wait until `op explain` has these words, from an allocator with another process id than `unlike`."""
    said = ""
    for _ in range(300):
        if any(each.role == "allocator" and each.pid != unlike for each in up.processes()):
            said = up.run_until_answered("op", "explain", "gang-of-tasks").stdout
        if words in " ".join(said.split()):
            return
        time.sleep(0.1)
    raise AssertionError(said)


def reruns_what_failed(up: Up, folder: Path) -> None:
    """Of three tasks, the first is completed, the second fails in job 1 of 2, and the third in jobs 0 and 2 of 3."""
    said = "$HEADRACE_TASK $HEADRACE_TASK_INDEX $HEADRACE_JOB_INDEX"
    command = f'[sh, -c, "echo {said}; [ -e right ] || exit $(($HEADRACE_TASK_INDEX * $BAD))"]'
    fails = command.replace("$(($HEADRACE_TASK_INDEX * $BAD))", "$((($HEADRACE_TASK_INDEX + 1) % 2))")
    (folder / "some.yaml").write_text(
        f"tries: 1\ncwd: {folder}\ntasks:\n"
        f"  fine: {{command: {command}, env: {{BAD: '0'}}}}\n"
        f"  odd: {{command: {command}, jobs: 2, env: {{BAD: '1'}}}}\n"
        f"  even: {{command: {fails}, jobs: 3, env: {{BAD: '1'}}}}\n"
    )
    up.run("run", "--spec", str(folder / "some.yaml"), "--id", "some", "--wait", expect=1)
    second = up.run("op", "rerun", "some", "--failed", "--wait", expect=1).stderr.split()[1]
    (folder / "again.yaml").write_text(up.run("op", "get", second, "--spec").stdout)
    (folder / "right").touch()
    up.run("run", "--spec", str(folder / "again.yaml"), "--id", "from-file", "--wait")
    third = up.run("op", "rerun", second, "--failed", "--wait").stderr.split()[1]

    for name in (second, "from-file", third):
        lines = sorted(line.split(": ", 1)[-1] for line in up.run("op", "logs", name).stdout.splitlines())
        assert lines == ["even 0 3", "even 2 5", "odd 1 2"], name


async def a_program_starts_tasks(up: Up) -> None:
    tell = ["sh", "-c", "echo $HEADRACE_TASK $HEADRACE_TASK_INDEX of $HEADRACE_TASK_JOB_COUNT $A"]
    async with headrace.connect(state=up.state) as client:
        tasks = [task("one", tell, cpu=2, memory="32M"), task("more", tell, jobs=2, environment={"A": "a"})]
        with pytest.raises(BadInput, match="a command and tasks cannot be combined"):
            await client.run(tell, tasks=tasks)
        operation = await client.run(tasks=tasks)
        await operation.wait()
        lines = [line.text async for line in operation.logs()]

    assert sorted(lines) == ["more 0 of 2 a", "more 1 of 2 a", "one 0 of 1"]


def keeps_tasks_through_kills(up: Up, folder: Path) -> None:
    """The allocator and admission are killed while the server and a worker run and two workers wait."""
    (folder / "tasks.yaml").write_text(FILE)
    up.run("run", "--spec", str(folder / "tasks.yaml"), "--cwd", str(folder), "--id", "kept")
    up.wait_line("kept", "I am worker 0")
    for role in ("allocator", "admission"):
        [found] = [each for each in up.processes() if each.role == role]
        os.kill(found.pid, signal.SIGKILL)
        up.wait_said(f"{role}.* ended .*SIGKILL.* restarting it")
    tasks = tasks_of_a_recovered_allocator(up)
    explained = up.run("op", "explain", "kept").stdout
    (folder / "go").touch()
    up.run_until_over("kept")
    view = json.loads(up.run("op", "get", "kept", "--json").stdout)["operation"]
    logs = up.run("op", "logs", "kept").stdout.splitlines()

    assert (view["state"], view["aborted_jobs"], view["lost_jobs"]) == ("completed", 0, 0)
    assert {number: ends["counts"] for number, ends in view["task_ends"].items()} == {
        "0": {"completed": 1},
        "1": {"completed": 3},
    }
    assert sorted(logs) == ["0: I am server", *(f"{n + 1}: I am worker {n}" for n in range(3))]
    assert tasks == [{"on_nodes": 1, "pending": 0}, {"on_nodes": 1, "pending": 2}]
    assert "task worker (2 pending jobs): " in explained, explained


def tasks_of_a_recovered_allocator(up: Up) -> Any:
    """The jobs on nodes and the pending jobs of each task, once the nodes have reported what they run."""
    for _ in range(200):
        places = json.loads(up.run_until_answered("op", "get", "kept", "--json").stdout)["places"]
        if places is not None and (places["running_jobs"], places["pending_jobs"]) == (2, 2):
            return places["tasks"]
    raise AssertionError("the allocator does not know the running jobs")
