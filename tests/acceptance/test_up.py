"""`headrace up`: start, refusals, and what each way of stopping leaves."""

from __future__ import annotations

import os
import select
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from headrace.bus import Credential, CredentialRefused, PermissionRefused, connect
from headrace.client import NotAdmitted, find_place
from headrace.wire import subjects
from tests.support.headrace_up import Up

ROLES = ["admission", "agent", "allocator", "fair_share", "integral", "job", "nats-server", "runner"]
#: Says that it runs, then waits until it is ended; python is given so that a signal reaches it at once.
WAITS = ("python", "-u", "-c", "import signal; print('up', flush=True); signal.pause()")


@pytest.fixture(scope="module")
def shared() -> Iterator[Up]:
    """One for the tests that leave it as it was."""
    with Up() as up:
        yield up


def test_after_a_stop_nothing_of_ours_runs_and_an_interrupted_job_runs_again_at_the_next_up() -> None:
    """Stopped by Ctrl-C, then by SIGTERM, which does the same."""
    with Up() as up:
        operation = up.start_operation("--", "sh", "-c", "echo attempt $HEADRACE_ATTEMPT; [ -e go ] || exec sleep 1000")
        up.wait_line(operation, "attempt 1")
        assert sorted(set(up.roles())) == ROLES

        assert up.stop() == 0

        assert up.processes() == []
        assert "left after the stop" not in (up.state / "logs" / "up.log").read_text()
        assert not (up.state / "endpoint.json").exists()
        assert "Headrace is not running" in up.run("op", "list", expect=3).stderr
        (up.state / "go").touch()

        up.start()

        assert "completed" in up.run("op", "wait", operation).stderr
        assert up.run("op", "logs", operation).stdout == "attempt 2\n"
        view = msgspec.json.decode(up.run("op", "get", operation, "--json").stdout)["operation"]
        assert (view["failed_jobs"], view["aborted_jobs"]) == (0, 1)

        up.wait_line(up.start_operation("--jobs", "2", "--", *WAITS), "up", times=2)
        assert up.stop(signal.SIGTERM) == 0
        assert up.processes() == []
        assert "left after the stop" not in (up.state / "logs" / "up.log").read_text()
        # None of them asked for what its credential refuses.
        assert "Violation" not in (up.state / "logs" / "nats-server.log").read_text()


@pytest.mark.long
def test_with_wait_running_jobs_end_by_themselves() -> None:
    with Up("--wait") as up:
        operation = up.start_operation("--", "sh", "-c", "echo up; until [ -e go ]; do sleep 0.05; done; touch ended")
        up.wait_line(operation, "up")
        up.send(signal.SIGINT)
        up.wait_said("stopping when the running jobs have ended")
        assert "job" in up.roles()
        (up.state / "go").touch()

        assert up.wait() == 0

        assert (up.state / "ended").exists()
        assert up.processes() == []


@pytest.mark.long
def test_with_leave_running_jobs_stay_for_the_next_up() -> None:
    with Up("--leave-running") as up:
        operation = up.start_operation("--", "sh", "-c", "echo up; until [ -e go ]; do sleep 0.05; done; echo end")
        up.wait_line(operation, "up")

        assert up.stop() == 0
        assert sorted(set(up.roles())) == ["job", "runner"]

        up.start()
        (up.state / "go").touch()
        up.run("op", "wait", operation)
        assert up.run("op", "logs", operation).stdout == "up\nend\n"
        view = msgspec.json.decode(up.run("op", "get", operation, "--json").stdout)["operation"]
        assert view["aborted_jobs"] == 0


@pytest.mark.long
def test_whoever_follows_events_is_told_that_all_was_stopped() -> None:
    with Up() as up, up.begin("events", "--follow") as follower:
        assert follower.stderr is not None
        try:
            assert "following" in follower.stderr.readline()
            assert up.stop() == 0
            assert follower.stderr.readline() == "the bus does not answer: events until it answers again are missed\n"
            follower.send_signal(signal.SIGINT)
            assert (follower.wait(20), follower.stderr.read()) == (130, "")
        finally:
            follower.kill()


@pytest.mark.long
def test_a_second_ctrl_c_kills_even_what_ignores_every_signal() -> None:
    deaf = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True)\nwhile True: signal.pause()"
    with Up() as up:
        operation = up.start_operation("--interruption-timeout", "1h", "--", "python", "-c", deaf)
        up.wait_line(operation, "up")
        up.send(signal.SIGINT)
        up.wait_said("stopping: running jobs are interrupted")

        up.stop()

        assert up.processes() == []


@pytest.mark.long
def test_what_an_up_that_was_killed_left_ends_and_is_taken_over_when_even_its_guard_was_killed() -> None:
    with Up() as up:
        operation = up.start_operation("--", *WAITS)
        up.wait_line(operation, "up")
        descriptors = [os.pidfd_open(process.pid) for process in up.processes()]

        up.send(signal.SIGKILL)
        up.wait()

        for descriptor in descriptors:
            # The kernel makes it readable when its process has ended.
            assert select.select([descriptor], [], [], 30.0)[0]
            os.close(descriptor)
        up.start()
        view = msgspec.json.decode(up.run("op", "get", operation, "--json").stdout)["operation"]
        assert view["state"] == "running"
        assert "had left" not in up.said()

        for process in Path("/proc").iterdir():
            if process.name.isdigit() and _is_guard(process, up.state):
                os.kill(int(process.name), signal.SIGKILL)
        up.send(signal.SIGKILL)
        up.wait()
        assert "nats-server" in up.roles()

        up.start()

        assert up.roles().count("nats-server") == 1
        assert "a killed `headrace up` had left" in up.said()


def _is_guard(process: Path, state: Path) -> bool:
    try:
        words = (process / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return b"headrace_cli.up.guard" in words and str(state).encode() in words


@pytest.mark.long
def test_whatever_dies_is_started_again_and_running_jobs_notice_nothing() -> None:
    with Up() as up:
        operation = up.start_operation("--", "sh", "-c", "echo up; until [ -e go ]; do sleep 0.05; done; echo end")
        up.wait_line(operation, "up")
        for role in ("allocator", "fair_share", "integral", "admission", "agent", "nats-server"):
            victim = next(process for process in up.processes() if process.role == role)
            os.kill(victim.pid, signal.SIGKILL)
            up.wait_said(f"{role}.* ended .*SIGKILL.* restarting it")
            up.run("node", "list")  # without its server nothing answers until `up` has started it again
        (up.state / "go").touch()

        assert "completed" in up.run("op", "wait", operation).stderr
        assert up.run("op", "logs", operation).stdout == "up\nend\n"
        assert "completed" in up.run("run", "--wait", "--jobs", "3", "--", "true").stderr


def test_settings_that_cannot_be_used_end_it_with_the_reason() -> None:
    up = Up()
    up.environment["HEADRACE_FAIR_SHARE_LOG_LEVEL"] = "loud"
    try:
        up.start(ready=False)
        assert up.wait() == 1
        assert "fair_share ended (exit status 2" in up.said()
        assert up.processes() == []
    finally:
        up.__exit__(None, None, None)


@pytest.mark.long
def test_a_node_that_does_not_come_online_in_time_is_said() -> None:
    up = Up("--ready-timeout", "8s")
    up.environment["HEADRACE_AGENT_NATS_URL"] = "tls://127.0.0.1:1"
    up.start(ready=False)
    try:
        assert up.wait() == 1
        words = "not ready within 8 s: agent-alpha has not brought its node online (not known yet)."
        assert words in up.said()
    finally:
        up.__exit__(None, None, None)


def test_a_state_folder_in_use_is_said_and_changes_nothing(shared: Up) -> None:
    before = _contents(shared.state)

    done = shared.run("up", "--port", "0", expect=4)

    assert f"the state folder {shared.state} is in use by `headrace up` with process id" in done.stderr
    assert _contents(shared.state) == before
    assert shared.run("node", "list").stdout.count("alpha") == 1


def test_a_taken_port_is_said_and_changes_nothing() -> None:
    up = Up()
    try:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            done = up.run("up", "--port", str(port), expect=4)
        assert f"port {port} on 127.0.0.1 is taken" in done.stderr
        assert set(_contents(up.state)) <= {"lock"}
    finally:
        up.__exit__(None, None, None)


def _contents(folder: Path) -> dict[str, bytes]:
    """Files that `up` itself writes."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file() and path.suffix != ".stderr"}


async def test_a_client_without_the_credential_is_refused(shared: Up) -> None:
    place = find_place(state=shared.state)
    user = (shared.state / "credential").read_text().partition(":")[0]
    for credential in (None, Credential(user=user, password="guessed")):
        with pytest.raises(CredentialRefused):
            async with connect(
                [place.url], name="stranger", credential=credential, ca_file=place.ca_file, connect_timeout_s=10.0
            ):
                pass
    wrong = shared.state / "wrong"
    wrong.touch(mode=0o600)
    wrong.write_text(f"{user}:guessed\n")
    with pytest.raises(NotAdmitted):
        async with shared.bus(wrong, "_INBOX.stranger"):
            pass


async def test_what_a_node_holds_opens_nothing_but_its_own_subjects(shared: Up) -> None:
    (file,) = (shared.state / "credentials").glob("agent-*")
    async with shared.bus(file, subjects.inbox("node", file.name.removeprefix("agent-"))) as bus:
        for subject in (
            subjects.heartbeat("default", "another"),
            subjects.user("anna", "op.list"),
            subjects.ledger("draw"),
            "$JS.API.STREAM.INFO.HEADRACE_OPERATIONS",
        ):
            with pytest.raises(PermissionRefused):
                await bus.request(subject, b"", timeout_s=5.0)
        for subject in (subjects.nudge("another"), subjects.EVENTS):
            with pytest.raises(PermissionRefused):
                await bus.subscribe(subject)


def test_only_the_owner_can_look_into_the_state_folder(shared: Up) -> None:
    assert shared.state.stat().st_mode & 0o777 == 0o700
    for name in ("credential", "endpoint.json", "nats.conf", "services.toml", "logs/up.log", "logs/admission.log"):
        assert (shared.state / name).stat().st_mode & 0o077 == 0, name
