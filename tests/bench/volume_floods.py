"""How long others wait while one person, or one node, sends all the bytes that its connections carry, in a secured cluster.

`python -m tests.bench.volume_floods` prints a line for each kind of flood; arguments choose the kinds by their names.
"""

from __future__ import annotations

import base64
import json
import math
import multiprocessing
import os
import secrets
import shutil
import socket
import ssl
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

import anyio
import msgspec

from headrace.access.key_credential import KeyCredential
from headrace.access.nkeys import SigningKey
from headrace.client import Client, ClientError
from headrace.ids import TreeName
from headrace.wire import subjects
from headrace_cli.persons.users import add as add_user
from tests.support.agent_world import NODE
from tests.support.secured_cluster import WholeCluster, whole_cluster

_FLOODED_S: Final = 20.0
#: Seconds after the beginning of a flood within which admission has not yet ended it.
_NOT_ENDED_S: Final = 8.0
_EVERY_S: Final = 0.1
FLOODER: Final = "mallory"
FLOODING_NODE: Final = "n-flood"
_BLOCK_BYTES: Final = 1 << 20


class Flood(msgspec.Struct, frozen=True):
    """What a flooder sends."""

    name: str
    subject: str = subjects.user(FLOODER, "op.start")
    message_bytes: int = 500_000
    connections: int = 3
    #: True if each message asks for an answer.
    is_asking: bool = True
    #: Messages after which a connection is made anew; 0: never.
    messages_of_a_connection: int = 0
    #: Subscriptions with wildcards of each connection.
    subscriptions: int = 0
    #: What a second `CONNECT` at the end of each connection claims, as JSON; empty: there is none.
    last_claims: str = ""

    @property
    def is_of_node(self) -> bool:
        return self.subject.split(".")[2] != "user"


class Access(msgspec.Struct, frozen=True):
    """How a flooder connects."""

    port: int
    ca_file: str
    credential: KeyCredential
    #: What the flooder claims when it connects, beside its credential.
    claims: Mapping[str, str] = {}

    def connect(self) -> tuple[ssl.SSLSocket, bytes]:
        """Return a connection that the server has let in, and what it sent beyond that."""
        trusted = ssl.create_default_context(cafile=self.ca_file)
        connection = trusted.wrap_socket(
            socket.create_connection(("127.0.0.1", self.port)), server_hostname="127.0.0.1"
        )
        lines = b""
        while b"\r\n" not in lines:
            lines += connection.recv(1 << 16)
        told = json.loads(lines.partition(b"\r\n")[0].removeprefix(b"INFO "))
        signature = SigningKey.from_seed(self.credential.seed).sign(told["nonce"].encode())
        said = {
            "verbose": False,
            "pedantic": False,
            "headers": True,
            "no_responders": True,
            "jwt": self.credential.jwt,
            "sig": base64.urlsafe_b64encode(signature).rstrip(b"=").decode(),
            **self.claims,
        }
        connection.sendall(f"CONNECT {json.dumps(said)}\r\nPING\r\n".encode())
        return connection, b""


def flood_by(access: Access, flood: Flood, sent: object, until_s: float) -> None:
    """Send the flood over all of its connections until a time of the monotonic clock. `sent` counts the bytes."""
    threads = [threading.Thread(target=_one, args=(access, flood, sent, until_s)) for _ in range(flood.connections)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _one(access: Access, flood: Flood, sent: object, until_s: float) -> None:
    kind = "node" if flood.is_of_node else "user"
    name = FLOODING_NODE if flood.is_of_node else FLOODER
    prefix = f"{subjects.inbox(kind, name)}.{secrets.token_hex(8)}"
    inbox = prefix if flood.is_of_node else subjects.asks_from(prefix)
    reply = f" {inbox}.1" if flood.is_asking else ""
    one = f"PUB {flood.subject}{reply} {flood.message_bytes}\r\n".encode() + bytes(flood.message_bytes) + b"\r\n"
    at_once = max(1, min(_BLOCK_BYTES // len(one), flood.messages_of_a_connection or _BLOCK_BYTES))
    block = one * at_once
    while time.monotonic() < until_s:
        with suppress(OSError):
            connection, _ = access.connect()
            with connection:
                for number in range(flood.subscriptions):
                    connection.sendall(
                        f"SUB {subjects.HAPPENINGS if number == 0 else inbox + '.*'} {number + 1}\r\n".encode()
                    )
                threading.Thread(target=_read, args=(connection,), daemon=True).start()
                count = 0
                while time.monotonic() < until_s and count < (flood.messages_of_a_connection or sys.maxsize):
                    connection.sendall(block)
                    count += at_once
                    with sent.get_lock():  # type: ignore[attr-defined]
                        sent.value += len(block)  # type: ignore[attr-defined]
                if flood.last_claims:
                    connection.sendall(f"CONNECT {flood.last_claims}\r\n".encode())
                # Without this the server does not learn of the end while the other thread reads.
                connection.shutdown(socket.SHUT_WR)


def _read(connection: ssl.SSLSocket) -> None:
    with suppress(OSError, ValueError):
        while connection.recv(1 << 16):
            pass


HEARTBEAT: Final = subjects.heartbeat(TreeName("default"), FLOODING_NODE)

FLOODS: Final = (
    Flood("none", connections=0),
    Flood("person 500 KB x 3"),
    Flood("person 500 KB x 10", connections=10),
    Flood("person 500 KB x 40", connections=40),
    Flood("person 100 KB x 3", message_bytes=100_000),
    Flood("person 16 B x 3", message_bytes=16),
    Flood("person 16 B x 3, unasking", message_bytes=16, is_asking=False),
    Flood("person 16 B x 40", message_bytes=16, connections=40),
    Flood("person 500 KB x 3, unasking", is_asking=False),
    Flood("person 500 KB x 3, subscribed", subscriptions=90),
    Flood("person 500 KB x 10, reconnecting", connections=10, messages_of_a_connection=20),
    Flood("person 500 KB x 3 to the node", subject=subjects.user(FLOODER, f"job.logs.{NODE}")),
    Flood("person 500 KB x 3 to the allocator", subject=subjects.user(FLOODER, "node.list.default")),
    Flood("person 500 KB x 3 to all services", subject=subjects.user(FLOODER, "service.list")),
    Flood("node 500 KB x 3", subject=HEARTBEAT),
    Flood("node 500 KB x 10", subject=HEARTBEAT, connections=10),
    Flood("node 16 B x 3", subject=HEARTBEAT, message_bytes=16),
    Flood("node 500 KB x 3 to admission", subject=subjects.enrol(FLOODING_NODE)),
)


async def _run_ms(client: Client) -> tuple[float, float]:
    """Return how long the start took, and how long until the job had ended, in ms; infinity: it was refused or not answered."""
    began_s = time.perf_counter()
    started_ms = float("inf")
    try:
        with anyio.fail_after(30):
            operation = await client.run(["true"], pool="p", jobs=1, cpu=1)
            started_ms = (time.perf_counter() - began_s) * 1000
            await operation.wait()
    except Exception as error:  # the figure is told, whatever happened
        print("   ", type(error).__name__, str(error)[:200])
        return started_ms, float("inf")
    return started_ms, (time.perf_counter() - began_s) * 1000


async def _measure(cluster: WholeCluster, flood: Flood, newcomer: str) -> None:
    access = Access(cluster.port, cluster.ca_file, cluster.issued(f"{_place(flood)}/credential"))
    sent = multiprocessing.Value("q", 0)
    async with cluster.client("anna") as anna:
        await _run_ms(anna)
        began_s = time.monotonic()
        process = multiprocessing.Process(target=flood_by, args=(access, flood, sent, began_s + _FLOODED_S))
        process.start()
        try:
            #: Of each start: seconds after the beginning, ms until the answer, ms until the end of the job.
            told: list[tuple[float, float, float]] = []
            of_newcomers_ms: list[float] = []

            async def run_of_newcomer(at_s: float, name: str) -> None:
                await anyio.sleep(at_s)
                try:
                    async with cluster.client(name) as client:
                        of_newcomers_ms.append((await _run_ms(client))[0])
                except ClientError as error:
                    print("   ", name, str(error)[:200])

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(run_of_newcomer, 0.5, newcomer)
                tasks.start_soon(run_of_newcomer, _NOT_ENDED_S + 2, f"{newcomer}-later")
                while (after_s := time.monotonic() - began_s) < _FLOODED_S:
                    told.append((after_s, *await _run_ms(anna)))
                    await anyio.sleep(_EVERY_S)
        finally:
            process.kill()
            process.join()
    print(f"{flood.name:38} {sent.value / _FLOODED_S / 1e6:7.1f} MB/s, load {os.getloadavg()[0]:.1f}")
    for words, part in (
        ("at first", [each for each in told if each[0] < _NOT_ENDED_S]),
        ("later", [each for each in told if each[0] >= _NOT_ENDED_S]),
    ):
        starts, ends = [each[1] for each in part] or [math.nan], [each[2] for each in part] or [math.nan]
        print(
            f"   {words:9}{len(part):4} starts: median {statistics.median(starts):7.0f}, longest {max(starts):7.0f} ms; "
            f"with the job: median {statistics.median(ends):7.0f}, longest {max(ends):7.0f} ms"
        )
    print("   newcomers' starts:", ", ".join(f"{each:.0f} ms" for each in of_newcomers_ms), flush=True)


def renew(cluster: WholeCluster, flood: Flood) -> None:
    """Give the flooder a new credential: its former key may be held out because of the flood before."""
    shutil.rmtree(cluster.folder / _place(flood))
    if flood.is_of_node:
        cluster.init()
    else:
        add_user(FLOODER, cluster=cluster.folder)


def _place(flood: Flood) -> str:
    return f"client/nodes/{FLOODING_NODE}" if flood.is_of_node else f"client/people/{FLOODER}"


def main(names: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        newcomers = [f"newcomer-{number}" for number in range(len(FLOODS))]
        people = ("anna", "eve", FLOODER, *newcomers, *(f"{each}-later" for each in newcomers))
        with whole_cluster(Path(folder), nodes=[NODE, FLOODING_NODE], people=people, administrators="eve") as cluster:
            for number, flood in enumerate(FLOODS):
                if not names or any(name in flood.name for name in names):
                    renew(cluster, flood)
                    anyio.run(_measure, cluster, flood, newcomers[number])
                    log = (cluster.folder / "nats" / "server.log").read_text()
                    print(
                        "   slow consumers so far:",
                        log.count("Slow Consumer"),
                        "ended processes:",
                        cluster.ended(),
                        flush=True,
                    )


if __name__ == "__main__":
    main(sys.argv[1:])
