"""What a service has the server store in another's bucket or stream is believed by no reader, in this life or a later one.

The server checks no right of a service at the subject where a consumer delivers, or where an answer goes.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import anyio
import msgspec
import pytest

from headrace.access.permissions import Party, permissions_of
from headrace.access.routes import PartyKind
from headrace.bus import Log
from headrace.bus.nats.bus import NatsBus
from headrace.bus.nats.streams.api import JetStreamRefused
from headrace.bus.provisioning import RecordBounds, provision
from headrace.ids import OperationId, PoolName
from headrace.pools import Tree, TreeOptions
from headrace.resources import Resources
from headrace.runtime.copied_bucket import CopiedBucket
from headrace.runtime.fenced_writes import FencedRecords
from headrace.wire import subjects
from headrace.wire.codec import encode
from headrace.wire.happenings import GetOperationHistory, OperationHistory
from headrace.wire.log import EphemeralPoolSet, LogBatch, OperationStarted
from headrace.wire.operations import (
    GetOperation,
    OperationSpec,
    OperationState,
    OperationView,
    StartAnswer,
    StartOperation,
)
from headrace.wire.placements import EphemeralPool, TreePlacement
from headrace.wire.refusals import NotFound
from headrace.wire.replay import LogPage, ReadEvents
from headrace_admission.service import serve
from headrace_admission.settings import AdmissionSettings
from headrace_allocator.links.successor_record import LongestLease
from tests.support.guarded import Guarded, everybody, guarded_server
from tests.support.tree_services import PATIENCE_S, TREE, ask, running_on

pytestmark = pytest.mark.long

PARTIES = {
    **{kind.value: Party(kind=kind, tree=TREE) for kind in PartyKind if kind.is_service},
    "anna": Party(kind=PartyKind.PERSON, name="anna"),
    "provisioner": Party(kind=PartyKind.PROVISIONER),
}
ADMISSION = {"admission": PARTIES["admission"]}
SETTINGS = AdmissionSettings(administrators="*")
VOLUMES = f"KV_{subjects.VOLUMES_BUCKET}"
POOLS = f"KV_{subjects.POOLS_BUCKET}"
FORGED = OperationId("forged-operation")
BOUNDS = RecordBounds()


@pytest.fixture
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    with guarded_server("operator", PARTIES, tmp_path_factory.mktemp("credentials")) as running:
        yield running


@asynccontextmanager
async def with_stores(server: Guarded) -> AsyncIterator[Mapping[str, NatsBus]]:
    async with everybody(server, PARTIES) as buses:
        await provision(buses["provisioner"], [TREE])
        yield buses


async def deliver(
    bus: NatsBus, stream: str, where: str, *, of: str = ">", pushed: bool = False, batch: int = 1
) -> None:
    """Has the server publish messages of a stream, those with the subject `of`, at a subject that is not the asker's."""
    name = secrets.token_hex(8)
    config = {"name": name, "ack_policy": "none", "filter_subject": of} | ({"deliver_subject": where} if pushed else {})
    await bus.jetstream.ask(f"CONSUMER.CREATE.{stream}.{name}", {"stream_name": stream, "config": config})
    if not pushed:
        # An expiry later than the answers ends the request without a status.
        pull = msgspec.json.encode({"batch": batch, "expires": 30_000_000_000})
        await bus._link.send(f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{name}", pull, reply=where)


async def answered_at(bus: NatsBus, answer: str, where: str) -> None:
    """Has the server answer at a subject that is not the asker's."""
    key, headers = f"$KV.{subjects.VOLUMES_BUCKET}.{TREE}", {"Nats-Expected-Last-Sequence": "99"}
    match answer:
        case "of the API":
            await bus._link.send(f"$JS.API.STREAM.INFO.{VOLUMES}", b"", reply=where)
        case "to a refused request":
            await bus._link.send(f"$JS.API.STREAM.MSG.GET.{VOLUMES}", b'{"seq":99}', reply=where)
        case "to a write":
            await bus._link.send(key, b"x", reply=where)
        case "to a refused write":
            await bus._link.send(key, b"x", reply=where, headers=headers)
        case _:
            name = secrets.token_hex(8)
            config = {"name": name, "ack_policy": "none"}
            await bus.jetstream.ask(f"CONSUMER.CREATE.{VOLUMES}.{name}", {"stream_name": VOLUMES, "config": config})
            pull = msgspec.json.encode({"batch": 1, "no_wait": True})
            await bus._link.send(f"$JS.API.CONSUMER.MSG.NEXT.{VOLUMES}.{name}", pull, reply=where)


async def grown(bus: NatsBus, stream: str, last: int) -> None:
    """Returns once a stream has this entry."""
    with anyio.fail_after(PATIENCE_S):
        while (await bus.jetstream.existing(stream)).state.last_seq < last:  # noqa: ASYNC110 - the server sends no notice
            await anyio.sleep(0.01)


async def consumers_of(bus: NatsBus, stream: str) -> int:
    return int(msgspec.json.decode(await bus.jetstream.ask(f"STREAM.INFO.{stream}", {}))["state"]["consumer_count"])


def a_start(name: str) -> StartOperation:
    return StartOperation(OperationId(name), a_spec("research"))


def a_spec(pool: str) -> OperationSpec:
    return OperationSpec(PoolName(pool), ["true"], 1, Resources(user_slots=1, cpu=100))


def forged_batch(term: int) -> bytes:
    """The start of an operation, as admission would record it."""
    placement = TreePlacement(TREE, PoolName("forged"), 7)
    started = OperationStarted(FORGED, "anna", a_spec("forged"), OperationState.RUNNING, True, 1, 1, 1, [placement])
    pool = EphemeralPool(PoolName("forged"), PoolName("<Root>"))
    return encode(LogBatch(term, [EphemeralPoolSet(TREE, pool), started], f"admission-{term}", 99))


async def as_anna(buses: Mapping[str, NatsBus], verb: str, request: msgspec.Struct, answer: Any) -> Any:
    return await ask(buses["anna"], subjects.user("anna", verb), request, answer)


async def forge_everything(buses: Mapping[str, NatsBus], log: Log) -> None:
    """Each way by which a service reaches the log: five entries."""
    before = (await log.bounds())[1]
    integral, key = buses["integral"], f"$KV.{subjects.VOLUMES_BUCKET}.{TREE}.x"
    for term in (1, 2):
        await integral.jetstream.append(key, forged_batch(term), {}, timeout_s=5)
        for pushed in (True, False):
            await deliver(integral, VOLUMES, subjects.LOG, of=key, pushed=pushed)
    # An answer of the server itself is stored under the subject of the log.
    await integral._link.send(f"$JS.API.STREAM.INFO.{VOLUMES}", b"", reply=subjects.LOG)
    await grown(buses["admission"], subjects.STREAM, before + 5)


async def test_a_forged_entry_of_the_log_is_believed_in_no_life_and_ends_no_admission(server: Guarded) -> None:
    async with with_stores(server) as buses:
        log = await buses["admission"].log(subjects.STREAM, subjects.LOG)
        for life in (1, 2, 3):
            async with everybody(server, ADMISSION) as own, running_on(own["admission"], SETTINGS, serve, "admission"):
                await as_anna(buses, "op.start", a_start(f"operation-before-{life}"), StartAnswer)
                await forge_everything(buses, log)
                started = await as_anna(buses, "op.start", a_start(f"operation-after-{life}"), StartAnswer)

                assert isinstance(started, StartAnswer)
                assert isinstance(await as_anna(buses, "op.get", GetOperation(FORGED), OperationView), NotFound)
                page = await as_anna(buses, "op.log", ReadEvents(), LogPage)
                asked = GetOperationHistory(OperationId("operation-before-1"))
                history = await as_anna(buses, "op.history", asked, OperationHistory)
                assert FORGED not in msgspec.json.encode(page).decode()
                assert history.happenings
                assert own["admission"].statistics()["foreign"] >= 5
            await forge_everything(buses, log)


async def test_no_service_has_an_entry_of_the_log_or_a_value_stored_again(server: Guarded) -> None:
    """Each carries the sequence that it was written after, by which the server refuses it the second time."""
    async with with_stores(server) as buses:
        log = await buses["admission"].log(subjects.STREAM, subjects.LOG)
        for number in range(3):
            await log.append(b"entry", expected_last=number, timeout_s=5)
        pools = await buses["fair_share"].key_value(subjects.POOLS_BUCKET, history=subjects.POOLS_HISTORY)
        revision = await pools.update("a", b"old", 0)
        await pools.delete("a")
        await pools.update("a", b"new", 0)
        assert revision == 1

        where = f"$KV.{subjects.POOLS_BUCKET}.a"
        tried = await buses["admission"].writes(subjects.POOLS_BUCKET)
        before = tried.statistics()["received"]
        await deliver(buses["allocator"], subjects.STREAM, subjects.LOG, batch=3)
        await deliver(buses["allocator"], POOLS, where, batch=3)
        with anyio.fail_after(PATIENCE_S):
            while tried.statistics()["received"] < before + 3:
                await buses["admission"].barrier()
        for stream, subject in ((subjects.STREAM, subjects.LOG), (POOLS, where)):
            with pytest.raises(JetStreamRefused, match="forms a cycle"):
                await deliver(buses["allocator"], stream, subject, pushed=True)

        assert (await log.bounds())[1] == 3
        assert {key: entry.value for key, entry in (await pools.entries()).items()} == {"a": b"new"}


@pytest.mark.parametrize("copied", [True, False])
@pytest.mark.parametrize(
    "answer", ["of the API", "to a refused request", "to a write", "to a refused write", "a status"]
)
async def test_an_answer_of_the_server_in_place_of_a_value_is_a_lost_value(
    server: Guarded, answer: str, copied: bool
) -> None:
    """As a record of the longest lease any answer could be read: it has no field that is needed."""
    async with with_stores(server) as buses:
        allocator = buses["allocator"]
        lease = LongestLease(allocator, TREE, 1)
        await lease.claim(600_000)
        buckets = [subjects.NODE_LEASES_BUCKET] + ([] if copied else [subjects.copies_of(subjects.NODE_LEASES_BUCKET)])
        for bucket in buckets:
            await answered_at(buses["integral"], answer, f"$KV.{bucket}.{TREE}")
            await grown(allocator, f"KV_{bucket}", 2)

        assert await (await allocator.key_value(subjects.NODE_LEASES_BUCKET)).get(TREE) is None
        assert (await LongestLease(allocator, TREE, 2).claim(60_000)).lease_ms == (600_000 if copied else 60_000)
        assert (await LongestLease(allocator, TREE, 3).claim(30_000)).lease_ms == (600_000 if copied else 60_000)


async def test_a_mirror_keeps_the_value_in_whose_place_an_answer_came_until_it_is_written_again(
    server: Guarded,
) -> None:
    value = msgspec.json.encode(Tree(TREE, [], TreeOptions()))
    async with with_stores(server) as buses, anyio.create_task_group() as tasks:
        pools = await CopiedBucket.open(buses["fair_share"], subjects.POOLS_BUCKET, history=subjects.POOLS_HISTORY)
        await pools.update(TREE, value, 0)
        tasks.start_soon(pools.keep)
        seen: list[int] = []

        def on_change(entries: Mapping[str, Any], _changed: frozenset[str]) -> None:
            seen.append(entries[TREE].revision)
            assert entries[TREE].value == value
            assert set(entries) == {TREE}

        mirrored = await buses["allocator"].key_value(subjects.POOLS_BUCKET, history=subjects.POOLS_HISTORY)
        async with mirrored.mirror(on_change) as mirror:
            with anyio.fail_after(PATIENCE_S):
                while await consumers_of(buses["allocator"], POOLS) < 2:  # noqa: ASYNC110 - the server sends no notice
                    await anyio.sleep(0.01)
            for key in (TREE, "another"):
                where = f"$KV.{subjects.POOLS_BUCKET}.{key}"
                await buses["integral"]._link.send(f"$JS.API.STREAM.INFO.{VOLUMES}", b"", reply=where)
            with anyio.fail_after(PATIENCE_S):
                while not (0 in seen and seen[-1] > 1):  # noqa: ASYNC110 - written again by the keeper
                    await anyio.sleep(0.01)
            assert mirror.entries[TREE].value == value
        tasks.cancel_scope.cancel()


async def test_records_go_on_behind_a_foreign_entry_and_do_not_tell_it(server: Guarded) -> None:
    stream, key = subjects.history_stream(TREE), f"$KV.{subjects.VOLUMES_BUCKET}.{TREE}.x"
    async with with_stores(server) as buses:
        kept = await buses["fair_share"].records(
            stream, subjects.history(TREE), max_age_s=BOUNDS.max_age_s, max_bytes=BOUNDS.max_bytes
        )
        writer = FencedRecords(kept, 1, lambda data: len(data))
        await writer.add(b"1", timeout_s=5)
        await buses["integral"].jetstream.append(key, b"forged", {}, timeout_s=5)
        await deliver(buses["integral"], VOLUMES, subjects.history(TREE), of=key, pushed=True)
        await deliver(buses["integral"], VOLUMES, subjects.history(TREE), of=key)
        await grown(buses["fair_share"], stream, 3)

        with anyio.fail_after(PATIENCE_S):
            await writer.add(b"2", timeout_s=5)

        assert [entry.data async for entry in kept.read()] == [b"1", b"2"]


@pytest.mark.parametrize("kind", [kind for kind in PartyKind if kind is not PartyKind.PROVISIONER])
def test_only_the_provisioner_makes_or_changes_streams_and_no_party_reads_messages_raw(kind: PartyKind) -> None:
    """A stream of one's own takes and repeats any subject. A direct answer would be a message under any subject."""
    unsafe = ("STREAM.CREATE", "STREAM.UPDATE", "STREAM.RESTORE", "DIRECT", ">", "*")
    api = "$JS.API."

    rights = [right.removeprefix(api) for right in permissions_of(Party(kind=kind)).publish if right.startswith(api)]

    assert not [right for right in rights if right.startswith(unsafe)]
