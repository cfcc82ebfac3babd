"""Sessions in a secured cluster, with a credential for each person: whose they are, and what a person without the right gets of them."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from headrace.client import Client, Refused
from headrace.client.sessions import Session
from headrace.ids import PoolName
from headrace.resources import Resources
from headrace.wire import subjects
from headrace.wire.codec import encode
from headrace.wire.operations import OperationSpec
from headrace.wire.refusals import NotAllowed, NotFound, decode_answer
from headrace.wire.sessions import SessionCommand, SessionState, SessionTurn
from tests.support.agent_world import NODE
from tests.support.secured_cluster import PATIENCE_S, WholeCluster, whole_cluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WholeCluster]:
    path = tmp_path_factory.mktemp("sessions")
    with whole_cluster(path, nodes=[NODE], people=("anna", "ben", "eve"), administrators="eve") as running:
        yield running
        assert running.ended() == []


async def started(client: Client, *argv: str, terminal: bool = False) -> str:
    """An operation of the client's person whose job runs."""
    spec = OperationSpec(PoolName("p"), list(argv), resources=Resources(user_slots=1, cpu=1), terminal=terminal)
    operation = await client.start(spec)
    with anyio.fail_after(PATIENCE_S):
        while await client.sessions.node_of(operation.id) is None:  # noqa: ASYNC110
            await anyio.sleep(0.02)
    return operation.id


async def all_of(session: Session) -> bytes:
    with anyio.fail_after(PATIENCE_S):
        return b"".join([output.stdout async for output in session.read()])


def test_a_person_types_into_a_job_of_their_own_over_tls_with_their_own_credential(cluster: WholeCluster) -> None:
    async def body() -> None:
        async with cluster.client("anna") as anna:
            operation = await started(anna, "sh", "-c", "stty size; read line; echo got $line; exit 6", terminal=True)
            node = await anna.sessions.node_of(operation)
            assert node == NODE
            async with anna.sessions.terminal(operation, node, size=(20, 60)) as session:
                await session.write(b"hello\n")
                assert b"got hello\r\n" in await all_of(session)
                assert session.end is not None
                assert session.end.status == 6

    anyio.run(body)


def test_a_person_without_the_right_gets_nothing_of_a_session_even_with_its_name(cluster: WholeCluster) -> None:
    async def body() -> None:
        async with cluster.client("eve") as eve, cluster.client("anna") as anna, cluster.client("ben") as ben:
            await eve.pools.create("p", attributes={"access": {"use": ["anna"]}})
            operation = await started(anna, "sleep", "1000")
            with pytest.raises(Refused) as refused:
                async with ben.sessions.exec(operation, ["touch", "/tmp/of-ben"]):
                    pass
            assert isinstance(refused.value.refusal, NotAllowed)

            async with anna.sessions.exec(operation, ["cat"]) as session:
                await session.write(b"mine\n")
                # Whatever else a person knows, the subject says who speaks.
                for person, expected in ((ben, NotAllowed), (eve, NotFound)):
                    turn = SessionTurn(session._session, session._operation, 0, 99, input=b"theirs\n", input_offset=5)
                    subject = subjects.user(person.user, f"job.session.{NODE}")
                    answer = await person._bus.request(subject, encode(turn), timeout_s=PATIENCE_S)
                    assert isinstance(decode_answer(answer, SessionState), expected)
                await session.end_input()
                assert await all_of(session) == b"mine\n"
            async with eve.sessions.exec(operation, ["echo", "an administrator"]) as session:
                assert await all_of(session) == b"an administrator\n"
            await anna.abort(operation)

    anyio.run(body)


def test_a_repeated_first_turn_starts_one_command_even_after_its_end(cluster: WholeCluster, tmp_path: Path) -> None:
    async def body() -> None:
        async with cluster.client("anna") as anna:
            operation = await started(anna, "sleep", "1000")
            subject = subjects.user("anna", f"job.session.{NODE}")
            argv = ["sh", "-c", f"echo $$ >> {tmp_path}/started"]
            async with anna.sessions.exec(operation, argv) as session:
                first = encode(SessionTurn(session._session, session._operation, 0, 1, SessionCommand(argv)))
                for _ in range(3):
                    await anna._bus.request(subject, first, timeout_s=PATIENCE_S)
                await all_of(session)
            late = await anna._bus.request(subject, first, timeout_s=PATIENCE_S)
            assert isinstance(decode_answer(late, SessionState), NotFound)
            assert len((tmp_path / "started").read_text().splitlines()) == 1
            await anna.abort(operation)

    anyio.run(body)


@pytest.mark.parametrize(
    ("place", "process", "cut_off_name"),
    [
        ("client/people/ben", "agent", "headrace-agent-users"),
        (f"client/nodes/{NODE}", "admission", "headrace-admission-nodes"),
    ],
)
def test_a_flood_of_requests_costs_no_connection_but_that_for_requests(
    cluster: WholeCluster, place: str, process: str, cut_off_name: str
) -> None:
    flooded, log = cluster.processes[process], cluster.folder / "nats" / "server.log"
    is_person = process == "agent"
    subject = subjects.user("ben", f"job.session.{NODE}") if is_person else subjects.enrol(NODE)
    before = len(_cut_off(log))

    async def body() -> None:
        async with cluster.entered(place) as bus:
            # The server keeps 64 MB for a connection that is not read, and then ends it.
            flooded.send_signal(signal.SIGSTOP)
            with anyio.fail_after(PATIENCE_S):
                while len(_cut_off(log)) == before:
                    await bus.publish(subject, bytes(500_000))
            flooded.send_signal(signal.SIGCONT)
        async with cluster.client("anna") as anna:
            operation = await started(anna, "sleep", "1000")
            async with anna.sessions.exec(operation, ["echo", "still there"]) as session:
                assert await all_of(session) == b"still there\n"
            await anna.abort(operation)

    try:
        anyio.run(body)
    finally:
        flooded.send_signal(signal.SIGCONT)
    assert all(cut_off_name in line for line in _cut_off(log)[before:])


def _cut_off(log: Path) -> list[str]:
    """Lines of the server about connections that it ended because they were not read."""
    return [line for line in log.read_text().splitlines() if "Slow Consumer" in line]
