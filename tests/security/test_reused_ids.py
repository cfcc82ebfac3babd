"""An operation id that a person uses again after admission has forgotten the operation of another person with this id."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from headrace.client import Client
from headrace.ids import OperationId, PoolName
from headrace.resources import Resources
from headrace.wire import subjects
from headrace.wire.codec import encode
from headrace.wire.logs import LogChunk, ReadLog
from headrace.wire.operations import OperationSpec
from headrace.wire.refusals import NotFound, decode_answer
from tests.support.agent_world import NODE
from tests.support.secured_cluster import PATIENCE_S, WholeCluster, whole_cluster

pytestmark = pytest.mark.long

NIGHTLY = OperationId("nightly")
ONE = Resources(user_slots=1, cpu=1)
#: A job of this size starts on no node of the cluster.
TOO_LARGE = Resources(user_slots=1, cpu=10**6)


async def run(client: Client, operation: str, *argv: str) -> None:
    started = await client.start(OperationSpec(PoolName("p"), list(argv), resources=ONE), operation=operation)
    await started.wait()


async def read(cluster: WholeCluster, person: str) -> LogChunk | NotFound:
    """What the node answers to a person who reads the output of the first job."""
    async with cluster.entered(f"client/people/{person}") as bus:
        subject = subjects.user(person, f"job.logs.{NODE}")
        answer = decode_answer(await bus.request(subject, encode(ReadLog(NIGHTLY, 0)), timeout_s=PATIENCE_S), LogChunk)
    assert isinstance(answer, LogChunk | NotFound), answer
    return answer


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[WholeCluster]:
    environment = {"HEADRACE_ADMISSION_KEEP_FINISHED": "1"}
    people = ("anna", "ben")
    with whole_cluster(tmp_path, nodes=[NODE], people=people, administrators="eve", environment=environment) as running:
        yield running
        assert running.ended() == []


async def test_the_output_of_a_forgotten_operation_is_not_shown_to_the_next_owner_of_its_id(
    cluster: WholeCluster,
) -> None:
    async with cluster.client("anna") as anna, cluster.client("ben") as ben:
        await run(anna, NIGHTLY, "echo", "secret")
        own = await read(cluster, "anna")
        assert isinstance(own, LogChunk)
        assert own.data == b"secret\n"

        await run(ben, "other", "true")
        spec = OperationSpec(PoolName("p"), ["true"], resources=TOO_LARGE)
        await ben.start(spec, operation=NIGHTLY)
        assert isinstance(await read(cluster, "ben"), NotFound)
        await ben.abort(NIGHTLY)

        await run(ben, "another", "true")
        await run(ben, NIGHTLY, "echo", "ours")
        # The node reuses the answer of admission about the aborted operation for half a second.
        with anyio.fail_after(PATIENCE_S):
            while not (isinstance(again := await read(cluster, "ben"), LogChunk) and again.data == b"ours\n"):  # noqa: ASYNC110
                await anyio.sleep(0.05)
