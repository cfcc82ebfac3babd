"""Operations that wait for other operations, with real processes, and admission killed while they wait."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace import connect
from headrace.errors import BadInput
from headrace.wire.operations import OperationState
from tests.support.headrace_up import Up

pytestmark = pytest.mark.long

_LIMIT_S = 45.0
#: A job that ends with the exit status that a file says, once the file exists.
_UNTIL_TOLD = "until [ -s $0 ]; do sleep 0.05; done; exit $(cat $0)"


@pytest.fixture(scope="module")
def up() -> Iterator[Up]:
    with Up(nodes=("alpha:cpu=4,memory=2G",)) as running:
        yield running


def start(up: Up, name: str, *options: str) -> None:
    """Start an operation that waits for a file of its name."""
    words = ("--id", name, "--max-failed-job-count", "1", *options)
    assert up.start_operation(*words, "--", "sh", "-c", _UNTIL_TOLD, f"{up.state}/{name}.status") == name


def end(up: Up, name: str, status: int) -> None:
    (up.state / f"{name}.status").write_text(str(status))


def kill(up: Up, role: str) -> None:
    process = next(one for one in up.processes() if one.role == role)
    os.kill(process.pid, signal.SIGKILL)


def wait_for_lines(path: Path, count: int) -> None:
    deadline_s = time.monotonic() + _LIMIT_S
    while not path.exists() or len(path.read_text().splitlines()) < count:
        assert time.monotonic() < deadline_s
        time.sleep(0.05)


def view(up: Up, name: str) -> dict[str, Any]:
    shown: dict[str, Any] = json.loads(up.run_until_answered("op", "get", name, "--json").stdout)["operation"]
    return shown


def test_what_waits_is_shown_and_is_judged_when_the_others_end_although_admission_was_killed(up: Up) -> None:
    for name in ("fine", "bad"):
        start(up, name)
    start(up, "after-fine", "--after", "fine")
    start(up, "after-bad", "--after", "bad")
    start(up, "chain", "--after", "after-bad", "--after", "fine:any")
    start(up, "clean-up", "--after", "chain:failed")

    assert "waits for the end of bad, and holds no running slot" in up.run("op", "explain", "after-bad").stdout
    assert "operation bad of " in up.run("op", "explain", "after-bad").stdout
    assert "the end of after-bad, fine" in up.run("op", "get", "chain").stdout
    listed = up.run("op", "list", "--in-state", "waiting").stdout
    assert all(f"the end of {name}" in listed for name in ("fine", "bad", "after-bad, fine", "chain"))
    assert "the end of chain" in up.run("top", "--once").stdout

    kill(up, "admission")
    assert view(up, "chain")["awaits"] == ["after-bad", "fine"]
    end(up, "bad", 1)
    up.run_until_answered("op", "get", "bad")
    said = up.run("op", "wait", "chain", expect=1).stderr
    assert "upstream failed: operation after-bad is failed" in said
    assert view(up, "after-bad")["reason"].startswith("upstream failed: operation bad is failed")
    assert "failed (upstream failed)" in up.run("op", "history", "chain").stdout

    end(up, "clean-up", 0)
    up.run("op", "wait", "clean-up")
    assert view(up, "after-fine")["state"] == "pending"
    kill(up, "admission")
    end(up, "fine", 0)
    end(up, "after-fine", 0)
    up.run_until_answered("op", "wait", "after-fine")
    fine, later = view(up, "fine"), view(up, "after-fine")
    assert (fine["state"], later["state"], later["completed_jobs"]) == ("completed", "completed", 1)


def test_an_operation_that_cannot_be_waited_for_is_refused(up: Up) -> None:
    refused = up.run("run", "--id", "one", "--after", "nothing-like-it", "--", "true", expect=None)
    assert refused.returncode == 4
    assert "there is no operation 'nothing-like-it'" in refused.stderr
    itself = up.run("run", "--id", "two", "--after", "two", "--", "true", expect=None)
    assert "no operation 'two'" in itself.stderr
    wrong = up.run("run", "--after", "two:maybe", "--", "true", expect=None)
    assert "--after: 'two:maybe' cannot be used" in wrong.stderr


def test_each_job_runs_when_the_same_job_of_the_other_operation_completed_although_services_were_killed(up: Up) -> None:
    words = ("--jobs", "3", "--cpu", "0.5")
    ends = "until [ -e $0.$HEADRACE_JOB_INDEX ]; do sleep 0.05; done"
    up.start_operation("--id", "first", *words, "--", "sh", "-c", ends, f"{up.state}/part")
    up.start_operation(
        "--id",
        "second",
        *words,
        "--after-each",
        "first",
        "--",
        "sh",
        "-c",
        "echo $HEADRACE_JOB_INDEX >> $0",
        f"{up.state}/done",
    )
    assert "first: 3 jobs to complete there first" in up.run("op", "list", "--in-state", "waiting").stdout
    assert "each job waits for its job with the same index" in up.run("op", "explain", "second").stdout

    done = up.state / "done"
    for number, (index, role) in enumerate([(1, "admission"), (2, "allocator"), (0, "")]):
        (up.state / f"part.{index}").touch()
        wait_for_lines(done, number + 1)
        assert done.read_text().split() == ["1", "2", "0"][: number + 1]
        if role:
            assert view(up, "second")["awaiting_jobs"] == 2 - number
            kill(up, role)
    up.run_until_answered("op", "wait", "second")
    assert "each job of first" in up.run("op", "get", "second").stdout


async def test_a_program_starts_operations_after_others(up: Up) -> None:
    async with connect(state=up.state) as client:
        first = await client.run(["sleep", "1"], jobs=2)
        second = await client.run(["true"], jobs=2, after_each=first)
        third = await client.run(["true"], after=[second, f"{first.id}:any"])
        assert third.answer is not None
        assert third.answer.awaits == [second.id, first.id]
        assert (await third.wait()).state is OperationState.COMPLETED
        late = await client.run(["true"], after=[f"{third.id}:failed"])
        assert late.answer is not None
        assert late.answer.upstream_failure.startswith(f"upstream failed: operation {third.id} is completed")
        with pytest.raises(BadInput, match="after: 'x:soon'"):
            await client.run(["true"], after=["x:soon"])
