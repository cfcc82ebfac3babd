"""The allocator's talk with the ledger: a refusal of its term is looked up before it is believed, many ends travel together."""

from __future__ import annotations

from typing import cast

import anyio
import pytest

from headrace.bus import Bus, Message
from headrace.ids import AllocationId, NodeName, OperationId
from headrace.runtime.role import Deposed, Deposition, Role
from headrace.runtime.terms import take_term
from headrace.wire import subjects
from headrace.wire.codec import decode, encode
from headrace.wire.heartbeat import JobKey, SessionSpan
from headrace.wire.ledger import Attached, ReleasedAnswer, ReportAnswer, ReportedEnd, ReportedSession, ReportEnds
from headrace.wire.refusals import StaleTerm
from headrace_allocator.effects import Release
from headrace_allocator.engine import AllocatorEngine
from headrace_allocator.facts.nodes import Timing
from headrace_allocator.links.ledger_link import LedgerLink
from tests.simulation.bus import connect_to
from tests.simulation.loop import VirtualLoop, run_virtually
from tests.simulation.server import SimulatedServer
from tests.support.agent_desk import end_of
from tests.support.allocating import TREE
from tests.support.clocks import NOW

ROLE = "allocator.default"


async def attach(bus: Bus, refusals: int) -> int:
    """Attaches with term 1 at a ledger that refuses it so often. Raises `Deposed`."""
    answers = [encode(StaleTerm(ROLE, 2, 1))] * refusals + [encode(Attached(1, 0, 7))]

    async def answer(_message: Message) -> bytes:
        return answers.pop(0)

    await bus.serve(subjects.ledger("attach"), answer)
    deposition = Deposition()
    role = Role(ROLE, 1, deposition)
    link = LedgerLink(bus, AllocatorEngine(TREE, 0, Timing()), role, lambda _outcome: None, lambda: NOW)
    found = 0
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(deposition.watch)
        tasks.start_soon(role.look_up, bus)
        found = await link.attach()
        tasks.cancel_scope.cancel()
    return found


def test_a_forged_refusal_of_our_term_deposes_nobody() -> None:
    async def course(loop: VirtualLoop) -> int:
        async with connect_to(SimulatedServer(loop), "allocator") as bus:
            assert await take_term(bus, ROLE) == 1
            return await attach(bus, refusals=1)

    assert run_virtually(1, course) == 7


def test_whoever_was_truly_succeeded_ends() -> None:
    async def course(loop: VirtualLoop) -> int:
        async with connect_to(SimulatedServer(loop), "allocator") as bus:
            assert [await take_term(bus, ROLE), await take_term(bus, ROLE)] == [1, 2]
            return await attach(bus, refusals=1_000)

    with pytest.RaisesGroup(pytest.RaisesExc(Deposed, match="the ledger knows term 2"), flatten_subgroups=True):
        run_virtually(1, course)


class PromptLedger:
    """A ledger that has everything recorded at once, and knows when it was told of how many ends."""

    def __init__(self) -> None:
        self.began_s = anyio.current_time()
        self.heard: list[tuple[float, int]] = []
        self.sessions: list[ReportedSession] = []
        #: How many ends were told before it was told of each release.
        self.released_after: list[int] = []

    async def request(self, subject: str, data: bytes, *, timeout_s: float) -> bytes:
        if subject == subjects.ledger("released"):
            self.released_after.append(sum(ends for _, ends in self.heard))
            return encode(ReleasedAnswer([]))
        report = decode(data, ReportEnds)
        ends = report.ends
        self.sessions += report.sessions
        self.heard.append((round(anyio.current_time() - self.began_s, 3), len(ends)))
        return encode(ReportAnswer([one.end.key for one in ends]))


async def report(came: list[tuple[float, int]]) -> list[tuple[float, int]]:
    """When each report came and of how many ends, where so many ends came after so many seconds."""

    ledger = PromptLedger()
    link = a_link(ledger)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(link.keep_reporting, nothing_before)
        for at_s, count in came:
            await anyio.sleep_until(ledger.began_s + at_s)
            link.report(ends("op", count))
        await anyio.sleep(1)
        tasks.cancel_scope.cancel()
    return ledger.heard


async def nothing_before() -> None:
    """Nothing is to be told before the ends."""


def a_link(ledger: PromptLedger) -> LedgerLink:
    role = Role(ROLE, 1, Deposition())
    return LedgerLink(cast("Bus", ledger), AllocatorEngine(TREE, 0, Timing()), role, lambda _outcome: None, lambda: NOW)


def ends(operation: str, count: int) -> list[ReportedEnd]:
    keys = [JobKey(OperationId(operation), index, 1) for index in range(count)]
    return [ReportedEnd(NodeName("n1"), end_of(key)) for key in keys]


@pytest.mark.parametrize(
    ("came", "heard"),
    [
        pytest.param([(0.1, 1), (0.105, 1), (0.11, 1)], [(0.1, 1), (0.105, 1), (0.11, 1)], id="lone ends never wait"),
        pytest.param([(0.1, 3), (0.102, 1), (0.105, 1)], [(0.1, 3), (0.11, 2)], id="after three they gather for 10 ms"),
        pytest.param([(0.1, 9), (0.102, 1), (0.119, 1)], [(0.1, 9), (0.12, 2)], id="after many for 20 ms, no longer"),
        pytest.param([(0.1, 700)], [(0.1, 500), (0.1, 200)], id="what found no room in a report follows at once"),
    ],
)
def test_many_ends_travel_together(came: list[tuple[float, int]], heard: list[tuple[float, int]]) -> None:
    async def course(_loop: VirtualLoop) -> list[tuple[float, int]]:
        return await report(came)

    assert run_virtually(1, course) == heard


def test_no_operation_is_released_before_its_ends_are_told() -> None:
    async def course(_loop: VirtualLoop) -> list[int]:
        ledger = PromptLedger()
        link = a_link(ledger)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(link.keep_reporting, nothing_before)
            link.report(ends("aborted", 5))
            await anyio.sleep(0.001)
            # These gather, and their operation is empty with the last of them.
            link.report(ends("aborted", 2))
            await link.release(Release([OperationId("other")]))
            await link.release(Release([OperationId("aborted")]))
            tasks.cancel_scope.cancel()
        return ledger.released_after

    assert run_virtually(1, course) == [5, 7]


def test_sessions_are_reported_without_ends_in_parts_and_once_even_to_an_admission_that_ignores_them() -> None:
    key = JobKey(OperationId("op"), 0, 1)
    spans = [SessionSpan(key, AllocationId("a"), f"user{number}", 1) for number in range(130)]
    sessions = [ReportedSession(NodeName("n1"), each) for each in spans]

    async def course(_loop: VirtualLoop) -> list[tuple[float, int]]:
        ledger = PromptLedger()
        link = a_link(ledger)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(link.keep_reporting, nothing_before)
            for _ in range(2):
                link.report([], sessions)
            await anyio.sleep(1)
            tasks.cancel_scope.cancel()
        assert ledger.sessions == sessions
        return ledger.heard

    assert len(run_virtually(1, course)) == 2
