"""Refusals that a person meets: what was wrong, what was expected, and the nearest right thing, without a traceback."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import headrace
from headrace.errors import BadInput
from headrace_cli.up.state_folder import StateFolder
from tests.support.headrace_up import HEADRACE, Up


@pytest.fixture(scope="module")
def up() -> Iterator[Up]:
    with Up(nodes=("alpha:cpu=2,memory=2G",)) as running:
        running.run("pool", "create", "lab")
        yield running


#: By option of `run`: values of which none can be used.
BAD_VALUES_OF_RUN = {
    "--jobs": ["0", "-1", "x", "1.5", "1000001", "99999999999999999999", "nan", "", "1e3", "true"],
    "--cpu": ["x", "-1", "nan", "inf", "1e400", "99999999999999999999", "1..5", "one", "1m", "0.0001"],
    "--memory": [
        "x",
        "-1",
        "nan",
        "12Q",
        "G",
        "1e400",
        "99999999999999999999T",
        "1.2.3",
        "12 apples",
        "512Mi B",
        "64",
        "4096",
    ],
    "--gpu": ["-1", "x", "1.5", "99999999999999999999", "nan", "", "one", "1G", "0x1", "1,0"],
    "--weight": ["0", "-1", "x", "nan", "inf", "1e9", "1e-9", "", "1,5", "two"],
    "--env": ["=x", "NOT_SET_ANYWHERE", "", "=", "==", "A-B-NOT-SET", "1NOT_SET", "not set", "$NOT_SET", "=A=B"],
    "--tries": ["0", "-1", "x", "1.5", "1001", ""],
    "--max-failed-job-count": ["0", "-1", "x", "1.5", "1000001", "99999999999999999999", "nan", "", "1e3", "true"],
    "--on-lost-node": ["x", "", "requeu", "1", "WAITS", "never", "wait,requeue", "none", "no", "-"],
    "--node-filter": ["&", "a &", "| b", "(a", "a)", "!", "a b", "a & & b", "()", "a!"],
    "--title": ["x" * 257, "x" * 5_000],
    "--pool": ["a b", "<x>", '"x"', "x" * 101, "a\tb", "//a", "a//b", "'x'", "a\nb", "/a b"],
    "--pool-tree": [
        "A",
        "a b",
        "default:x",
        "default:weight=x",
        "default:weight=0",
        "default:pool=",
        "-a",
        "a_b",
        ":",
        "a:b=c",
    ],
    "--max-cpu": ["x", "-1", "nan", "inf", "1e400", "99999999999999999999", "1..5", "one", "1m", "0.0001"],
    "--max-gpu": ["-1", "x", "1.5", "99999999999999999999", "nan", "", "one", "1G", "0x1", "1,0"],
    "--interrupt-signal": ["KILL", "9", "x", "", "0", "-1", "SIGSTOP", "99", "TERM,INT", "1.5"],
    "--time-limit": ["x", "-1s", "10", "1:30:00", "0s", "", "99999999d", "nan", "1e3", "2 h h"],
    "--operation-time-limit": ["x", "-1s", "10", "1:30:00", "0s", "", "99999999d", "nan", "1e3", "2 h h"],
    "--interruption-timeout": ["x", "-1", "61m", "99999999d", "", "1 fortnight", "nan", "1e3", "s", "10 s s"],
    "--preemption-mode": ["x", "", "normally", "1", "GRACE", "none", "no", "-", "graceful,normal", "off"],
    "--id": ["UPPER", "a b", "-begins", "x" * 65, "a.b.c.d.e", "ends-in-", "a/b/c/d/e", "*", "a>b>c>d>e"],
}


@pytest.mark.parametrize("option", BAD_VALUES_OF_RUN)
def test_a_value_of_run_that_cannot_be_used_is_refused_with_its_option(up: Up, option: str) -> None:
    for value in BAD_VALUES_OF_RUN[option]:
        done = up.run("run", f"{option}={value}", "--", "true", expect=None)
        said = done.stderr + done.stdout

        assert done.returncode in (2, 4), (option, value, said)
        assert not any(raw in said for raw in ("Traceback", "`$.", "Expected `", "StartOperation")), said
        assert any(word in said for word in (option, option.removeprefix("--"), "pool", "tree", "operation id")), said
        assert any(word in said for word in ("expected", "Choose from", "did you mean", "no tree")), said


#: Commands that cannot be used, and what they are told.
REFUSED = [
    (("op", "list", "--limit", "0"), "--limit: 0"),
    (("op", "list", "--limit", "99999999999999999999"), "--limit"),
    (("op", "history", "some-operation", "--limit", "99999999999999999999"), "--limit"),
    (("op", "list", "--in-state", "runing"), "running"),
    (("pool", "set", "lab", "wieght=2"), "did you mean weight?"),
    (("pool", "set", "lab", "mode=ffio"), "fair_share or fifo"),
    (("pool", "set", "lba", "weight=2"), "did you mean lab?"),
    (("pool", "create", "x", "--parent", "lba"), "did you mean lab?"),
    (("pool", "import", "nofile"), "No such file or directory; expected a file that can be read"),
    (("tree", "get", "defualt"), "did you mean default?"),
    (("tree", "set", "default", "main_resource=cpus"), "cpu"),
    (("node", "get", "alhpa"), "did you mean alpha?"),
    (("node", "drain", "alhpa"), "alpha"),
    (("node", "list", "--tree", "defualt"), "did you mean default?"),
    (("user", "add", "ada", "--cluster", "nowhere"), "headrace cluster init"),
    (("run", "--memory", "64", "--", "true"), "a number with a unit, such as 512M"),
    (("run", "--max-memory", "64", "--", "true"), "a number with a unit, such as 512M"),
    (("run", "--log-cap", "64", "--", "true"), "a number with a unit, such as 512M"),
    (("run", "--interruption-timeout", "60", "--", "true"), "a length of time with a unit, such as 30s"),
    (("run", "--retry-backoff", "5", "--", "true"), "a length of time with a unit, such as 30s"),
    (("run", "--time-limit", "5", "--", "true"), "a length of time with a unit, such as 30s"),
    (
        ("op", "set", "some-operation", "time_limit=5h"),
        "jobs keep the time limit with which they were started. Use operation_time_limit",
    ),
    (("pool", "create", "p", "--guarantee", "cpu=8,memory=16"), "a number with a unit, such as 512M"),
    (("pool", "set", "p", "resource_limits/memory=8"), "a number with a unit, such as 512M"),
    (("pool", "set", "p", "resource_limits={cpu=1; memory=8}"), "a number with a unit, such as 512M"),
    (("pool", "set", "p", 'resource_limits={"memory": 8}'), "a number with a unit, such as 512M"),
    (("pool", "set", "p", "preemption_exempt_time=5"), "a length of time with a unit, such as 30s"),
    (("pool", "set", "p", "integral_guarantees={resource_flow={memory=8}}"), "a number with a unit, such as 512M"),
    (("tree", "set", "default", "integral_guarantees={smooth_period=5}"), "a length of time with a unit, such as 30s"),
    (("tree", "set", "default", "fair_share_starvation_timeout=5"), "a length of time with a unit, such as 30s"),
    (("pool", "set", "lab", "wieght="), "wieght cannot be used; did you mean weight?"),
    (("pool", "remove", "lab", "two words"), "Unexpected words: 'two words'"),
    (("service", "figures", "alocator"), "no role begins with 'alocator': did you mean allocator.default?"),
    (("op", "exec", "some-operation", "--", "hostname"), "expected the number of a job before `--`"),
    (("service", "figures", "agnet"), "no role begins with 'agnet': did you mean agent?"),
    (("run", "--env", "A=1", "B=2", "--", "true"), "To set a variable for the jobs, use --env B=2"),
    (("run", "--env", "A B=1", "--", "true"), "without blanks in the name"),
    (
        ("run", "--", "echo a | wc"),
        "expected separate words, or sh -c 'echo a | wc', because no shell reads the command",
    ),
    (("run", "--cpu", "0", "--", "true"), "--cpu: a job needs cores, memory or GPUs"),
    (("run", "--retry-on", "1,SIGNOPE", "--", "true"), "--retry-on: 'SIGNOPE' cannot be used; expected exit codes"),
    (("op", "list", "--in-state", "PD"), "--in-state: 'PD' cannot be used; expected one of waiting, starting"),
    (
        ("pool", "set", "lab", "access={use=ann}"),
        "a list of at most 1000 users and groups such as [ada, group:research], each once",
    ),
    (("node", "token", "h7"), "see docs/how-to/hosts.md for a cluster that other hosts join"),
    (("plan", "nofile"), "expected a file that can be read"),
    (("up", "--state", "/dev/null"), "a file is there"),
    (("up", "--port", "70000"), "--port"),
]


@pytest.mark.parametrize(("words", "told"), REFUSED, ids=[" ".join(words) for words, _ in REFUSED])
def test_a_refusal_says_what_would_do(up: Up, words: tuple[str, ...], told: str) -> None:
    done = up.run(*words, expect=None)

    assert done.returncode in (2, 4)
    assert told in done.stderr
    assert "Errno" not in done.stderr


def test_a_script_of_this_folder_and_a_folder_that_is_gone_are_refused_before_any_request(
    up: Up, tmp_path: Path
) -> None:
    (tmp_path / "job.sh").write_text("#!/bin/sh\n#SBATCH -n 2\n")
    assert "expected sh job.sh, or ./job.sh" in up.run("run", "job.sh", cwd=tmp_path, expect=2).stderr
    leave = 'mkdir gone && cd gone && rmdir ../gone && exec "$@"'
    command = ["sh", "-c", leave, "sh", sys.executable, "-m", "headrace_cli", "run", "--", "true"]
    done = subprocess.run(command, cwd=tmp_path, env=up.environment, text=True, capture_output=True, check=False)
    assert (done.returncode, "the current folder was removed" in done.stderr) == (2, True), done.stderr


def test_pools_are_imported_from_standard_input(up: Up) -> None:
    written = up.run("pool", "export").stdout
    read = subprocess.run(
        [*HEADRACE, "pool", "import", "-"],
        input=written,
        env=up.environment,
        capture_output=True,
        text=True,
        check=True,
    )

    assert "nothing changes" in read.stdout + read.stderr


@pytest.mark.parametrize(
    ("other", "told"),
    [
        (("--", "false"), "command"),
        (("--jobs", "2", "--", "true"), "number of jobs"),
        (("--cpu", "2", "--", "true"), "size of jobs"),
        (("--pool", "elsewhere", "--", "true"), "pool (lab)"),
        (("--env", "SECRET=word", "--", "true"), "environment"),
        (("--cwd", "/", "--jobs", "2", "--", "true"), "number of jobs and folder"),
    ],
    ids=lambda words: " ".join(words) if isinstance(words, tuple) else None,
)
def test_an_id_that_is_used_again_for_something_else_is_refused(up: Up, other: tuple[str, ...], told: str) -> None:
    up.run("run", "--id", "used-again", "--pool", "lab", "--", "true")

    refused = up.run("run", "--id", "used-again", *other, expect=4).stderr

    assert "'used-again' exists already" in refused
    assert told in refused
    assert "SECRET" not in refused
    assert "nothing new was started" in up.run("run", "--id", "used-again", "--pool", "lab", "--", "true").stderr


async def test_a_text_is_no_command_for_the_client_and_jobs_start_where_the_program_is(
    up: Up, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with headrace.connect(state=up.state) as client:
        with pytest.raises(BadInput, match=r"a list of a program and its arguments, such as \['echo', 'a'\]"):
            await client.run("echo a", pool="lab")
        operation = await client.run(["pwd"], pool="lab")
        await operation.wait()
        assert [line.text async for line in operation.logs()] == [str(tmp_path)]
        elsewhere = await client.run(["pwd"], working_directory="/")
        await elsewhere.wait()
        assert [line.text async for line in elsewhere.logs()] == ["/"]


def test_ctrl_c_at_any_moment_of_a_short_command_shows_no_traceback(up: Up) -> None:
    """Once before anything is imported, and once each time that one of the larger packages has just been."""
    waits_for = ("headrace_cli.exit_statuses", "cyclopts", "rich.console", "headrace.client", "nats", "anyio")
    for module in waits_for:
        code = (
            "import importlib.abc, os, signal, sys\n"
            "class Interrupting(importlib.abc.MetaPathFinder):\n"
            "    def find_spec(self, name, path, target=None):\n"
            f"        if name == {module!r}: sys.meta_path.remove(self); os.kill(os.getpid(), signal.SIGINT)\n"
            "sys.meta_path.insert(0, Interrupting())\n"
            "sys.argv = ['headrace', 'pool', 'list']\n"
            "from headrace_cli.__main__ import main\n"
            "main()\n"
        )
        done = subprocess.run(
            [HEADRACE[0], "-c", code], env=up.environment, capture_output=True, text=True, check=False
        )
        assert done.returncode in (130, -signal.SIGINT), (module, done)
        assert done.stderr == "", module


def test_the_state_folder_of_somebody_else_is_said_to_be_theirs(tmp_path: Path) -> None:
    folder = StateFolder(tmp_path / "theirs")
    folder.make()
    (folder.path / "endpoint.json").write_text("{}")
    folder.path.chmod(0o000)
    # Root may open every folder, so the process becomes another account. It imports first: the other account need not reach
    # the clone, which may lie below a private folder.
    code = (
        "import os\n"
        "from headrace.client.place import find_place\n"
        "if os.getuid() == 0: os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        f"find_place(state={str(folder.path)!r})\n"
    )
    done = subprocess.run([HEADRACE[0], "-c", code], capture_output=True, text=True, check=False, cwd="/")

    assert f"the state folder {folder.path} is private to" in done.stderr
