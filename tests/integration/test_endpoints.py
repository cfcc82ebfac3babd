"""The endpoints of every service, on a real server: what is malformed or forged is counted, told once a minute, and goes no further."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

import anyio
import msgspec
import pytest

from headrace.bus import AppendUnknown, Bus, BusError, RequestTimeout, Subscription
from headrace.bus.protocol import MAX_PENDING_BYTES
from headrace.runtime.endpoints import Caller, CallerKind, Endpoints, UserQuota
from headrace.runtime.lease import LeaseRecord
from headrace.runtime.role import Deposition, Role
from headrace.runtime.service import runtime_on
from headrace.runtime.settings import CommonSettings
from headrace.wire import subjects
from headrace.wire.codec import LARGEST_MESSAGE_BYTES, decode, encode
from headrace.wire.refusals import AnswerTooLarge, BadRequest, Busy, Refusal, ServiceFault
from headrace.wire.version import WhoAnswer, WhoRequest
from tests.contract.waiting import eventually
from tests.support.clocks import HandClock
from tests.support.nats_server import NatsServer, nats_server
from tests.support.spans import tracing_on
from tests.support.tree_services import a_bus

SUBJECT = subjects.user("*", "test.ask")


class Service:
    """Answers `WhoRequest`; a role of digits is answered by so many bytes."""

    def __init__(self, endpoints: Endpoints, clock: HandClock) -> None:
        self.endpoints = endpoints
        self.clock = clock
        self.asked: list[str] = []

    async def on_ask(self, request: WhoRequest, caller: Caller) -> msgspec.Struct:
        self.asked.append(caller.name)
        if request.role == "append":
            raise AppendUnknown("the appender was stopped")
        if request.role.isdigit():
            return WhoAnswer(role="x" * int(request.role), term=1)
        return WhoAnswer(role=request.role, term=2**64 if request.role == "65 bits" else 7)


@pytest.fixture(scope="module")
def server() -> Iterator[NatsServer]:
    with nats_server() as started:
        yield started


@asynccontextmanager
async def a_service(server: NatsServer) -> AsyncIterator[Service]:
    async with a_bus(server, "service", "tested") as bus:
        clock = HandClock()
        service = Service(Endpoints(bus, clock, Deposition()), clock)
        await service.endpoints.serve(SUBJECT, WhoRequest, CallerKind.USER, service.on_ask)
        yield service


@pytest.mark.parametrize(("kind", "most"), [(CallerKind.USER, 0), (CallerKind.NODE, 20), (CallerKind.SERVICE, 100)])
async def test_a_header_of_a_person_makes_no_span_and_those_of_a_node_few(
    server: NatsServer, kind: CallerKind, most: int
) -> None:
    """Whoever may ask may put any trace into any number of requests."""
    subject = {CallerKind.USER: SUBJECT, CallerKind.NODE: subjects.enrol("*")}.get(kind, subjects.WHO)
    headers = {"traceparent": f"00-{'a' * 32}-{'b' * 16}-01"}
    async with a_bus(server, "service", "tested") as bus, a_bus(server, kind.value, "anna") as anna:
        service = Service(Endpoints(bus, HandClock(), Deposition()), HandClock())
        await service.endpoints.serve(subject, WhoRequest, kind, service.on_ask)
        with tracing_on(wall_ns=lambda: 1_000_000_000) as spans:
            for _ in range(100):
                asked = subject.replace("*", "anna")
                await anna.request(asked, encode(WhoRequest("x")), timeout_s=5, headers=headers)

    assert len(service.asked) == 100
    assert len(spans) == most


@pytest.mark.parametrize("kind", [CallerKind.USER, CallerKind.NODE])
async def test_who_may_have_been_succeeded_answers_neither_persons_nor_nodes_until_it_knows(
    server: NatsServer, kind: CallerKind
) -> None:
    """A former admission told nodes that operations were over of which only its successor had heard."""
    subject = SUBJECT if kind is CallerKind.USER else subjects.enrol("*")
    async with a_bus(server, "service", "tested") as bus, a_bus(server, kind.value, "anna") as anna:
        service = Service(Endpoints(bus, HandClock(), Deposition()), HandClock())
        role = service.endpoints.leads = Role("tested", 1, Deposition())
        await service.endpoints.serve(subject, WhoRequest, kind, service.on_ask)
        await anna.request(subject.replace("*", "anna"), encode(WhoRequest("x")), timeout_s=5)
        role.doubt()
        with pytest.raises(RequestTimeout):
            await anna.request(subject.replace("*", "anna"), encode(WhoRequest("y")), timeout_s=0.3)

    assert service.asked == ["anna"]


async def ask(server: NatsServer, data: bytes, user: str = "anna", inbox: str = "anna") -> Any:
    async with a_bus(server, "user", inbox) as bus:
        answer = await bus.request(subjects.user(user, "test.ask"), data, timeout_s=0.5)
    either: Any = WhoAnswer | Refusal
    return msgspec.msgpack.decode(answer, type=WhoAnswer) if b"refusal" not in answer else decode(answer, either)


async def test_the_caller_is_who_the_subject_names(server: NatsServer) -> None:
    async with a_service(server) as service:
        answer = await ask(server, encode(WhoRequest("allocator.default")))

    assert answer == WhoAnswer("allocator.default", 7)
    assert service.asked == ["anna"]


@pytest.mark.parametrize("data", [b"", b"\xc1", b"\x81\xa4role\x01", b"x" * 100, encode(WhoRequest("r")) + b"\x00"])
async def test_a_malformed_request_is_answered_by_what_was_expected_and_reaches_no_handler(
    server: NatsServer, data: bytes
) -> None:
    async with a_service(server) as service:
        async with a_bus(server, "user", "anna") as bus:
            answer = await bus.request(subjects.user("anna", "test.ask"), data, timeout_s=5)
        refusal: Any = decode(answer, BadRequest)

    assert refusal.place == "message"
    assert refusal.fault.startswith("the message is not a valid WhoRequest: ")
    assert service.asked == []
    assert service.endpoints.malformed == 1


async def test_a_request_over_the_cap_is_malformed(server: NatsServer) -> None:
    async with a_service(server) as service, a_bus(server, "user", "anna") as bus:
        await bus.request(subjects.user("anna", "test.ask"), b"\xa0" * (LARGEST_MESSAGE_BYTES + 1), timeout_s=5)

    assert service.endpoints.malformed == 1


async def test_a_sender_of_rubbish_is_logged_once_a_minute_and_counted_each_time(
    server: NatsServer, capsys: pytest.CaptureFixture[str]
) -> None:
    async with a_service(server) as service:
        for moment_s, user in [(0.0, "anna"), (1.0, "anna"), (2.0, "boris"), (59.0, "anna"), (61.0, "anna")]:
            service.clock.now_s = moment_s
            async with a_bus(server, "user", user) as bus:
                await bus.request(subjects.user(user, "test.ask"), b"rubbish", timeout_s=5)

    logs = map(json.loads, capsys.readouterr().err.splitlines())
    told = [line["sender"] for line in logs if line["event"] == "malformed message"]
    assert told == ["anna", "boris", "anna"]
    assert service.endpoints.malformed == 5


async def test_an_answer_that_should_go_to_another_partys_inbox_is_not_given(server: NatsServer) -> None:
    async with a_service(server) as service:
        with pytest.raises(BusError):
            await ask(server, encode(WhoRequest("r")), user="anna", inbox="mallory")

    assert service.asked == []
    assert service.endpoints.forged == 1


async def test_a_request_whose_record_is_in_doubt_gets_no_answer_and_is_no_failure_of_its_handler(
    server: NatsServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """As where another process leads by now: the caller asks again and reaches it."""
    async with a_service(server) as service:
        with pytest.raises(BusError):
            await ask(server, encode(WhoRequest("append")), user="anna", inbox="anna")

    assert service.asked == ["anna"]
    assert "failed" not in capsys.readouterr().err


async def test_an_answer_that_is_too_large_is_replaced_by_words(server: NatsServer) -> None:
    async with a_service(server) as service:
        async with a_bus(server, "user", "anna") as bus:
            data = encode(WhoRequest(str(LARGEST_MESSAGE_BYTES)))
            answer = await bus.request(subjects.user("anna", "test.ask"), data, timeout_s=5)
        refusal = decode(answer, AnswerTooLarge)

    assert refusal.size_bytes > LARGEST_MESSAGE_BYTES
    assert "request less" in refusal.text()
    assert service.endpoints.answered_too_large == 1


async def test_an_answer_that_cannot_be_encoded_is_replaced_by_a_refusal(server: NatsServer) -> None:
    async with a_service(server) as service, a_bus(server, "user", "anna") as bus:
        answer = await bus.request(subjects.user("anna", "test.ask"), encode(WhoRequest("65 bits")), timeout_s=5)

    assert decode(answer, ServiceFault) == ServiceFault("OverflowError")
    assert service.endpoints.failed == 1


class HeldService:
    """Answers one request at a time, each when it is let go on."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self._turns = anyio.Semaphore(0)

    async def on_ask(self, request: WhoRequest, caller: Caller) -> WhoAnswer:
        self.asked.append(caller.name)
        await self._turns.acquire()
        return WhoAnswer(role=request.role[:10], term=1)

    def let_go_on(self, requests: int) -> None:
        for _ in range(requests):
            self._turns.release()


async def flood(bus: Bus, serving: Subscription, inbox: str, number: int, size_bytes: int) -> None:
    """Sends requests of mallory's, whose answers come to `inbox`, without waiting for one."""
    data = encode(WhoRequest("m" * size_bytes))
    at_once = max(1, min(50, 2_000_000 // size_bytes))
    for sent in range(1, number + 1):
        await bus._link.send(subjects.user("mallory", "test.ask"), data, reply=inbox)  # type: ignore[attr-defined]
        if sent % at_once == 0:
            # Messages that the server has sent and that are not read yet have a bound of their own, in number and in bytes.
            await eventually(partial(_has_read, serving, sent))


def _has_read(serving: Subscription, count: int) -> bool:
    return serving.statistics()["received"] == count


@pytest.mark.parametrize(("number", "size_bytes", "pending"), [(500, 10, 100), (800, 100_000, 10_000)])
async def test_a_flood_is_refused_beyond_its_room_and_nobody_else_waits_behind_it(
    server: NatsServer, number: int, size_bytes: int, pending: int
) -> None:
    service = HeldService()
    async with (
        a_bus(server, "service", "tested") as bus,
        a_bus(server, "user", "mallory") as mallory,
        a_bus(server, "user", "anna") as anna,
    ):
        endpoints = Endpoints(bus, HandClock(), Deposition(), quota=UserQuota(longest_wait_s=math.inf))
        serving = await endpoints.serve(
            SUBJECT, WhoRequest, CallerKind.USER, service.on_ask, concurrency=1, pending=pending
        )
        answers = await mallory.subscribe(f"{subjects.inbox('user', 'mallory')}.flood")
        await flood(mallory, serving, f"{subjects.inbox('user', 'mallory')}.flood", number, size_bytes)
        await eventually(lambda: serving.statistics()["received"] == number)

        held = serving.statistics()["pending"] + serving.statistics()["running"]
        assert serving.statistics()["dropped"] == number - held > 0
        assert held <= pending + 1
        assert held * size_bytes <= MAX_PENDING_BYTES + size_bytes
        refusal = decode((await anext(answers)).data, Busy)
        assert refusal.waiting >= held - 2
        assert "nothing was done, try again" in refusal.text()

        async with anyio.create_task_group() as tasks:
            request = partial(anna.request, timeout_s=10)
            tasks.start_soon(request, subjects.user("anna", "test.ask"), encode(WhoRequest("a")))
            await eventually(lambda: serving.statistics()["received"] == number + 1)
            service.let_go_on(3)

    assert "anna" in service.asked[:3]


@pytest.mark.parametrize(
    ("quota", "size_bytes"),
    [
        (UserQuota(requests=5, longest_wait_s=math.inf), 10),
        (UserQuota(request_bytes=1_500, longest_wait_s=math.inf), 10),
    ],
)
async def test_a_user_over_the_quota_is_refused_alone_and_nobody_is_behind_them(
    server: NatsServer, quota: UserQuota, size_bytes: int
) -> None:
    service, others = HeldService(), ("anna", "ben")
    async with (
        a_bus(server, "service", "tested") as bus,
        a_bus(server, "user", "mallory") as mallory,
        a_bus(server, "user", "anna") as anna,
        a_bus(server, "user", "ben") as ben,
        anyio.create_task_group() as tasks,
    ):
        endpoints = Endpoints(bus, HandClock(), Deposition(), quota=quota)
        serving = await endpoints.serve(SUBJECT, WhoRequest, CallerKind.USER, service.on_ask, concurrency=1)
        inbox = f"{subjects.inbox('user', 'mallory')}.flood"
        answers = await mallory.subscribe(inbox)
        await flood(mallory, serving, inbox, 50, size_bytes)
        await eventually(lambda: serving.statistics()["received"] == 50)
        waiting = serving.statistics()["pending"]
        refusals = [decode((await anext(answers)).data, Busy) for _ in range(50 - 1 - waiting)]

        answered: list[str] = []

        async def ask(user: Bus, name: str) -> None:
            decode(
                await user.request(subjects.user(name, "test.ask"), encode(WhoRequest("a")), timeout_s=20), WhoAnswer
            )
            answered.append(name)

        for _ in range(3):
            tasks.start_soon(ask, anna, "anna")
            tasks.start_soon(ask, ben, "ben")
        await eventually(lambda: serving.statistics()["received"] == 56)
        # Each of the others has a turn for each of mallory's.
        service.let_go_on(10)
        await eventually(lambda: len(answered) == 6)

    assert waiting == 5
    assert {(each.waiting, each.most_requests_of_a_user) for each in refusals} == {(5, quota.requests)}
    assert "5 of your requests are waiting" in refusals[0].text()
    assert [service.asked[:10].count(name) for name in others] == [3, 3]


async def test_the_requests_of_one_node_leave_three_quarters_of_the_handlers_to_others(server: NatsServer) -> None:
    """A node that asked to be enrolled 100,000 times a second kept admission from its own log for minutes."""
    service = HeldService()
    async with (
        a_bus(server, "service", "tested") as bus,
        a_bus(server, "node", "n1") as honest,
        a_bus(server, "node", "n2") as liar,
        anyio.create_task_group() as tasks,
    ):
        endpoints = Endpoints(bus, HandClock(), Deposition())
        serving = await endpoints.serve(subjects.enrol("*"), WhoRequest, CallerKind.NODE, service.on_ask, concurrency=4)
        for _ in range(50):
            inbox = f"{subjects.inbox('node', 'n2')}.flood"
            await liar._link.send(subjects.enrol("n2"), encode(WhoRequest("m")), reply=inbox)
        await eventually(partial(_has_read, serving, 50))
        tasks.start_soon(partial(honest.request, timeout_s=60), subjects.enrol("n1"), encode(WhoRequest("a")))
        await eventually(partial(_has_read, serving, 51))
        await eventually(lambda: len(service.asked) > 1)
        service.let_go_on(51)

    assert service.asked[:2] == ["n2", "n1"]


async def test_a_flood_that_cuts_the_connection_of_users_leaves_that_of_the_service_alone() -> None:
    """The server cuts off whoever takes too long to take what comes; the log and the lease of the service go on."""
    with nats_server("max_pending: 1MB\n") as server:
        async with (
            a_bus(server, "service", "tested") as bus,
            a_bus(server, "service", "tested") as users,
            a_bus(server, "user", "mallory") as mallory,
            a_bus(server, "user", "anna") as anna,
        ):
            service = Service(Endpoints(bus, HandClock(), Deposition(), users=users), HandClock())
            await service.endpoints.serve(SUBJECT, WhoRequest, CallerKind.USER, service.on_ask)

            data = encode(WhoRequest("m" * 400_000))
            while not users.statistics()["reconnects"]:
                await mallory.publish(subjects.user("mallory", "test.ask"), data)
            answer = b""
            while not answer:
                with suppress(BusError):
                    request = encode(WhoRequest("r"))
                    answer = await anna.request(subjects.user("anna", "test.ask"), request, timeout_s=0.5)

            assert decode(answer, WhoAnswer) == WhoAnswer("r", 7)
            assert bus.statistics()["reconnects"] == 0
            assert {one.name: one.value for one in service.endpoints.figures()}["reconnects"] >= 1  # type: ignore[operator]


async def test_the_lead_is_handed_over_when_all_users_are_answered() -> None:
    """A request that is under way is answered by whoever got it, and nobody else leads meanwhile."""
    service = HeldService()
    stopping = anyio.Event()

    async def serve(role: Role) -> None:
        await runtime.endpoints.serve(SUBJECT, WhoRequest, CallerKind.USER, service.on_ask)
        serving.set()
        await stopping.wait()

    with nats_server() as server:
        async with (
            a_bus(server, "service", "tested") as bus,
            a_bus(server, "service", "tested") as users,
            a_bus(server, "user", "anna") as anna,
            anyio.create_task_group() as tasks,
        ):
            runtime = runtime_on(bus, "tested", CommonSettings(), tasks, stopping, users=users)
            serving = anyio.Event()
            tasks.start_soon(runtime.lead, "tested", serve)
            await serving.wait()
            leases = await anna.key_value(subjects.LEASES_BUCKET)
            answers: list[bytes] = []

            async def ask_once() -> None:
                request = encode(WhoRequest("r"))
                answers.append(await anna.request(subjects.user("anna", "test.ask"), request, timeout_s=10))

            tasks.start_soon(ask_once)
            await eventually(lambda: service.asked == ["anna"])
            stopping.set()
            await anyio.sleep(0.3)
            held = await leases.get("tested")
            assert held is not None
            assert not msgspec.json.decode(held.value, type=LeaseRecord).is_released

            service.let_go_on(1)
            await eventually(lambda: len(answers) == 1)
            while True:
                given_back = await leases.get("tested")
                if given_back and msgspec.json.decode(given_back.value, type=LeaseRecord).is_released:
                    break
            tasks.cancel_scope.cancel()


async def test_a_connection_closes_though_a_task_of_the_client_was_cancelled_that_waited_for_its_end() -> None:
    with nats_server() as server:
        async with a_bus(server, "service", "tested") as bus:
            client: Any = bus._link._nats
            close = client.close

            async def close_beside_one_that_is_cancelled() -> None:
                await close()
                raise asyncio.CancelledError

            client.close = close_beside_one_that_is_cancelled

        assert not bus.connected
