"""Messages to systemd, received at a real socket."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from headrace.runtime.readiness import Readiness
from headrace.systemd.notifier import Notifier, notifier_of, silent_notifier
from headrace_cli.cluster.watched_server import ClientAddress, client_address, greets
from tests.support.nats_server import nats_server
from tests.support.notify_socket import NotifySocket


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def systemd() -> Iterator[NotifySocket]:
    with tempfile.TemporaryDirectory(prefix="hr-") as folder, NotifySocket(Path(folder)) as made:
        yield made


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def notifier(systemd: NotifySocket, clock: Clock) -> Notifier:
    return notifier_of({**systemd.variables}, 17, clock)


def test_a_start_is_extended_until_the_process_is_ready_and_then_it_gives_signs_of_life(
    systemd: NotifySocket, notifier: Notifier
) -> None:
    notifier.status("reads\nthe log")
    notifier.ready("leads allocator")

    assert systemd.received() == [
        {"EXTEND_TIMEOUT_USEC": "60000000", "STATUS": "reads the log"},
        {"READY": "1", "WATCHDOG": "1", "STATUS": "leads allocator"},
    ]


def test_signs_of_life_come_three_times_within_the_period_of_the_watchdog(
    systemd: NotifySocket, notifier: Notifier, clock: Clock
) -> None:
    notifier.ready("")
    for _ in range(60):
        clock.now_s += 1.0
        notifier.alive()

    assert len([each for each in systemd.received() if each["WATCHDOG"] == "1"]) == 1 + 3


def test_the_variables_are_taken_so_that_no_child_speaks_for_the_process(systemd: NotifySocket) -> None:
    environment = {**systemd.variables, "WATCHDOG_PID": "17", "HOME": "/"}

    assert notifier_of(environment, 17, Clock()).period_s == 20.0
    assert environment == {"HOME": "/"}


@pytest.mark.parametrize("variables", [{"WATCHDOG_PID": "18"}, {"WATCHDOG_USEC": "x"}, {"WATCHDOG_USEC": ""}])
def test_a_watchdog_of_another_process_or_none_leaves_the_status(
    systemd: NotifySocket, variables: dict[str, str]
) -> None:
    given = {**systemd.variables, "WATCHDOG_USEC": "3000000", **variables}
    notifier = notifier_of(given, 17, Clock())

    assert notifier.period_s == 20.0
    notifier.ready("works")
    assert systemd.received()[0]["STATUS"] == "works"


def test_without_systemd_or_with_a_socket_that_is_gone_nothing_happens() -> None:
    silent_notifier().ready("")
    notifier_of({"NOTIFY_SOCKET": "/nonexistent/socket"}, 17, Clock()).ready("")


def test_an_abstract_address_is_understood() -> None:
    with tempfile.TemporaryDirectory() as folder:
        name = f"@headrace-test-{os.getpid()}{folder}"
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
            listener.bind("\0" + name[1:])
            Notifier(name, 0.0, Clock()).ready("here")
            assert listener.recv(100).startswith(b"READY=1\n")


async def test_a_service_that_waits_for_something_outside_is_ready_after_a_moment(systemd: NotifySocket) -> None:
    readiness = Readiness(notifier_of({**systemd.variables}, os.getpid(), Clock()))
    readiness.waits("stands by")
    async with readiness.kept_alive():
        while not (found := [each for each in systemd.received() if "READY" in each]):  # noqa: ASYNC110
            await anyio.sleep(0.05)

    assert found[0]["STATUS"] == "stands by"


async def test_a_service_that_prepares_its_work_is_not_ready_before_it_is_done(systemd: NotifySocket) -> None:
    readiness = Readiness(notifier_of({**systemd.variables}, os.getpid(), Clock()))
    async with readiness.kept_alive():
        readiness.waits("stands by")
        await anyio.sleep(0.1)
        readiness.works("begins to lead")
        await anyio.sleep(1.5)
        assert [each for each in systemd.received() if "READY" in each] == []
        readiness.ready("leads")
    assert [each["STATUS"] for each in systemd.received() if "READY" in each] == ["leads"]


def test_a_server_that_is_stopped_greets_nobody() -> None:
    with nats_server() as server:
        assert greets(ClientAddress("127.0.0.1", server.port))
        server.freeze()
        assert not greets(ClientAddress("127.0.0.1", server.port), timeout_s=0.2)
        server.thaw()
    assert not greets(ClientAddress("127.0.0.1", server.port))


@pytest.mark.parametrize(
    ("configuration", "address"),
    [
        ('listen: "0.0.0.0:4222"\ntls { handshake_first: true }\n', ClientAddress("127.0.0.1", 4222, True)),
        ('a: b\nlisten: "[::]:4222"\n', ClientAddress("::1", 4222)),
        ('listen: "10.0.0.1:4222"\n', ClientAddress("10.0.0.1", 4222)),
        ("port: 4222\n", None),
    ],
)
def test_the_watcher_of_a_server_connects_where_the_server_listens(
    configuration: str, address: ClientAddress | None
) -> None:
    assert client_address(configuration) == address


def test_the_runner_imports_no_event_loop_for_its_messages() -> None:
    words = "import sys, headrace.systemd.notifier; print('asyncio' in sys.modules or 'anyio' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", words], capture_output=True, text=True, check=True)

    assert done.stdout == "False\n"
