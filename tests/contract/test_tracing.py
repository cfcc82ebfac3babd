"""The trace of a message: what is sent in a span is handled in it, and nothing else is."""

from __future__ import annotations

from collections.abc import Iterator

import anyio
import pytest

from headrace.bus import Bus, Message, Newest, connect
from headrace.obs import tracing
from headrace.wire.trace import SpanContext
from tests.contract.waiting import eventually
from tests.support.nats_server import NatsServer
from tests.support.spans import Spans, tracing_on

SENDER = SpanContext("a" * 32, "b" * 16)


@pytest.fixture
def spans() -> Iterator[Spans]:
    with tracing_on() as kept:
        yield kept


async def _heard(bus: Bus, word: str, newest: Newest | None = None) -> list[tuple[SpanContext | None, Message]]:
    """Serves a subject. Whoever handles a message notes the span it is in."""
    heard: list[tuple[SpanContext | None, Message]] = []

    async def handler(message: Message) -> bytes:
        heard.append((tracing.current(), message))
        return b""

    await bus.serve(word, handler, newest=newest)
    return heard


@pytest.mark.parametrize("newest", [None, Newest(lambda message: str(message.data), 10.0)], ids=["each", "newest"])
async def test_a_request_and_a_publication_are_handled_in_the_span_they_were_sent_in_and_the_next_message_is_not(
    server: NatsServer, word: str, spans: Spans, newest: Newest | None
) -> None:
    async with connect([server.url], name="test") as bus:
        heard = await _heard(bus, word, newest)
        with tracing.span("outer") as outer:
            await bus.request(word, b"1", timeout_s=5)
            await bus.publish(word, b"2")
            await eventually(lambda: len(heard) == 2)
        await bus.request(word, b"3", timeout_s=5)

    assert outer is not None
    assert [context for context, _ in heard] == [outer, outer, None]
    assert [message.headers.get(tracing.HEADER) for _, message in heard] == [outer.header(), outer.header(), None]
    assert [span.name for span in spans] == ["outer"]


async def test_a_handler_that_fails_leaves_no_span_behind(server: NatsServer, word: str, spans: Spans) -> None:
    seen: list[SpanContext | None] = []

    async def handler(message: Message) -> bytes:
        seen.append(tracing.current())
        if message.data == b"fail":
            raise RuntimeError
        return b""

    async with connect([server.url], name="test") as bus:
        await bus.serve(word, handler, newest=Newest(lambda message: str(message.data), 10.0))
        await bus.publish(word, b"fail", headers={"Traceparent": SENDER.header()})
        await bus.request(word, b"again", timeout_s=5)

    assert seen == [SENDER, None]


async def test_a_reader_of_an_inbox_links_to_the_span_of_the_publisher(
    server: NatsServer, word: str, spans: Spans
) -> None:
    async with connect([server.url], name="test") as bus:
        inbox = await bus.subscribe(word)
        with tracing.span("publishing") as publisher:
            await bus.publish(word, b"1")
        await bus.publish(word, b"2")
        for _ in range(2):
            with anyio.fail_after(10):
                message = await anext(aiter(inbox))
            with tracing.linked("reading", message.headers, word):
                pass

    assert publisher is not None
    reading = [span for span in spans if span.name == "reading"]
    assert [span.links for span in reading] == [[publisher]]
    assert reading[0].trace_id != publisher.trace_id
    assert reading[0].parent_id == ""


async def test_while_tracing_is_off_no_header_is_sent_and_none_is_heeded(server: NatsServer, word: str) -> None:
    async with connect([server.url], name="test") as bus:
        heard = await _heard(bus, word)
        with tracing.span("nothing") as context, tracing.child("nothing") as inner:
            await bus.request(word, b"1", timeout_s=5)
        await bus.request(word, b"2", timeout_s=5, headers={tracing.HEADER: SENDER.header()})

    assert (context, inner) == (None, None)
    assert [(context, dict(message.headers).keys() - {tracing.HEADER}) for context, message in heard] == [
        (None, set()),
        (None, set()),
    ]
    assert tracing.HEADER not in heard[0][1].headers
