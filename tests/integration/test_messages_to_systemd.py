"""What real processes tell the systemd that runs them: a service, a runner and a server. A process that hangs tells nothing more."""

from __future__ import annotations

import datetime
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio.to_thread
import pytest

from headrace_cli.cluster.certificates import write_certificates
from tests.support.ended_operations import world
from tests.support.nats_server import free_port, nats_server
from tests.support.notify_socket import NotifySocket
from tests.support.stores import provision_stores

pytestmark = pytest.mark.long

#: So short that three signs of life come each second.
WATCHDOG_S = 1.0


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="hr-") as made:
        yield Path(made)


@contextmanager
def running(systemd: NotifySocket, *words: str, **variables: str) -> Iterator[subprocess.Popen[bytes]]:
    environment = {**os.environ, **systemd.variables, **variables}
    with subprocess.Popen([sys.executable, "-m", *words], env=environment, stderr=subprocess.DEVNULL) as process:
        try:
            yield process
        finally:
            process.send_signal(signal.SIGCONT)
            process.kill()


def goes_silent(systemd: NotifySocket, pid: int) -> None:
    """Check that signs of life come, and that none comes while the process is stopped."""
    systemd.received()
    systemd.until("WATCHDOG", "1")
    os.kill(pid, signal.SIGSTOP)
    time.sleep(0.2)
    systemd.received()
    time.sleep(WATCHDOG_S)
    assert systemd.received() == []
    os.kill(pid, signal.SIGCONT)
    systemd.until("WATCHDOG", "1")


async def test_a_service_says_what_it_waits_for_and_is_ready_as_a_leader_only_when_it_leads(folder: Path) -> None:
    with NotifySocket(folder, WATCHDOG_S) as systemd, nats_server() as server:
        with running(systemd, "headrace_integral", HEADRACE_NATS_URL=server.url):
            *_, waiting = systemd.until("READY", "1")
            assert "headrace bus provision" in waiting["STATUS"]
            await provision_stores(server.url)
            systemd.until("STATUS", "leads integral.default in term 1")
        with running(systemd, "headrace_integral", HEADRACE_NATS_URL=server.url) as again:
            told = systemd.until("READY", "1")
            assert told[-1]["STATUS"] == "leads integral.default in term 2"
            assert all("EXTEND_TIMEOUT_USEC" in each for each in told[:-1])
            goes_silent(systemd, again.pid)


def test_a_service_whose_server_is_away_does_not_keep_systemd_waiting(folder: Path) -> None:
    url = f"nats://127.0.0.1:{free_port()}"
    with NotifySocket(folder) as systemd, running(systemd, "headrace_integral", HEADRACE_NATS_URL=url):
        assert systemd.until("READY", "1")[-1]["STATUS"] == f"waits for the server at {url}"


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (("notify", "rules.yaml"), "notifies hook"),
        (("export", "operations", "ended.jsonl", "--follow"), "exports operations to ended.jsonl"),
    ],
)
async def test_a_consumer_is_ready_when_it_reads_the_log(
    words: tuple[str, ...], status: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    (folder / "rules.yaml").write_text(
        "targets: {hook: {webhook: 'http://127.0.0.1:9'}}\nrules: {all: {when: operation_ended, to: hook}}\n"
    )
    async with world() as it:
        with (
            NotifySocket(folder, WATCHDOG_S) as systemd,
            running(systemd, "headrace_cli", *words, "--state", str(it.state)) as consumer,
        ):
            told = await anyio.to_thread.run_sync(systemd.until, "READY", "1")
            assert (told[0]["STATUS"], told[-1]["STATUS"]) == ("waits for the server", status)
            await anyio.to_thread.run_sync(goes_silent, systemd, consumer.pid)


def test_a_web_service_is_ready_when_it_listens(folder: Path) -> None:
    write_certificates(folder, ["127.0.0.1"], datetime.datetime.now(datetime.UTC))
    files = ("--certificate", str(folder / "server.pem"), "--key", str(folder / "server.key"))
    # It connects to the server only for the people who use it.
    url = f"nats://127.0.0.1:{free_port()}"
    with (
        NotifySocket(folder, WATCHDOG_S) as systemd,
        running(systemd, "headrace_cli", "web", "--listen", "127.0.0.1:0", *files, HEADRACE_NATS_URL=url) as web,
    ):
        assert systemd.until("READY", "1")[-1]["STATUS"].startswith("serves https://127.0.0.1:")
        goes_silent(systemd, web.pid)


def test_a_runner_is_ready_when_it_takes_jobs(folder: Path) -> None:
    state = str(folder / "state")
    with (
        NotifySocket(folder, WATCHDOG_S) as systemd,
        running(systemd, "headrace_agent.runner", "--state", state, "--isolation", "none") as runner,
    ):
        assert systemd.until("READY", "1")[-1]["STATUS"] == "takes jobs"
        goes_silent(systemd, runner.pid)


def test_the_server_of_a_unit_is_watched_as_long_as_it_runs(folder: Path) -> None:
    port = free_port()
    (folder / "nats.conf").write_text(f'listen: "127.0.0.1:{port}"\n')
    server = str(Path(sys.executable).with_name("nats-server"))
    words = ("headrace_cli.cluster.watched_server", server, "-c", str(folder / "nats.conf"))
    with NotifySocket(folder, WATCHDOG_S) as systemd, running(systemd, *words) as process:
        assert systemd.until("READY", "1")[-1]["STATUS"] == f"serves clients at port {port}"
        assert os.path.basename(os.readlink(f"/proc/{process.pid}/exe")) == "nats-server"
        goes_silent(systemd, process.pid)


def test_a_server_at_an_address_that_its_configuration_does_not_name_is_ready_too(folder: Path) -> None:
    (folder / "nats.conf").write_text(f"host: 127.0.0.1\nport: {free_port()}\n")
    server = str(Path(sys.executable).with_name("nats-server"))
    words = ("headrace_cli.cluster.watched_server", server, "-c", str(folder / "nats.conf"))
    with NotifySocket(folder, WATCHDOG_S) as systemd, running(systemd, *words):
        assert systemd.until("READY", "1")[-1]["STATUS"] == "serves clients at an address that is not watched"
        systemd.until("WATCHDOG", "1")
