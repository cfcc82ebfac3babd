"""Requests and publications: at most once, nothing kept for later, nothing that the server would close the connection for."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio
import pytest

from headrace.bus import (
    MAX_MESSAGE_BYTES,
    ForeignLoop,
    Message,
    NoResponders,
    NotConnected,
    RequestTimeout,
    TooLarge,
    connect,
)
from headrace.errors import BadInput
from tests.contract.fake_server import fake_server
from tests.contract.waiting import eventually
from tests.support.nats_server import NatsServer, nats_server


async def echo(message: Message) -> bytes:
    return message.data


async def test_a_request_gets_its_answer(server: NatsServer, word: str) -> None:
    async with connect([server.url], name="asks") as asks, connect([server.url], name="serves") as serves:
        await serves.serve(word, echo)

        assert await asks.request(word, b"hello", timeout_s=10) == b"hello"


async def test_many_requests_at_a_time_get_each_its_own_answer(server: NatsServer, word: str) -> None:
    async with connect([server.url], name="asks") as asks, connect([server.url], name="serves") as serves:
        await serves.serve(word, echo)
        answers: dict[int, bytes] = {}

        async def ask(number: int) -> None:
            answers[number] = await asks.request(word, str(number).encode(), timeout_s=30)

        async with anyio.create_task_group() as tasks:
            for number in range(500):
                tasks.start_soon(ask, number)

        assert answers == {number: str(number).encode() for number in range(500)}
        assert asks.statistics()["calls"] == 0


async def test_nobody_there_is_said_at_once(server: NatsServer, word: str) -> None:
    async with connect([server.url], name="asks") as asks:
        with anyio.fail_after(20), pytest.raises(NoResponders, match=word):
            await asks.request(word, b"", timeout_s=60)
        with anyio.fail_after(20):
            assert await asks.gather(word, b"", wait_s=60) == []


async def test_no_answer_is_a_time_out_that_names_the_subject(server: NatsServer, word: str) -> None:
    async with connect([server.url], name="asks") as asks:
        await asks.subscribe(word)

        with pytest.raises(RequestTimeout, match=word):
            await asks.request(word, b"", timeout_s=0.05)


async def test_the_time_out_is_the_one_that_was_given(server: NatsServer, word: str) -> None:
    """Longer than nats-py's own half second."""
    async with connect([server.url], name="asks") as asks:

        async def slow(_message: Message) -> bytes:
            await anyio.sleep(0.7)
            return b"late"

        await asks.serve(word, slow)

        assert await asks.request(word, b"", timeout_s=30) == b"late"


async def test_whoever_was_asked_with_all_others_reaches_the_asker_no_more_once_the_question_is_over(
    server: NatsServer, word: str
) -> None:
    """One node sent 5 million messages to the inbox that it learnt so: a service recorded nothing for as long as that."""
    heard: list[Message] = []

    async def answer(message: Message) -> bytes:
        heard.append(message)
        return b"answer"

    async with connect([server.url], name="asks") as asks, connect([server.url], name="serves") as serves:
        await serves.serve(word, answer)
        assert await asks.gather(word, b"", wait_s=0.2) == [b"answer"]
        await asks.barrier()  # the server has the end of the subscription
        received = asks.statistics()["received"]
        (inbox,) = [message.reply_to for message in heard]
        for subject in (inbox, f"{inbox}.x", f"{inbox.rpartition('.')[0]}.x", f"{inbox.rpartition('.')[0]}.x.y"):
            await serves.publish(subject, b"flood")
        await serves.barrier()
        await asks.barrier()

        assert asks.statistics()["received"] == received


async def test_all_who_answer_are_gathered(server: NatsServer, word: str) -> None:
    async with connect([server.url], name="asks") as asks, connect([server.url], name="serves") as serves:
        for answer in (b"one", b"two", b"three"):

            async def say(_message: Message, answer: bytes = answer) -> bytes:
                return answer

            await serves.serve(word, say)

        assert sorted(await asks.gather(word, b"", wait_s=0.3)) == [b"one", b"three", b"two"]


async def test_a_barrier_goes_after_what_was_sent_before_it() -> None:
    """nats-py writes its PING past commands that still wait to be flushed."""
    async with fake_server() as recorder, connect([recorder.url], name="test") as bus:
        await bus.subscribe("first")
        assert recorder.verbs()[-2:] == ["SUB", "PING"]

        recorder.received.clear()
        await bus.publish("first", b"payload")
        await bus.barrier()
        assert recorder.verbs() == ["PUB", "payload", "PING"]


async def test_barriers_that_begin_together_share_a_ping_behind_all_that_was_sent_before_them() -> None:
    async with fake_server() as recorder, connect([recorder.url], name="test") as bus:
        recorder.received.clear()
        async with anyio.create_task_group() as tasks:
            for number in range(3):
                await bus.publish("first", b"payload %d" % number)
                tasks.start_soon(bus.barrier)
        assert recorder.verbs() == ["PUB", "payload"] * 3 + ["PING"]

        await bus.barrier()
        assert recorder.verbs()[-2:] == ["PING", "PING"]


async def test_a_barrier_that_was_given_up_leaves_those_that_began_with_it() -> None:
    async with fake_server() as recorder, connect([recorder.url], name="test") as bus:
        async with anyio.create_task_group() as tasks:
            given_up = anyio.CancelScope()

            async def wait_and_give_up() -> None:
                with given_up:
                    await bus.barrier()

            tasks.start_soon(wait_and_give_up)
            tasks.start_soon(bus.barrier)
            await anyio.lowlevel.checkpoint()
            given_up.cancel()

        await bus.barrier()
        assert bus.connected


async def test_what_is_served_can_be_asked_at_once_by_another(server: NatsServer, word: str) -> None:
    async with connect([server.url], name="asks") as asks, connect([server.url], name="serves") as serves:
        for number in range(100):
            await serves.serve(f"{word}.{number}", echo)

            assert await asks.request(f"{word}.{number}", b"x", timeout_s=10) == b"x"


async def test_nothing_is_sent_later_that_was_refused_in_an_outage(word: str) -> None:
    with nats_server() as server:
        async with connect([server.url], name="sends") as sends, connect([server.url], name="hears") as hears:
            inbox = await hears.subscribe(word)
            server.kill()
            await eventually(lambda: not sends.connected and not hears.connected)

            for call in (
                lambda: sends.publish(word, b"stale"),
                lambda: sends.request(word, b"stale", timeout_s=10),
                lambda: sends.gather(word, b"stale", wait_s=10),
                lambda: sends.subscribe(word),
                sends.barrier,
            ):
                with pytest.raises(NotConnected):
                    await call()
            server.start()
            await eventually(lambda: sends.connected and hears.connected)

            async def keep_sending() -> None:
                # A client is connected a moment before its subscriptions are made again.
                while True:
                    await sends.publish(word, b"fresh")
                    await anyio.sleep(0.05)

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(keep_sending)
                assert (await anext(inbox)).data == b"fresh"
                tasks.cancel_scope.cancel()


async def test_nothing_is_sent_later_that_waited_when_the_connection_broke(
    word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server stood still: what could not be written is stale by the time of the next connection."""
    monkeypatch.setattr("headrace.bus.nats.outgoing._ROOM_TIMEOUT_S", 0.2)
    with nats_server() as server:
        async with connect([server.url], name="sends") as sends:
            server.freeze()

            async def fill() -> None:
                while True:
                    await sends.publish(word, bytes(100_000))

            with pytest.raises(NotConnected):
                await fill()
            assert sends.statistics()["unsent_bytes"] > 0

            server.restart()
            async with connect([server.url], name="hears") as hears:
                inbox = await hears.subscribe(word)
                await eventually(lambda: sends.connected and sends.statistics()["reconnects"] == 1)
                await sends.publish(word, b"fresh")

                assert (await anext(inbox)).data == b"fresh"


async def test_sending_to_a_server_that_stands_still_can_be_cancelled(word: str) -> None:
    with nats_server() as server:
        async with connect([server.url], name="sends") as sends:
            server.freeze()
            with anyio.move_on_after(0.5) as scope:
                for _ in range(1_000):
                    await sends.publish(word, bytes(100_000))

            assert scope.cancelled_caught
            server.thaw()


@pytest.mark.parametrize("limit", [None, 64 * 1024], ids=["ours", "the server's"])
async def test_a_message_too_large_with_its_headers_is_refused_and_the_bus_lives(limit: int | None, word: str) -> None:
    with nats_server("" if limit is None else f"max_payload: {limit}\n") as server:
        limit = limit or MAX_MESSAGE_BYTES
        async with connect([server.url], name="test") as bus:
            inbox = await bus.subscribe(word)
            headers = {"traceparent": "0" * 55}
            head = len(b"NATS/1.0\r\n\r\n") + len(b"traceparent: \r\n") + 55
            with pytest.raises(TooLarge) as refused:
                await bus.publish(word, bytes(limit - head + 1), headers=headers)
            assert (refused.value.size_bytes, refused.value.limit_bytes) == (limit + 1, limit)
            with pytest.raises(TooLarge):
                await bus.request(word, bytes(limit + 1), timeout_s=1)

            await bus.publish(word, bytes(limit - head), headers=headers)
            assert len((await anext(inbox)).data) == limit - head
            assert bus.connected


async def test_header_names_are_lower_case_on_both_sides(server: NatsServer, word: str) -> None:
    async with connect([server.url], name="test") as bus:
        inbox = await bus.subscribe(word)
        await bus.publish(word, b"", headers={"TraceParent": "ä"})
        assert (await anext(inbox)).headers == {"traceparent": "ä"}

        async with fake_server() as recorder, connect([recorder.url], name="test") as plain:
            await plain.publish(word, b"", headers={"TraceParent": "1"})
            await plain.barrier()
            assert b"traceparent: 1" in recorder.received


async def test_a_subject_or_header_that_cannot_be_is_said(server: NatsServer, word: str) -> None:
    async with connect([server.url], name="test") as bus:
        with pytest.raises(BadInput):
            await bus.publish("two words", b"")
        with pytest.raises(BadInput):
            await bus.subscribe("two words")
        with pytest.raises(BadInput):
            await bus.publish(word, b"", headers={"two\nlines": "x"})
        assert bus.connected


@pytest.mark.parametrize("subject", ["half\ud800", "long" * 2_000])
async def test_a_subject_that_would_cost_the_connection_is_said(server: NatsServer, word: str, subject: str) -> None:
    async with connect([server.url], name="test") as bus:
        with pytest.raises(BadInput):
            await bus.publish(subject, b"")
        with pytest.raises(BadInput):
            await bus.subscribe(subject)
        inbox = await bus.subscribe(word)
        await bus.publish(word, b"", headers={"said": "half\ud800"})

        assert (await anext(inbox)).headers == {"said": "half?"}
        assert bus.connected


async def test_the_first_message_of_a_turn_of_the_loop_is_written_at_once_and_the_others_together_in_their_order(
    server: NatsServer, word: str
) -> None:
    async with connect([server.url], name="test") as bus:
        inbox = await bus.subscribe(word)
        await anyio.lowlevel.checkpoint()

        held_back = []
        for data in (b"first", b"second", b"third"):
            await bus.publish(word, data)
            held_back.append(len(bus._link._nats._pending))
        await anyio.lowlevel.checkpoint()

        assert held_back == [0, 1, 2]
        assert bus._link._nats._pending == []
        assert [(await anext(inbox)).data for _ in range(3)] == [b"first", b"second", b"third"]


async def test_behind_a_turn_with_many_messages_the_first_of_the_next_is_written_at_its_end(
    server: NatsServer, word: str
) -> None:
    async with connect([server.url], name="test") as bus:
        await anyio.lowlevel.checkpoint()
        held_back = []
        for count in (3, 1, 1):
            for _ in range(count):
                await bus.publish(word, b"")
            held_back.append(len(bus._link._nats._pending))
            await anyio.lowlevel.checkpoint()
            assert bus._link._nats._pending == []

        assert held_back == [2, 1, 0]


async def test_a_header_of_two_lines_is_one_header(server: NatsServer, word: str) -> None:
    async with connect([server.url], name="test") as bus:
        inbox = await bus.subscribe(word)

        await bus.publish(word, b"", headers={"said": "two\r\nlines: here"})

        assert (await anext(inbox)).headers == {"said": "two  lines: here"}


async def test_a_connection_is_refused_in_another_event_loop(server: NatsServer, word: str) -> None:
    """There, a request did not return, could not be cancelled, and used a whole core."""
    async with connect([server.url], name="asks") as asks:
        calls: list[Callable[[], Awaitable[object]]] = [
            lambda: asks.publish(word, b""),
            lambda: asks.gather(word, b"", wait_s=0.1),
            lambda: asks.subscribe(word),
            lambda: asks.serve(word, echo),
            lambda: asks.request(word, b"", timeout_s=1),
        ]

        async def call_all() -> None:
            for call in calls:
                with pytest.raises(ForeignLoop):
                    await call()

        await anyio.to_thread.run_sync(anyio.run, call_all)
