"""The command of one job: its line, its index, and the files that it writes and reads."""

from __future__ import annotations

import os
import subprocess
import tracemalloc
from pathlib import Path

import msgspec
import pytest

from headrace.errors import BadInput
from headrace.ids import AllocationId, NodeName, OperationId, PoolName
from headrace.job_tasks import with_tasks
from headrace.wire.heartbeat import JobKey, JobSpec
from headrace.wire.operation_spec import OperationSpec
from headrace.wire.tasks import Task
from headrace_agent.host.environment import job_environment
from headrace_agent.job_command import job_argv, with_files
from headrace_agent.run_order import note_in
from headrace_agent.runner.protocol import Run
from tests.support.agent_desk import Desk, job, start
from tests.support.agent_desk import spec as desk_spec


def job_command(spec: JobSpec, key: JobKey) -> list[str]:
    return with_files(spec, key, job_argv(spec, key))


def key(index: int) -> JobKey:
    return JobKey(OperationId("op"), index, 1)


def a_spec(*argv: str, **more: object) -> JobSpec:
    return JobSpec(OperationId("op"), list(argv), **more)  # type: ignore[arg-type]


def seen(spec: JobSpec, index: int) -> dict[str, str]:
    environment = job_environment(spec, key(index), AllocationId("a"), NodeName("n"))
    return {name: environment[name] for name in ("HEADRACE_JOB_INDEX", "HEADRACE_LINE") if name in environment}


def run(spec: JobSpec, index: int, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(job_command(spec, key(index)), cwd=folder, text=True, capture_output=True, check=False)


def test_a_job_has_command_and_environment_of_its_task_and_the_note_has_the_tasks_for_a_later_agent() -> None:
    tasks = [Task("server", ["serve"], 1), Task("worker", ["work", "{}"], 2, environment={"MODE": "fast", "A": "2"})]
    spec = msgspec.structs.replace(desk_spec(), environment={"A": "1"}, tasks=tasks, job_count=3)
    desk = Desk()
    desk.turn(start("a", [0], told=spec), start("b", [2], with_spec=False))
    server, worker = desk.told(Run)

    assert (server.argv, worker.argv) == (["serve"], ["work", "{}"])
    assert [each.environment["A"] for each in (server, worker)] == ["1", "2"]
    names = ("HEADRACE_TASK", "HEADRACE_TASK_INDEX", "HEADRACE_TASK_JOB_COUNT", "HEADRACE_JOB_INDEX")
    assert [worker.environment[name] for name in names] == ["worker", "1", "2", "2"]
    assert "HEADRACE_TASK" not in job_environment(a_spec("true"), key(0), AllocationId("a"), NodeName("n"))
    note = note_in(worker)
    assert note is not None
    assert note.spec == spec


def test_an_agent_that_knows_no_tasks_finds_no_program_to_run() -> None:
    """An older agent drops the field."""
    whole = with_tasks(OperationSpec(PoolName("p"), ["true"]), [Task("server", ["true"])])
    older = msgspec.structs.replace(whole.job_spec(OperationId("op"), "anna", 0), tasks=[])
    with pytest.raises(FileNotFoundError, match="several tasks"):
        subprocess.run(job_command(older, key(0)), check=False)


def test_a_line_stands_in_the_command_and_in_the_environment_as_it_is() -> None:
    lines = ["plain", 'it\'s "quoted" $HOME {}', "", "žluť"]
    spec = a_spec("echo", "{}", "x={}", lines=lines, job_count=4)
    assert [job_command(spec, key(index)) for index in range(4)] == [["echo", line, f"x={line}"] for line in lines]
    assert seen(spec, 1) == {"HEADRACE_JOB_INDEX": "1", "HEADRACE_LINE": lines[1]}
    assert seen(spec, 2)["HEADRACE_LINE"] == ""


def test_a_line_that_makes_a_command_too_long_fails_its_job_before_the_command_is_made() -> None:
    line = "x" * 32_000
    assert job_command(a_spec("echo", "{}" * 8, lines=[line]), key(0)) == ["echo", line * 8]
    with pytest.raises(BadInput):
        job_command(a_spec("echo", "{}" * 8, lines=["ž" * 32_000]), key(0))
    many = {"argv": ["echo", "{}" * 32_000], "lines": [line, "y"], "job_count": 2}
    desk = Desk()
    tracemalloc.start()
    try:
        with pytest.raises(BadInput, match="a line of 32000 bytes makes the command 1024000004 bytes"):
            job_command(msgspec.structs.replace(desk_spec(), **many), key(0))
        desk.turn(start("a", [0, 1], told=msgspec.structs.replace(desk_spec(), **many)))
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()

    [run] = desk.told(Run)
    assert run.job == job(0)
    assert "makes the command 1024000004 bytes long" in run.not_started_for


def test_without_lines_braces_stay_and_indexes_are_what_the_jobs_see() -> None:
    spec = a_spec("echo", "{}", indexes="5-7:2,1", job_count=3)
    assert job_command(spec, key(0)) == ["echo", "{}"]
    assert [seen(spec, number) for number in range(3)] == [{"HEADRACE_JOB_INDEX": each} for each in ("5", "7", "1")]
    with_lines = a_spec("run", "{}", indexes="2,0", lines=["a", "b", "c"], job_count=2)
    assert [job_command(with_lines, key(number)) for number in range(2)] == [["run", "c"], ["run", "a"]]


def test_output_goes_to_files_whose_folders_are_made_and_each_run_replaces_them(tmp_path: Path) -> None:
    spec = a_spec("sh", "-c", "echo out; echo err >&2", output="a b/%i.txt", error="e/%i", indexes="9", job_count=1)
    for _ in range(2):
        assert run(spec, 0, tmp_path).stdout == ""
    assert (tmp_path / "a b/9.txt").read_text() == "out\n"
    assert (tmp_path / "e/9").read_text() == "err\n"


def test_a_job_with_files_finds_its_environment_as_it_is_without(tmp_path: Path) -> None:
    names = (
        "file",
        "out",
        "err",
        "in",
        "IFS",
        "OPTIND",
        "PPID",
        "PS1",
        "LINENO",
        "with.dot",
        "with-dash",
        "1st",
        "žluť",
    )
    environment = {name: "7" if name == "OPTIND" else f"value of\n{name}" for name in names}
    spec = a_spec("env", "-0", environment=environment, output="o", error="e", stdin="/dev/null")
    command = job_command(spec, key(0))
    subprocess.run(command, cwd=tmp_path, env={"PATH": os.environ["PATH"], **environment}, check=True)
    found = dict(each.split("=", 1) for each in (tmp_path / "o").read_text().split("\0") if each)
    assert {name: found.get(name) for name in names} == environment


def test_one_file_may_take_both_and_stdin_is_read_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("given\n")
    spec = a_spec("sh", "-c", "cat; echo err >&2; exit 3", output="both", error="both", stdin="in.txt")
    assert run(spec, 0, tmp_path).returncode == 3
    assert (tmp_path / "both").read_text() == "given\nerr\n"


def test_a_file_may_lie_in_the_root_folder(tmp_path: Path) -> None:
    ended = run(a_spec("echo", "ran", output="/proc"), 0, tmp_path)
    assert "mkdir" not in ended.stderr
    assert "/proc" in ended.stderr


@pytest.mark.parametrize("files", [{"output": "/proc/no"}, {"stdin": "missing"}, {"error": "/dev/null/x"}])
def test_a_file_that_cannot_be_opened_fails_the_job_and_is_named(files: dict[str, str], tmp_path: Path) -> None:
    ended = run(a_spec("echo", "ran", **files), 0, tmp_path)
    assert ended.returncode
    assert "ran" not in ended.stdout
    assert next(iter(files.values())).split("/x")[0] in ended.stderr


@pytest.mark.parametrize("program", ["{}", "./{}"])
def test_a_program_that_is_a_line_is_named_in_the_log_of_the_job_only(program: str, tmp_path: Path) -> None:
    """If a program cannot be started, everybody sees its name in `op list` and `events`. A line is for the owner."""
    (tmp_path / "works").write_text('#!/bin/sh\nexec echo ran "$@"\n')
    (tmp_path / "works").chmod(0o755)
    place = f"{tmp_path}/" if program == "{}" else ""
    spec = a_spec(program, "{}", lines=[f"{place}works", f"{place}secret a b"], job_count=2)

    assert run(spec, 0, tmp_path).stdout == f"ran {place}works\n"
    assert job_command(spec, key(1))[0] == "/bin/sh"
    missing = run(spec, 1, tmp_path)
    assert missing.returncode == 127
    assert "secret a b" in missing.stderr


def test_the_output_goes_into_a_folder_that_exists_even_if_path_has_no_programs(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    command = job_command(a_spec("/bin/echo", "done", output="out/%i", error="out/%i.error"), key(0))
    subprocess.run(command, cwd=tmp_path, env={"PATH": str(tmp_path)}, check=True)
    assert (tmp_path / "out" / "0").read_text() == "done\n"
