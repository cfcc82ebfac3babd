"""Archives on a real server while two admissions believe that they lead: the former one was frozen, and goes on where it was."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from hashlib import sha256

import msgspec
import pytest

from headrace.bus import BusError, KeyValue
from headrace.bus.nats.bus import NatsBus
from headrace.runtime.fenced_writes import KeyFenced
from headrace.wire import subjects
from headrace.wire.files import Archive
from headrace_admission.files.archive_book import ArchiveKey, ArchiveRecord
from headrace_admission.files.archive_pieces import KeptArchives
from tests.support.nats_server import nats_server
from tests.support.tree_services import a_bus

DATA = os.urandom(100)
ARCHIVE = Archive(sha256(DATA).hexdigest(), len(DATA), 1)
KEY = ArchiveKey("anna", ARCHIVE.sha256)
WHOLE = ArchiveRecord(ARCHIVE, 5, is_whole=True)


class Frozen(BusError):
    """The process was stopped before this write left it."""


@asynccontextmanager
async def a_server() -> AsyncIterator[NatsBus]:
    with nats_server() as server:
        async with a_bus(server, "service", "admission") as bus:
            yield bus


async def buckets(bus: NatsBus) -> tuple[KeyValue, KeyValue]:
    return await bus.key_value(subjects.ARCHIVES_BUCKET), await bus.key_value(subjects.PIECES_BUCKET)


async def sent(kept: KeptArchives) -> None:
    await kept.keep_record(KEY, ArchiveRecord(ARCHIVE, 5))
    await kept.keep_piece(KEY, 0, DATA)
    await kept.keep_record(KEY, WHOLE)


async def of_term(bus: NatsBus, term: int) -> tuple[KeptArchives, Mapping[ArchiveKey, ArchiveRecord]]:
    kept = KeptArchives(*await buckets(bus), term)
    return kept, await kept.claim()


async def test_what_a_successor_keeps_is_not_removed_by_whoever_it_succeeded() -> None:
    async with a_server() as bus:
        former, _ = await of_term(bus, 1)
        await sent(former)
        successor, found = await of_term(bus, 2)
        assert found.keys() == {KEY}

        with pytest.raises(KeyFenced):
            await former.keep_record(KEY, WHOLE)
        former.leave(KEY)
        with pytest.raises(KeyFenced):
            await former.remove_left()

        assert await successor.piece(KEY, 0) == DATA
        assert (await of_term(bus, 3))[1].keys() == {KEY}


async def test_what_is_sent_again_outlasts_a_removal_that_was_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    prefixes: list[str] = []

    async def freeze(prefix: str) -> None:
        prefixes.append(prefix)
        raise Frozen

    async with a_server() as bus:
        archives, pieces = await buckets(bus)
        former = KeptArchives(archives, pieces, 1)
        await sent(former)
        former.leave(KEY)
        with monkeypatch.context() as patched:
            patched.setattr(pieces, "purge", freeze)
            with pytest.raises(Frozen):
                await former.remove_left()

        successor, found = await of_term(bus, 2)
        assert found == {}
        await sent(successor)
        await successor.remove_left()
        (prefix,) = prefixes
        await pieces.purge(prefix)
        await archives.purge(prefix)

        assert await successor.piece(KEY, 0) == DATA
        third, found = await of_term(bus, 3)
        assert found.keys() == {KEY}
        assert await third.piece(KEY, 0) == DATA


async def test_an_archive_that_a_former_term_began_is_removed_by_the_next_one() -> None:
    async with a_server() as bus:
        former, _ = await of_term(bus, 1)
        await former.keep_record(KEY, ArchiveRecord(ARCHIVE, 5))
        await former.keep_piece(KEY, 0, DATA)
        successor, found = await of_term(bus, 2)
        with pytest.raises(KeyFenced):
            await former.keep_record(KEY, WHOLE)
        await successor.remove_left()

        assert found == {}
        assert [await bucket.entries() for bucket in await buckets(bus)] == [{}, {}]


async def test_records_of_an_older_version_and_such_that_cannot_be_read_are_taken_or_removed() -> None:
    async with a_server() as bus:
        archives, pieces = await buckets(bus)
        await archives.put(
            f"{KEY.text}.record", msgspec.json.encode({"archive": ARCHIVE, "wanted_at_ms": 5, "is_whole": True})
        )
        await pieces.put(f"{KEY.text}.0", sha256(DATA).digest() + DATA)
        await archives.put(f"ben.{ARCHIVE.sha256}.1-1.record", b"{")
        kept, found = await of_term(bus, 2)
        await kept.remove_left()

        assert found.keys() == {KEY}
        assert await kept.piece(KEY, 0) == DATA
        assert {key.split(".")[0] for key in await archives.entries()} == {"anna"}
