"""The table of subjects on a real server: whoever may speak is heard by whoever may listen, and everybody else is refused."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from headrace.access.permissions import Party, server_users
from headrace.access.routes import ROUTES, PartyKind, Route
from headrace.bus import Credential, Message, ServiceInfo, connect
from headrace.wire import subjects
from tests.support.guarded import WAYS, Guarded, everybody, guarded_server, is_refused
from tests.support.nats_server import nats_server

#: One of each service, and two of everything that has a name.
PARTIES = {
    "admission": Party(kind=PartyKind.ADMISSION),
    "fair_share": Party(kind=PartyKind.FAIR_SHARE, tree="east"),
    "integral": Party(kind=PartyKind.INTEGRAL, tree="east"),
    "allocator": Party(kind=PartyKind.ALLOCATOR, tree="east"),
    "west": Party(kind=PartyKind.ALLOCATOR, tree="west"),
    "n1": Party(kind=PartyKind.NODE, name="n1", tree="east"),
    "n2": Party(kind=PartyKind.NODE, name="n2", tree="east"),
    "h1": Party(kind=PartyKind.HOST, name="h1"),
    "h2": Party(kind=PartyKind.HOST, name="h2"),
    "anna": Party(kind=PartyKind.PERSON, name="anna"),
    "ben": Party(kind=PartyKind.PERSON, name="ben"),
    "provisioner": Party(kind=PartyKind.PROVISIONER),
}


@pytest.fixture(scope="module", params=WAYS)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    with guarded_server(request.param, PARTIES, tmp_path_factory.mktemp("credentials")) as running:
        yield running


def subject_of(route: Route) -> str:
    """The subject as it is between the first of each: anna, n1 and the services of the tree `east`."""
    subject = route.subject.replace("*", "some-operation")
    for place, name in {"user": "anna", "node": "n1", "host": "h1", "tree": "east"}.items():
        subject = subject.replace(f"{{{place}}}", name)
    return subject


def may(name: str, kinds: tuple[PartyKind, ...], route: Route) -> bool:
    """True if a party stands on this side of the route, and the names in the subject are its own."""
    party = PARTIES[name]
    is_named = name in ("n2", "h2", "ben") and f"{{{party.kind.value}}}" in route.subject
    is_elsewhere = party.tree == "west" and "{tree}" in route.subject
    return party.kind in kinds and not is_named and not is_elsewhere


async def echo(message: Message) -> bytes:
    return message.data


async def test_what_may_be_said_is_heard_and_answered(server: Guarded) -> None:
    async with everybody(server, PARTIES) as buses:
        for route in ROUTES:
            subject = subject_of(route)
            speakers = [name for name in buses if may(name, route.senders, route)]
            for listener in (name for name in buses if may(name, route.receivers, route)):
                # The server lets a node answer only what it received, which a request shows.
                serving = await buses[listener].serve(subject, echo) if route.is_request else None
                inbox = None if route.is_request else await buses[listener].subscribe(subject)
                for speaker in speakers:
                    if inbox is None:
                        assert await buses[speaker].request(subject, b"asked", timeout_s=5) == b"asked", subject
                    else:
                        await buses[speaker].publish(subject, b"told")
                        assert (await anext(inbox)).data == b"told", subject
                for receiver in (serving, inbox):
                    if receiver is not None:
                        await receiver.close()


async def test_nobody_else_may_say_or_hear_it(server: Guarded) -> None:
    async with everybody(server, PARTIES) as buses:
        for route in ROUTES:
            subject = subject_of(route)
            for name, bus in buses.items():
                if not may(name, route.senders, route):
                    assert await is_refused(bus.request(subject, b"", timeout_s=5)), f"{name} speaks on {subject}"
                if not may(name, route.receivers, route):
                    assert await is_refused(bus.subscribe(subject)), f"{name} hears {subject}"


async def test_a_node_answers_discovery_on_the_one_subject_that_it_may_hear() -> None:
    operator = "{ user: operator, password: operator }"
    node = server_users({PARTIES["n1"]: {"user": "n1", "password": "n1"}}).replace(
        "users = [", f"users = [ {operator},"
    )
    info = ServiceInfo(name="agent", version="1.0.0", only_pinged=True)
    with nats_server(node) as server:
        async with (
            connect(
                [server.url],
                name="asks",
                credential=Credential(user="operator", password="operator"),
                inbox_prefix=subjects.inbox("user", "operator"),
            ) as asks,
            connect(
                [server.url],
                name="agent",
                credential=Credential(user="n1", password="n1"),
                inbox_prefix=PARTIES["n1"].inbox,
                service=info,
            ),
        ):
            (answer,) = await asks.gather("$SRV.PING", b"", wait_s=0.5)
            assert json.loads(answer)["name"] == "agent"
        assert "Violation" not in server.log()


@pytest.mark.parametrize(
    "subject",
    [
        *("$JS.API.INFO", "$JS.API.STREAM.NAMES", "$JS.API.STREAM.INFO.HEADRACE_OPERATIONS", "$SYS.REQ.SERVER.PING"),
        *(f"$KV.{subjects.POOLS_BUCKET}.east", f"$KV.{subjects.TERMS_BUCKET}.allocator.east", "$SRV.STATS"),
        *("_INBOX.node.n1.x", "_INBOX.user.anna.x", "_INBOX.service.allocator.x", "headrace.v1.anything"),
        subjects.operation_view("anna", "some-operation"),
    ],
)
async def test_nodes_and_persons_reach_nothing_beside_their_own_subjects(server: Guarded, subject: str) -> None:
    async with everybody(server, PARTIES) as buses:
        for name in ("n2", "h2", "ben"):
            # A node answers persons and services, at inboxes whose names it was told with a request.
            may_answer = name == "n2" and subject.startswith(("_INBOX.user.", "_INBOX.service."))
            assert may_answer or await is_refused(buses[name].request(subject, b"", timeout_s=5)), name
            assert await is_refused(buses[name].subscribe(subject)), name
            for wide in (">", "headrace.>", "_INBOX.>", "headrace.v1.user.>", "headrace.v1.cmd.*.*", "$SYS.>"):
                assert await is_refused(buses[name].subscribe(wide)), (name, wide)
