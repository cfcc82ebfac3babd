"""The allocator's talk with the ledger: a refusal of its term is looked up before it is believed."""

from __future__ import annotations

import anyio
import pytest

from headrace.bus import Bus, Message
from headrace.runtime.role import Deposed, Deposition, Role
from headrace.runtime.terms import take_term
from headrace.wire import subjects
from headrace.wire.codec import encode
from headrace.wire.ledger import Attached
from headrace.wire.refusals import StaleTerm
from headrace_allocator.engine import AllocatorEngine
from headrace_allocator.facts.nodes import Timing
from headrace_allocator.links.ledger_link import LedgerLink
from tests.simulation.bus import connect_to
from tests.simulation.loop import VirtualLoop, run_virtually
from tests.simulation.server import SimulatedServer
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
