"""The table of stores on a real server: each service writes its own keys, and everything else is refused to everybody."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator, Mapping

import msgspec
import pytest

from headrace.access.permissions import Party
from headrace.access.routes import STORES, PartyKind, Store, StoreKind
from headrace.bus.nats.bus import NatsBus
from headrace.bus.provisioning import provision
from headrace.ids import TreeName
from headrace.runtime.endpoints import Caller, CallerKind, Endpoints
from headrace.runtime.role import Deposition
from headrace.wire import subjects
from headrace.wire.version import WhoAnswer, WhoRequest
from tests.support.clocks import HandClock
from tests.support.guarded import WAYS, Guarded, everybody, guarded_server, is_refused

#: Each service of one tree, two of another, and those who reach no store.
PARTIES = {
    "admission": Party(kind=PartyKind.ADMISSION),
    "fair_share": Party(kind=PartyKind.FAIR_SHARE, tree="east"),
    "integral": Party(kind=PartyKind.INTEGRAL, tree="east"),
    "allocator": Party(kind=PartyKind.ALLOCATOR, tree="east"),
    "fair_share_west": Party(kind=PartyKind.FAIR_SHARE, tree="west"),
    "allocator_west": Party(kind=PartyKind.ALLOCATOR, tree="west"),
    "n1": Party(kind=PartyKind.NODE, name="n1", tree="east"),
    "n2": Party(kind=PartyKind.NODE, name="n2", tree="east"),
    "h1": Party(kind=PartyKind.HOST, name="h1"),
    "h2": Party(kind=PartyKind.HOST, name="h2"),
    "anna": Party(kind=PartyKind.PERSON, name="anna"),
    "provisioner": Party(kind=PartyKind.PROVISIONER),
}
#: The first part of a key that any tree, node or page may have.
ANYTHING = "anything"


@pytest.fixture(scope="module", params=WAYS)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    with guarded_server(request.param, PARTIES, tmp_path_factory.mktemp("credentials")) as running:
        yield running


@contextlib.asynccontextmanager
async def with_stores(server: Guarded) -> AsyncIterator[Mapping[str, NatsBus]]:
    """All parties, once the stores of both trees are there."""
    async with everybody(server, PARTIES) as buses:
        await provision(buses["provisioner"], [TreeName("east"), TreeName("west")])
        yield buses


def pattern_of(key: str, party: Party) -> str:
    """A key of the table as that party may write it."""
    return key.replace("{role}", party.role).replace("{tree}", str(party.tree))


def matches(pattern: str, key: str) -> bool:
    """True if a pattern of NATS has this key in it."""
    wanted, there = pattern.split("."), key.split(".")
    if wanted[-1] == ">":
        return len(there) >= len(wanted) and matches(".".join(wanted[:-1]), ".".join(there[: len(wanted) - 1]))
    return len(wanted) == len(there) and all(one in ("*", two) for one, two in zip(wanted, there, strict=True))


def keys_of(store: Store) -> set[str]:
    """A key for each party that writes to the store, and one that is nobody's."""
    keys = {f"{ANYTHING}.at.all"}
    for party in PARTIES.values():
        for kind, key in store.writers:
            if kind is party.kind:
                keys.add(pattern_of(key, party).replace("*", ANYTHING).replace(">", f"{ANYTHING}.1"))
    return keys


def subject_of(store: Store, key: str) -> str:
    return f"$KV.{store.name}.{key}" if store.kind is StoreKind.BUCKET else key


def may_write(party: Party, store: Store, key: str) -> bool:
    return any(kind is party.kind and matches(pattern_of(pattern, party), key) for kind, pattern in store.writers)


@pytest.mark.parametrize("store", STORES, ids=lambda store: store.name)
async def test_each_service_writes_its_keys_and_nobody_else_does(server: Guarded, store: Store) -> None:
    async with with_stores(server) as buses:
        for key in keys_of(store):
            for name, party in PARTIES.items():
                writing = buses[name].request(subject_of(store, key), b"", timeout_s=5)
                if may_write(party, store, key):
                    assert msgspec.json.decode(await writing)["seq"] > 0, f"{name} writes {key}"
                else:
                    assert await is_refused(writing), f"{name} writes {key}"


@pytest.mark.parametrize("store", STORES, ids=lambda store: store.name)
async def test_whoever_uses_a_store_reads_and_follows_the_whole_of_it(server: Guarded, store: Store) -> None:
    async with with_stores(server) as buses:
        for name in (name for name, party in PARTIES.items() if store.is_used_by(party.kind)):
            if store.kind is not StoreKind.BUCKET:
                subject = pattern_of(store.writers[0][1], PARTIES[name])
                log = await buses[name].log(store.name, subject) if store.kind is StoreKind.LOG else None
                entries = [] if log is None else [entry async for entry in log.read(0)]
                assert log is None or len(entries) == (await log.bounds())[1], name
                continue
            bucket = await buses[name].key_value(store.name, history=store.history)
            if not store.is_read_whole:
                assert await bucket.get("nothing") is None, name
                continue
            async with bucket.mirror() as mirror:
                assert dict(mirror.entries) == await bucket.entries(), name


def streams_of(store: Store) -> list[str]:
    return [store.stream.replace("{tree}", tree) for tree in (("east", "west") if "{tree}" in store.name else ("",))]


def rights_in(party: Party, store: Store, stream: str) -> set[str]:
    """Verbs of JetStream that a party needs at a stream."""
    is_of_other_tree = "{tree}" in store.name and not stream.endswith(str(party.tree))
    if party.kind is PartyKind.PROVISIONER:
        return {"STREAM.INFO", "STREAM.CREATE", "STREAM.UPDATE"}
    if not store.is_used_by(party.kind) or is_of_other_tree:
        return set()
    writes = party.kind in (kind for kind, _ in store.writers)
    return (
        {"STREAM.INFO", "STREAM.MSG.GET"}
        | ({"CONSUMER.CREATE", "CONSUMER.MSG.NEXT", "CONSUMER.DELETE"} if store.is_read_whole else set())
        | ({"STREAM.PURGE"} if writes and store.is_purged else set())
    )


VERBS = {
    **{f"STREAM.{verb}": "" for verb in ("INFO", "CREATE", "UPDATE", "DELETE", "PURGE", "MSG.GET", "MSG.DELETE")},
    **{f"STREAM.{verb}": "" for verb in ("SNAPSHOT", "RESTORE", "LEADER.STEPDOWN", "PEER.REMOVE")},
    **{f"CONSUMER.{verb}": ".c" for verb in ("CREATE", "INFO", "DELETE", "MSG.NEXT", "PAUSE")},
    **{f"CONSUMER.{verb}": "" for verb in ("LIST", "NAMES")},
    "DIRECT.GET": "",
}


@pytest.mark.parametrize("store", STORES, ids=lambda store: store.name)
async def test_nobody_reaches_more_of_a_stream_than_they_need(server: Guarded, store: Store) -> None:
    async with with_stores(server) as buses:
        for stream in streams_of(store):
            for verb, more in VERBS.items():
                for name, party in PARTIES.items():
                    if verb in rights_in(party, store, stream):
                        continue
                    asking = buses[name].request(f"$JS.API.{verb}.{stream}{more}", b"{}", timeout_s=5)
                    assert await is_refused(asking), f"{name} asks {verb} of {stream}"


@pytest.mark.parametrize(
    "subject",
    [
        *("$JS.API.INFO", "$JS.API.STREAM.NAMES", "$JS.API.STREAM.LIST", "$JS.API.ACCOUNT.PURGE.$G"),
        *("$JS.API.META.LEADER.STEPDOWN", "$JS.API.SERVER.REMOVE", "$JS.ACK.a.b.1.1.1.1.1", "$JS.FC.a.b"),
        *("$SYS.REQ.SERVER.PING", "$SYS.REQ.USER.INFO", "$SYS.REQ.ACCOUNT.PING.CONNZ", "$SYS.ACCOUNT.$G.CONNECT"),
    ],
)
async def test_nobody_reaches_the_account_or_the_system(server: Guarded, subject: str) -> None:
    async with with_stores(server) as buses:
        for name, bus in buses.items():
            # The provisioner may ask about each store already.
            may_ask = name == "provisioner" and subject == "$JS.API.STREAM.NAMES"
            assert may_ask or await is_refused(bus.request(subject, b"", timeout_s=5)), name
            assert await is_refused(bus.subscribe(subject)), name


@pytest.mark.parametrize(
    "elsewhere",
    [
        *(subjects.nudge("n2"), subjects.LOG, subjects.WHO, f"$KV.{subjects.TERMS_BUCKET}.allocator.east"),
        *("_INBOX.node.n2.x", "_INBOX.user.anna.x.asked.y", "_INBOX.service.allocator.x"),
    ],
)
async def test_an_answer_that_is_wanted_at_somebody_elses_subject_goes_nowhere(server: Guarded, elsewhere: str) -> None:
    """A service may publish where a node may not, and would be the node's hand there."""

    async def answer(request: WhoRequest, _caller: Caller) -> WhoAnswer:
        return WhoAnswer(role=request.role, term=1)

    async with with_stores(server) as buses:
        allocator, n1 = buses["allocator"], buses["n1"]
        endpoints = Endpoints(allocator, HandClock(), Deposition())
        heartbeat = subjects.heartbeat("east", "n1")
        serving = await endpoints.serve(subjects.heartbeat("east", "*"), WhoRequest, CallerKind.NODE, answer, name_at=4)
        hears = {"_INBOX.node.n2.x": "n2", "_INBOX.user.anna.x.asked.y": "anna", subjects.nudge("n2"): "n2"}
        inbox = await buses[hears[elsewhere]].subscribe(elsewhere) if elsewhere in hears else None

        request = msgspec.msgpack.encode(WhoRequest("x"))
        await n1._link.send(heartbeat, request, reply=elsewhere)
        await n1.request(heartbeat, request, timeout_s=5)
        await allocator.barrier()

        assert serving.statistics()["received"] == 2
        assert endpoints.forged == 1
        assert allocator._link.refused_publishes == 0
        if inbox is not None:
            await buses[hears[elsewhere]].barrier()
            assert inbox.statistics()["received"] == 0
