"""When a client asks again, and when it must not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import anyio
import pytest

from headrace.access.routes import ROUTES, PartyKind
from headrace.bus import Bus, BusError, NoResponders, NotConnected, RequestTimeout
from headrace.client import Refused, Unanswered
from headrace.client.asking import CHANGES, PATIENCE_S, READS, Asker, Silence, at_once
from headrace.client.pools import Pools
from headrace.ids import PoolName, TreeName
from headrace.wire import subjects
from headrace.wire.codec import encode
from headrace.wire.pool_changes import ChangePools, Create, PoolPlan
from headrace.wire.pools import GetPools
from headrace.wire.refusals import Busy, NotFound, NotReady, NotRecorded, Refusal
from headrace.wire.services import ServiceView
from tests.support.clocks import HandClock

ANSWER = PoolPlan(TreeName("default"), revision=7)
REQUEST = ChangePools([Create(PoolName("research"))])


class StubbornBus:
    """Gives what it was told to give, one after another, and the answer at last."""

    def __init__(self, *troubles: BusError | Refusal) -> None:
        self._troubles = list(troubles)
        self.asked: list[str] = []
        #: The roles of the processes that answer, each with whether it leads.
        self.processes: dict[str, bool] = {}
        self.looks = 0
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

    async def gather(self, subject: str, data: bytes, *, wait_s: float) -> list[bytes]:
        self.looks += 1
        return [
            encode(ServiceView(role.split(".")[0], role, "a", leads=leads, term=1, age_ms=1, lag_ms=0.1, pid=1))
            for role, leads in self.processes.items()
        ]


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


@pytest.mark.parametrize("refusal", [NotReady("it starts"), Busy(9, 9), Busy(9, 9, most_requests_of_a_user=9)])
async def test_an_error_never_says_both_that_nothing_was_done_and_that_it_may_have_taken_effect(
    refusal: Refusal,
) -> None:
    with pytest.raises(Unanswered) as caught:
        await ask(StubbornBus(refusal, RequestTimeout()), repeatable=False, timeout_s=3.0)

    assert refusal.reason() in str(caught.value)
    assert str(caught.value).endswith("it may have taken effect")
    assert "nothing was done" not in str(caught.value)


@pytest.mark.parametrize("refusal", [NotRecorded(2_000, "its disk is full"), NotReady("its disk is full")])
async def test_a_last_attempt_that_had_no_time_left_hides_nothing_of_what_was_heard_before(refusal: Refusal) -> None:
    with pytest.raises(Unanswered, match="its disk is full") as caught:
        await ask(StubbornBus(refusal, *[RequestTimeout("no answer")] * 20), timeout_s=4.0)

    assert caught.value.maybe_done


async def test_a_silence_that_lasted_is_told_in_place_of_what_was_heard_before() -> None:
    with pytest.raises(Unanswered, match="no answer"):
        await ask(StubbornBus(NotReady("starting"), *[RequestTimeout("no answer")] * 20), timeout_s=12.0)


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
        *(
            "pool.change",
            "pool.move_to_tree",
            "tree.create",
            "tree.remove",
            "node.change",
            "node.token",
            "group.change",
            "token.create",
            "token.revoke",
            "token.end",
        ),
        *("debug.heartbeat", "job.session"),
    }
    assert {".".join(verb.split(".")[:2]) for verb in verbs} == READS.keys() | changing
    assert changing == CHANGES.keys()
    assert not READS.keys() & changing


def test_the_service_that_is_said_to_answer_a_reading_is_the_one_that_hears_it() -> None:
    of_a_person = subjects.user("{user}", "")
    heard_by = {
        ".".join(route.subject.removeprefix(of_a_person).split(".")[:2]): route.receivers
        for route in ROUTES
        if route.subject.startswith(of_a_person)
    }
    for verb, service in ({verb: reading.service for verb, reading in READS.items()} | dict(CHANGES)).items():
        hearers = heard_by[verb]
        alone = hearers[0].value if len(hearers) == 1 and hearers[0] is not PartyKind.NODE else ""
        assert service.removeprefix("the ") == alone, verb


class Patient:
    """Somebody who shows what those know who answer."""

    def __init__(self, *troubles: BusError | Refusal, tick_s: float = 0.0) -> None:
        self.bus = StubbornBus(*troubles)
        self.clock = HandClock(tick_s=tick_s)
        self.silence = Silence(self.clock, "default", PATIENCE_S)
        self.asker = Asker(cast("Bus", self.bus), self.clock, lambda verb: verb, 60.0, self.silence)

    async def ask(self, verb: str, tree: str = "default") -> PoolPlan:
        return await self.asker.ask(verb, GetPools(tree=TreeName(tree)), PoolPlan)

    async def is_silent(self, verb: str, tree: str = "default") -> None:
        with pytest.raises(Unanswered):
            await self.ask(verb, tree)


async def test_who_was_silent_is_not_asked_again_and_named_with_all_that_is_unknown_for_that() -> None:
    patient = Patient(RequestTimeout())
    with pytest.raises(Unanswered, match=r"the allocator does not answer: op\.where\.default .* nothing was done"):
        await patient.ask("op.where.default")
    await patient.is_silent("op.where.default")
    await patient.is_silent("op.why.default")
    for other in ("op.where.gpu", "op.get", "pool.list", "pool.change"):
        assert await patient.ask(other) == ANSWER

    assert patient.bus.asked == ["op.where.default", "op.where.gpu", "op.get", "pool.list", "pool.change"]
    assert patient.bus.waited_s[0] == PATIENCE_S
    assert patient.silence.words() == [
        "the allocator does not answer: no nodes of jobs, no reasons of waiting are shown"
    ]


async def test_the_service_of_another_tree_is_silent_by_itself() -> None:
    patient = Patient(RequestTimeout(), RequestTimeout())
    await patient.is_silent("pool.list", "gpu")
    await patient.is_silent("node.list.gpu")

    assert await patient.ask("pool.list") == await patient.ask("node.list.default") == ANSWER
    assert patient.silence.words() == [
        "fair_share of tree gpu does not answer: no shares are shown",
        "the allocator of tree gpu does not answer: no nodes are shown",
    ]


async def test_who_was_silent_is_asked_anew_later_and_an_answer_ends_the_silence() -> None:
    patient = Patient(RequestTimeout(), RequestTimeout())
    for _ in range(2):
        await patient.is_silent("op.get")
        patient.clock.now_s += 60.0

    assert await patient.ask("op.get") == ANSWER
    assert patient.silence.words() == []


@pytest.mark.parametrize("trouble", [NoResponders(), NotConnected(), Busy(9, 9), NotReady("starting")])
async def test_who_says_that_nothing_was_done_is_not_silent(trouble: BusError | Refusal) -> None:
    patient = Patient(trouble, trouble)

    assert await patient.ask("op.get") == ANSWER
    assert patient.silence.words() == []


async def test_several_services_are_asked_before_one_answers_and_told_in_their_order() -> None:
    last_was_asked = anyio.Event()

    async def ask(tree: str) -> int:
        if tree == "c":
            last_was_asked.set()
        await last_was_asked.wait()
        return len(tree)

    assert list((await at_once(ask, ["a", "bb", "c"])).items()) == [("a", 1), ("bb", 2), ("c", 1)]


async def test_who_nobody_listens_for_is_named_too_when_the_time_is_over() -> None:
    patient = Patient(*[NoResponders()] * 500)
    patient.clock = HandClock(tick_s=1.0)
    patient.asker = Asker(cast("Bus", patient.bus), patient.clock, lambda verb: verb, 10.0, patient.silence)

    with pytest.raises(Unanswered, match="admission does not answer"):
        await patient.ask("op.get")
    asked = len(patient.bus.asked)
    await patient.is_silent("op.get")
    assert 0 < asked == len(patient.bus.asked)
    assert patient.silence.words() == ["admission does not answer: no operations are shown"]


EVERYTHING = {"admission": True, "fair_share.default": True, "integral.default": True, "allocator.default": True}


def without(*roles: str) -> dict[str, bool]:
    return {role: leads for role, leads in EVERYTHING.items() if role not in roles}


@pytest.mark.parametrize(
    ("processes", "verb", "said"),
    [
        (without("allocator.default"), "node.list.default", "the allocator is down: no nodes are shown"),
        (without("fair_share.default"), "pool.list", "fair_share is down: no shares are shown"),
        (without("admission"), "op.get", "admission is down: no operations are shown"),
        (
            EVERYTHING | {"allocator.default": False},
            "node.list.default",
            "the allocator has no leader yet; a standby takes over: no nodes are shown",
        ),
        (EVERYTHING, "node.list.default", "the allocator does not answer: no nodes are shown"),
        (EVERYTHING, "node.list.batch", "no process serves tree batch: start fair_share, integral and allocator"),
    ],
)
async def test_where_nobody_listens_the_reason_is_what_all_processes_say(
    processes: dict[str, bool], verb: str, said: str
) -> None:
    patient = Patient(*[NoResponders()] * 50, tick_s=0.3)
    patient.bus.processes = processes
    with pytest.raises(Unanswered) as caught:
        await patient.ask(verb)

    (words,) = patient.silence.words()
    assert words.startswith(said)
    assert str(caught.value).startswith(words.partition(": no ")[0])


async def test_work_that_bears_restarts_goes_on_while_nobody_listens() -> None:
    patient = Patient(*[NoResponders()] * 6, tick_s=0.5)
    patient.bus.processes = without("admission")
    patient.silence.bears_restarts = True

    assert await patient.ask("op.get") == ANSWER
    assert patient.silence.words() == []


async def test_of_a_second_service_that_is_down_it_is_known_at_once() -> None:
    patient = Patient(*[NoResponders()] * 50, tick_s=0.3)
    patient.bus.processes = without("allocator.default", "fair_share.default")
    await patient.is_silent("op.where.default")
    asked = len(patient.bus.asked)
    await patient.is_silent("pool.list")

    assert (len(patient.bus.asked), patient.bus.looks) == (asked + 1, 1)
    assert patient.silence.words()[1] == "fair_share is down: no shares are shown"


async def test_a_tree_that_nobody_serves_is_named_and_nothing_was_done_there() -> None:
    bus = StubbornBus(*[RequestTimeout()] * 50)
    bus.processes = EVERYTHING
    asker = Asker(cast("Bus", bus), HandClock(tick_s=1.0), lambda verb: verb, 60.0, Silence(HandClock(), "batch"))
    with pytest.raises(Unanswered, match=r"no process serves tree batch: .*headrace up.*nothing was done") as caught:
        await asker.ask("pool.change", ChangePools([], TreeName("batch")), PoolPlan, repeatable=False)
    assert not caught.value.maybe_done

    with pytest.raises(Unanswered, match=r"fair_share of tree default does not answer: .*it may have taken effect"):
        await asker.ask("pool.change", ChangePools([]), PoolPlan, repeatable=False)


async def test_a_long_computation_is_asked_only_of_a_service_that_answers() -> None:
    patient = Patient(RequestTimeout())

    with pytest.raises(Unanswered, match="fair_share does not answer"):
        await Pools(patient.asker, TreeName("default")).what_if()
    assert patient.bus.asked == ["pool.list"]


async def test_whoever_has_no_patience_to_lose_asks_a_silent_service_again() -> None:
    bus = StubbornBus(RequestTimeout())

    assert await ask(bus, verb="op.get") == ANSWER
    assert len(bus.asked) == 2
