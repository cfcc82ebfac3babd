"""The image by itself, each service in a container beside a NATS server in another: refused without a credential, healthy with its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from testcontainers.core.config import testcontainers_config
from testcontainers.core.container import DockerContainer
from testcontainers.core.network import Network
from testcontainers.core.wait_strategies import ExecWaitStrategy, LogMessageWaitStrategy
from testcontainers.core.waiting_utils import WaitStrategy

from tests.containers.stack import ROOT, SERVICES, run

# Each test removes what it started. The image of the helper that would do it otherwise is not to be had everywhere.
testcontainers_config.ryuk_disabled = True

IMAGE = os.environ.get("HEADRACE_IMAGE", "headrace:0.1.0")
COMPOSE = (ROOT / "compose" / "compose.yaml").read_text()
#: The server of the stack.
NATS_IMAGE = os.environ.get("NATS_IMAGE") or re.findall(r"\$\{NATS_IMAGE:-(.*?)\}", COMPOSE)[0]
IS_HEALTHY = "import urllib.request as r; r.urlopen('http://127.0.0.1:9464/health', timeout=3)"


class Place:
    """A network with a NATS server in it, and a cluster's folder, which containers have under the same path."""

    def __init__(self, folder: Path, containers: ExitStack) -> None:
        self.cluster = folder / "cluster"
        self._containers = containers
        run([sys.executable, "-m", "headrace_cli", "cluster", "init", str(self.cluster), "--url=nats://nats:4222"])
        self._network = containers.enter_context(Network())
        nats = self._container(NATS_IMAGE, "-c", str(self.cluster / "nats" / "nats.conf")).with_network_aliases("nats")
        nats.with_kwargs(entrypoint="nats-server", user=f"{os.getuid()}:{os.getgid()}")
        self._start(nats, LogMessageWaitStrategy("Server is ready"))

    def start(self, *words: str, waits_for: WaitStrategy) -> DockerContainer:
        """Starts a command of the image."""
        return self._start(self._container(IMAGE, *words), waits_for)

    def ends(self, *words: str) -> tuple[int, str]:
        """The exit status of a command of the image, and what it said."""
        container = self._container(IMAGE, *words)
        container.start()
        wrapped = container.get_wrapped_container()
        try:
            status = int(wrapped.wait(timeout=60)["StatusCode"])
            return status, wrapped.logs().decode()
        finally:
            container.stop()

    def _container(self, image: str, *words: str) -> DockerContainer:
        made = DockerContainer(image, network=self._network).with_command(list(words))
        made.with_envs(HEADRACE_NATS_URL="nats://nats:4222", HEADRACE_METRICS_PORT="9464")
        made.with_volume_mapping(str(self.cluster), str(self.cluster), "rw")
        made.with_kwargs(user=f"{os.getuid()}:{os.getgid()}")
        return made

    def _start(self, container: DockerContainer, waits_for: WaitStrategy) -> DockerContainer:
        return self._containers.enter_context(container.waiting_for(waits_for))


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    subprocess.run(["make", "--no-print-directory", "image"], cwd=ROOT, check=True)
    with tempfile.TemporaryDirectory(prefix="hr-") as folder, ExitStack() as containers:
        made = Place(Path(folder), containers)
        status, said = made.ends(
            *("headrace", "bus", "provision", "--credential-file", f"{made.cluster}/provisioner/credential")
        )
        assert status == 0, said
        yield made


@pytest.mark.parametrize("service", SERVICES)
def test_a_service_without_a_credential_ends_and_says_so(service: str, place: Place) -> None:
    status, said = place.ends(f"headrace-{service.replace('_', '-')}")

    assert status == 3
    assert "credential" in said


@pytest.mark.parametrize("service", SERVICES)
def test_a_service_alone_is_healthy(service: str, place: Place) -> None:
    settings = str(place.cluster / service / "settings.toml")
    healthy = ExecWaitStrategy(["python", "-I", "-c", IS_HEALTHY])

    place.start(f"headrace-{service.replace('_', '-')}", "--config", settings, waits_for=healthy)
