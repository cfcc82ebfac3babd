"""The compose stack as an operator has it: up, a host joins, a service dies or is replaced, and the work goes on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.containers.stack import ROOT, SERVICES, Stack, agent, run


@contextmanager
def operation_at_work(stack: Stack, host: Path) -> Iterator[None]:
    """An operation of two jobs on one core: when the block begins the first one runs, and it ends when the block does."""
    started, go_on = host / "started", host / "go-on"
    for fifo in (started, go_on):
        os.mkfifo(fifo)
    words = [
        "--jobs",
        "2",
        "--cpu",
        "1",
        "--node-filter",
        "outside",
        "--wait",
        "--",
        "sh",
        "-c",
        "echo >started; read x <go-on",
    ]
    command = [sys.executable, "-m", "headrace_cli", "run", *words]
    with subprocess.Popen(
        command, env=stack.environment, cwd=host, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            started.read_text()
            yield
            go_on.write_text("\n")
            started.read_text()
            go_on.write_text("\n")
            said, _ = process.communicate()
        except BaseException:
            process.kill()
            raise
    for fifo in (started, go_on):
        fifo.unlink()
    assert "2 of 2 jobs completed" in said


def test_people_outside_find_all_services_with_no_other_step(stack: Stack) -> None:
    told = json.loads(stack.headrace("service", "list", "--json"))

    assert {view["role"].partition(".")[0] for view in told["processes"] if view["leads"]} == set(SERVICES)
    assert told["missing"] == []
    # Their credential is nothing for a commit.
    assert (ROOT / "compose" / "client" / ".gitignore").exists()


@pytest.mark.parametrize("service", ["nats", *SERVICES])
def test_nobody_is_root_or_writes_outside_of_its_volume(stack: Stack, service: str) -> None:
    shown = run(
        [
            "docker",
            "exec",
            stack.container(service),
            "sh",
            "-c",
            "id -u; cat /proc/1/status; touch /etc/x; touch /opt/x; true",
        ]
    )
    user, *status = shown.split("\n")

    assert user == "10001"
    fields = dict(line.split(":\t", 1) for line in status if ":\t" in line)
    assert fields["Uid"].split() == ["10001"] * 4
    assert (int(fields["CapEff"], 16), fields["NoNewPrivs"]) == (0, "1")
    written = ["docker", "exec", stack.container(service), "sh", "-c", "ls /etc/x /opt/x"]
    assert subprocess.run(written, capture_output=True).returncode != 0


@pytest.mark.parametrize("service", SERVICES)
def test_a_service_sees_no_credential_but_its_own(stack: Stack, service: str) -> None:
    shown = run(["docker", "exec", stack.container(service), "find", "/cluster", "-name", "credential"])

    assert shown.split() == [f"/cluster/{service}/credential"]


def test_what_has_begun_goes_on_while_the_allocator_is_killed(stack: Stack, host: Path) -> None:
    before = stack.inspect("allocator")
    with operation_at_work(stack, host):
        # By its number on the machine, as a crash is: a container that is stopped through the engine is not started again.
        kill = ["sh", "-c", f"kill -9 {before['State']['Pid']}"]
        run(["docker", "run", "--rm", "--pid=host", "--network=none", stack.image, *kill])
    after = stack.inspect("allocator")

    assert after["Id"] == before["Id"]
    assert after["RestartCount"] == before["RestartCount"] + 1


def test_one_service_is_replaced_by_a_newly_built_image_while_the_others_run(stack: Stack, host: Path) -> None:
    newer = f"{stack.image}-newer"
    base = ["--build-arg", f"BASE={os.environ['HEADRACE_BASE']}"] if "HEADRACE_BASE" in os.environ else []
    build = [
        "docker",
        "build",
        "-q",
        "-f",
        "compose/Dockerfile",
        *base,
        "--build-arg",
        "REVISION=newer",
        "-t",
        newer,
        ".",
    ]
    run(build)
    others = ["nats", *(service for service in SERVICES if service != "allocator")]
    before = {service: stack.inspect(service) for service in [*others, "allocator"]}
    since_s = int(run(["date", "+%s"]))
    with operation_at_work(stack, host):
        stack.compose("up", "-d", "--no-deps", "--no-build", "allocator", HEADRACE_IMAGE=newer)
        stack.wait_healthy(("allocator",), since_s)
    replaced = stack.inspect("allocator")

    assert replaced["Id"] != before["allocator"]["Id"]
    assert replaced["Config"]["Labels"]["org.opencontainers.image.revision"] == "newer"
    for service in others:
        now = stack.inspect(service)
        assert (now["Id"], now["State"]["StartedAt"]) == (before[service]["Id"], before[service]["State"]["StartedAt"])


def test_sample_agents_run_jobs(stack: Stack) -> None:
    stack.compose("--profile", "agents", "up", "-d", "--no-build")

    stack.headrace("run", "--jobs", "3", "--memory", "300M", "--node-filter", "!outside", "--wait", "--", "hostname")
    online = [node["node"] for node in json.loads(stack.headrace("node", "list", "--json"))["nodes"]]
    assert set(online) >= {"sample-1", "sample-2", "sample-3"}


def test_a_person_who_was_let_in_speaks_in_their_own_name(stack: Stack) -> None:
    person = stack.let_in("ada")

    told = json.loads(stack.headrace("whoami", "--json", "--state", str(person)))
    assert (told["user"], person.stat().st_uid) == ("ada", stack.client.stat().st_uid)


def test_a_host_that_was_shut_out_does_not_get_in(stack: Stack) -> None:
    with tempfile.TemporaryDirectory(prefix="hr-") as folder:
        state = Path(folder) / "state"
        with agent(stack, stack.token("brief", "--tag", "brief"), state, HEADRACE_AGENT_TAGS="brief"):
            stack.headrace("run", "--node-filter", "brief", "--wait", "--", "true")
            stack.headrace("node", "drain", "brief")
            stack.headrace("node", "remove", "brief")
        command = [str(Path(sys.executable).with_name("headrace-agent")), "--config", str(state / "settings.toml")]
        words = os.environ | {"HEADRACE_CONNECT_TIMEOUT_MS": "10s"}
        done = subprocess.run(command, env=words, capture_output=True, text=True)

    assert done.returncode == 3, done.stdout
