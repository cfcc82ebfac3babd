"""Archives that are made to do harm fail their own operation, with a clear reason. Nobody else notices."""

from __future__ import annotations

import gzip
import io
import os
import random
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import anyio
import msgspec
import psutil
import pytest

from headrace.archive_members import UnusableArchive, members
from headrace.bus import Bus, Message
from headrace.ids import OperationId, PoolName
from headrace.runtime.clock import SystemClock
from headrace.wire import subjects
from headrace.wire.codec import decode, encode
from headrace.wire.files import PIECE_BYTES, Archive, FetchPiece, Piece, Upload, Uploaded
from headrace.wire.heartbeat import JobResult, Start
from headrace.wire.operations import OperationSpec, StartOperation
from headrace.wire.refusals import BadRequest, NotReady, WrongState
from headrace_admission.service import serve
from headrace_admission.settings import AdmissionSettings
from headrace_agent.files.fetching import FilesFetcher
from headrace_agent.files.folders import OperationFolders
from headrace_agent.files.operation_files import FetchFiles, FilesFault
from headrace_agent.host.account_mapping import AccountMapping
from tests.support.agent_world import NODE, agent, allocator, bus_as, start_of
from tests.support.evil_archives import bomb, evil_archives, member, packed, tar_of
from tests.support.nats_server import NatsServer, nats_server
from tests.support.tree_services import a_bus, ask, running

pytestmark = pytest.mark.long

HARMLESS = packed(member("folder/words", b"water\n"), member("link", type=b"2", linkname="folder/words"))


def archive_of(data: bytes) -> Archive:
    return Archive(sha256(data).hexdigest(), len(data), 1)


def start_with(data: bytes, operation: str, script: str = "cat link") -> Start:
    start = start_of(script, operation=operation, allocation=f"a-{operation}")
    assert start.spec is not None
    return msgspec.structs.replace(start, spec=msgspec.structs.replace(start.spec, files=archive_of(data)))


@asynccontextmanager
async def a_store(server: NatsServer, archives: dict[str, bytes]) -> AsyncIterator[None]:
    """Gives archives of operations to nodes, unchecked, as an admission of a former version did."""

    async def on_fetch(message: Message) -> bytes:
        request = decode(message.data, FetchPiece)
        data = archives[request.operation]
        assert request.sha256 == sha256(data).hexdigest()
        return encode(Piece(data[request.piece * PIECE_BYTES :][:PIECE_BYTES]))

    async with bus_as(server, "service", "admission") as bus:
        await bus.serve(subjects.fetch_piece("*"), on_fetch)
        yield


async def test_each_fails_its_own_operation_and_the_agent_goes_on(tmp_path: Path) -> None:
    # Those of many files are found out only when thousands are written.
    quick = [evil for name, evil in evil_archives().items() if not name.startswith("many f")]
    archives = {f"evil-operation-{number}": evil.data for number, evil in enumerate(quick)}
    said = {f"evil-operation-{number}": evil.said for number, evil in enumerate(quick)}
    with nats_server(jetstream=False) as server:
        async with (
            a_store(server, {**archives, "harmless-operation": HARMLESS}),
            allocator(server) as fake,
            agent(server, tmp_path / "state") as process,
        ):
            await fake.heard(lambda heartbeat: heartbeat.applied > 0)
            fake.give(start_of("sleep 600", operation="other-operation", allocation="a-0"))
            await fake.running("a-0")
            first = fake.heartbeats[-1].incarnation
            for operation, data in archives.items():
                fake.give(start_with(data, operation))
            ends = {operation: await fake.ended(operation, 0) for operation in archives}
            fake.give(start_with(HARMLESS, "harmless-operation"))
            harmless = await fake.ended("harmless-operation", 0)
            last = await fake.heard_next(lambda heartbeat: not heartbeat.ends)
            assert psutil.pid_exists(process.process.pid)

    assert {end.result for end in ends.values()} == {JobResult.FAILED}
    assert [end.reason for operation, end in ends.items() if said[operation] not in end.reason] == []
    assert harmless.result is JobResult.COMPLETED
    assert last.incarnation == first
    assert [report.id for report in last.allocations] == ["a-0"]
    assert {heartbeat.trouble for heartbeat in fake.heartbeats if heartbeat.applied} == {""}


class Faulty(OperationFolders):
    """Fails in ways that nobody has thought of."""

    def unpack(self, name: str, archive: str, account: str) -> None:
        raise RecursionError("x" * 10_000)

    def remove(self, name: str) -> None:
        raise RecursionError

    def remove_left_over(self) -> None:
        raise RecursionError


def is_asked() -> list[OperationId]:
    raise KeyError("asked")


async def test_a_defect_of_the_agent_ends_the_operation_whose_files_it_works_on(tmp_path: Path) -> None:
    operation = OperationId("operation-1")
    folders = Faulty(str(tmp_path / "files"))
    with nats_server(jetstream=False) as server:
        async with a_store(server, {operation: HARMLESS}), bus_as(server, "node", NODE) as bus:
            fetcher = FilesFetcher(bus, SystemClock(), NODE, folders, AccountMapping())
            failure = await fetcher.fetch(FetchFiles(operation, archive_of(HARMLESS), "ada", operation))
            await fetcher.remove(operation)
            with anyio.fail_after(20), pytest.raises(KeyError, match="asked"):
                await fetcher.remove_unused(is_asked, lambda _: None)

    assert failure is not None
    assert failure.fault is FilesFault.LOST
    assert failure.why.startswith("its files cannot be fetched: RecursionError: xxx")
    assert len(failure.why) == 2_000, "a message has room for it"


@pytest.fixture
def deep(tmp_path: Path) -> Iterator[Path]:
    """A folder in which folders may be left that Python cannot remove, as pytest would have to."""
    folder = tmp_path / "deep"
    folder.mkdir()
    yield folder
    subprocess.run(["rm", "-rf", folder], check=True)


def test_a_folder_deeper_than_any_path_is_removed_when_its_operation_is_over(deep: Path) -> None:
    """To remove it the agent called itself for each folder in the other, which ended it, and each of its later lives."""
    folders = OperationFolders(str(deep))
    operation = OperationId("0123456789abcdef")
    with folders.archive(operation) as path:
        Path(path).write_bytes(HARMLESS)
        folders.unpack(operation, path, "")
    dig(Path(folders.folder) / operation, 1_050)

    folders.remove(operation)

    assert list(Path(folders.folder).iterdir()) == list((deep / ".trash").iterdir()) == []


def dig(folder: Path, depth: int) -> None:
    """Makes folders in one another, as a job can, with its rights taken away from the last."""
    name = "d" * 100
    at = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    for number in range(depth):
        os.mkdir(name, dir_fd=at)
        below = os.open(name, os.O_RDONLY | os.O_DIRECTORY, dir_fd=at)
        if number == depth - 1:
            os.fchmod(at, 0)
        os.close(at)
        at = below
    os.close(at)


def test_never_does_a_mutated_archive_raise_anything_else() -> None:
    luck = random.Random(35)
    whole = [evil.data for evil in evil_archives().values() if len(evil.data) < 5_000] + [HARMLESS]
    refused = 0
    for number in range(1_500):
        data = bytearray(luck.choice(whole) if number % 2 else tar_of(member("d/a", b"x" * 600), member("e")))
        for _ in range(luck.randint(1, 6)):
            data[luck.randrange(len(data))] = luck.choice([0, 0x20, 0x2F, 0x78, 0xFF, luck.randrange(256)])
        try:
            for found in members(io.BytesIO(data if number % 2 else gzip.compress(data, 1))):
                for _ in found.content:
                    pass
        except UnusableArchive:
            refused += 1
    assert refused > 500


SETTINGS = AdmissionSettings(administrators="*", most_archive_bytes_of_a_user=4 * PIECE_BYTES)


async def sent(bus: Bus, data: bytes, answer: Any, user: str) -> Any:
    """The answer to all pieces, once it was checked."""
    archive = archive_of(data)
    kind: Any = answer | Uploaded
    with anyio.fail_after(60):
        for piece in range(archive.piece_count):
            upload = Upload(archive, piece, data[piece * PIECE_BYTES :][:PIECE_BYTES])
            while isinstance(said := await ask(bus, subjects.user(user, "op.upload"), upload, kind), NotReady):
                pass
        return said


async def test_none_is_kept_for_starts_and_whoever_sent_it_is_told_why() -> None:
    with nats_server() as server:
        async with running(server, SETTINGS, serve), a_bus(server, "user", "mallory") as bus:
            for evil in evil_archives().values():
                refusal = await sent(bus, evil.data, WrongState, "mallory")
                assert isinstance(refusal, WrongState), evil.said
                assert evil.said in refusal.text()
                spec = OperationSpec(PoolName("research"), ["true"], files=archive_of(evil.data))
                start = StartOperation(OperationId("operation-1"), spec)
                refused = await ask(bus, subjects.user("mallory", "op.start"), start, BadRequest)
                assert refused.place == "spec.files"
            assert (await sent(bus, HARMLESS, WrongState, "mallory")).missing == [], "they take no room"


async def test_bytes_that_are_not_those_of_the_hash_are_refused() -> None:
    """Nodes would find that out one after the other, with each of the jobs."""
    archive = msgspec.structs.replace(archive_of(HARMLESS), sha256="0" * 64)
    with nats_server() as server:
        async with running(server, SETTINGS, serve), a_bus(server, "user", "ada") as bus:
            upload = subjects.user("ada", "op.upload"), Upload(archive, 0, HARMLESS)
            while isinstance(refusal := await ask(bus, *upload, Uploaded), NotReady):
                pass

    assert f"its bytes have another hash: {sha256(HARMLESS).hexdigest()}" in refusal.text()


async def test_archives_of_one_keep_others_waiting_for_one_check_at_most() -> None:
    data = bomb(2**26)
    settings = msgspec.structs.replace(SETTINGS, most_archive_bytes_of_a_user=2**30)
    with nats_server() as server:
        async with (
            running(server, settings, serve),
            a_bus(server, "user", "mallory") as mallory,
            a_bus(server, "user", "ada") as ada,
            anyio.create_task_group() as tasks,
        ):
            for number in range(3):
                # Each of other bytes.
                tasks.start_soon(sent, mallory, data + bytes(number), WrongState, "mallory")
            assert (await sent(ada, HARMLESS, WrongState, "ada")).missing == []
            tasks.cancel_scope.cancel()
