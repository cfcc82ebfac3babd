"""Three NATS servers, every service and an agent as processes: whichever server dies, what people asked for is done."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import msgspec
import psutil
import pytest

from headrace.access.permissions import Party, server_users
from headrace.access.routes import PartyKind
from headrace.bus import BusError, Credential, connect
from headrace.wire import subjects
from tests.support.forked_commands import run_forked
from tests.support.nats_server import NatsServer, nats_cluster

PARTIES = {
    **{kind.value: Party(kind=kind, tree="default") for kind in PartyKind if kind.is_service},
    "agent": Party(kind=PartyKind.NODE, name="alpha", tree="default"),
    "provisioner": Party(kind=PartyKind.PROVISIONER),
    "person": Party(kind=PartyKind.PERSON),
}
PROCESSES = ("admission", "fair_share", "integral", "allocator", "agent")
SERVERS = 3


class Cluster:
    """The servers, and the processes on them. A process that ends is started again, as by any supervisor."""

    def __init__(self, servers: list[NatsServer], folder: Path) -> None:
        self.servers = servers
        self._folder = folder
        self._ends = False
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._keepers = [threading.Thread(target=self._keep, args=(name,)) for name in PROCESSES]
        for name in PARTIES:
            file = folder / name
            file.touch(0o600)
            file.write_text(f"{name}:{name}")

    def start(self) -> None:
        for keeper in self._keepers:
            keeper.start()

    def end(self) -> None:
        self._ends = True
        for process in self._running.values():
            process.kill()
        for keeper in self._keepers:
            if keeper.ident is not None:
                keeper.join()
        # The runner outlives its agent.
        for each in psutil.process_iter(["cmdline"]):
            if any(str(self._folder) in word for word in each.info["cmdline"] or []):
                each.kill()

    def environment(self, party: str, **more: str) -> dict[str, str]:
        return {
            **{name: value for name, value in os.environ.items() if not name.startswith("HEADRACE_")},
            "HEADRACE_NATS_URL": ", ".join(server.url for server in self.servers),
            "HEADRACE_CREDENTIAL_FILE": str(self._folder / party),
            "HEADRACE_REPLICAS": str(SERVERS),
            **more,
        }

    def has_warned(self) -> bool:
        """True if every service answers, and says that too few servers keep what it needs."""
        done = self._command("service", "list", "--json")
        told = [view["trouble"] for view in json.loads(done.stdout)["processes"]]
        # A service that has trouble gives the exit status 1.
        return done.returncode == 1 and all("buckets and streams need 3 replicas" in trouble for trouble in told)

    def run(self, *words: str, party: str = "person") -> str:
        done = self._command(*words, party=party)
        assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}{self.logs()}"
        return done.stdout

    def _command(self, *words: str, party: str = "person") -> subprocess.CompletedProcess[str]:
        return run_forked(words, environment=self.environment(party), cwd=self._folder, timeout_s=60)

    def provisioned(self, *options: str) -> list[dict[str, Any]]:
        """What `bus provision` says."""
        told = self.run("bus", "provision", "--json", *options, party="provisioner")
        found: list[dict[str, Any]] = json.loads(told)["provisioned"]
        return found

    def logs(self) -> str:
        return "\n".join(log.read_text()[-2_000:] for log in self._folder.glob("*.log"))

    def leader_of(self, stream: str) -> NatsServer:
        """The server that leads a stream."""
        name = anyio.run(self._leader, stream)
        return next(server for server in self.servers if f"s{server.port}" == name)

    async def _leader(self, stream: str) -> str:
        credential = Credential(user="provisioner", password="provisioner")
        urls, inbox = [server.url for server in self.servers], PARTIES["provisioner"].inbox
        async with connect(urls, name="test", credential=credential, inbox_prefix=inbox) as bus:
            with anyio.fail_after(30):
                while True:
                    try:
                        data = await bus.request(f"$JS.API.STREAM.INFO.{stream}", b"", timeout_s=3)
                    except BusError:
                        continue
                    if leader := msgspec.json.decode(data)["cluster"].get("leader"):
                        return str(leader)

    def _keep(self, name: str) -> None:
        settings = {"HEADRACE_AGENT_NODE": "alpha", "HEADRACE_AGENT_CPU": "2", "HEADRACE_AGENT_MEMORY": "1G"}
        settings["HEADRACE_AGENT_USERS"] = "agent"
        settings["HEADRACE_AGENT_STATE_FOLDER"] = str(self._folder / "state")
        environment = self.environment(name, **(settings if name == "agent" else {}))
        while not self._ends:
            with (self._folder / f"{name}.log").open("ab") as log:
                command = [sys.executable, "-m", f"headrace_{name}"]
                self._running[name] = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
            self._running[name].wait()


@contextmanager
def a_cluster() -> Iterator[Cluster]:
    users = {party: {"user": name, "password": name} for name, party in PARTIES.items()}
    with (
        tempfile.TemporaryDirectory(prefix="hr-") as folder,
        nats_cluster(SERVERS, server_users(users)) as servers,
    ):
        cluster = Cluster(servers, Path(folder))
        try:
            yield cluster
        finally:
            cluster.end()


@pytest.mark.long
@pytest.mark.timeout(180)
def test_what_people_ask_for_is_done_whichever_server_dies() -> None:
    with a_cluster() as cluster:
        # Made for one server first, as whoever forgets the option does.
        cluster.run("bus", "provision", party="provisioner")
        cluster.start()
        cluster.run("run", "--wait", "--", "true")
        # A job may be over before fair_share has begun, which it does not need.
        while not cluster.has_warned():
            pass

        changed = cluster.provisioned("--replicas", "3")
        assert {(each["outcome"], each["replicas"], each["copies"]) for each in changed} == {("changed", 3, 3)}

        running = cluster.run("run", "--jobs", "40", "--", "sleep", "0.2").strip()
        leader = cluster.leader_of(subjects.STREAM)
        leader.kill()
        cluster.run("op", "wait", running)
        cluster.run("run", "--wait", "--", "true")

        leader.start()
        while any(each["copies"] < SERVERS for each in cluster.provisioned()):
            pass
        other = next(server for server in cluster.servers if server is not cluster.leader_of(subjects.STREAM))
        other.kill()
        cluster.run("run", "--wait", "--", "true")
