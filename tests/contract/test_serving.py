"""Handlers: side by side, bounded, each message in a world of its own, and an end that loses nothing."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from contextvars import ContextVar
from functools import partial
from random import Random

import anyio
import anyio.lowlevel
import pytest

from headrace.bus import BusClosed, Message, Newest, NotConnected, RequestTimeout, ServiceInfo, connect
from headrace.bus.protocol import RefusalReason, Senders
from headrace.bus.serving import Serving
from tests.contract.waiting import eventually
from tests.support.nats_server import NatsServer, nats_server

SPAN: ContextVar[str] = ContextVar("SPAN", default="none")


async def test_a_slow_handler_holds_up_no_other(server: NatsServer, word: str) -> None:
    async with connect([server.url], name="test") as bus:
        released = anyio.Event()

        async def handler(message: Message) -> bytes:
            if message.data == b"release":
                released.set()
            await released.wait()
            return b"done"

        await bus.serve(word, handler)
        answers: list[bytes] = []

        async def ask(data: bytes) -> None:
            answers.append(await bus.request(word, data, timeout_s=10))

        async with anyio.create_task_group() as tasks:
            for data in (b"slow", b"slow", b"release"):
                tasks.start_soon(ask, data)
        assert answers == [b"done"] * 3


@pytest.mark.parametrize(("size_bytes", "most"), [(10, 8), (40_000, 2)])
async def test_of_a_burst_a_few_handlers_begin_a_turn_so_that_the_socket_is_read_between(
    server: NatsServer, word: str, size_bytes: int, most: int
) -> None:
    turn = 0
    begun: list[int] = []

    async def handler(_message: Message) -> None:
        begun.append(turn)

    async def count_turns() -> None:
        nonlocal turn
        while True:
            turn += 1
            await anyio.lowlevel.checkpoint()

    async with connect([server.url], name="test") as bus, anyio.create_task_group() as tasks:
        tasks.start_soon(count_turns)
        await bus.serve(word, handler)
        for _ in range(100):
            await bus.publish(word, bytes(size_bytes))
        await eventually(lambda: len(begun) == 100)
        tasks.cancel_scope.cancel()

    assert max(Counter(begun).values()) <= most


async def test_what_a_burst_has_no_room_for_is_refused_a_few_a_turn(server: NatsServer, word: str) -> None:
    turn = 0
    refused: list[int] = []

    async def handler(_message: Message) -> None:
        await anyio.sleep_forever()

    def refusal(_message: Message, _reason: RefusalReason) -> None:
        refused.append(turn)

    async def count_turns() -> None:
        nonlocal turn
        while True:
            turn += 1
            await anyio.lowlevel.checkpoint()

    async with connect([server.url], name="test") as bus, anyio.create_task_group() as tasks:
        tasks.start_soon(count_turns)
        senders = Senders(lambda message: message.subject, refusal)
        await bus.serve(word, handler, concurrency=1, pending=100, senders=senders)
        for _ in range(4):
            for _ in range(50):
                await bus.publish(word, b"")
            await bus.barrier()
        await eventually(lambda: len(refused) == 99)
        tasks.cancel_scope.cancel()

    assert max(Counter(refused).values()) <= 8


async def test_handlers_of_one_sender_leave_three_quarters_of_the_places_to_others(
    server: NatsServer, word: str
) -> None:
    """64 requests of one person that waited for something held every handler of their kind."""
    begun: list[str] = []
    goes_on = anyio.Event()

    async def handler(message: Message) -> None:
        begun.append(message.subject.rpartition(".")[2])
        if message.subject.endswith("mallory"):
            await goes_on.wait()

    async with connect([server.url], name="test") as bus:
        senders = Senders(lambda message: message.subject, lambda _message, _reason: None)
        serving = await bus.serve(f"{word}.*", handler, concurrency=8, senders=senders)
        for _ in range(20):
            await bus.publish(f"{word}.mallory", b"")
        await eventually(lambda: len(begun) == 2)
        for name in ("anna", "ben", "anna"):
            await bus.publish(f"{word}.{name}", b"")
        await eventually(lambda: len(begun) == 5)
        waiting = serving.statistics()["pending"]
        goes_on.set()
        await eventually(lambda: len(begun) == 23)

    assert begun[:5] == ["mallory", "mallory", "anna", "ben", "anna"]
    assert waiting == 18


async def test_a_request_that_waited_too_long_for_its_turn_is_refused_and_reaches_no_handler(
    server: NatsServer, word: str
) -> None:
    """Of 5,000 changes of one person a third was answered when its client had given up, and had taken effect or not."""
    begun: list[bytes] = []
    goes_on = anyio.Event()

    async def handler(message: Message) -> bytes:
        begun.append(message.data)
        await goes_on.wait()
        return b"done"

    async with connect([server.url], name="test") as bus, anyio.create_task_group() as tasks:
        answers: dict[bytes, bytes] = {}
        senders = Senders(lambda message: message.subject, lambda _message, _reason: b"busy", longest_wait_s=0.0)
        serving = await bus.serve(word, handler, concurrency=4, senders=senders)

        async def ask(data: bytes) -> None:
            answers[data] = await bus.request(word, data, timeout_s=30)

        tasks.start_soon(ask, b"first")
        await eventually(lambda: begun == [b"first"])
        tasks.start_soon(ask, b"second")
        await eventually(lambda: serving.statistics()["pending"] == 1)
        goes_on.set()
        await eventually(lambda: len(answers) == 2)

    assert answers == {b"first": b"done", b"second": b"busy"}
    assert begun == [b"first"]
    assert serving.statistics()["dropped"] == 1


async def test_each_message_is_handled_in_a_context_of_its_own(server: NatsServer, word: str) -> None:
    async with connect([server.url], name="test") as bus:

        async def handler(message: Message) -> bytes:
            seen = SPAN.get()
            SPAN.set(message.data.decode())
            return seen.encode()

        token = SPAN.set("the span of the start")
        await bus.serve(word, handler)
        SPAN.reset(token)

        for data in (b"first", b"second"):
            assert await bus.request(word, data, timeout_s=10) == b"none"


async def test_messages_that_come_one_after_the_other_need_no_task_each_and_none_stays_when_serving_ends(
    server: NatsServer, word: str
) -> None:
    async with connect([server.url], name="test") as bus:
        tasks: list[asyncio.Task[object] | None] = []

        async def handler(_message: Message) -> bytes:
            tasks.append(asyncio.current_task())
            return b""

        serving = await bus.serve(word, handler)
        for _ in range(20):
            await bus.request(word, b"", timeout_s=10)
        await serving.close()
        await eventually(lambda: all(task is not None and task.done() for task in tasks))

    assert len(set(tasks)) == 1


async def test_a_connection_ends_quietly_whose_tasks_were_cancelled_while_they_had_nothing_to_do(
    server: NatsServer, word: str
) -> None:
    async with connect([server.url], name="test") as bus:

        async def handler(_message: Message) -> bytes:
            return b""

        serving = await bus.serve(word, handler)
        await bus.request(word, b"", timeout_s=10)
        assert len(serving._at_rest) == 1
        bus._tasks.cancel_scope.cancel()


@pytest.mark.parametrize("seed", range(8))
async def test_handlers_begin_in_the_order_in_which_their_messages_came(seed: int) -> None:
    """Whether a task at rest, a new one, or the one that has just handled another message takes it."""
    random = Random(seed)
    concurrency, running_bytes = random.choice([1, 3, 10]), random.choice([3_000, 1_000_000])
    begun: list[bytes] = []

    async def handler(message: Message) -> None:
        begun.append(message.data[:4])
        for _ in range(random.choice([0, 0, 0, 1, 3])):
            await anyio.lowlevel.checkpoint()

    async def answer(_subject: str, _data: bytes) -> None: ...

    came: list[bytes] = []
    async with anyio.create_task_group() as tasks:
        serving = Serving(
            "s", handler, tasks, answer, concurrency=concurrency, pending=500, running_bytes=running_bytes
        )
        for _ in range(60):
            for _ in range(random.choice([1, 2, 9, 20])):
                came.append(len(came).to_bytes(4))
                serving.on_message(Message("s", came[-1] + bytes(random.choice([0, 1_000])), {}))
                if random.random() < 0.1:
                    await anyio.lowlevel.checkpoint()
            for _ in range(random.randint(0, 8)):
                await anyio.lowlevel.checkpoint()
        await serving.wait_idle()
        await serving.close()

    assert len(begun) > 200
    assert serving.statistics()["dropped"] == len(came) - len(begun)
    assert begun == sorted(begun)


async def test_a_handler_that_raises_answers_nothing_and_harms_nobody(server: NatsServer, word: str) -> None:
    async with connect([server.url], name="test") as bus:

        async def handler(message: Message) -> bytes:
            if message.data == b"bad":
                raise ValueError("a secret")
            return b"good"

        serving = await bus.serve(word, handler)

        with pytest.raises(RequestTimeout):
            await bus.request(word, b"bad", timeout_s=0.1)
        assert await bus.request(word, b"good", timeout_s=10) == b"good"
        assert serving.statistics()["failed"] == 1
        assert bus.statistics()["failed"] == 1


async def test_an_answer_that_is_too_large_counts_as_a_failure(server: NatsServer, word: str) -> None:
    async with connect([server.url], name="test") as bus:

        async def handler(_message: Message) -> bytes:
            return bytes(600_000)

        serving = await bus.serve(word, handler)
        with pytest.raises(RequestTimeout):
            await bus.request(word, b"", timeout_s=0.1)
        await eventually(lambda: serving.statistics()["failed"] == 1)
        assert bus.connected


async def test_at_most_so_many_run_and_wait_and_the_rest_is_counted(server: NatsServer, word: str) -> None:
    async with connect([server.url], name="test") as bus:
        release = anyio.Event()
        running = most = 0

        async def handler(_message: Message) -> None:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await release.wait()
            running -= 1

        serving = await bus.serve(word, handler, concurrency=3, pending=4)
        for _ in range(10):
            await bus.publish(word, b"")
        await eventually(lambda: serving.statistics()["received"] == 10)
        counts = serving.statistics()
        assert (counts["running"], counts["pending"], counts["dropped"]) == (3, 4, 3)

        release.set()
        await eventually(lambda: serving.statistics()["running"] == 0)
        assert (most, serving.statistics()["pending"]) == (3, 0)


def _by_first_letter(within_s: float, on_late: Callable[[Message], None] | None = None) -> Newest:
    return Newest(lambda message: message.data[:1].decode(), within_s, on_late)


async def test_where_only_the_newest_counts_one_task_answers_all_whenever_they_come(
    server: NatsServer, word: str
) -> None:
    async with connect([server.url], name="test") as bus:
        tasks = []

        async def handler(_message: Message) -> bytes:
            tasks.append(asyncio.current_task())
            return b"done"

        serving = await bus.serve(word, handler, newest=_by_first_letter(within_s=60))
        for _ in range(3):
            await bus.request(word, b"a", timeout_s=10)
            await eventually(lambda: serving.statistics()["running"] == 0)

        assert len(tasks) == 3
        assert len(set(tasks)) == 1


async def test_a_message_whose_sender_cannot_be_told_keeps_nothing_running(server: NatsServer, word: str) -> None:
    def name(message: Message) -> str:
        return message.data.decode()

    async with connect([server.url], name="test") as bus:

        async def handler(message: Message) -> bytes:
            return message.data

        serving = await bus.serve(word, handler, newest=Newest(name, 60.0))
        await bus.publish(word, b"\xff")
        assert await bus.request(word, b"a", timeout_s=10) == b"a"
        await bus.publish(word, b"\xff")
        await eventually(lambda: serving.statistics()["failed"] == 2)

        await eventually(lambda: serving.statistics()["running"] == 0)


async def test_of_a_sender_that_spoke_again_meanwhile_only_the_newest_is_answered(
    server: NatsServer, word: str
) -> None:
    async with connect([server.url], name="test") as bus:
        release = anyio.Event()
        handled: list[bytes] = []

        async def handler(message: Message) -> None:
            handled.append(message.data)
            await release.wait()

        serving = await bus.serve(word, handler, newest=_by_first_letter(within_s=60))
        await bus.publish(word, b"a1")
        await eventually(lambda: handled == [b"a1"])
        for data in (b"b1", b"a2", b"a3", b"b2"):
            await bus.publish(word, data)
        await eventually(lambda: serving.statistics()["received"] == 5)
        release.set()
        await eventually(lambda: serving.statistics()["running"] == 0)
        assert handled == [b"a1", b"b2", b"a3"]
        assert serving.statistics()["replaced"] == 2


async def test_what_has_waited_so_long_that_nobody_awaits_its_answer_is_dropped(server: NatsServer, word: str) -> None:
    async with connect([server.url], name="test") as bus:
        release = anyio.Event()
        handled: list[bytes] = []
        late: list[bytes] = []

        async def handler(message: Message) -> bytes:
            handled.append(message.data)
            await release.wait()
            return b"done"

        serving = await bus.serve(
            word, handler, newest=_by_first_letter(0.05, lambda message: late.append(message.data))
        )
        await bus.publish(word, b"a1")
        await eventually(lambda: handled == [b"a1"])
        await bus.publish(word, b"b1")
        await eventually(lambda: serving.statistics()["received"] == 2)
        await anyio.sleep(0.1)
        release.set()
        await eventually(lambda: serving.statistics()["running"] == 0)

        assert await bus.request(word, b"b2", timeout_s=10) == b"done"
        assert handled == [b"a1", b"b2"]
        assert serving.statistics()["stale"] == 1
        assert late == [b"b1"]


async def test_no_more_bytes_are_in_the_hands_of_handlers_than_may_be(server: NatsServer, word: str) -> None:
    async with connect([server.url], name="test") as bus:
        release = anyio.Event()

        async def handler(_message: Message) -> None:
            await release.wait()

        serving = await bus.serve(word, handler, concurrency=100, running_bytes=500_000)
        for _ in range(20):
            await bus.publish(word, bytes(100_000))
        await eventually(lambda: serving.statistics()["received"] == 20)
        assert (serving.statistics()["running"], serving.statistics()["pending"]) == (5, 15)

        release.set()
        await eventually(lambda: serving.statistics()["running"] + serving.statistics()["pending"] == 0)
        assert serving.statistics()["dropped"] == 0


async def test_an_answer_in_an_outage_is_dropped_and_counted(word: str) -> None:
    with nats_server() as server:
        async with connect([server.url], name="test") as bus:
            release = anyio.Event()

            async def handler(_message: Message) -> bytes:
                await release.wait()
                return b"too late"

            serving = await bus.serve(word, handler)
            async with anyio.create_task_group() as tasks:

                async def ask() -> None:
                    with pytest.raises((RequestTimeout, NotConnected)):
                        await bus.request(word, b"", timeout_s=1)

                tasks.start_soon(ask)
                await eventually(lambda: serving.statistics()["running"] == 1)
                server.kill()
                await eventually(lambda: not bus.connected)
                release.set()
                await eventually(lambda: serving.statistics()["unanswered"] == 1)
            server.start()
            await eventually(lambda: bus.connected)
            assert serving.statistics()["failed"] == 0


async def test_what_is_closed_is_not_served_any_more(server: NatsServer, word: str) -> None:
    async with connect([server.url], name="test") as bus:
        calls = 0

        async def handler(_message: Message) -> bytes:
            nonlocal calls
            calls += 1
            return b"x"

        serving = await bus.serve(word, handler)
        await serving.close()
        await serving.close()
        await bus.publish(word, b"")
        await bus.barrier()

        assert calls == 0


async def test_whoever_stops_serving_lets_handlers_end_and_ask_others_meanwhile(server: NatsServer, word: str) -> None:
    async with connect([server.url], name="asks") as asks, connect([server.url], name="ledger") as ledger:

        async def record(_message: Message) -> bytes:
            return b"recorded"

        await ledger.serve(f"{word}.ledger", record)
        answers: list[bytes] = []
        async with connect([server.url], name="serves") as serves, anyio.create_task_group() as tasks:
            begun, release = anyio.Event(), anyio.Event()

            async def handler(_message: Message) -> bytes:
                begun.set()
                await release.wait()
                return await serves.request(f"{word}.ledger", b"", timeout_s=10)

            async def ask() -> None:
                answers.append(await asks.request(word, b"", timeout_s=10))

            await serves.serve(word, handler)
            inbox = await serves.subscribe(f"{word}.news")
            tasks.start_soon(ask)
            await begun.wait()
            tasks.start_soon(serves.stop_serving)
            # The inbox ends when no more is taken.
            assert [message async for message in inbox] == []
            assert serves.connected
            release.set()
        assert answers == [b"recorded"]
        assert not serves.connected
        with pytest.raises(BusClosed):
            await serves.request(word, b"", timeout_s=1)


async def test_a_bus_that_we_closed_was_not_lost(server: NatsServer) -> None:
    """`wait_closed` is what a service exits by; an end that was wanted is none."""
    async with connect([server.url], name="test") as bus:
        await bus.close()
        with anyio.move_on_after(0.1) as scope:
            await bus.wait_closed()
        assert scope.cancelled_caught


async def test_rolling_restarts_under_load_lose_no_request(server: NatsServer, word: str) -> None:
    async with connect([server.url], name="asks") as asks:
        answered = 0
        lost: list[Exception] = []
        done = False

        async def load() -> None:
            nonlocal answered
            while not done:
                try:
                    await asks.request(word, bytes(200), timeout_s=10)
                    answered += 1
                except Exception as error:
                    lost.append(error)

        async def member(ready: anyio.Event, leave: anyio.Event) -> None:
            async def handler(message: Message) -> bytes:
                await anyio.lowlevel.checkpoint()
                return message.data

            async with connect([server.url], name="member") as bus:
                await bus.serve(word, handler, queue="members")
                ready.set()
                await leave.wait()
                await bus.stop_serving()

        def is_past(count: int) -> bool:
            return answered > count

        async with anyio.create_task_group() as members, anyio.create_task_group() as loads:
            leaves: list[anyio.Event] = []
            for round_ in range(14):
                ready = anyio.Event()
                leaves.append(anyio.Event())
                members.start_soon(member, ready, leaves[-1])
                await ready.wait()
                if round_ == 1:
                    for _ in range(32):
                        loads.start_soon(load)
                if round_ >= 2:
                    so_far = answered
                    await eventually(partial(is_past, so_far + 300))
                    leaves.pop(0).set()
            done = True
            await eventually(lambda: asks.statistics()["calls"] == 0)
            for leave in leaves:
                leave.set()
        assert lost == []
        assert answered > 3_000


async def test_an_answer_that_is_wanted_elsewhere_than_at_an_inbox_is_not_given(server: NatsServer, word: str) -> None:
    """Else whoever asks has us write where we may and he may not: into the log, to somebody else's node."""

    async def echo(message: Message) -> bytes:
        return message.data

    async with (
        connect([server.url], name="asks") as asks,
        connect([server.url], name="serves", service=ServiceInfo(name="echo", version="0.1.0")) as serves,
    ):
        serving = await serves.serve(word, echo)
        inbox = await serves.subscribe(f"{word}.log")
        for subject in (word, "$SRV.PING.echo", "$SRV.INFO", "$SRV.STATS.echo"):
            await asks._link.send(subject, b"forged", reply=f"{word}.log")
        await asks.barrier()
        assert await asks.request(word, b"honest", timeout_s=10) == b"honest"
        await eventually(lambda: serving.statistics()["misdirected"] == 1)

        assert inbox.statistics()["received"] == 0
