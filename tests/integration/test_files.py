"""Files of operations at admission's real shell on a real server: who may send, start with and fetch them, and what a crash leaves."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from headrace.archives import Packed, pack
from headrace.bus import KeyValue
from headrace.ids import AllocationId, NodeName, OperationId, PoolName, TreeName
from headrace.resources import Resources
from headrace.runtime.role import role_of
from headrace.wire import ledger, subjects
from headrace.wire.files import PIECE_BYTES, Archive, AskOver, FetchPiece, Over, Piece, Upload, Uploaded
from headrace.wire.heartbeat import JobEnd, JobResult
from headrace.wire.operations import OperationSpec, StartAnswer, StartOperation
from headrace.wire.refusals import BadRequest, NotFound, NotReady, WrongState
from headrace_admission.service import serve
from headrace_admission.settings import AdmissionSettings
from tests.support.killing import killed
from tests.support.nats_server import NatsServer, nats_server
from tests.support.tree_services import a_bus, ask, running, stand_in_for

SETTINGS = AdmissionSettings(administrators="*", most_archive_bytes_of_a_user=3 * PIECE_BYTES)


def packed(content: bytes) -> Packed:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "file").write_bytes(content)
        return pack([Path(folder)])


PACKED = packed(os.urandom(PIECE_BYTES + 5))
ARCHIVE, DATA = PACKED.archive, PACKED.data
PIECES = [Upload(ARCHIVE, 0, DATA[:PIECE_BYTES]), Upload(ARCHIVE, 1, DATA[PIECE_BYTES:])]
OPERATION = OperationId("operation-1")


@pytest.fixture
def server() -> Iterator[NatsServer]:
    with nats_server() as started:
        yield started


async def as_user(server: NatsServer, verb: str, message: msgspec.Struct, answer: Any, user: str = "anna") -> Any:
    async with a_bus(server, "user", user) as bus:
        # Clients ask again as well, while what was sent is being checked.
        while isinstance(said := await ask(bus, subjects.user(user, verb), message, answer), NotReady):
            pass
        return said


async def as_node(server: NatsServer, subject: str, message: msgspec.Struct, answer: Any, node: str = "n1") -> Any:
    async with a_bus(server, "node", node) as bus:
        return await ask(bus, f"{subject}{node}", message, answer)


async def sent(server: NatsServer) -> None:
    for piece in PIECES:
        uploaded = await as_user(server, "op.upload", piece, Uploaded)
    assert uploaded.missing == []


def a_start(name: OperationId = OPERATION, archive: Archive = ARCHIVE) -> StartOperation:
    resources = Resources(user_slots=1, cpu=100)
    return StartOperation(name, OperationSpec(PoolName("research"), ["true"], resources=resources, files=archive))


async def fetched(server: NatsServer, piece: int, answer: Any = Piece, node: str = "n1") -> Any:
    request = FetchPiece(OPERATION, piece, ARCHIVE.sha256)
    return await as_node(server, subjects.fetch_piece(""), request, answer, node)


async def stored(server: NatsServer) -> set[str]:
    """The keys of both buckets."""
    async with a_bus(server, "service", "test") as bus:
        buckets: list[KeyValue] = [
            await bus.key_value(name) for name in (subjects.ARCHIVES_BUCKET, subjects.PIECES_BUCKET)
        ]
        return {key for bucket in buckets for key in await bucket.entries()}


def ends(keys: set[str]) -> list[str]:
    return sorted(key.rpartition(".")[2] for key in keys)


async def test_whoever_sent_the_files_starts_with_them_and_only_nodes_that_were_given_a_job_get_them(
    server: NatsServer,
) -> None:
    async with running(server, SETTINGS, serve):
        assert (await as_user(server, "op.upload", Upload(ARCHIVE), Uploaded)).missing == [0, 1]
        assert (await as_user(server, "op.upload", PIECES[1], Uploaded)).missing == [0]
        early = await as_user(server, "op.start", a_start(), BadRequest)
        assert (early.place, early.value) == ("spec.files", ARCHIVE.sha256)
        await sent(server)
        by_hash = await as_user(server, "op.start", a_start(), BadRequest, user="mallory")
        assert by_hash.place == "spec.files"
        await as_user(server, "op.start", a_start(), StartAnswer)

        assert (await fetched(server, 0)).data + (await fetched(server, 1)).data == DATA
        guess = FetchPiece(OPERATION, 0, "0" * 64)
        refusal = await as_node(server, subjects.fetch_piece(""), guess, BadRequest, "n2")
        said = f"sha256: 000000000000 cannot be used; expected the hash in an order to run a job of {OPERATION}"
        assert refusal.text() == said
        former = await as_node(server, subjects.fetch_piece(""), FetchPiece(OPERATION, 0), NotReady, "n2")
        assert former.why == "the agent of this node is too old to fetch files; upgrade the agent"
        assert (await fetched(server, 2, NotFound)).name == "3 of 2"
        await as_user(server, "op.start", a_start(OperationId("operation-2")), StartAnswer)

        assert await over(server) == ["no-such-operation"]
        await finished(server)
        assert (await fetched(server, 0, WrongState)).expected == "an operation that has not ended"
        assert await over(server) == [OPERATION, "no-such-operation"]


async def finished(server: NatsServer) -> None:
    """Its only job completed, as the allocator of its tree reports."""
    tree = TreeName("default")
    end = JobEnd(OPERATION, 0, 1, AllocationId("1-1"), JobResult.COMPLETED)
    async with a_bus(server, "service", "allocator") as bus:
        await stand_in_for(bus, role_of("allocator", tree))
        await ask(bus, subjects.ledger("attach"), ledger.Attach(tree, 1), ledger.Attached)
        report = ledger.ReportEnds(tree, 1, [ledger.ReportedEnd(NodeName("n1"), end)])
        await ask(bus, subjects.ledger("report"), report, ledger.ReportAnswer)


async def over(server: NatsServer) -> list[str]:
    asked = AskOver([OPERATION, OperationId("no-such-operation")])
    answer = await as_node(server, subjects.ask_over(""), asked, Over)
    return list(answer.operations)


async def test_nobody_has_more_than_they_may_and_others_have_room(server: NatsServer) -> None:
    other = Upload(Archive("0" * 64, 2 * PIECE_BYTES))
    async with running(server, SETTINGS, serve):
        await sent(server)

        refusal = await as_user(server, "op.upload", other, WrongState)
        assert refusal.expected == f"at most {3 * PIECE_BYTES} bytes for all archives of anna"
        await as_user(server, "op.upload", other, Uploaded, user="ben")
        assert (await as_user(server, "op.upload", Upload(ARCHIVE), Uploaded)).missing == []


@pytest.mark.long
async def test_after_a_kill_whole_files_are_there_and_unfinished_ones_go(server: NatsServer) -> None:
    unfinished = Upload(Archive("0" * 64, 2 * PIECE_BYTES), 0, bytes(PIECE_BYTES))
    async with killed(server, SETTINGS, serve):
        await sent(server)
        await as_user(server, "op.upload", unfinished, Uploaded, user="ben")
        assert {key.split(".")[0] for key in await stored(server)} == {"anna", "ben"}

    async with running(server, SETTINGS, serve):
        await as_user(server, "op.start", a_start(), StartAnswer)
        assert (await fetched(server, 1)).data == DATA[PIECE_BYTES:]
        while ends(keys := await stored(server)) != ["0", "1", "record"]:
            assert ends({key for key in keys if key.startswith(f"anna.{ARCHIVE.sha256}.")}) == ["0", "1", "record"]


@pytest.mark.long
async def test_files_go_when_their_operation_is_over_or_when_nobody_starts_with_them(server: NatsServer) -> None:
    settings = msgspec.structs.replace(SETTINGS, unused_archive_ms=1_000)
    async with running(server, settings, serve):
        await sent(server)
        await as_user(server, "op.start", a_start(), StartAnswer)
        alone = packed(b"alone")
        await as_user(server, "op.upload", Upload(alone.archive, 0, alone.data), Uploaded, user="ben")
        while any(key.startswith("ben") for key in await stored(server)):
            assert any(key.startswith("anna") for key in await stored(server)), "it is needed yet"

        await finished(server)
        while await stored(server):
            pass
