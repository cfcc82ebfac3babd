"""The compose stack for a test: a project, a port and a folder for people of its own, and nothing of it stays."""

from __future__ import annotations

import json
import os
import re
import secrets
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.nats_server import free_port

ROOT = Path(__file__).parents[2]
SERVICES = ("admission", "fair_share", "integral", "allocator")
#: No command takes longer; it only keeps a broken one from hanging.
_LIMIT_S = 170.0


class Stack:
    """One project of compose, with the profile `tracing`, or with `ha` and three servers, and with the changes of a file."""

    def __init__(self, folder: Path, *, is_ha: bool = False, changes: Path | None = None) -> None:
        self.client = folder / "client"
        self.client.mkdir(mode=0o700)
        self.image = os.environ.get("HEADRACE_IMAGE", "headrace:0.1.0")
        self._project = f"headrace-test-{secrets.token_hex(4)}"
        ports = {f"{name}_PORT": free_port() for name in ("HEADRACE", "PROMETHEUS", "COLLECTOR", "JAEGER")}
        ports |= {f"HEADRACE_PORT_{number}": free_port() for number in (2, 3)}
        self.prometheus_port, self.jaeger_port = ports["PROMETHEUS_PORT"], ports["JAEGER_PORT"]
        own = {name: str(port) for name, port in ports.items()}
        own |= {"HEADRACE_CLIENT": str(self.client), "HEADRACE_IMAGE": self.image}
        #: Where people and agents outside send their spans.
        self.trace_endpoint = "" if is_ha else f"http://127.0.0.1:{own['COLLECTOR_PORT']}"
        if not is_ha:
            own["HEADRACE_COLLECTOR"] = "http://collector:4318"
            own["HEADRACE_TRACE_ENDPOINT"] = self.trace_endpoint
        self.environment = {
            **os.environ,
            **own,
            "COMPOSE_PROJECT_NAME": self._project,
            "HEADRACE_STATE": str(self.client),
        }
        has_plugin = subprocess.run(["docker", "compose", "version"], capture_output=True).returncode == 0
        program = ["docker", "compose"] if has_plugin else ["docker-compose"]
        folder, profile = ROOT / "compose", "ha" if is_ha else "tracing"
        words = ["--env-file", str(folder / "ha.env")] if is_ha else []
        files = [] if changes is None else ["-f", str(changes)]
        self._compose = [*program, *words, "-f", str(folder / "compose.yaml"), *files, "--profile", profile]

    def compose(self, *words: str, **environment: str) -> str:
        """Runs a command of compose. Returns what it prints."""
        return run([*self._compose, *words], self.environment | environment)

    def type(self, page: str, section: str, number: int, cwd: Path) -> None:
        """Types the commands of compose in a page of `docs/how-to`: those of one block of a section."""
        text = (ROOT / "docs" / "how-to" / page).read_text().partition(f"\n## {section}\n")[2].partition("\n## ")[0]
        block = re.findall(r"```\n(.*?)```", text, re.DOTALL)[number]
        for line in (line for line in block.splitlines() if "docker compose" in line):
            command = line.replace("docker compose -f compose/compose.yaml", shlex.join(self._compose))
            run(["sh", "-ec", command], self.environment, cwd=cwd)

    def headrace(self, *words: str, cwd: Path | str = "/tmp") -> str:
        """Runs a command of Headrace outside of all containers."""
        return run([sys.executable, "-m", "headrace_cli", *words], self.environment, cwd=cwd)

    def container(self, service: str) -> str:
        """The id of a service's container."""
        return self.compose("ps", "-q", service).strip()

    def inspect(self, service: str) -> dict[str, Any]:
        """All that the engine knows of a container."""
        (found,) = json.loads(run(["docker", "inspect", self.container(service)]))
        return dict(found)

    def events(self, since_s: int, **filters: str) -> Iterator[dict[str, Any]]:
        """Events of this project's containers, those since then and those to come."""
        words = [f"--filter={name.replace('_', '-')}={value}" for name, value in filters.items()]
        words += [f"--filter=label=com.docker.compose.project={self._project}", f"--since={since_s}"]
        with subprocess.Popen(
            ["docker", "events", "--format={{json .}}", *words], stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            try:
                yield from map(json.loads, process.stdout)
            finally:
                process.terminate()

    def wait_healthy(self, services: tuple[str, ...], since_s: int) -> None:
        """Waits until each service was found healthy at some time since then."""
        missing = set(services)
        for event in self.events(since_s, event="health_status: healthy"):
            missing.discard(event["Actor"]["Attributes"]["com.docker.compose.service"])
            if not missing:
                return

    def token(self, node: str, *words: str) -> Path:
        """Makes a token by which a host joins. Returns the file that has it."""
        file = self.client.parent / f"{node}.token"
        file.write_text(self.headrace("node", "token", node, *words))
        return file

    def let_in(self, person: str) -> Path:
        """Lets a person in, and returns the folder that they get."""
        words = ("user", "add", person, "--cluster", "/cluster")
        self.compose("run", "--rm", "-T", "--entrypoint", "headrace", "init", *words)
        return self.client / "people" / person


def run(command: list[str], environment: dict[str, str] | None = None, *, cwd: Path | str = ROOT) -> str:
    """Runs a command that must succeed. Returns what it prints."""
    done = subprocess.run(
        command, env=environment, cwd=cwd, capture_output=True, text=True, timeout=_LIMIT_S, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 0, f"{' '.join(command)}: {done.stdout}\n{done.stderr}"
    return done.stdout


@contextmanager
def agent(stack: Stack, token: Path, folder: Path, **environment: str) -> Iterator[None]:
    """An agent outside of all containers, on a host that joins by a token."""
    words = {name: value for name, value in os.environ.items() if not name.startswith("HEADRACE_")}
    # The tests may be root, as which no agent starts jobs unless it is told to.
    words |= {"HEADRACE_TRACE_ENDPOINT": stack.trace_endpoint, "HEADRACE_AGENT_USERS": "agent", **environment}
    files = ["--token-file", str(token), "--folder", str(folder)]
    command = [sys.executable, "-m", "headrace_cli", "agent", "join", *files]
    with (
        (folder.parent / "agent.log").open("wb") as log,
        subprocess.Popen(command, env=words, stdout=log, stderr=log) as process,
    ):
        try:
            yield
        finally:
            process.terminate()


@contextmanager
def running_stack(folder: Path, *, is_ha: bool = False, changes: Path | None = None) -> Iterator[Stack]:
    """A stack of services that are healthy, built from this checkout, and removed at the end."""
    assert shutil.which("docker"), "these tests need Docker; all others are `make test`"
    run(["docker", "info"])
    stack = Stack(folder, is_ha=is_ha, changes=changes)
    since_s = int(run(["date", "+%s"]))
    stack.compose("build", "init")
    try:
        stack.compose("up", "-d")
        standbys = ("nats-2", "nats-3", *(f"{service}_2" for service in SERVICES)) if is_ha else ()
        stack.wait_healthy(("nats", *SERVICES, *standbys), since_s)
        yield stack
    finally:
        stack.compose("--profile", "agents", "--profile", "metrics", "down", "--volumes", "--timeout", "5")
