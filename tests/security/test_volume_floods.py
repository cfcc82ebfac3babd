"""A person and a node that send all the bytes that their connections carry: others start operations and get jobs meanwhile."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Iterator

import anyio
import pytest

from headrace.wire import subjects
from tests.bench.volume_floods import FLOODER, FLOODING_NODE, HEARTBEAT, Access, Flood, flood_by
from tests.support.agent_world import NODE
from tests.support.secured_cluster import PATIENCE_S, WholeCluster, whole_cluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WholeCluster]:
    path = tmp_path_factory.mktemp("floods")
    people = ("anna", "eve", FLOODER)
    with whole_cluster(path, nodes=[NODE, FLOODING_NODE], people=people, administrators="eve") as running:
        yield running
        assert running.ended() == []


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
