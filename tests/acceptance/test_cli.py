"""The command line against a running Headrace: what it prints, where, and its exit statuses."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import headrace
from headrace.client import Refused
from headrace.wire.operations import JobRow, OperationState
from tests.support.forked_commands import Forked
from tests.support.headrace_up import HEADRACE, Up
from tests.support.simulated_macos import AS_MACOS


@pytest.fixture(scope="module")
def up() -> Iterator[Up]:
    with Up(nodes=("alpha:cpu=2,memory=2G", "beta:cpu=1,memory=1G")) as running:
        yield running


def answer(up: Up, *words: str) -> Any:
    return json.loads(up.run(*words, "--json").stdout)


def test_fifty_jobs_run_in_the_folder_where_they_were_started(up: Up, tmp_path: Path) -> None:
    (tmp_path / "work.sh").write_text('echo index "$HEADRACE_JOB_INDEX" "$COLOUR"\n')

    done = up.run(
        *("run", "--pool", "research", "--jobs", "50", "--cpu", "0.5", "--memory", "64M", "--env", "COLOUR=red"),
        *("--wait", "--json", "--", "sh", "work.sh"),
        cwd=tmp_path,
    )

    view = json.loads(done.stdout)
    assert (view["state"], view["completed_jobs"], view["failed_jobs"]) == ("completed", 50, 0)
    jobs = answer(up, "op", "get", view["operation"], "--jobs")["jobs"]
    assert {(job["result"], job["exit_code"]) for job in jobs} == {("completed", 0)}
    lines = up.run("op", "logs", view["operation"]).stdout.splitlines()
    assert lines == [f"{index}: index {index} red" for index in range(50)]
    assert "50 of 50 jobs completed" in done.stderr


def test_client_commands_run_on_a_simulated_macos(up: Up, tmp_path: Path) -> None:
    commands = [
        ("run", "--id", "of-a-mac", "--wait", "--memory", "64M", "--", "echo", "seen"),
        ("op", "logs", "of-a-mac"),
        ("op", "list", "--json"),
        ("op", "explain", "of-a-mac"),
        ("pool", "tree"),
        ("node", "list"),
        ("whoami",),
        ("service", "list"),
        ("usage",),
    ]
    program = f"""{AS_MACOS}
from headrace_cli.__main__ import main
for words in {commands!r}:
    sys.argv = ["headrace", *words]
    try:
        main()
    except SystemExit as end:
        print("status", int(end.code), flush=True)
"""
    environment = {**os.environ, "HEADRACE_STATE": str(up.state)}

    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
    )

    assert done.stdout.count("status 0\n") == len(commands), done.stdout + done.stderr
    assert "status 0\nseen\nstatus 0\n" in done.stdout
    assert "Traceback" not in done.stderr


def test_without_wait_only_the_id_goes_to_stdout(up: Up) -> None:
    done = up.run("run", "--pool", "adhoc", "--", "true")

    assert done.stdout.strip() in up.run("op", "list").stdout
    assert len(done.stdout.split()) == 1
    assert "pool 'adhoc' is not configured" in done.stderr


def test_a_failed_operation_says_job_node_exit_code_and_stderr(up: Up) -> None:
    done = up.run(
        "run", "--max-failed-job-count", "1", "--wait", "--", "sh", "-c", "echo no such thing >&2; exit 7", expect=1
    )

    assert "job 0 failed on node " in done.stderr
    assert "exit code 7" in done.stderr
    assert "  no such thing" in done.stderr
    assert done.stdout == ""


def test_a_failed_job_is_tried_again(up: Up) -> None:
    done = up.run("run", "--wait", "--json", "--", "sh", "-c", "[ $HEADRACE_ATTEMPT = 3 ]")

    view = json.loads(done.stdout)
    assert (view["state"], view["failed_jobs"]) == ("completed", 2)


def test_a_job_larger_than_every_node_is_accepted_and_explained(up: Up) -> None:
    operation = up.start_operation("--cpu", "64", "--", "true")
    try:
        assert "larger than every node" in up.run("op", "get", operation).stdout
        assert any(
            "larger than every node" in reason for reason in answer(up, "op", "get", operation)["places"]["reasons"]
        )
    finally:
        up.run("op", "abort", operation, "--reason", "enough")
    assert up.run("op", "wait", operation, expect=1).stderr.startswith(f"{operation} aborted")


def test_the_same_id_starts_nothing_new(up: Up) -> None:
    words = ("run", "--id", "mine-12345678", "--wait", "--", "true")
    up.run(*words)

    assert "nothing new was started" in up.run(*words).stderr
    assert sum(view["operation"] == "mine-12345678" for view in answer(up, "op", "list")["operations"]) == 1


def test_logs_are_followed_to_the_end(up: Up) -> None:
    operation = up.start_operation(
        "--", "sh", "-c", "echo one; until [ -e two ]; do sleep 0.05; done; echo two; echo bad >&2"
    )
    with up.begin("op", "logs", operation, "--follow") as follower:
        assert follower.stdout is not None
        assert follower.stdout.readline() == "one\n"
        (up.state / "two").touch()
        assert follower.stdout.read() == "two\n"
        assert follower.wait() == 0
        assert follower.stderr is not None
    both = up.run("op", "logs", operation)
    assert (both.stdout, both.stderr) == ("one\ntwo\n", "bad\n")
    assert up.run("op", "logs", operation, "--stdout").stderr == ""
    assert up.run("op", "logs", operation, "--job", "0", "--stderr").stdout == "bad\n"
    up.run("op", "logs", operation, "--stdout", "--stderr", expect=2)
    assert (
        "expected 0, the only job of this operation" in up.run("op", "logs", operation, "--job", "1", expect=4).stderr
    )


def test_several_operations_are_suspended_resumed_and_waited_for_in_one_command(up: Up) -> None:
    names = [up.start_operation("--", "sh", "-c", "until [ -e resumed ]; do sleep 0.05; done") for _ in range(2)]
    assert [view["suspended"] for view in answer(up, "op", "suspend", *names)["operations"]] == [True, True]
    assert [view["suspended"] for view in answer(up, "op", "resume", *names)["operations"]] == [False, False]
    (up.state / "resumed").touch()
    bad = up.start_operation("--max-failed-job-count", "1", "--", "false")
    told = up.run("op", "wait", *names, bad, expect=1).stderr
    assert all(f"{name} completed" in told for name in names)
    assert f"{bad} failed" in told


def test_the_first_failure_is_told_at_once_with_its_output_and_what_follows(up: Up) -> None:
    script = "[ $HEADRACE_ATTEMPT = 3 ] || { echo no such model >&2; exit 3; }"
    told = up.run("run", "--wait", "--", "sh", "-c", script).stderr.splitlines()
    at = next(number for number, line in enumerate(told) if line.startswith("job 0 failed on node"))
    assert "exit code 3" in told[at]
    assert told[at + 1 : at + 3] == ["the end of its stderr:", "  no such model"]
    assert told[at + 3] == "tries of each job: 3 (--tries)"
    assert sum("no such model" in line for line in told) == 1


def test_one_bad_job_of_several_is_given_up_after_its_tries_and_the_others_complete(up: Up) -> None:
    script = "echo $HEADRACE_ATTEMPT; test $HEADRACE_JOB_INDEX -ne 2"
    words = ("--jobs", "12", "--retry-backoff", "0", "--", "sh", "-c", script)
    operation = up.start_operation(*words)
    up.run("op", "wait", operation, expect=1)
    shown = up.run("op", "get", operation).stdout
    assert "11 of 12 done, 3 runs failed, 1 given up" in shown
    assert "1 of 12 jobs failed, tries is 3; the last failure: job 2 attempt 3" in shown
    assert up.run("op", "logs", operation, "--job", "2").stdout == "3\n"

    at_once = up.start_operation("--tries", "1", "--no-keep-going", "--jobs", "200", "--", "sh", "-c", script)
    up.run("op", "wait", at_once, expect=1)
    assert json.loads(up.run("op", "get", at_once, "--json").stdout)["operation"]["open_jobs"] > 0


def test_the_rule_of_failed_runs_together_needs_no_tries_and_goes_on_for_no_job(up: Up) -> None:
    for words in (["--max-failed-job-count", "5"], ["--gang"]):
        told = up.run("run", "--keep-going", *words, "--", "true", expect=2).stderr
        assert told.startswith("--keep-going: "), told


def test_past_events_are_told_from_the_log_once_and_then_the_new_ones(up: Up) -> None:
    first = up.start_operation("--", "true")
    up.run("op", "wait", first)
    told = [json.loads(line) for line in up.run("events", "--since", "1h", "--json").stdout.splitlines()]
    of_first = [each["happened"] for each in told if each["operation"] == first]
    assert "job_ended" in of_first, of_first
    assert all(
        each["operation"] == first
        for each in map(json.loads, up.run("events", "--since", "1h", "--op", first, "--json").stdout.splitlines())
    )
    assert up.run("events", "--since", "now").stdout == ""

    with up.begin("events", "--since", "1h", "--follow", "--json") as follower:
        assert follower.stdout is not None
        lines = iter(follower.stdout)
        earlier = [json.loads(next(lines)) for _ in told]
        second = up.start_operation("--", "true")
        later = next(each for each in map(json.loads, lines) if each["operation"] == second)
        follower.kill()
    assert earlier[: len(told)] == told
    assert later["cause"] == "started"


def test_a_command_is_shown_as_a_shell_would_take_it(up: Up) -> None:
    operation = up.start_operation("--", "sh", "-c", "exit 0", "it's", "a b")
    assert "sh -c 'exit 0' 'it'\"'\"'s' 'a b'" in up.run("op", "get", operation).stdout


def interrupt_when_running(waiting: Forked) -> tuple[int, str]:
    """Ctrl-C as soon as a job runs; exit status and what was said after that."""
    assert waiting.stderr is not None
    for line in waiting.stderr:
        if "1 running" in line:
            break
    waiting.send_signal(signal.SIGINT)
    said = waiting.communicate()[1]
    return waiting.wait(), said


def test_ctrl_c_ends_the_waiting_and_not_the_operation(up: Up) -> None:
    waiting = up.begin(
        "run", "--id", "detached-1", "--wait", "--", "sh", "-c", "until [ -e detach ]; do sleep 0.05; done"
    )

    status, said = interrupt_when_running(waiting)

    assert status == 130
    assert "headrace op abort detached-1" in said
    (up.state / "detach").touch()
    assert "completed" in up.run("op", "wait", "detached-1").stderr


def test_ctrl_c_aborts_the_operation_where_that_was_asked_for(up: Up) -> None:
    waiting = up.begin("run", "--id", "aborted-1", "--wait", "--abort-on-interrupt", "--", "sleep", "1000")

    status, said = interrupt_when_running(waiting)

    assert status == 130
    assert "aborted-1 aborted" in said
    assert answer(up, "op", "get", "aborted-1")["operation"]["state"] == "aborted"


def test_pools_are_made_changed_shown_and_removed(up: Up) -> None:
    up.run("pool", "create", "lab", "--weight", "2", "--guarantee", "cpu=1,memory=512M")
    up.run("pool", "create", "vision", "--parent", "lab")
    up.run("pool", "set", "lab", "--weight", "3", "--guarantee", "cpu=2")

    lab = answer(up, "pool", "get", "lab")
    assert lab["settings"]["weight"] == 3.0
    assert lab["settings"]["strong_guarantee_resources"] == {"cpu": 2}
    assert "└─ vision" in up.run("pool", "list").stdout
    assert "vision" in [pool["name"] for pool in answer(up, "pool", "list")["pools"]]
    assert "exists already" in up.run("pool", "create", "vision", expect=4).stderr
    assert "did you mean vision" in up.run("pool", "remove", "vison", expect=4).stderr
    assert up.run("pool", "remove", "lab", expect=4).stderr
    up.run("pool", "remove", "vision")
    up.run("pool", "remove", "lab")
    assert "lab" not in [pool["name"] for pool in answer(up, "pool", "list")["pools"]]


def test_a_pool_that_was_made_can_be_used_at_once(up: Up) -> None:
    up.run("pool", "create", "fresh")

    done = up.run("run", "--pool", "fresh", "--wait", "--", "true")

    assert "is not configured" not in done.stderr
    near = up.run("run", "--pool", "fressh", "--", "true")
    assert "did you mean fresh?" in near.stderr


def test_nodes_are_listed_with_what_they_offer(up: Up) -> None:
    nodes = {node["node"]: node for node in answer(up, "node", "list")["nodes"]}

    assert {name: (node["state"], node["total"]["cpu"]) for name, node in nodes.items()} == {
        "alpha": ("online", 2),
        "beta": ("online", 1),
    }
    assert "alpha" in up.run("node", "list").stdout


def test_a_pipe_gets_plain_text_that_is_never_cut(up: Up) -> None:
    title = "a long title " * 15
    operation = up.start_operation("--title", title, "--", "true")

    text = up.run("op", "list").stdout

    assert operation in text
    assert title.strip() in text
    assert "\x1b" not in text


def test_a_reader_that_goes_away_is_no_error(up: Up) -> None:
    line = subprocess.run(
        ["sh", "-c", f"{' '.join(HEADRACE)} op list --json | head -1"],
        env=up.environment,
        capture_output=True,
        text=True,
        check=True,
    )

    assert (line.stdout, line.stderr) == ("{\n", "")


def test_a_reader_that_goes_away_before_the_last_lines_is_no_error() -> None:
    program = (
        "import sys, time, headrace_cli.__main__ as command\n"
        "def run(words):\n"
        "    print('first', flush=True)\n"
        "    sys.stdin.read()\n"
        "    print('last')\n"
        "    return 0\n"
        "command._run = run\n"
        "command.main()\n"
    )
    reader, writer = os.pipe()
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    argv = [sys.executable, "-c", program]
    with subprocess.Popen(
        argv, env=buffered, stdin=subprocess.PIPE, stdout=writer, stderr=subprocess.PIPE, text=True
    ) as process:
        os.close(writer)
        assert os.read(reader, 100) == b"first\n"
        os.close(reader)
        _, said = process.communicate("")

    assert (process.returncode, said) == (0, "")


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("op", "lits"), 'Did you mean "list"'),
        (("run", "--poool", "x", "--", "true"), "--pool"),
        (("run",), "a program and its arguments"),
        (("run", "--cpu", "many", "--", "true"), "--cpu"),
        (("run", "--pool", "Not Legal", "--", "true"), "--pool: 'Not Legal'"),
        (("run", "--jobs", "0", "--", "true"), "--jobs"),
        (("pool", "set", "x"), "no attribute is given. Name at least one"),
        (("tree", "set", "max_operation_count=100"), "headrace tree set default max_operation_count=100"),
        (("op", "get", "UPPER"), "operation id"),
        (("up", "--node", "a:cpu"), "--node"),
        (("up", "--wait", "--leave-running"), "--wait and --leave-running cannot be combined"),
    ],
)
def test_an_unusable_command_line_is_told_what_would_do(up: Up, words: tuple[str, ...], hint: str) -> None:
    done = up.run(*words, expect=2)

    assert hint in done.stdout + done.stderr


def test_what_does_not_exist_is_refused(up: Up) -> None:
    assert "there is no operation" in up.run("op", "get", "nosuch-operation", expect=4).stderr
    assert up.run("op", "logs", "nosuch-operation", expect=4).stderr


def test_without_a_server_one_line_says_how_to_start_it(tmp_path: Path, up: Up) -> None:
    for words in (("op", "get", "operation-1"), ("run", "--", "true"), ("pool", "list"), ("node", "list")):
        done = (
            up.run(*words, "--state", str(tmp_path), expect=3)
            if words[0] != "run"
            else up.run("run", "--state", str(tmp_path), "--", "true", expect=3)
        )
        assert done.stderr.count("\n") == 1
        assert "headrace up" in done.stderr
        assert done.stdout == ""


async def test_a_program_does_the_same_through_connect(up: Up) -> None:
    seen: list[int] = []
    async with headrace.connect(state=up.state) as client:
        await client.pools.create("program")
        operation = await client.run(
            ["sh", "-c", "echo $HEADRACE_JOB_INDEX"], pool="program", jobs=3, cpu=0.5, memory="32M"
        )
        view = await operation.wait(lambda view: seen.append(view.completed_jobs))
        lines = [line.text async for line in operation.logs()]
        listed = await client.list(pool="program")
        rows = await operation.jobs()
        with pytest.raises(Refused, match="did you mean program"):
            await client.pools.remove("progam")

    assert view.state is OperationState.COMPLETED
    assert operation.answer is not None
    assert not operation.answer.ephemeral_pool
    assert seen == sorted(seen)
    assert lines == ["0", "1", "2"]
    assert [found.operation for found in listed] == [operation.id]
    assert [row.exit_code for row in rows] == [0, 0, 0]


def test_a_program_without_an_event_loop_does_the_same_through_a_client(up: Up) -> None:
    with headrace.Client(state=up.state) as client:
        first = client.run(["true"], cpu=0.5)
        operation = client.run(["sh", "-c", "echo $HEADRACE_JOB_INDEX"], jobs=3, cpu=0.5, after=[first])
        view = operation.wait(timeout_s=30)
        lines = [line.text for line in operation.logs()]
        with pytest.raises(Refused, match="there is no operation"):
            client.get("nosuch-operation")
        with pytest.raises(Refused, match="there is no operation"):
            next(client.jobs("nosuch-operation"))
        endless = client.run(["sh", "-c", "echo started; sleep 60"], cpu=0.5)
        with pytest.raises(TimeoutError):
            endless.wait(timeout_s=0.1)
        reading = endless.logs(follow=True)
        assert next(reading).text == "started"
        reading.close()
        endless.abort("seen enough")
        assert endless.wait().state is OperationState.ABORTED
        with ThreadPoolExecutor(4) as threads:
            views = list(threads.map(client.get, [operation.id] * 8))

    assert view.state is OperationState.COMPLETED
    assert lines == ["0", "1", "2"]
    assert [row.exit_code for row in operation_rows(up, operation.id)] == [0, 0, 0]
    assert {each.operation for each in views} == {operation.id}
    client.close()


def operation_rows(up: Up, operation: str) -> list[JobRow]:
    with headrace.Client(state=up.state) as client:
        return client.operation(operation).jobs()


def test_ctrl_c_ends_the_call_of_a_client_and_not_the_operation(up: Up) -> None:
    with headrace.Client(state=up.state) as client:
        operation = client.run(["sleep", "60"], cpu=0.5)
        main = threading.get_ident()
        ctrl_c = threading.Timer(0.5, signal.pthread_kill, [main, signal.SIGINT])
        ctrl_c.start()
        with pytest.raises(KeyboardInterrupt):
            operation.wait()
        assert operation.view().state is OperationState.RUNNING
        operation.abort()
