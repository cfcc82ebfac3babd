"""Many senders at one connection: what one floods it with stands before nobody else, and nothing is lost or comes twice."""

from __future__ import annotations

import contextlib
import socket
from collections import Counter
from typing import Any
from urllib.parse import urlsplit

import anyio
import pytest

from headrace.bus import Message, NoResponders, connect
from headrace.bus.nats import bus as nats_bus
from headrace.bus.nats.bus import NatsBus
from headrace.bus.nats.fair_listener import Lanes
from headrace.bus.protocol import Newest, Senders
from tests.contract.waiting import eventually
from tests.support.nats_server import NatsServer, nats_server

MOST = 128
SENDERS = Senders(lambda message: message.subject.split(".")[1], lambda _message, _reason: None)


@pytest.fixture(autouse=True)
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nats_bus, "LANES_OF_SENDERS", Lanes(MOST, most=1_024))
    monkeypatch.setattr(nats_bus, "LANES_OF_NEWEST", Lanes(MOST, most=1_024))


class Raw:
    """A client that waits for nobody: all is sent while our loop stands."""

    def __init__(self, server: NatsServer) -> None:
        address = urlsplit(server.url)
        self._socket = socket.create_connection((address.hostname, address.port))
        self._socket.sendall(b'CONNECT {"verbose":false,"headers":true,"no_responders":true}\r\nSUB raw.> 1\r\n')

    def request(self, subject: str, count: int = 1, size_bytes: int = 0) -> None:
        """Sends so many, and returns when the server has dealt with them."""
        one = f"PUB {subject} raw.{subject} {size_bytes}\r\n".encode() + bytes(size_bytes) + b"\r\n"
        for _ in range(count):
            self._socket.sendall(one)
        self._socket.sendall(b"PING\r\n")
        self.heard = b""
        while b"PONG\r\n" not in self.heard:
            self.heard += self._socket.recv(1 << 20)

    def close(self) -> None:
        self._socket.close()


async def serve_all(bus: NatsBus, word: str, *, newest: bool = False) -> list[str]:
    """Serve `word.SENDER.verb`. Return the senders in the order in which they are read."""
    read: list[str] = []

    async def handler(_message: Message) -> bytes:
        return b"done"

    told_apart: dict[str, Any] = {"newest": Newest(SENDERS.name, 60.0)} if newest else {"senders": SENDERS}
    serving = await bus.serve(f"{word}.*.verb", handler, **told_apart)

    (listener,) = [each for each in bus._link._listeners if each.subject == serving.subject]
    hand_on = listener._on_message

    def on_message(message: Message) -> None:
        read.append(message.subject.split(".")[1])
        hand_on(message)

    listener._on_message = on_message
    return read


@pytest.mark.parametrize("newest", [False, True], ids=["all", "newest"])
async def test_whoever_was_heard_before_is_heard_in_anothers_flood(server: NatsServer, word: str, newest: bool) -> None:
    """A node that flooded its heartbeats made the server cut the allocator off, with what all other nodes had sent."""
    async with connect([server.url], name="served") as bus, connect([server.url], name="asks") as asks:
        read = await serve_all(bus, word, newest=newest)
        assert await asks.request(f"{word}.anna.verb", b"", timeout_s=10) == b"done"
        await bus.barrier()
        raw = Raw(server)
        raw.request(f"{word}.bob.verb", 20_000)
        assert raw.heard.count(b"NATS/1.0 503") >= 20_000 - 2 * MOST

        raw.request(f"{word}.anna.verb")
        assert b"503" not in raw.heard
        raw.close()

        await eventually(lambda: read.count("anna") == 2)
        # The pattern and then, once he is known, his own room.
        assert read.index("anna", 1) <= 2 * MOST


async def test_few_large_messages_of_a_sender_are_on_their_way_at_a_time(server: NatsServer, word: str) -> None:
    """128 messages of 400 KB are 51 MB: two such subjects made the server cut the connection off, with everybody's requests."""
    large_bytes = 400_000
    async with connect([server.url], name="served") as bus, connect([server.url], name="asks") as asks:
        read = await serve_all(bus, word)
        assert await asks.request(f"{word}.anna.verb", b"", timeout_s=10) == b"done"
        for _ in range(10):
            assert await asks.request(f"{word}.bob.verb", b"", timeout_s=10) == b"done"
        # The first large message of each of the two lanes ends what the server was asked for.
        for _ in range(20):
            assert await asks.request(f"{word}.bob.verb", bytes(large_bytes), timeout_s=10) == b"done"
        await bus.barrier()
        raw = Raw(server)
        raw.request(f"{word}.bob.verb", MOST, large_bytes)
        # About ten for the sender, and ten for all senders that were not heard before.
        assert raw.heard.count(b"NATS/1.0 503") >= MOST - 30
        raw.request(f"{word}.anna.verb")
        assert b"503" not in raw.heard
        await eventually(lambda: read.count("anna") == 2)

        # A sender of large messages may send as many small messages again as everybody else.
        for _ in range(10 * MOST):
            with contextlib.suppress(NoResponders):
                await asks.request(f"{word}.bob.verb", b"", timeout_s=10)
        await bus.barrier()
        raw.request(f"{word}.bob.verb", MOST // 2)
        assert b"503" not in raw.heard
        raw.close()


async def test_a_few_large_messages_at_once_all_find_the_service(server: NatsServer, word: str) -> None:
    """The first large message lowers what the server may send. It replaced the subscriptions, and one message in a hundred found nobody."""
    async with connect([server.url], name="asks") as asks:
        answers = await asks.subscribe("_INBOX.few")
        for number in range(80):
            async with connect([server.url], name="served") as bus:
                read = await serve_all(bus, f"{word}{number}")
                await bus.barrier()
                for _ in range(20):
                    await asks._link.send(f"{word}{number}.bob.verb", bytes(100_000), reply="_INBOX.few")
                heard = [(await anext(answers)).headers for _ in range(20)]
                assert heard == [{}] * 20
                assert read == ["bob"] * 20


async def test_a_newcomer_has_to_ask_again_in_a_flood_and_is_heard_after_it(server: NatsServer, word: str) -> None:
    async with connect([server.url], name="served") as bus, connect([server.url], name="asks") as asks:
        read = await serve_all(bus, word)
        raw = Raw(server)
        raw.request(f"{word}.bob.verb", 1_000)
        raw.request(f"{word}.carla.verb")
        assert b"503" in raw.heard
        raw.close()

        await eventually(lambda: read.count("bob") == MOST)
        await bus.barrier()
        assert await asks.request(f"{word}.carla.verb", b"", timeout_s=10) == b"done"


async def test_each_request_of_many_senders_comes_once(server: NatsServer, word: str) -> None:
    async with connect([server.url], name="served") as bus, connect([server.url], name="asks") as asks:
        read = await serve_all(bus, word)
        wanted = Counter({f"s{number}": 7 * MOST + number for number in range(3)})

        async def ask(sender: str, count: int) -> None:
            for _ in range(count):
                assert await asks.request(f"{word}.{sender}.verb", b"", timeout_s=10) == b"done"

        async with anyio.create_task_group() as tasks:
            for sender, count in wanted.items():
                tasks.start_soon(ask, sender, count)
        assert Counter(read) == wanted


async def test_senders_beyond_those_that_are_kept_are_heard_too(
    server: NatsServer, word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nats_bus, "LANES_OF_SENDERS", Lanes(MOST, most=3))
    async with connect([server.url], name="served") as bus, connect([server.url], name="asks") as asks:
        read = await serve_all(bus, word)
        for number in range(40):
            assert await asks.request(f"{word}.s{number % 8}.verb", b"", timeout_s=10) == b"done"
        assert len(read) == 40
        (listener,) = [each for each in bus._link._listeners if each.subject == f"{word}.*.verb"]
        await eventually(lambda: len(listener.sids) <= 5)


async def test_after_a_lost_connection_all_are_heard_again(word: str) -> None:
    with nats_server() as server:
        async with connect([server.url], name="served") as bus, connect([server.url], name="asks") as asks:
            read = await serve_all(bus, word)
            for _ in range(MOST // 2 + 5):
                await asks.request(f"{word}.anna.verb", b"", timeout_s=10)
            server.stop()
            server.start()
            await eventually(lambda: bus.connected and asks.connected and bus.statistics()["reconnects"] == 1)
            await bus.barrier()
            for sender in ("anna", "bob"):
                for _ in range(3 * MOST):
                    assert await asks.request(f"{word}.{sender}.verb", b"", timeout_s=10) == b"done"
            assert len(read) == MOST // 2 + 5 + 6 * MOST


async def test_who_stops_serving_takes_what_was_sent_and_asks_for_no_more(server: NatsServer, word: str) -> None:
    async with connect([server.url], name="served") as bus, connect([server.url], name="asks") as asks:
        read = await serve_all(bus, word)
        raw = Raw(server)
        raw.request(f"{word}.bob.verb", MOST)
        (listener,) = [each for each in bus._link._listeners if each.subject == f"{word}.*.verb"]
        await listener.unsubscribe(bus._link._nats)
        await bus.barrier()
        raw.request(f"{word}.bob.verb")
        assert b"503" in raw.heard
        await bus.stop_serving()
        assert read == ["bob"] * MOST
        raw.close()
        with pytest.raises(NoResponders):
            await asks.request(f"{word}.anna.verb", b"", timeout_s=10)
