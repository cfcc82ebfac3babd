"""Whatever bytes reach an agent, it lives on, and only whole messages that are meant for it change anything."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.bus import Handler, Message, RequestTimeout
from headrace.ids import Incarnation
from headrace.resources import MOST_OF_A_NODE
from headrace.runtime.service import runtime_on
from headrace.wire import subjects
from headrace.wire.codec import BadMessage, decode, encode
from headrace.wire.heartbeat import Heartbeat, Nudge, Orders
from headrace.wire.logs import LogChunk, LogReader, ReadLog
from headrace.wire.nodes import Enrolled
from headrace.wire.refusals import Refusal
from headrace.wire.sessions import SessionState, SessionTurn
from headrace_agent.runner.frames import FrameReader, pack, unpack
from headrace_agent.runner.protocol import LARGEST_REQUEST_BYTES, ToRunner
from headrace_agent.service import Agent
from headrace_agent.settings import AgentSettings
from tests.support.agent_desk import NODE, Desk
from tests.support.mutate import mutated, reads, valid


class DeafBus:
    """Keeps handlers for the test to call, and answers every request with the same bytes."""

    def __init__(self, answer: bytes | None = None) -> None:
        self.handlers: dict[str, Handler] = {}
        self.answer = answer

    async def serve(self, subject: str, handler: Handler, **_: object) -> None:
        self.handlers[subject] = handler

    async def request(self, subject: str, data: bytes, *, timeout_s: float) -> bytes:
        if self.answer is None:
            raise RequestTimeout
        return self.answer


@asynccontextmanager
async def an_agent(bus: DeafBus) -> AsyncIterator[Agent]:
    with tempfile.TemporaryDirectory() as folder:
        async with anyio.create_task_group() as tasks:
            anything: Any = bus
            settings = AgentSettings(node=NODE, state_folder=folder)
            runtime = runtime_on(anything, "agent", settings, tasks, anyio.Event())
            agent = Agent(runtime, Incarnation("life-1"))
            await agent.listen()
            yield agent


def in_loop(body: Callable[[], Awaitable[None]]) -> None:
    anyio.run(body)


def is_enrolled(data: bytes) -> bool:
    try:
        answer: Enrolled | Refusal = decode(data, Enrolled | Refusal)  # type: ignore[arg-type]
    except BadMessage:
        return False
    return isinstance(answer, Enrolled)


@given(data=st.one_of(mutated(Nudge), mutated(ReadLog), mutated(SessionTurn), mutated(Orders)))
def test_never_does_a_damaged_message_stop_a_handler_or_change_a_thing(data: bytes) -> None:
    async def body() -> None:
        # Whatever else is asked, whoever reads logs may.
        bus = DeafBus(encode(LogReader()))
        async with an_agent(bus) as agent:
            before = agent.engine.figures()
            for subject, kind, answers in (
                (subjects.nudge(NODE), Nudge, None),
                (subjects.user("*", f"job.logs.{NODE}"), ReadLog, LogChunk | Refusal),
                (subjects.user("*", f"job.session.{NODE}"), SessionTurn, SessionState | Refusal),
            ):
                inbox = subjects.inbox("user", "ann") if kind is not Nudge else subjects.inbox("service", "up")
                message = Message(subject.replace("*", "ann"), data, {}, reply_to=f"{inbox}.1")
                answer = await bus.handlers[subject](message)
                assert answer is not None or kind is Nudge
                if answer is not None:
                    assert reads(answer, answers or Refusal)
                if not reads(data, kind):
                    assert before == agent.engine.figures()
                before = agent.engine.figures()

    in_loop(body)


@given(data=st.one_of(mutated(Orders), mutated(Enrolled), valid(Refusal).map(encode), st.binary(max_size=50)))
def test_never_does_a_damaged_answer_stop_the_agent(data: bytes) -> None:
    async def body() -> None:
        async with an_agent(DeafBus(data)) as agent:
            heartbeat = Desk().beat
            orders = await agent.ask(heartbeat)
            # A refusal is told from orders by a key, without which they are neither.
            assert (orders is not None) == (reads(data, Orders) and reads(data, Orders | Refusal))
            assert await agent.enrol_once() == is_enrolled(data)

    in_loop(body)


@given(told=st.lists(valid(Orders), min_size=1, max_size=4), cpu=st.sampled_from([0, 1_000, MOST_OF_A_NODE.cpu]))
def test_always_what_any_orders_lead_to_can_be_sent_and_read(told: list[Orders], cpu: int) -> None:
    """Orders of whatever figures, but for us: the books stay in order, the runner and the allocator can read what follows."""
    desk = Desk(cpu=cpu)
    decoder = msgspec.msgpack.Decoder(ToRunner)
    for orders in told:
        if not desk.engine.pulse.in_flight:
            desk.do(desk.engine.on_nudge(Nudge(NODE, desk.engine.term), desk.now()))
            desk.advance(20)
        desk.do(
            desk.engine.on_orders(
                msgspec.structs.replace(orders, node=NODE, incarnation=desk.identity.incarnation, seq=desk.beat.seq),
                desk.now(),
            )
        )
        if desk.engine.pulse.in_flight:
            desk.lose()
        desk.advance(11_000)  # longer than any pause

    for message in desk.told(object):
        reader = FrameReader(LARGEST_REQUEST_BYTES)
        reader.feed(pack(message))  # type: ignore[arg-type]
        frame = reader.next()
        assert frame is not None
        assert message == unpack(frame, decoder)
    for beat in desk.beats:
        assert beat == decode(encode(beat), Heartbeat)


def test_the_state_of_an_agent_is_not_in_its_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is kept from jobs: nothing but a few named variables passes."""
    from headrace_agent.host import facts

    monkeypatch.setenv("HEADRACE_CREDENTIAL_FILE", "/secret")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("PATH", "/bin")

    environment = facts.jobs_environment("")

    assert environment.keys() <= {"PATH", "HOME", "LANG", "LC_ALL", "LOGNAME", "TMPDIR", "TZ", "USER"}
    assert environment["PATH"].startswith("/bin:/"), "the folder of the interpreter stands at the end"
