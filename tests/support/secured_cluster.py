"""A secured cluster on loopback, as `headrace cluster init --operator --tls` makes it: its folder, its server, its processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    ExitStack,
    asynccontextmanager,
    contextmanager,
)
from pathlib import Path

import anyio
import anyio.to_thread

from headrace.access.account_authority import AccountAuthority, read_account_authority
from headrace.access.key_credential import KeyCredential, read_key_credential
from headrace.access.permissions import Party
from headrace.access.routes import PartyKind
from headrace.bus import Bus, connect
from headrace.bus.credential_files import read_credential
from headrace.bus.nats.bus import NatsBus
from headrace.bus.provisioning import provision
from headrace.client import Client
from headrace.client import connect as connect_client
from headrace.ids import NodeName, TreeName
from headrace.wire.joining import MakeToken
from headrace.wire.nodes import NodeTerms
from headrace_cli.agent.joining import JoinedHost, join_host
from headrace_cli.agent.pinning import sha256_of
from headrace_cli.agent.token import JoinToken, new_user_key
from headrace_cli.cluster.command import init
from headrace_cli.cluster.tls import init as init_tls
from headrace_cli.persons.users import add as add_user
from headrace_cli.up.commands import find_nats_server
from tests.support.agent_world import end_runner
from tests.support.nats_server import free_port

__all__ = ["PATIENCE_S", "SERVICES", "Cluster", "Server", "whole_cluster"]

#: Far more than anything takes, for a machine that has much else to do.
PATIENCE_S = 60
SERVICES = ("admission", "fair_share", "integral", "allocator")
TREE = TreeName("default")


class Server:
    """A server with the configuration of a folder. Its log is a file, which it never waits for anybody to read."""

    def __init__(self, folder: Path) -> None:
        self._log = folder / "nats" / "server.log"
        self._read_to = self._log.stat().st_size if self._log.exists() else 0
        command = [find_nats_server(), "-c", str(folder / "nats" / "nats.conf")]
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(command, stderr=log)

    def wait_for(self, words: str) -> None:
        """Returns once the server has written the words since the last call."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            ended = self.process.poll() is not None
            with self._log.open("rb") as log:
                log.seek(self._read_to)
                for line in log:
                    self._read_to += len(line)
                    if words.encode() in line:
                        return
            if ended:
                break
            time.sleep(0.01)
        raise AssertionError(f"the server never wrote: {words}\n{self._log.read_text()[-4_000:]}")

    def __enter__(self) -> Server:
        self.wait_for("Server is ready")
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait()


class Cluster:
    """The folder of a cluster with TLS and an operator, and the processes that a test starts."""

    def __init__(
        self,
        path: Path,
        *,
        nodes: Sequence[str] = ("old",),
        people: Sequence[str] = (),
        administrators: str = "*",
    ) -> None:
        self.path = path
        self.folder = path / "cluster"
        self.port = free_port()
        self.url, self._listen = f"tls://127.0.0.1:{self.port}", f"127.0.0.1:{self.port}"
        init_tls(path / "tls", "127.0.0.1")
        self._authority = sha256_of((path / "tls" / "ca.pem").read_text())
        self.init(tls=path / "tls", operator=True, node=list(nodes), administrators=administrators)
        for person in people:
            add_user(person, cluster=self.folder)

    @property
    def ca_file(self) -> str:
        return str(self.folder / "client" / "ca.pem")

    def init(self, **options: object) -> None:
        init(self.folder, url=self.url, listen=self._listen, **options)  # type: ignore[arg-type]

    def bus(self, party: Party, credential: KeyCredential | None = None) -> AbstractAsyncContextManager[NatsBus]:
        known = credential or read_credential(str(self.folder / party.kind.value / "credential"))
        return connect(
            [self.url],
            name="test",
            credential=known,
            inbox_prefix=party.inbox,
            ca_file=self.ca_file,
            connect_timeout_s=PATIENCE_S,
        )

    def issued(self, place: str) -> KeyCredential:
        """The credential in this file of the folder, such as `client/people/anna/credential`."""
        known = read_key_credential((self.folder / place).read_text())
        assert known is not None
        return known

    def account_authority(self) -> AccountAuthority:
        """The keys by which admission lets hosts join."""
        file = self.folder / "admission" / "authority.json"
        return read_account_authority(file.read_text(), str(file))

    def signed_for(self, party: Party, *, lifetime_s: int = 3_600) -> KeyCredential:
        """A credential as admission signs those of tokens and of nodes. A host without a name is named by its key."""
        key = new_user_key()
        if party.kind is PartyKind.HOST and party.name == "*":
            party = Party(kind=PartyKind.HOST, name=key.public)
        word = self.account_authority().user_word(
            key.public, party.name, party, now_s=int(time.time()), lifetime_s=lifetime_s
        )
        return KeyCredential(jwt=word, seed=key.seed)

    async def provision(self) -> None:
        async with self.bus(Party(kind=PartyKind.PROVISIONER)) as bus:
            await provision(bus, [TREE])

    @contextmanager
    def process(
        self, service: str, config: Path | None = None, environment: Mapping[str, str] | None = None
    ) -> Iterator[subprocess.Popen[str]]:
        """A service that runs, and ends with the block. Its log goes to a file of its name."""
        config = config or self.folder / service / "settings.toml"
        own = {name: value for name, value in os.environ.items() if not name.startswith("HEADRACE_")}
        with (self.path / f"{service}.log").open("a") as log:
            command = [sys.executable, "-m", f"headrace_{service}", "--config", str(config)]
            process = subprocess.Popen(command, env={**own, **(environment or {})}, stderr=log, text=True)
            try:
                yield process
            finally:
                process.send_signal(signal.SIGCONT)
                process.terminate()
                process.wait(PATIENCE_S)

    def log(self, service: str) -> str:
        return (self.path / f"{service}.log").read_text()

    async def token(self, client: Client, node: str = "n1", terms: NodeTerms | None = None) -> JoinToken:
        """A token as `headrace node token` makes it."""
        key = new_user_key()
        made = await client.hosts.make_token(MakeToken(NodeName(node), key.public, TREE, terms or NodeTerms()))
        return JoinToken(node, self.url, self._authority, KeyCredential(jwt=made.jwt, seed=key.seed))

    async def join(self, token: JoinToken, folder: str = "host") -> JoinedHost:
        return await anyio.to_thread.run_sync(join_host, token, self.url, self.path / folder)

    def credential(self, folder: str = "host") -> KeyCredential:
        known = read_key_credential((self.path / folder / "credential").read_text())
        assert known is not None
        return known

    @asynccontextmanager
    async def node(self, folder: str = "host", name: str = "n1") -> AsyncIterator[Bus]:
        party = Party(kind=PartyKind.NODE, name=name, tree="default")
        async with self.bus(party, self.credential(folder)) as bus:
            yield bus


class WholeCluster(Cluster):
    """A cluster of which everything runs: the server, the four services, and the agent of the first node."""

    processes: Mapping[str, subprocess.Popen[str]]

    def agent(self, node: str) -> AbstractContextManager[subprocess.Popen[str]]:
        """The agent of a node, which finds the runner of the agent before."""
        own = self.folder / "client" / "nodes" / node
        environment = {
            "HEADRACE_AGENT_CREDENTIAL_FILE": str(own / "credential"),
            "HEADRACE_AGENT_CA_FILE": self.ca_file,
            "HEADRACE_AGENT_STATE_FOLDER": str(self.path / "state"),
            "HEADRACE_AGENT_USERS": "agent",
            "HEADRACE_AGENT_CPU": "4",
            "HEADRACE_AGENT_MEMORY": "4G",
        }
        return self.process("agent", own / "settings.toml", environment)

    @asynccontextmanager
    async def client(self, person: str) -> AsyncIterator[Client]:
        """A client of a person."""
        state = self.folder / "client" / "people" / person
        async with connect_client(state=state, timeout_s=PATIENCE_S) as client:
            yield client

    @asynccontextmanager
    async def entered(self, place: str) -> AsyncIterator[NatsBus]:
        """A connection by the credential of this folder, such as `client/people/anna`."""
        kind, _, name = place.removeprefix("client/").partition("/")
        kinds = {"people": PartyKind.PERSON, "nodes": PartyKind.NODE}
        party = Party(kind=kinds[kind], name=name, tree=TREE) if name else Party(kind=PartyKind(kind))
        async with self.bus(party, self.issued(f"{place}/credential")) as bus:
            yield bus

    def ended(self) -> list[str]:
        """The processes that have ended, though nobody ended them."""
        return [name for name, process in self.processes.items() if process.poll() is not None]


@contextmanager
def whole_cluster(
    path: Path,
    *,
    nodes: Sequence[str],
    people: Sequence[str],
    administrators: str,
    environment: Mapping[str, str] | None = None,
) -> Iterator[WholeCluster]:
    """Starts all of it, and returns once every service serves and the first node is enrolled. `environment` is for the services."""
    cluster = WholeCluster(path, nodes=nodes, people=people, administrators=administrators)
    with ExitStack() as stack:
        stack.callback(end_runner, path / "state")
        stack.enter_context(Server(cluster.folder))
        anyio.run(cluster.provision)
        processes = {name: stack.enter_context(cluster.process(name, environment=environment)) for name in SERVICES}
        processes["agent"] = stack.enter_context(cluster.agent(nodes[0]))
        cluster.processes = processes
        anyio.run(_until_all_serve, cluster, nodes[0])
        yield cluster


async def _until_all_serve(cluster: WholeCluster, node: str) -> None:
    administrator = cluster.folder / "client"
    with anyio.fail_after(2 * PATIENCE_S):
        async with connect_client(state=administrator, user="eve", timeout_s=PATIENCE_S) as client:
            # Requests are served one by one after the service has its lease.
            while not all(f"{name} serves" in cluster.log(name) for name in SERVICES):
                assert not cluster.ended(), [cluster.log(name) for name in cluster.ended()]
                await anyio.sleep(0.02)
            while ("online", node) not in [(view.state, view.node) for view in (await client.nodes()).nodes]:  # noqa: ASYNC110
                await anyio.sleep(0.02)
