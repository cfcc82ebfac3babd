"""Flipped bits in the files of a nats-server that was stopped or killed: what can be rebuilt is, and the rest is named."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from headrace.bus import BusError, DamagedValue, connect
from headrace.ids import OperationId, PoolName
from headrace.resources import Resources
from headrace.wire import subjects
from headrace.wire.operations import ListOperations, OperationList, OperationSpec, StartAnswer, StartOperation
from headrace.wire.services import ListServices, ServiceView
from headrace_admission.service import serve
from headrace_admission.settings import AdmissionSettings
from headrace_cli.up.damaged_buckets import have_buckets_checked
from tests.support.killing import killed
from tests.support.nats_server import NatsServer, nats_server
from tests.support.tree_services import PATIENCE_S, a_bus, ask, running

pytestmark = pytest.mark.long

SETTINGS = AdmissionSettings(administrators="*")


def block_of(server: NatsServer, stream: str) -> Path:
    """The file with the messages of a small stream."""
    return server.folder / "store" / "jetstream" / "$G" / "streams" / stream / "msgs" / "1.blk"


def flip(file: Path, at: Callable[[bytes], int]) -> None:
    """Flips one bit."""
    data = bytearray(file.read_bytes())
    data[at(bytes(data))] ^= 1
    file.write_bytes(bytes(data))


async def written(server: NatsServer) -> None:
    """A bucket with a value that was written several times, and another one."""
    async with connect([server.url], name="test") as bus:
        bucket = await bus.key_value("b")
        await bucket.put("kept", b"kept")
        for number in range(3):
            await bucket.put("term", b'{"term":%d}' % number)


@pytest.mark.parametrize("back", [1, 6, 12, 20, 24, 31, 37, 45, 52], ids=lambda back: f"byte -{back}")
async def test_a_bucket_with_a_damaged_value_is_usable_once_the_server_has_checked_it(back: int) -> None:
    """The server trusted its index: no service came up again, and the words were of a full disk."""
    with nats_server() as server:
        await written(server)
        server.stop()
        flip(block_of(server, "KV_b"), lambda data: len(data) - back)
        have_buckets_checked(server.folder / "store")
        for life in range(2):
            server.start()
            async with connect([server.url], name="test", api_timeout_s=2.0) as bus:
                bucket = await bus.key_value("b")
                kept, damaged = await bucket.get("kept"), await bucket.get("term")
                assert kept is not None
                assert kept.value == b"kept"
                assert damaged is None or damaged.value in (b'{"term":1}', b"again")
                assert (damaged is not None and damaged.value == b"again") == bool(life)
                await bucket.update("term", b"again", damaged.revision if damaged is not None else 0)
                await bucket.put("term", b"again")
                assert {key: entry.value for key, entry in (await bucket.entries()).items()} == {
                    "kept": b"kept",
                    "term": b"again",
                }
            server.kill()


@pytest.mark.parametrize("how", ["update", "put", "delete"])
async def test_a_damaged_value_that_the_server_has_not_checked_is_named_and_the_bucket_goes_on(how: str) -> None:
    """A write over it would have ended all writes to the bucket."""
    with nats_server() as server:
        await written(server)
        server.stop()
        flip(block_of(server, "KV_b"), lambda data: data.rindex(b'"term":2') + 7)
        server.start()
        async with connect([server.url], name="test", api_timeout_s=2.0) as bus:
            bucket = await bus.key_value("b")
            write: dict[str, Callable[[], Any]] = {
                "update": lambda: bucket.update("term", b"x", 0),
                "put": lambda: bucket.put("term", b"x"),
                "delete": lambda: bucket.delete("term"),
            }
            with pytest.raises(DamagedValue, match=r"bucket b, key term: .* delete `streams/KV_b/msgs/index\.db`"):
                await write[how]()
            await bucket.put("kept", b"still")


async def start_some(server: NatsServer, *numbers: int) -> None:
    async with a_bus(server, "user", "anna") as bus:
        for number in numbers:
            spec = OperationSpec(PoolName("research"), ["true"], 1, Resources(user_slots=1, cpu=100))
            start = StartOperation(OperationId(f"operation-{number}"), spec)
            await ask(bus, subjects.user("anna", "op.start"), start, StartAnswer)


async def operations(server: NatsServer) -> list[str]:
    async with a_bus(server, "user", "anna") as bus:
        listed = await ask(bus, subjects.user("anna", "op.list"), ListOperations(), OperationList)
        return sorted(view.operation for view in listed.operations)


async def test_acknowledged_operations_that_are_gone_with_the_end_of_the_log_are_told() -> None:
    """The server drops whatever stands behind a damaged entry, and 17 of 20 operations were gone without a word."""
    with nats_server() as server:
        async with killed(server, SETTINGS, serve), a_bus(server, "service", "reader") as bus:
            await start_some(server, *range(6))
            leases = await bus.key_value(subjects.LEASES_BUCKET)
            _, last = await (await bus.log(subjects.STREAM, subjects.LOG)).bounds()
            with anyio.fail_after(PATIENCE_S):
                while True:
                    lease = await leases.get("admission")
                    if lease is not None and msgspec.json.decode(lease.value).get("acknowledged") == last:
                        break
                    await anyio.sleep(0.05)
        server.kill()
        flip(block_of(server, subjects.STREAM), lambda data: data.index(b"operation-2"))
        server.start()

        async with killed(server, SETTINGS, serve) as runtime:
            assert await operations(server) == ["operation-0", "operation-1"]
            async with a_bus(server, "user", "anna") as bus:
                view = await ask(bus, subjects.user("anna", "service.list"), ListServices(), ServiceView)
            assert f"lost at least 4 acknowledged entries ({last - 3} to {last})" in view.trouble
            assert {figure.name: figure.value for figure in runtime.presence.figures()}["log_entries_lost"] == 4
            with anyio.fail_after(PATIENCE_S):
                while True:
                    async with a_bus(server, "service", "reader") as bus:
                        lease = await (await bus.key_value(subjects.LEASES_BUCKET)).get("admission")
                    if lease is not None and 0 < msgspec.json.decode(lease.value)["acknowledged"] < last:
                        break
                    await anyio.sleep(0.05)
        async with killed(server, SETTINGS, serve) as runtime:
            assert await operations(server) == ["operation-0", "operation-1"]
            assert {figure.name: figure.value for figure in runtime.presence.figures()}["log_entries_lost"] == 0


@pytest.mark.parametrize(
    "at",
    [
        lambda data: data.rindex(b"head") + 8,
        lambda data: data.rindex(b"head") + 1,
        lambda data: data.rindex(b"operation-1"),
        lambda data: data.index(b"page.") + 2,
    ],
    ids=["head", "key of the head", "page", "key of the page"],
)
async def test_a_damaged_checkpoint_harms_nothing_while_the_log_has_everything(at: Callable[[bytes], int]) -> None:
    """It ended admission at every start: «Input data was truncated»."""
    with nats_server() as server:
        async with running(server, SETTINGS, serve):
            await start_some(server, 0, 1)
        server.stop()
        flip(block_of(server, f"KV_{subjects.CHECKPOINT_BUCKET}"), at)
        have_buckets_checked(server.folder / "store")
        server.start()

        async with killed(server, SETTINGS, serve):
            assert await operations(server) == ["operation-0", "operation-1"]
            await start_some(server, 2)
        for _ in range(2):
            async with running(server, SETTINGS, serve):
                assert await operations(server) == ["operation-0", "operation-1", "operation-2"]


async def test_admission_goes_on_behind_the_checkpoint_when_the_stream_of_the_log_is_gone() -> None:
    """It ended at every start and told no way out."""
    with nats_server() as server:
        async with running(server, SETTINGS, serve):
            await start_some(server, 0, 1)
        server.stop()
        shutil.rmtree(block_of(server, subjects.STREAM).parents[1])
        server.start()

        async with running(server, SETTINGS, serve):
            await start_some(server, 2)
        async with killed(server, SETTINGS, serve):
            await start_some(server, 3)
        async with killed(server, SETTINGS, serve):
            assert await operations(server) == [f"operation-{number}" for number in range(4)]


@pytest.mark.parametrize("number", [2, 5], ids=["in the middle", "the last"])
async def test_a_damaged_entry_of_the_log_that_is_needed_is_named(number: int) -> None:
    """The words were that another process appends faster than this one can read."""
    with nats_server() as server:
        async with killed(server, SETTINGS, serve):
            await start_some(server, *range(6))
        # Its index is new, so it drops nothing, and answers that entry no more.
        server.stop()
        flip(block_of(server, subjects.STREAM), lambda data: data.index(b"operation-%d" % number))
        server.start()

        with pytest.RaisesGroup(
            pytest.RaisesExc(BusError, match=r"entry \d+ of the log cannot be read"), flatten_subgroups=True
        ):
            async with killed(server, SETTINGS, serve):
                await anyio.sleep_forever()
