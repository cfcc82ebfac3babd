"""A value in a bucket that cannot be read, whatever its bytes are, ends no service, neither while it runs nor when it starts again."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import date

import pytest

import headrace
from headrace.bus import Bus
from headrace.wire import subjects
from headrace_admission.service import serve as serve_admission
from headrace_admission.settings import AdmissionSettings
from headrace_allocator.service import serve as serve_allocator
from headrace_allocator.settings import AllocatorSettings
from headrace_fair_share.service import serve as serve_fair_share
from headrace_fair_share.settings import FairShareSettings
from tests.support.nats_server import NatsServer, nats_server
from tests.support.tree_services import a_bus, running

pytestmark = pytest.mark.long

#: Fields of all stored values that are texts, so that each reader meets a text that is not UTF-8.
TEXTS = ("name", "node", "tree", "holder", "process", "refusal", "kind", "type", "user", "term")
NOT_UTF8 = b"{%s}" % b",".join(b'"%s":"\xff"' % name.encode() for name in TEXTS)
NESTED_TOO_DEEP = b'{"more":' + b"[" * 30_000 + b"]" * 30_000 + b"}"
#: Buckets of small values, each with a key that a service reads.
READ = {
    subjects.GROUPS_BUCKET: "research",
    subjects.CONSUMPTION_BUCKET: "head",
    subjects.LEASES_BUCKET: "admission",
    subjects.TERMS_BUCKET: "admission",
    subjects.NODES_BUCKET: "n1",
    subjects.NODE_LEASES_BUCKET: "default",
    subjects.KEYS_BUCKET: "k1",
    subjects.ARCHIVES_BUCKET: "foreign",
    subjects.CHECKPOINT_BUCKET: "head",
}


async def spoil(bus: Bus, value: bytes, *, also: str) -> None:
    """Writes the value under the keys that services read, and under a key that no service wrote."""
    for bucket, key in READ.items():
        kept = await bus.key_value(bucket)
        await kept.put(key, value)
        await kept.put(also, value)


@asynccontextmanager
async def services(server: NatsServer) -> AsyncIterator[headrace.client.Client]:
    async with (
        running(server, AdmissionSettings(administrators="eve"), serve_admission, "admission"),
        running(server, FairShareSettings(administrators="eve"), serve_fair_share, "fair_share"),
        running(server, AllocatorSettings(), serve_allocator, "allocator"),
        headrace.connect(url=server.url, user="eve") as eve,
    ):
        yield eve


async def test_no_unreadable_value_ends_a_service_or_keeps_it_from_starting() -> None:
    with nats_server() as server:
        async with services(server) as eve:
            await eve.groups.create("kept", ["ben"])
            for number, value in enumerate((NOT_UTF8, NESTED_TOO_DEEP)):
                async with a_bus(server, "service", "thief") as bus:
                    # A running service watches these.
                    for bucket in (subjects.GROUPS_BUCKET, subjects.NODES_BUCKET, subjects.POOLS_BUCKET):
                        await (await bus.key_value(bucket)).put(f"new{number}", value)
                await eve.groups.add("kept", [f"u{number}"])
                await eve.pools.create(f"p{number}")
        for number, value in enumerate((NOT_UTF8, NESTED_TOO_DEEP)):
            async with a_bus(server, "service", "thief") as bus:
                await spoil(bus, value, also=f"more{number}")
            async with services(server) as eve:
                assert [*(await eve.groups.get("kept")).members] == ["ben", "u0", "u1"]
                await eve.run(["true"], pool=f"p{number}")
                await eve.consumption.summed(since=date(2026, 1, 1), until=date(2027, 1, 1))
