"""Mailboxes between the transport and a reader."""

from __future__ import annotations

import asyncio

import anyio

from headrace.bus import Message, connect
from headrace.bus.inbox import Mailbox
from headrace.bus.protocol import MAX_PENDING_BYTES
from headrace.bus.sender_queues import SenderQueues
from tests.contract.waiting import eventually
from tests.support.nats_server import NatsServer


def a_message(subject: str, data: bytes) -> Message:
    return Message(subject=subject, data=data, headers={})


async def test_messages_come_in_order(server: NatsServer, word: str) -> None:
    async with connect([server.url], name="test") as bus:
        inbox = await bus.subscribe(word)
        for number in range(1_000):
            await bus.publish(word, str(number).encode())

        assert [int((await anext(inbox)).data) for _ in range(1_000)] == list(range(1_000))


async def test_messages_of_several_subjects_come_in_one_order_until_the_inbox_is_closed(
    server: NatsServer, word: str
) -> None:
    async with connect([server.url], name="test") as bus:
        inbox = await bus.subscribe(f"{word}.a", f"{word}.b", f"{word}.c")
        sent = [f"{word}.{'abc'[number % 3]}" for number in range(300)]
        for subject in sent:
            await bus.publish(subject, b"")

        assert [(await anext(inbox)).subject for _ in sent] == sent
        await inbox.close()
        await bus.publish(sent[0], b"")
        await bus.barrier()
        assert inbox.statistics()["received"] == len(sent)


async def test_each_message_that_is_dropped_is_reported(word: str) -> None:
    dropped: list[bytes] = []
    mailbox = Mailbox(pending=2, longest_wait_s=0.05, on_stale=lambda message: dropped.append(message.data))
    for number in range(3):
        mailbox.put(a_message(word, str(number).encode()))
    assert dropped == [b"0"]

    mailbox.put(a_message(word, bytes(MAX_PENDING_BYTES)))
    assert dropped[1:] == [b"1", b"2"]
    await anyio.sleep(0.1)
    assert mailbox.take() is None
    assert len(dropped) == 4
    assert (mailbox.dropped, mailbox.stale) == (3, 1)


async def test_with_a_key_only_the_newest_of_each_waits(server: NatsServer, word: str) -> None:
    async with connect([server.url], name="test") as bus:
        inbox = await bus.subscribe(f"{word}.*", key=lambda message: message.subject)
        for number in range(100):
            for node in ("n1", "n2"):
                await bus.publish(f"{word}.{node}", str(number).encode())
        await eventually(lambda: inbox.statistics()["received"] == 200)

        first, second = await anext(inbox), await anext(inbox)
        assert (first.subject, first.data) == (f"{word}.n1", b"99")
        assert (second.subject, second.data) == (f"{word}.n2", b"99")
        assert inbox.statistics()["pending"] == 0
        assert inbox.statistics()["dropped"] == 0


async def test_a_burst_overflows_only_our_own_mailbox_and_its_end_arrives(server: NatsServer, word: str) -> None:
    """nats-py would drop the newest: then nothing after it shows the reader that something is missing."""
    async with connect([server.url], name="hears") as hears, connect([server.url], name="sends") as sends:
        inbox = await hears.subscribe(word, pending=10)
        for number in range(20_000):
            await sends.publish(word, str(number).encode())
        await eventually(lambda: inbox.statistics()["received"] == 20_000)

        assert [int((await anext(inbox)).data) for _ in range(10)] == list(range(19_990, 20_000))
        assert inbox.statistics()["dropped"] == 19_990


async def test_a_subscription_costs_no_task(server: NatsServer, word: str) -> None:
    async with connect([server.url], name="test") as bus:
        tasks = asyncio.all_tasks()
        inboxes = [await bus.subscribe(f"{word}.{number}") for number in range(10)]
        await bus.publish(f"{word}.9", b"heard")

        assert (await anext(inboxes[9])).data == b"heard"
        assert asyncio.all_tasks() <= tasks


async def test_what_fails_as_it_takes_a_message_harms_no_later_one(server: NatsServer, word: str) -> None:
    async with connect([server.url], name="test") as bus:
        taken: list[bytes] = []

        def take(message: Message) -> None:
            taken.append(message.data)
            raise ValueError(message.data)

        await bus._link.listen(word, take)
        for data in (b"1", b"2"):
            await bus.publish(word, data)
        await eventually(lambda: taken == [b"1", b"2"])

        assert bus.connected
        await eventually(lambda: bus.statistics()["errors"] == 2)


async def test_iteration_ends_when_the_inbox_is_closed(server: NatsServer, word: str) -> None:
    async with connect([server.url], name="test") as bus, anyio.create_task_group() as tasks:
        inbox = await bus.subscribe(word)
        got: list[bytes] = []

        async def read() -> None:
            got.extend([message.data async for message in inbox])

        tasks.start_soon(read)
        await bus.publish(word, b"last")
        await eventually(lambda: got or inbox.statistics()["received"] == 1)
        await inbox.close()
        await inbox.close()

    assert got == [b"last"]


async def test_what_was_sent_before_we_stopped_serving_can_still_be_read(server: NatsServer, word: str) -> None:
    async with connect([server.url], name="test") as bus:
        inbox = await bus.subscribe(word)
        for number in range(100):
            await bus.publish(word, str(number).encode())
        await bus.stop_serving()

        assert len([message async for message in inbox]) == 100


def test_a_full_mailbox_with_keys_drops_what_has_waited_longest() -> None:
    mailbox = Mailbox(key=lambda message: message.subject, pending=2)
    for subject in ("a", "b", "a", "c"):
        mailbox.put(a_message(subject, b""))

    assert [mailbox.take(), mailbox.take(), mailbox.take()] == [a_message("b", b""), a_message("c", b""), None]
    assert mailbox.statistics() == {
        "received": 4,
        "dropped": 1,
        "replaced": 1,
        "stale": 0,
        "waited_ms": 0,
        "failed": 0,
        "pending": 0,
    }


def test_a_busy_key_keeps_its_place_in_the_line() -> None:
    mailbox = Mailbox(key=lambda message: message.subject)
    for subject, data in (("busy", b"1"), ("quiet", b"1"), ("busy", b"2")):
        mailbox.put(a_message(subject, data))

    assert mailbox.take() == a_message("busy", b"2")


def test_a_key_that_cannot_be_told_is_counted() -> None:
    def fail(_message: Message) -> str:
        raise ValueError

    mailbox = Mailbox(key=fail)
    mailbox.put(a_message("a", b""))

    assert mailbox.take() is None
    assert mailbox.statistics()["failed"] == 1


def test_an_inbox_holds_no_more_bytes_than_it_may_and_keeps_the_newest() -> None:
    mailbox = Mailbox(key=lambda message: message.subject)
    quarter = bytes(MAX_PENDING_BYTES // 4)
    for subject in ("a", "b", "c", "b", "d", "e"):
        mailbox.put(a_message(subject, quarter))

    assert (mailbox.statistics()["dropped"], mailbox.statistics()["replaced"]) == (1, 1)
    assert [message.subject for message in (mailbox.take() for _ in range(4)) if message] == ["b", "c", "d", "e"]


async def test_lines_take_turns_and_the_largest_gives_up_its_newest() -> None:
    lines = SenderQueues(most_messages=4, most_bytes=1_000_000)
    given_up = [
        [(waiting.message.subject, waiting.message.data) for waiting in lines.put(sender, a_message(sender, data))]
        for sender, data in [("m", b"1"), ("m", b"2"), ("m", b"3"), ("m", b"4"), ("m", b"5"), ("a", b"1"), ("b", b"1")]
    ]

    assert given_up == [[], [], [], [], [("m", b"5")], [("m", b"4")], [("m", b"3")]]
    assert [lines.take().message.subject for _ in range(4)] == ["m", "a", "b", "m"]
    assert len(lines) == 0


async def test_a_line_beyond_its_own_bounds_gives_up_its_newest_and_says_how_many_wait() -> None:
    lines = SenderQueues(most_messages=100, most_bytes=1_000_000, most_of_one=2, most_bytes_of_one=1_000)
    given_up = [
        [(waiting.message.data, waiting.over_quota) for waiting in lines.put(sender, a_message(sender, data))]
        for sender, data in [("m", b"1"), ("m", b"2"), ("m", b"3"), ("a", bytes(700)), ("a", bytes(701)), ("b", b"4")]
    ]

    assert given_up == [[], [], [(b"3", 2)], [], [(bytes(701), 1)], []]
    assert [lines.take().message.subject for _ in range(4)] == ["m", "a", "b", "m"]


async def test_lines_are_bounded_by_bytes_whoever_sent_them() -> None:
    lines = SenderQueues(most_messages=1_000, most_bytes=100_000)
    for number in range(10):
        lines.put(f"small-{number}", a_message("s", bytes(5_000)))
    assert [waiting.message.subject for waiting in lines.put("m", a_message("m", bytes(60_000)))] == ["m"]
    assert [waiting.message.subject for waiting in lines.put("m", a_message("m", bytes(40_000)))] == []
    assert [waiting.message.subject for waiting in lines.put("a", a_message("a", bytes(20_000)))] == ["m"]
    assert len(lines) == 11
