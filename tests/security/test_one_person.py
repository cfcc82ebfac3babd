"""What one person can do to everybody with a credential of their own: nothing that another person's start waits for.

mallory sends what the server lets her send. Each test asks for one start of anna's meanwhile, and compares the order in which both are
answered.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, cast

import anyio
import msgspec
import pytest

from headrace.access.permissions import MOST_SUBSCRIPTIONS, Party, permissions_of
from headrace.access.routes import ROUTES, PartyKind
from headrace.bus import Bus, BusError, Message, connect
from headrace.bus.nats import bus as nats_bus
from headrace.bus.nats.bus import NatsBus
from headrace.bus.protocol import Handler
from headrace.bus.provisioning import provision
from headrace.client import Client
from headrace.client.place import Place
from headrace.ids import OperationId, PoolName, TreeName, UserName
from headrace.resources import Resources
from headrace.runtime.clock import SystemClock
from headrace.wire import operations as wire
from headrace.wire import subjects
from headrace.wire.codec import decode, encode
from headrace.wire.consumption import GetConsumption, Level
from headrace.wire.happenings import GetOperationHistory
from headrace.wire.log import OperationStarted, Published
from headrace.wire.lost_work import GetLostWork
from headrace.wire.operations import OperationSpec
from headrace.wire.replay import ReadEvents
from headrace.wire.start_plans import PlanStart
from headrace_admission.service import serve as serve_admission
from headrace_admission.settings import AdmissionSettings
from tests.support.guarded import Guarded, guarded_server
from tests.support.tree_services import running_on

pytestmark = pytest.mark.long

TREE: Final = TreeName("default")
PARTIES: Final[Mapping[str, Party]] = {
    "provisioner": Party(kind=PartyKind.PROVISIONER),
    "admission": Party(kind=PartyKind.ADMISSION),
    "allocator": Party(kind=PartyKind.ALLOCATOR, tree=TREE),
    "mallory": Party(kind=PartyKind.PERSON, name="mallory"),
    "anna": Party(kind=PartyKind.PERSON, name="anna"),
}
#: No test waits longer for anything.
PATIENCE_S: Final = 60.0
#: Requests of a flood: of those that take long, and of others.
FEW: Final = 100
MANY: Final = 200
LARGE: Final = "x" * 100_000


class House(msgspec.Struct, frozen=True):
    """A server that knows each party by its key, and where mallory and anna are connected."""

    server: Guarded
    buses: Mapping[str, NatsBus]

    async def ask(self, person: str, verb: str, request: msgspec.Struct) -> Any:
        """The answer as it is on the wire."""
        answer = await self.buses[person].request(subjects.user(person, verb), encode(request), timeout_s=PATIENCE_S)
        return msgspec.msgpack.decode(answer)

    async def start(self, person: str, name: str, **spec: Any) -> Any:
        """The answer to the start of an operation of one job that fits on no node."""
        return await self.ask(person, "op.start", wire.StartOperation(OperationId(name), a_spec(**spec)))


def a_spec(**fields: Any) -> OperationSpec:
    resources = Resources(user_slots=1, cpu=10_000_000)
    return OperationSpec(pool=PoolName("p"), argv=["true"], resources=resources, **fields)


@asynccontextmanager
async def a_house(folder: Path) -> AsyncIterator[House]:
    (folder / "credentials").mkdir()
    with guarded_server("operator", PARTIES, folder / "credentials") as server:
        async with AsyncExitStack() as stack:
            buses = {name: await stack.enter_async_context(a_bus(server, name)) for name in PARTIES}
            await provision(buses["provisioner"], [TREE])
            yield House(server, buses)


def a_bus(server: Guarded, name: str) -> Any:
    party = PARTIES[name]
    return connect(
        [server.url],
        name=name,
        credential=server.credential(name),
        inbox_prefix=party.inbox,
        makes_stores=party.kind is PartyKind.PROVISIONER,
    )


class Gate:
    """Holds back the handlers of admission until one of them gets a request of anna's, so that a flood cannot be over before she asks."""

    def __init__(self) -> None:
        self._is_open = anyio.Event()
        self._is_open.set()

    def close(self) -> None:
        """Hold back handlers from now on."""
        self._is_open = anyio.Event()

    def guard(self, bus: Any) -> None:
        """Hold back the handlers of all subjects that this connection serves."""
        serve = bus.serve

        async def guarded(subject: str, handler: Handler, **more: Any) -> Any:
            async def passed(message: Message) -> bytes | None:
                if ".user.anna." in message.subject:
                    self._is_open.set()
                await self._is_open.wait()
                return await handler(message)

            return await serve(subject, passed, **more)

        bus.serve = guarded


@asynccontextmanager
async def admission(
    house: House, *, news: Bus | None = None, gate: Gate | None = None, **settings: Any
) -> AsyncIterator[None]:
    """A life of admission on a connection of its own. It tells persons the news by `news`, where that is given."""
    async with a_bus(house.server, "admission") as bus, AsyncExitStack() as stack:
        if gate is not None:
            gate.guard(bus)
        await stack.enter_async_context(
            running_on(bus, AdmissionSettings(**settings), serve_admission, "admission", news)
        )
        with anyio.fail_after(PATIENCE_S):
            while await is_unanswered(house):  # noqa: ASYNC110 - each is a question
                await anyio.sleep(0.05)
        yield


async def is_unanswered(house: House) -> bool:
    # A command without a program is refused.
    nothing = msgspec.msgpack.encode({"operation": "nothing-1", "spec": {"pool": "p", "argv": []}})
    try:
        await house.buses["anna"].request(subjects.user("anna", "op.start"), nothing, timeout_s=1)
    except BusError:
        return True
    return False


async def test_large_starts_are_refused_before_the_service_is_full_and_it_starts_again_from_its_log(
    tmp_path: Path,
) -> None:
    """One person once stopped a cluster for good with 16,214 acknowledged starts of 120 kB."""
    quotas: dict[str, Any] = {"most_operation_bytes": 4_000_000, "keep_finished_bytes": 1_000_000}
    async with a_house(tmp_path) as house:
        async with admission(house, **quotas):
            answers = [
                await house.start("mallory", f"large-{number:04}", environment={"A": LARGE}) for number in range(40)
            ]
            of_anna = await house.start("anna", "of-anna-1")
        async with admission(house, **quotas):
            once_more = await house.start("mallory", "large-9999", environment={"A": LARGE})
            repeated = await house.start("mallory", "large-0000", environment={"A": LARGE})
            await house.ask("mallory", "op.abort", wire.AbortOperation(OperationId("large-0000")))
            after_of_anna = await house.start("anna", "of-anna-2")

    refused = [answer for answer in answers if answer["refusal"] != "none"]
    # Each user has half of the room of all.
    assert len(answers) - len(refused) == 19
    assert {answer["refusal"] for answer in refused} == {"over_limit"}
    broken = refused[0]["broken"][0]
    assert (broken["name"], broken["limit"], broken["user"]) == ("most_operation_bytes_of_a_user", 2_000_000, "mallory")
    assert once_more["refusal"] == "over_limit"
    assert (repeated["refusal"], repeated["repeated"]) == ("none", True)
    assert (of_anna["refusal"], after_of_anna["refusal"]) == ("none", "none")


#: Questions that take long here: what is known is not much.
LONG: Final = ("op.list", "op.log", "op.history")
NEVER: Final = 2**62
UNKNOWN: Final = OperationId("no-such-operation")
FLOODS: Final[dict[str, msgspec.Struct]] = {
    "op.list": wire.ListOperations(limit=500),
    "op.log": ReadEvents(),
    "op.history": GetOperationHistory(OperationId("many-0000")),
    "op.get": wire.GetOperation(UNKNOWN),
    "op.explain": wire.ExplainOperation(OperationId("many-0000")),
    "op.jobs": wire.GetJobs(OperationId("many-0000"), limit=1_000),
    "pool.counts": wire.CountPools(),
    "pool.lost_work": GetLostWork(PoolName("p"), 0, 1),
    "consumption": GetConsumption(Level.YEARS, "2026"),
    "op.update": wire.UpdateOperation(OperationId("many-0000"), pool=PoolName("p"), min_revision=NEVER),
    "op.plan_start": PlanStart(OperationId("x" * 20), a_spec(), min_revision=NEVER),
    "op.start": wire.StartOperation(OperationId("x" * 20), a_spec(), min_revision=NEVER),
}


async def test_a_start_is_answered_while_a_flood_of_slow_questions_waits(tmp_path: Path) -> None:
    """64 requests for the log at a time, 2,000 for lists, or 31 a second for a revision that never comes delayed all others by seconds."""
    order: dict[str, list[str]] = {}
    gate = Gate()
    async with a_house(tmp_path) as house, admission(house, gate=gate, revision_wait_ms=3_600_000):
        async with anyio.create_task_group() as tasks:
            for number in range(300):
                words = {"A": LARGE} if number % 20 == 0 else {}
                name = f"many-{number:04}"
                tasks.start_soon(partial(house.start, "anna", name, environment=words))
        for verb, request in FLOODS.items():
            order[verb] = await answered(house, gate, verb, request)

    # A start waits for the server to write it. Meanwhile many quick questions are answered, more on a slow disk; so beside those a quick
    # question of anna's shows her place in the line.
    last = {verb: "anna 2" if verb in LONG else "anna asks" for verb in FLOODS}
    served = {verb: [name for name in names if name != "busy"] for verb, names in order.items()}
    assert {verb: at for verb, names in served.items() if (at := names.index(last[verb])) > len(names) // 2} == {}
    # All were answered: the flood, the question and the three starts.
    assert {verb: len(names) for verb, names in order.items()} == {verb: size_of(verb) + 4 for verb in FLOODS}


def size_of(verb: str) -> int:
    """The number of requests in a flood."""
    return FEW if verb in ("op.list", "op.log", "op.history") else MANY


async def answered(house: House, gate: Gate, verb: str, request: msgspec.Struct) -> list[str]:
    """Who was answered, in this order: a flood of one kind of mallory's, and a question and three starts of anna's one after the other.

    A question of mallory's that was refused because too many of hers wait is «busy».
    """
    order: list[str] = []

    async def flood() -> None:
        answer = await house.ask("mallory", verb, request)
        order.append("busy" if answer["refusal"] == "busy" else "mallory")

    async def starts() -> None:
        await house.ask("anna", "op.get", wire.GetOperation(UNKNOWN))
        order.append("anna asks")
        for number in range(3):
            await house.start("anna", f"beside-{verb.replace('.', '-').replace('_', '-')}-{number}")
            order.append(f"anna {number}")

    gate.close()
    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as tasks:
            for _ in range(size_of(verb)):
                tasks.start_soon(flood)
            # mallory's requests are on their way before anna's first one.
            await house.buses["mallory"].barrier()
            tasks.start_soon(starts)
    return order


async def test_a_revision_that_does_not_exist_is_refused_at_once_and_the_client_goes_on_without_it(
    tmp_path: Path,
) -> None:
    """After an older backup was put back, a client that knew a later revision could start nothing any more."""
    async with a_house(tmp_path) as house, admission(house, revision_wait_ms=3_600_000):
        with anyio.fail_after(PATIENCE_S):
            refused = await house.ask("anna", "op.start", FLOODS["op.start"])
            place = Place(house.server.url, "", "", TREE, "here")
            client = Client(house.buses["anna"], SystemClock(), place, UserName("anna"), timeout_s=PATIENCE_S)
            client._asker.revision = NEVER
            started = await client.start(a_spec(), operation="after-the-backup")

    assert refused["refusal"] == "not_ready"
    assert "does not exist" in refused["why"]
    assert started.id == "after-the-backup"
    assert client.pools.revision == refused["revision"] < NEVER


async def test_a_connection_of_a_person_has_a_bounded_number_of_subscriptions(tmp_path: Path) -> None:
    """With 100,000 subscriptions of one person others' starts took up to 10.5 s."""
    async with a_house(tmp_path) as house, admission(house):
        had = await subscribed(house.buses["mallory"], 10 * MOST_SUBSCRIPTIONS)
        started = await house.start("anna", "of-anna-1")

    assert MOST_SUBSCRIPTIONS // 2 < had <= MOST_SUBSCRIPTIONS
    assert started["refusal"] == "none"


async def test_an_answer_is_delivered_once_however_many_subscriptions_a_person_has_at_the_inbox(tmp_path: Path) -> None:
    """20,000 subscriptions there made 20,000 copies of each page that a person asked for: 2 GB of the server, and starts of 40 s."""
    heard: list[Message] = []
    async with a_house(tmp_path) as house, a_bus(house.server, "mallory") as more:
        asks_from = subjects.asks_from(f"{PARTIES['mallory'].inbox}.x")
        for bus in (house.buses["mallory"], more):
            for _ in range(20):
                await bus._link.listen(f"{asks_from}.*", heard.append)
                await bus._link.listen(subjects.answers_at(f"{asks_from}.*"), heard.append, queue=subjects.INBOX_QUEUE)
        await house.buses["admission"].serve(subjects.user("*", "op.get"), answer)
        await house.buses["mallory"]._link.send(subjects.user("mallory", "op.get"), b"", reply=f"{asks_from}.token")
        while not heard:
            await more.barrier()
        await house.buses["admission"].barrier()
        for bus in (house.buses["mallory"], more):
            await bus.barrier()

    assert [message.data for message in heard] == [b"answer"]


async def answer(_message: Message) -> bytes:
    return b"answer"


class Stuck:
    """A connection of which the server takes nothing: it hands a message to too many persons."""

    async def publish(self, *_: object, **__: object) -> None:
        await anyio.sleep_forever()


async def test_starts_are_answered_and_told_to_services_while_nobody_takes_the_news_for_persons(tmp_path: Path) -> None:
    """20,000 subscriptions of one person to the happenings delayed another's start by up to 5 s: all went over one connection."""
    names = [f"of-anna-{number}" for number in range(3)]
    told: list[str] = []
    async with a_house(tmp_path) as house, admission(house, news=cast("Bus", Stuck())):
        events = await house.buses["allocator"].subscribe(subjects.EVENTS)
        with anyio.fail_after(PATIENCE_S):
            started = [await house.start("anna", name) for name in names]
            while names[-1] not in told:
                published = decode((await anext(events)).data, Published)
                told += [event.operation for event in published.events if isinstance(event, OperationStarted)]

    assert [answer["refusal"] for answer in started] == ["none"] * 3
    assert told == names


async def subscribed(bus: NatsBus, most: int) -> int:
    """How many subscriptions to the same subject the server takes."""
    for had in range(most):
        try:
            await bus.subscribe(subjects.HAPPENINGS)
        except BusError:
            return had
    return most


def test_no_service_and_no_node_needs_more_subscriptions_than_its_credential_has() -> None:
    """Each kind of requests has up to two subscriptions for each of so many senders, and two for all others. Heartbeats have more.

    A service hears persons on one connection, and nodes on another.
    """
    of_a_kind = 2 * (nats_bus.LANES_OF_SENDERS.most + 1)
    of_heartbeats = 2 * (nats_bus.LANES_OF_NEWEST.most + 1)
    heartbeats = subjects.heartbeat("{tree}", "{node}")
    kinds = [kind for kind in PartyKind if kind.is_service or kind is PartyKind.NODE]
    needed: dict[PartyKind, int] = {}
    for kind in kinds:
        heard = [route for route in ROUTES if kind in route.receivers]
        of_persons = [route for route in heard if PartyKind.PERSON in route.senders]
        of_nodes = [route for route in heard if {PartyKind.NODE, PartyKind.HOST} & {*route.senders}]
        in_lines = [route for route in of_nodes if route.subject != heartbeats]
        needed[kind] = max(
            of_a_kind * len(of_persons),
            of_a_kind * len(in_lines) + of_heartbeats * (len(of_nodes) - len(in_lines)) + len(heard),
        )
    allowed = {kind: permissions_of(Party(kind=kind, name="n1")).most_subscriptions for kind in needed}
    # Besides it has its inbox, what it follows and mirrors.
    assert {kind: needed[kind] + 1_000 for kind in needed if needed[kind] + 1_000 > allowed[kind]} == {}
