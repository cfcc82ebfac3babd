"""Buckets and streams are made by the provisioner alone, on a server that lets nobody else."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import anyio
import anyio.abc
import pytest

from headrace.access.permissions import Party, server_users, streams_of
from headrace.access.routes import STORES, PartyKind
from headrace.bus import BusError, Credential, MissingStore, connect
from headrace.bus.nats.bus import NatsBus
from headrace.bus.provisioning import RecordBounds, missing_streams, provision
from headrace.bus.stores import needed_streams
from headrace.client import Place
from headrace.ids import TreeName
from headrace.wire import subjects
from headrace_cli.stores import keep_stores
from tests.support.nats_server import NatsServer, nats_server

TREES = [TreeName("east"), TreeName("west")]
PARTIES = {
    **{kind.value: Party(kind=kind, tree="east") for kind in PartyKind if kind.is_service},
    "provisioner": Party(kind=PartyKind.PROVISIONER),
}


@pytest.fixture
def server() -> Iterator[NatsServer]:
    users = {party: {"user": name, "password": name} for name, party in PARTIES.items()}
    with nats_server(server_users(users)) as running:
        yield running


def connected(server: NatsServer, name: str) -> AbstractAsyncContextManager[NatsBus]:
    """As a process of that party is."""
    return connect(
        [server.url],
        name=name,
        credential=Credential(user=name, password=name),
        inbox_prefix=PARTIES[name].inbox,
        makes_stores=name == "provisioner",
    )


async def test_every_store_is_made_once_and_is_what_services_open(server: NatsServer) -> None:
    async with connected(server, "provisioner") as bus:
        made = await provision(bus, TREES)
        found = await provision(bus, TREES)

    assert {each.outcome for each in made} == {"made"}
    assert {each.name for each in made} == {store.name.replace("{tree}", tree) for store in STORES for tree in TREES}
    assert {each.outcome for each in found} == {"found"}
    for name in ("admission", "fair_share", "integral", "allocator"):
        async with connected(server, name) as bus:
            assert [await bus.jetstream.stream(stream) is None for stream in streams_of(PARTIES[name])].count(True) == 0


async def test_a_server_without_room_for_records_of_pools_has_all_that_services_cannot_do_without() -> None:
    users = {party: {"user": name, "password": name} for name, party in PARTIES.items()}
    with nats_server(server_users(users), store_bytes=100 * 2**20) as server:
        async with connected(server, "provisioner") as bus:
            with pytest.raises(BusError, match="HEADRACE_HISTORY_east: insufficient storage"):
                await provision(bus, TREES)
            for service in ("admission", "fair_share", "integral", "allocator"):
                streams = needed_streams(service, TREES[0])
                assert streams
                assert await missing_streams(bus, streams) == []


async def test_a_store_that_keeps_too_little_is_changed_and_what_it_holds_stays(server: NatsServer) -> None:
    async with connected(server, "provisioner") as bus:
        await bus.key_value(subjects.POOLS_BUCKET, history=3)
        (changed,) = [each for each in await provision(bus, TREES) if each.outcome != "made"]

    assert changed.name == subjects.POOLS_BUCKET
    assert changed.changes == ["values kept per key: 3 before, 64 now"]


async def test_a_bucket_in_which_one_writer_could_remove_all_keys_is_changed(server: NatsServer) -> None:
    async with connected(server, "provisioner") as bus:
        await provision(bus, TREES)
        await bus.jetstream.change_stream(f"KV_{subjects.TERMS_BUCKET}", allow_rollup_hdrs=True)
        (changed,) = [each for each in await provision(bus, TREES) if each.outcome != "found"]
        assert {each.outcome for each in await provision(bus, TREES)} == {"found"}

    assert changed.name == subjects.TERMS_BUCKET
    assert changed.changes == ["writers may remove other values: True before, False now"]


async def test_one_machine_has_its_stores_changed_when_it_starts() -> None:
    terms = f"KV_{subjects.TERMS_BUCKET}"
    with nats_server() as server:
        async with connect([server.url], name="test") as bus, anyio.create_task_group() as tasks:
            await provision(bus, TREES)
            await bus.jetstream.change_stream(terms, allow_rollup_hdrs=True)
            tasks.start_soon(keep_stores, Place(server.url, "", "", TREES[0], str(server.folder)), TREES)
            with anyio.fail_after(30):
                while (await bus.jetstream.existing(terms)).config.allow_rollup_hdrs:
                    pass
            await bus.request(f"$JS.API.STREAM.DELETE.{terms}", b"", timeout_s=5)
            with anyio.fail_after(30):
                while terms not in await bus.jetstream.names():
                    pass
            tasks.cancel_scope.cancel()


async def test_the_provisioner_gives_records_their_bounds_and_no_service_changes_them(server: NatsServer) -> None:
    name, subject = subjects.history_stream(TREES[0]), subjects.history(TREES[0])
    async with connected(server, "provisioner") as bus:
        await provision(bus, TREES)
        changed = await provision(bus, TREES, records=RecordBounds(3_600, 2**20))
        again = await provision(bus, TREES)
        async with connected(server, "fair_share") as service:
            await service.records(name, subject, max_age_s=60, max_bytes=2**30)
        there = (await bus.jetstream.existing(name)).config

    assert [each.changes for each in changed if each.outcome == "changed"] == [
        [
            "nanoseconds that an entry is kept: 604800000000000 before, 3600000000000 now",
            "largest size in bytes: 536870912 before, 1048576 now",
        ]
    ] * len(TREES)
    assert {each.outcome for each in again} == {"found"}
    assert (there.max_age, there.max_bytes) == (3_600 * 10**9, 2**20)


async def test_a_service_finds_what_is_missing_by_name_and_with_the_command_that_makes_it(server: NatsServer) -> None:
    async with connected(server, "fair_share") as bus:
        with pytest.raises(MissingStore, match="bucket headrace_pools is missing: `headrace bus provision` creates it"):
            await bus.key_value(subjects.POOLS_BUCKET)
        with pytest.raises(MissingStore, match=f"stream {subjects.STREAM} is missing"):
            await bus.log(subjects.STREAM, subjects.LOG)


@pytest.mark.parametrize("verb", ["CREATE", "DELETE"])
@pytest.mark.parametrize("name", ["admission", "fair_share", "integral", "allocator"])
async def test_no_service_may_make_or_delete_a_store(server: NatsServer, name: str, verb: str) -> None:
    async with connected(server, name) as bus:
        for stream in streams_of(PARTIES[name]):
            with pytest.raises(BusError, match="does not allow this process to publish"):
                await bus.request(f"$JS.API.STREAM.{verb}.{stream}", b"{}", timeout_s=5)


async def an_integral(server: NatsServer, folder: Path) -> anyio.abc.Process:
    """The process of a service of the tree `east`."""
    credential = folder / "credential"
    credential.touch(0o600)
    credential.write_text("integral:integral")
    environment = {
        "HEADRACE_NATS_URL": server.url,
        "HEADRACE_CREDENTIAL_FILE": str(credential),
        "HEADRACE_TREE": "east",
    }
    command = [sys.executable, "-m", "headrace_integral"]
    return await anyio.open_process(command, env=environment, stdout=subprocess.DEVNULL)


async def test_a_service_waits_for_what_is_missing_says_so_and_serves_once_it_is_there(
    server: NatsServer, tmp_path: Path
) -> None:
    process = await an_integral(server, tmp_path)
    try:
        assert process.stderr is not None
        with anyio.fail_after(30):
            waits = b""
            while b"waiting for buckets and streams" not in waits:
                waits += await process.stderr.receive()
            async with connected(server, "provisioner") as bus:
                await provision(bus, TREES)
            serves = b""
            while b"integral serves" not in serves:
                serves += await process.stderr.receive()
    finally:
        process.terminate()
        with anyio.CancelScope(shield=True):
            await process.wait()

    assert b"KV_headrace_volumes" in waits
    assert b"headrace bus provision" in waits


async def test_a_service_that_waits_for_a_store_ends_when_it_is_asked_to(server: NatsServer, tmp_path: Path) -> None:
    process = await an_integral(server, tmp_path)
    assert process.stderr is not None
    with anyio.fail_after(30):
        while b"waiting for" not in await process.stderr.receive():
            pass
        process.terminate()
        await process.wait()

    assert process.returncode == 0
