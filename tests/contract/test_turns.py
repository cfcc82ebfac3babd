"""Turns: under load what comes is left in the socket for a moment, and answered together."""

from __future__ import annotations

import asyncio
from functools import partial
from itertools import accumulate, repeat
from operator import attrgetter

import anyio
import anyio.lowlevel
import pytest

from headrace.bus import Message, Newest, connect, turns
from headrace.bus.nats.transports import transport_of
from headrace.bus.turns import Turns
from tests.contract.waiting import eventually
from tests.support.nats_server import NatsServer

_MANY = 50


def _begins_s(pause_s: float, turns: int) -> list[float]:
    """When each turn begins, if something to do comes so long after the end of the one before."""
    spaced = Turns()
    return list(accumulate(repeat(pause_s, turns), lambda now_s, pause: now_s + max(pause, spaced.rest_s(now_s))))


def test_turns_that_would_follow_at_once_come_each_four_milliseconds_but_for_the_first() -> None:
    begins_s = _begins_s(0.0001, 1_000)

    assert begins_s[10] < 0.002
    assert begins_s[-1] - begins_s[100] == pytest.approx(0.004 * 899, rel=0.01)


def test_where_little_comes_no_turn_rests() -> None:
    assert _begins_s(0.0041, 1_000)[-1] == pytest.approx(4.1)


async def test_under_load_the_socket_is_left_unread_at_times_and_nobody_stays_without_an_answer(
    server: NatsServer, word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Longer than a request takes on a machine that is busy with other tests, which would leave nothing to be spaced.
    monkeypatch.setattr(turns, "_SPACING_S", 0.03)
    async with connect([server.url], name="served") as bus, connect([server.url], name="asking") as other:

        async def handler(message: Message) -> bytes:
            return message.data

        await bus.serve(word, handler, newest=Newest(attrgetter("subject"), 60.0))
        transport = transport_of(bus._link._nats)
        assert isinstance(transport, asyncio.ReadTransport)
        answers: list[bytes] = []

        async def ask() -> None:
            while len(answers) < _MANY:
                answers.append(await other.request(word, b"%d" % len(answers), timeout_s=10))

        rested = 0
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            while len(answers) < _MANY:
                rested += not transport.is_reading()
                await anyio.lowlevel.checkpoint()

        assert answers == [b"%d" % number for number in range(_MANY)]
        assert rested > 0
        await eventually(transport.is_reading)


class Waiting:
    """A subscription of which so many messages wait."""

    def __init__(self, pending: int) -> None:
        self.pending = pending

    async def close(self) -> None:
        return None

    def statistics(self) -> dict[str, int]:
        return {"pending": self.pending}


async def test_work_in_slices_waits_while_messages_wait_and_goes_on_where_these_never_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waits_s: list[float] = []

    async def note(delay_s: float) -> None:
        waits_s.append(delay_s)

    monkeypatch.setattr(anyio, "sleep", note)
    monkeypatch.setattr(anyio.lowlevel, "checkpoint", partial(note, 0))
    heartbeats = Waiting(pending=1)
    way = turns.YieldBudget(heartbeats)
    for heartbeats.pending in (1, 0, 1):
        await way.give()
    assert waits_s == [turns._BEHIND_S, 0, turns._BEHIND_S]

    for _ in range(3 * turns._MOST_WAYS):
        await way.give()
    assert waits_s.count(turns._BEHIND_S) == turns._MOST_WAYS
    assert waits_s[-1] == 0

    waits_s.clear()
    way.renew()
    await way.give(4)
    assert waits_s == [turns._BEHIND_S] * 4
