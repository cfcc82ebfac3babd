"""When a client asks again, and when it must not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import pytest

from headrace.access.routes import ROUTES
from headrace.bus import Bus, BusError, NoResponders, NotConnected, RequestTimeout
from headrace.client import Refused, Unanswered
from headrace.client.asking import READS, Asker
from headrace.ids import PoolName, TreeName
from headrace.wire import subjects
from headrace.wire.codec import encode
from headrace.wire.pool_changes import ChangePools, Create, PoolPlan
from headrace.wire.refusals import Busy, NotFound, NotReady, NotRecorded, Refusal
from tests.support.clocks import HandClock

ANSWER = PoolPlan(TreeName("default"), revision=7)
REQUEST = ChangePools([Create(PoolName("research"))])


class StubbornBus:
    """Gives what it was told to give, one after another, and the answer at last."""

    def __init__(self, *troubles: BusError | Refusal) -> None:
        self._troubles = list(troubles)
        self.asked: list[str] = []
        self.waited_s: list[float] = []

    async def request(
        self, subject: str, data: bytes, *, timeout_s: float, headers: Mapping[str, str] | None = None
    ) -> bytes:
        self.asked.append(subject)
        self.waited_s.append(timeout_s)
        if not self._troubles:
            return encode(ANSWER)
        trouble = self._troubles.pop(0)
        if isinstance(trouble, BusError):
            raise trouble
        return encode(trouble)


async def ask(
    bus: StubbornBus,
    *,
    verb: str = "pool.change",
    repeatable: bool = True,
    computes: bool = False,
    timeout_s: float = 60.0,
) -> PoolPlan:
    asker = Asker(cast("Bus", bus), HandClock(tick_s=1.0), lambda verb: f"me.{verb}", timeout_s)
    return await asker.ask(verb, REQUEST, PoolPlan, repeatable=repeatable, computes=computes)


async def test_an_answer_is_an_answer() -> None:
    bus = StubbornBus()

    assert await ask(bus) == ANSWER
    assert bus.asked == ["me.pool.change"]


@pytest.mark.parametrize("trouble", [NoResponders(), NotConnected(), Busy(9, 9), NotReady("starting")])
async def test_what_did_nothing_is_asked_again_even_if_it_may_be_done_only_once(trouble: BusError | Refusal) -> None:
    bus = StubbornBus(trouble, trouble)

    assert await ask(bus, repeatable=False) == ANSWER
    assert len(bus.asked) == 3


@pytest.mark.parametrize("trouble", [RequestTimeout(), NotRecorded(2_000)])
async def test_what_may_have_been_done_is_asked_again_only_if_that_harms_nothing(trouble: BusError | Refusal) -> None:
    assert await ask(StubbornBus(trouble)) == ANSWER

    with pytest.raises(Unanswered) as caught:
        await ask(StubbornBus(trouble), repeatable=False)
    assert caught.value.maybe_done


async def test_a_refusal_is_raised_at_once_with_its_text() -> None:
    bus = StubbornBus(NotFound("pool", "reserach", ["research"]))

    with pytest.raises(Refused, match="did you mean research"):
        await ask(bus)
    assert len(bus.asked) == 1


async def test_the_last_trouble_is_told_when_the_time_is_over() -> None:
    with pytest.raises(Unanswered, match="nothing was done") as caught:
        await ask(StubbornBus(*[NoResponders()] * 50), timeout_s=5.0)
    assert not caught.value.maybe_done


async def test_of_what_may_have_been_done_nobody_reads_that_nothing_was() -> None:
    with pytest.raises(Unanswered) as caught:
        await ask(StubbornBus(NotRecorded(2_000), *[Busy(9, 9)] * 20), timeout_s=5.0)

    assert "not recorded within 2000 ms" in str(caught.value)
    assert str(caught.value).endswith("it may have taken effect")
    assert "nothing was done" not in str(caught.value)


async def test_a_long_computation_is_waited_for_as_long_as_it_may_take_and_never_took_effect() -> None:
    bus = StubbornBus(*[RequestTimeout()] * 20)

    with pytest.raises(Unanswered, match="nothing was done"):
        await ask(bus, verb="pool.what_if", computes=True, timeout_s=10.0)
    assert bus.waited_s[0] > 8.0


@pytest.mark.parametrize("verb", ["op.get", "node.list.default", "job.logs.n1"])
async def test_who_only_read_is_not_told_that_something_may_have_taken_effect(verb: str) -> None:
    with pytest.raises(Unanswered, match="nothing was done"):
        await ask(StubbornBus(*[RequestTimeout()] * 50), verb=verb, timeout_s=5.0)


def test_each_verb_of_a_person_either_reads_or_changes() -> None:
    of_a_person = subjects.user("{user}", "")
    verbs = {route.subject.removeprefix(of_a_person) for route in ROUTES if route.subject.startswith(of_a_person)}
    changing = {
        *("op.start", "op.update", "op.suspend", "op.resume", "op.complete", "op.abort", "op.scan", "op.upload"),
        *("pool.change", "pool.move_to_tree", "tree.create", "tree.remove", "node.change", "node.token"),
        "debug.heartbeat",
    }
    assert {".".join(verb.split(".")[:2]) for verb in verbs} == READS | changing
    assert not READS & changing
