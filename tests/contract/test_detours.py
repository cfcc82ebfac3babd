"""Detours around the tables of subjects and stores on a real server: words that somebody else, or JetStream, is to say in our place."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager

import anyio
import msgspec
import pytest

from headrace.access.permissions import Party
from headrace.access.routes import STORES, PartyKind, Store, StoreKind
from headrace.bus.nats.bus import NatsBus
from headrace.bus.nats.streams.api import JetStreamRefused
from headrace.bus.provisioning import provision
from headrace.ids import TreeName
from headrace.runtime.endpoints import Caller, CallerKind, Endpoints
from headrace.runtime.role import Deposition
from headrace.wire import subjects
from headrace.wire.codec import BadMessage, decode
from headrace.wire.version import WhoAnswer, WhoRequest
from tests.support.clocks import HandClock
from tests.support.guarded import WAYS, Guarded, everybody, guarded_server

TREE = TreeName("east")
PARTIES = {
    **{kind.value: Party(kind=kind, tree=TREE) for kind in PartyKind if kind.is_service},
    "n1": Party(kind=PartyKind.NODE, name="n1", tree=TREE),
    "anna": Party(kind=PartyKind.PERSON, name="anna"),
    "provisioner": Party(kind=PartyKind.PROVISIONER),
}
BUCKETS = [store for store in STORES if store.kind is StoreKind.BUCKET]
VOLUMES = f"KV_{subjects.VOLUMES_BUCKET}"
PATIENCE_S = 20.0
TO_NODES = ["job.logs.n1", "debug.heartbeat.n1", "service.figures"]


@pytest.fixture(scope="module", params=WAYS)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    with guarded_server(request.param, PARTIES, tmp_path_factory.mktemp("credentials")) as running:
        yield running


@asynccontextmanager
async def with_stores(server: Guarded) -> AsyncIterator[Mapping[str, NatsBus]]:
    async with everybody(server, PARTIES) as buses:
        await provision(buses["provisioner"], [TREE])
        yield buses


@pytest.mark.parametrize("verb", TO_NODES)
async def test_a_node_speaks_nowhere_in_answer_to_an_accomplice(server: Guarded, verb: str) -> None:
    """`allow_responses` let it: whoever may ask a node, and is root on it, could write the log of operations."""
    elsewhere = [
        *(subjects.LOG, subjects.EVENTS, subjects.heartbeat(TREE, "n2"), subjects.user("eve", "op.start")),
        *(f"$KV.{subjects.NODES_BUCKET}.n2", "$JS.API.STREAM.PURGE.KV_headrace_nodes", "_INBOX.node.n2.x"),
    ]
    subject = subjects.user("anna", verb)
    async with with_stores(server) as buses:
        asked = await buses["n1"].subscribe(subject.replace(".anna.", ".*."))
        refused = buses["n1"]._link.refused_publishes
        for count, place in enumerate(elsewhere, start=refused + 1):
            await buses["anna"]._link.send(subject, b"", reply=place)
            wanted_at = (await anext(asked)).reply_to
            assert wanted_at == place

            await buses["n1"].publish(wanted_at, b"forged")
            await buses["n1"].barrier()
            buses["n1"]._link._take_errors()
            assert buses["n1"]._link.refused_publishes == count, place
        assert await buses["admission"].jetstream.last_message(subjects.STREAM, subjects.LOG) is None


async def test_whoever_was_asked_cannot_tell_where_the_next_answer_is_awaited(server: Guarded) -> None:
    async with everybody(server, PARTIES) as buses:
        heard: set[str] = set()

        async def hear(message: object) -> bytes:
            heard.add(str(getattr(message, "reply_to", "")).rpartition(".")[2])
            return b""

        await buses["n1"].serve(subjects.user("*", "job.logs.n1"), hear)
        for _ in range(50):
            await buses["anna"].request(subjects.user("anna", "job.logs.n1"), b"", timeout_s=5)
        heard |= {buses["anna"]._link.new_inbox().split(".")[-2] for _ in range(50)}

    assert len(heard) == 100
    assert {len(token) for token in heard} == {32}


@pytest.mark.parametrize("store", BUCKETS, ids=lambda store: store.name)
async def test_whoever_writes_a_key_removes_no_other(server: Guarded, store: Store) -> None:
    async with with_stores(server) as buses:
        for kind, key in store.writers:
            mine = key.replace("{role}", PARTIES[kind.value].role).replace("{tree}", TREE).replace("*", "x")
            subject = f"$KV.{store.name}.{mine.replace('>', 'x')}"
            for scope in ("all", "sub"):
                with pytest.raises(JetStreamRefused, match="rollup not permitted"):
                    await buses[kind.value].jetstream.append(subject, b"", {"Nats-Rollup": scope}, timeout_s=5)


async def deliver(bus: NatsBus, key: str, value: bytes, where: str) -> None:
    """Has JetStream say the value of a key of ours elsewhere, as a consumer and as an answer to a pull."""
    await bus.jetstream.append(f"$KV.{subjects.VOLUMES_BUCKET}.{key}", value, {}, timeout_s=5)
    of_key = {"ack_policy": "none", "filter_subject": f"$KV.{subjects.VOLUMES_BUCKET}.{key}"}
    pushing, pulled = secrets.token_hex(8), secrets.token_hex(8)
    for name, more in ((pushing, {"deliver_subject": where}), (pulled, {})):
        config = {"name": name, **of_key, **more}
        await bus.jetstream.ask(f"CONSUMER.CREATE.{VOLUMES}.{name}", {"stream_name": VOLUMES, "config": config})
    pull = msgspec.json.encode({"batch": 1})
    await bus._link.send(f"$JS.API.CONSUMER.MSG.NEXT.{VOLUMES}.{pulled}", pull, reply=where)


@pytest.mark.parametrize(
    ("subject", "says", "hears"),
    [
        (subjects.EVENTS, "admission", "allocator"),
        (subjects.EVENTS, "admission", "fair_share"),
        (subjects.share(TREE), "fair_share", "allocator"),
        (subjects.usage(TREE), "allocator", "fair_share"),
        (subjects.decisions(TREE), "allocator", "anna"),
        (subjects.operation_view("anna", "*"), "admission", "anna"),
    ],
)
async def test_what_a_stream_delivers_at_anothers_subject_is_not_heard(
    server: Guarded, subject: str, says: str, hears: str
) -> None:
    told = subject.replace("*", "some-operation")
    async with with_stores(server) as buses:
        heard = await buses[hears].subscribe(subject)
        await deliver(buses["integral"], f"{TREE}.{says}.{hears}", b"forged", told)
        with anyio.fail_after(PATIENCE_S):
            # To listeners on many subjects the server has only one of the two delivered.
            while heard.statistics()["dropped"] < (1 if "*" in subject else 2):
                await buses[hears].barrier()

        await buses[says].publish(told, b"real")
        assert (await anext(heard)).data == b"real"


async def test_a_request_that_a_stream_delivers_is_nobodys(server: Guarded) -> None:
    """The name would be taken from a key of whoever was taken over."""
    served: list[str] = []

    async def answer(request: WhoRequest, caller: Caller) -> WhoAnswer:
        served.append(caller.name)
        return WhoAnswer(role=request.role, term=1)

    async with with_stores(server) as buses:
        endpoints = Endpoints(buses["admission"], HandClock(), Deposition())
        await endpoints.serve(subjects.user("*", "op.start"), WhoRequest, CallerKind.USER, answer)
        await deliver(
            buses["integral"], f"{TREE}.eve", msgspec.msgpack.encode(WhoRequest("x")), subjects.user("eve", "op.start")
        )
        with anyio.fail_after(PATIENCE_S):
            while not endpoints.forged:
                await buses["admission"].barrier()

    assert served == []


@pytest.mark.parametrize("name", ["anna", "n1", "integral"])
async def test_nobody_has_the_server_tell_of_a_message_at_anothers_subject(server: Guarded, name: str) -> None:
    said = {"anna": subjects.user("anna", "op.start"), "n1": subjects.enrol("n1"), "integral": subjects.WHO}
    async with with_stores(server) as buses:
        link = buses[name]._link
        refused = link.refused_publishes
        for count, place in enumerate((subjects.LOG, subjects.EVENTS, f"$KV.{subjects.NODES_BUCKET}.n1"), refused + 1):
            await link.send(said[name], b"", headers={"Nats-Trace-Dest": place})
            await link.barrier()
            link._take_errors()
            assert link.refused_publishes == count, place


async def test_whoever_is_asked_with_others_and_answers_without_end_fills_no_memory(
    server: Guarded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.bus.nats.link._MOST_ANSWERS", 50)
    async with everybody(server, PARTIES) as buses:
        asked = await buses["n1"].subscribe(subjects.WHO)

        async def answer() -> None:
            inbox = (await anext(asked)).reply_to
            for _ in range(100):
                await buses["n1"].publish(inbox, b"1")

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(answer)
            answers = await buses["allocator"].gather(subjects.WHO, b"", wait_s=2.0)
        kept_off = buses["allocator"].statistics()["surplus_answers"]

    assert len(answers) == 50
    assert kept_off == 50


async def test_an_answer_of_jetstream_at_anothers_subject_is_no_message(server: Guarded) -> None:
    async with with_stores(server) as buses:
        heard = await buses["allocator"].subscribe(subjects.EVENTS)
        await buses["integral"]._link.send(f"$JS.API.STREAM.INFO.{VOLUMES}", b"", reply=subjects.EVENTS)
        with pytest.raises(BadMessage):
            decode((await anext(heard)).data, WhoAnswer)
