"""Jobs run as the account of the person who started them, where the agent is root and its settings say so; and everybody sees which."""

from __future__ import annotations

import json
import os
import pwd
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from headrace.client import connect, login_user
from headrace.ids import PoolName
from headrace.wire.operation_spec import OperationSpec
from tests.support.headrace_up import Up

#: Each process of a test run makes its own, one after the other.
ACCOUNT = f"headrace-{os.getpid()}"
ALONE = ("flock", f"{tempfile.gettempdir()}/headrace-test-accounts.lock")


@pytest.fixture(scope="module")
def account() -> Iterator[pwd.struct_passwd]:
    """An account of this host, made for these tests."""
    subprocess.run([*ALONE, "useradd", "--create-home", "--shell", "/bin/sh", ACCOUNT], check=True)
    try:
        yield pwd.getpwnam(ACCOUNT)
    finally:
        subprocess.run([*ALONE, "userdel", "--remove", ACCOUNT], check=True, stderr=subprocess.DEVNULL)


@pytest.fixture(scope="module")
def up(account: pwd.struct_passwd) -> Iterator[Up]:
    running = Up()
    running.environment["HEADRACE_AGENT_USERS"] = f"{login_user()}={account.pw_name}"
    with tempfile.TemporaryDirectory() as reachable:
        os.chmod(reachable, 0o711)
        running.environment["HEADRACE_AGENT_FILES_FOLDER"] = f"{reachable}/files"
        with running:
            yield running


def jobs(up: Up, operation: str) -> Any:
    return json.loads(up.run("op", "get", operation, "--jobs", "--json").stdout)


def test_a_job_runs_as_the_account_with_its_groups_its_home_and_no_rights_of_root(
    up: Up, account: pwd.struct_passwd
) -> None:
    script = 'id -un; id -G; echo "$HOME $USER $LOGNAME"; echo said > /dev/stderr; cat /etc/shadow; grep Cap /proc/self/status'
    operation = up.start_operation("--cwd", "/", "--", "sh", "-c", script)
    up.run("op", "wait", operation, expect=None)

    lines = up.run("op", "logs", operation).stdout.splitlines()
    assert lines[0] == account.pw_name
    assert lines[1].split() == [str(group) for group in os.getgrouplist(account.pw_name, account.pw_gid)]
    assert lines[2] == f"{account.pw_dir} {account.pw_name} {account.pw_name}"
    assert {line.split()[1] for line in lines if line.startswith(("CapPrm", "CapEff"))} == {"0" * 16}
    said = up.run("op", "logs", operation, "--stderr").stdout
    assert "said" in said
    assert "Permission denied" in said


@pytest.mark.parametrize("terminal", ["--terminal", "--no-terminal"])
def test_a_command_beside_a_job_runs_as_its_account_in_its_cgroup_and_folder(
    up: Up, account: pwd.struct_passwd, terminal: str
) -> None:
    script = "id -un; id -G; pwd; cat /proc/self/cgroup; grep CapEff /proc/self/status; ulimit -d; tty -s; echo $?"
    job = f"({script}) </dev/null; exec sleep 1000"
    operation = up.start_operation("--cwd", "/", "--memory", "200M", "--", "sh", "-c", job)
    up.wait_line(operation, "1")

    beside = up.run("op", "exec", operation, "0", terminal, "--", "sh", "-c", script).stdout.splitlines()

    inside = up.run("op", "logs", operation).stdout.splitlines()
    assert inside[0] == account.pw_name
    has_terminal = terminal == "--terminal"
    assert beside == [*inside[:-1], "0" if has_terminal else "1"]
    up.run("op", "abort", operation)


def test_a_shell_runs_as_the_account(up: Up, account: pwd.struct_passwd) -> None:
    async def body() -> bytes:
        async with connect(state=up.state) as client:
            spec = OperationSpec(PoolName(""), ["sh", "-c", "id -un; echo >/dev/tty; ls -l $(tty)"], terminal=True)
            operation = await client.start(spec)
            while (node := await client.sessions.last_node_of(operation.id)) is None:  # noqa: ASYNC110
                await anyio.sleep(0.05)
            async with client.sessions.terminal(operation.id, node) as session:
                return b"".join([output.stdout async for output in session.read()])

    said = anyio.run(body).decode()

    assert said.startswith(account.pw_name)
    assert f" {account.pw_name} " in said.partition("\n")[2]


def test_the_job_of_an_account_is_kept_to_its_memory_where_root_may_not_limit_others(up: Up) -> None:
    """In a container root has no right to set the limits of another account's process, and no job with `--memory` began."""
    operation = up.start_operation("--cwd", "/", "--memory", "200M", "--", "sh", "-c", "ulimit -d; ulimit -H -d")
    up.run("op", "wait", operation)

    soft, hard = up.run("op", "logs", operation).stdout.split()
    assert soft == hard
    assert int(soft) * 1024 >= 200 * 2**20


def test_files_that_go_with_an_operation_belong_to_the_account(
    up: Up, account: pwd.struct_passwd, tmp_path: Path
) -> None:
    (tmp_path / "words").write_text("water\n")
    script = 'cat words "$HEADRACE_FILES/words" && echo more >> words && stat -c "%U %a" . words'

    operation = up.start_operation("--upload", str(tmp_path), "--", "sh", "-c", script)
    up.run("op", "wait", operation)

    lines = up.run("op", "logs", operation).stdout.splitlines()
    assert lines == ["water", "water", f"{account.pw_name} 700", f"{account.pw_name} 644"]


def test_a_node_whose_jobs_cannot_reach_the_agents_key_is_isolated_and_a_tree_that_requires_it_uses_it(up: Up) -> None:
    up.run("tree", "set", "default", "require_isolation=true")
    up.run("run", "--cwd", "/", "--wait", "--", "true")

    (node,) = json.loads(up.run("node", "list", "--json").stdout)["nodes"]
    assert (node["state"], node["isolation"], node["left_out"]) == ("online", "full", "")
    assert "jobs run as other accounts" in node["isolation_detail"]
    assert "full: jobs run as other accounts" in " ".join(up.run("node", "get", "alpha").stdout.split())


def test_run_op_get_and_the_table_of_jobs_say_as_whom(up: Up, account: pwd.struct_passwd) -> None:
    done = up.run("run", "--cwd", "/", "--wait", "--", "true")
    operation = done.stderr.split()[1]

    assert f"run as {account.pw_name}" in done.stderr
    assert jobs(up, operation)["jobs"][0]["account"] == account.pw_name
    shown = up.run("op", "get", operation, "--jobs").stdout
    assert any(line.split() == ["jobs", "run", "as", account.pw_name] for line in shown.splitlines())
    # The table repeats it only where jobs ran as several accounts.
    assert shown.count(account.pw_name) == 1


def test_a_job_that_runs_is_shown_with_its_account(up: Up, account: pwd.struct_passwd) -> None:
    operation = up.start_operation("--cwd", "/", "--", "sh", "-c", "echo began; exec sleep 1000")
    up.wait_line(operation, "began")

    (place,) = jobs(up, operation)["places"]["running"]
    up.run("op", "abort", operation)

    assert place["account"] == account.pw_name


def test_a_folder_that_the_account_may_not_enter_is_named(up: Up, account: pwd.struct_passwd, tmp_path: Path) -> None:
    private = tmp_path / "private"
    (private / "inside").mkdir(parents=True, mode=0o755)
    private.chmod(0o700)

    done = up.run(
        *("run", "--cwd", str(private / "inside"), "--max-failed-job-count", "1", "--wait", "--", "pwd"), expect=1
    )

    assert f"failed on node alpha as {account.pw_name}" in done.stderr
    assert f"not started: the working directory {private}/inside: Permission denied" in done.stderr


@pytest.mark.parametrize(
    ("users", "said"),
    [
        ("{person}=no-such-account", "this host has no account no-such-account"),
        ("{person}=root", "account root is the superuser's"),
        ("somebody-else=nobody", "names no account for this person"),
    ],
)
def test_an_account_that_cannot_be_is_named(users: str, said: str) -> None:
    running = Up()
    running.environment["HEADRACE_AGENT_USERS"] = users.format(person=login_user())
    with running as up:
        done = up.run("run", "--max-failed-job-count", "1", "--wait", "--", "true", expect=1)

    assert said in done.stderr


def test_a_person_who_is_named_like_an_account_of_the_system_runs_no_job_as_it() -> None:
    async def last_failure() -> str:
        async with connect(state=running.state, user="daemon") as client:
            operation = await client.run(["id"], working_directory="/", max_failed_job_count=1)
            with anyio.fail_after(60):
                view = await operation.wait()
            return view.last_failures[-1].reason

    running = Up()
    running.environment["HEADRACE_AGENT_USERS"] = "same"
    with running:
        said = anyio.run(last_failure)

    assert "account daemon (uid 1) is a system account" in said


def test_on_one_machine_jobs_run_as_the_agent_though_it_is_root_and_that_is_said() -> None:
    with Up() as up:
        done = up.run("run", "--wait", "--", "id", "-u")
        operation = done.stderr.split()[1]

        assert up.run("op", "logs", operation).stdout.strip() == str(os.geteuid())
        assert "run as the agent's own account" in done.stderr
        assert "the agent's own account" in up.run("op", "get", operation, "--jobs").stdout
