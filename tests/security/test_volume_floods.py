"""A person and a node that send all the bytes that their connections carry: others start operations and get jobs meanwhile, and
admission ends the flood.
"""

from __future__ import annotations

import json
import multiprocessing
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from headrace.access.jwt import base64_of, claims_of
from headrace.client import Client, NotAdmitted
from headrace.ids import TreeName
from headrace.wire import subjects
from tests.bench.volume_floods import FLOODER, FLOODING_NODE, HEARTBEAT, Access, Flood, flood_by, renew
from tests.support.agent_world import NODE
from tests.support.secured_cluster import PATIENCE_S, WholeCluster, whole_cluster

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WholeCluster]:
    path = tmp_path_factory.mktemp("floods")
    people = ("anna", "ben", "eve", FLOODER)
    # Admission does not end these floods. So the first tests show what holds until it ends a flood.
    bounds = {"HEADRACE_ADMISSION_MOST_SENT_BYTES_PER_S": str(2**40)}
    with whole_cluster(
        path, nodes=[NODE, FLOODING_NODE], people=people, administrators="eve", environment=bounds
    ) as running:
        yield running
        assert running.ended() == []


@pytest.fixture(scope="module")
def watched(cluster: WholeCluster) -> Iterator[WholeCluster]:
    """The cluster with another admission, which ends floods and lets their senders in again after some seconds."""
    before = cluster.processes["admission"]
    before.terminate()
    before.wait(PATIENCE_S)
    cluster.processes = {name: each for name, each in cluster.processes.items() if name != "admission"}
    settings = {
        "HEADRACE_ADMISSION_MOST_SENT_BYTES_PER_S": str(2**20),
        "HEADRACE_ADMISSION_FLOOD_PAUSE_MS": "2000",
    }
    with cluster.process("admission", environment=settings):
        deadline_s = time.monotonic() + PATIENCE_S
        while cluster.log("admission").count("admission serves") < 2:
            assert time.monotonic() < deadline_s, cluster.log("admission")
            time.sleep(0.02)
        yield cluster


@contextmanager
def flooding(
    cluster: WholeCluster, place: str, flood: Flood, claims: Mapping[str, str] | None = None
) -> Iterator[None]:
    """A process floods until the block ends."""
    access = Access(cluster.port, cluster.ca_file, cluster.issued(f"{place}/credential"), claims or {})
    until_s = time.monotonic() + 2 * PATIENCE_S
    process = multiprocessing.Process(target=flood_by, args=(access, flood, multiprocessing.Value("q", 0), until_s))
    process.start()
    try:
        yield
    finally:
        process.kill()
        process.join()


async def until_held_out(client: Client, party: str) -> str:
    """Returns what `service list` says about admission as soon as this party is held out."""
    with anyio.fail_after(PATIENCE_S):
        while True:
            for view in await client.processes.list():
                if f"{party} is held out until" in view.trouble:
                    return view.trouble
            await anyio.sleep(0.1)


async def is_admitted(cluster: WholeCluster, person: str) -> bool:
    try:
        async with cluster.client(person) as client:
            await (await client.run(["true"], pool="p", jobs=1, cpu=1)).wait()
            return True
    except NotAdmitted as error:
        return "held out for a while" not in str(error)


async def until_admitted(cluster: WholeCluster, person: str, *, value: bool = True) -> None:
    with anyio.fail_after(PATIENCE_S):
        while await is_admitted(cluster, person) is not value:  # noqa: ASYNC110
            await anyio.sleep(0.1)


@pytest.mark.parametrize(
    ("place", "subject"),
    [
        (f"client/people/{FLOODER}", subjects.user(FLOODER, "op.start")),
        (f"client/nodes/{FLOODING_NODE}", HEARTBEAT),
    ],
    ids=["person", "node"],
)
def test_jobs_start_and_end_beside_a_flood_of_large_messages(cluster: WholeCluster, place: str, subject: str) -> None:
    """The server cut off the connection of the flooded service twice a second, with the requests of everybody."""
    access = Access(cluster.port, cluster.ca_file, cluster.issued(f"{place}/credential"))
    sent = multiprocessing.Value("q", 0)
    until_s = time.monotonic() + PATIENCE_S
    flood = multiprocessing.Process(target=flood_by, args=(access, Flood("test", subject=subject), sent, until_s))

    async def body() -> None:
        async with cluster.client("anna") as anna:
            await (await anna.run(["true"], pool="p", jobs=1, cpu=1)).wait()
            flood.start()
            with anyio.fail_after(PATIENCE_S):
                while sent.value < 200_000_000:  # noqa: ASYNC110
                    await anyio.sleep(0.02)
                for _ in range(3):
                    await (await anna.run(["true"], pool="p", jobs=1, cpu=1)).wait()
            assert flood.is_alive()

    try:
        anyio.run(body)
    finally:
        flood.kill()
        flood.join()
    assert "Slow Consumer" not in (cluster.folder / "nats" / "server.log").read_text()


def framing(**more: object) -> str:
    """A second CONNECT with a JWT that nobody signed: it says that Ben has the key `*`, which means all keys in a list of revocations."""
    body = {"sub": "*", "name": "ben", "nats": {"sub": {"allow": ["_INBOX.user.ben.>"]}}}
    word = ".".join(
        base64_of(part) for part in (b'{"typ":"JWT","alg":"ed25519-nkey"}', json.dumps(body).encode(), b"x")
    )
    return json.dumps({"jwt": word, "sig": "AAAA", **more})


@pytest.mark.parametrize(
    "flood",
    [
        Flood("lasting", connections=8),
        Flood("short", connections=2, messages_of_a_connection=1),
        # The server lists the closed connection with the JWT that nobody signed.
        Flood("framing", connections=8, messages_of_a_connection=4, last_claims=framing(verbose=5)),
        # The server does not list the closed connection.
        Flood("hiding", connections=8, messages_of_a_connection=4, last_claims=framing()),
    ],
    ids=lambda flood: flood.name,
)
def test_a_flooding_person_is_held_out_for_a_while_and_nobody_else(watched: WholeCluster, flood: Flood) -> None:
    """Short connections do not help, and neither does the claim to be another person."""
    renew(watched, flood)
    anna_key = claims_of(watched.issued("client/people/anna/credential").jwt)["sub"]

    async def body() -> None:
        async with watched.client("anna") as anna, watched.entered("client/people/eve") as eve:
            claims = {"nkey": anna_key, "user": anna_key, "name": "x" * 20_000}
            with flooding(watched, f"client/people/{FLOODER}", flood, claims):
                trouble = await until_held_out(anna, f"user {FLOODER}")
                assert "anna" not in trouble
                await until_admitted(watched, FLOODER, value=False)
                assert await is_admitted(watched, "ben")
            figures = [figure for answer in await anna.processes.figures() for figure in answer.figures]
            assert [figure.value != 0 for figure in figures if figure.name == "floods_ended"] == [True]
            await until_admitted(watched, FLOODER)
            assert await is_admitted(watched, "ben")
            assert eve.statistics()["reconnects"] == 0

    anyio.run(body)


def test_the_jobs_of_a_flooding_node_go_on_while_it_is_held_out(watched: WholeCluster, tmp_path: Path) -> None:
    agent = watched.processes["agent"]
    watched.processes = {name: each for name, each in watched.processes.items() if name != "agent"}

    async def keep_agent() -> None:
        """As systemd does."""
        while True:
            with watched.agent(NODE) as process:
                await anyio.to_thread.run_sync(process.wait, abandon_on_cancel=True)
            await anyio.sleep(0.2)

    async def body() -> None:
        async with watched.client("anna") as anna, anyio.create_task_group() as tasks:
            waits = f"touch {tmp_path}/began; until test -e {tmp_path}/end; do sleep 0.05; done"
            operation = await anna.run(["sh", "-c", waits], pool="p", jobs=1, cpu=1)
            with anyio.fail_after(PATIENCE_S):
                while not (tmp_path / "began").exists():  # noqa: ASYNC110
                    await anyio.sleep(0.02)
            heartbeat = subjects.heartbeat(TreeName("default"), NODE)
            with flooding(watched, f"client/nodes/{NODE}", Flood("test", subject=heartbeat, is_asking=False)):
                await until_held_out(anna, f"node {NODE}")
                assert await anyio.to_thread.run_sync(agent.wait, PATIENCE_S) == 3
            (tmp_path / "end").touch()
            tasks.start_soon(keep_agent)
            with anyio.fail_after(PATIENCE_S):
                view = await operation.wait()
            assert (view.completed_jobs, view.lost_jobs, view.aborted_jobs) == (1, 0, 0)
            tasks.cancel_scope.cancel()

    anyio.run(body)
