"""Real processes of integral that end by SIGKILL; and fair_share killed while real savings go on."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import anyio
import pytest

from headrace.bus import Bus, BusError
from headrace.ids import ROOT_POOL
from headrace.pools import IntegralType
from headrace.runtime.role import role_of
from headrace.wire import subjects
from headrace.wire.codec import decode, encode
from headrace.wire.integral import Advance, Advanced, AdvanceGap, GetVolumes
from headrace.wire.pool_changes import PoolPlan
from headrace.wire.refusals import NotReady
from headrace.wire.version import NEVER
from headrace_fair_share.service import serve as serve_fair_share
from headrace_fair_share.settings import FairShareSettings
from headrace_integral.engine import IntegralEngine
from headrace_integral.service import serve
from headrace_integral.settings import IntegralSettings
from tests.support.clocks import NOW
from tests.support.effort import few_or_many
from tests.support.fair_share import create_pool
from tests.support.killing import killed
from tests.support.nats_server import NatsServer, nats_server
from tests.support.savers import a_saver, a_tree_of_savers, begin
from tests.support.simulated_tree import SimulatedTree
from tests.support.stores import provision_stores
from tests.support.tree_services import TREE, a_bus, ask, running, small_world, stand_in_for

pytestmark = pytest.mark.long

KILLS = few_or_many(2, 12)
UPDATES_BETWEEN = 5
_Answer: Any = Advanced | AdvanceGap | NotReady


@contextmanager
def a_process(server: NatsServer) -> Iterator[subprocess.Popen[bytes]]:
    """`headrace-integral` as it is installed."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HEADRACE_")}
    process = subprocess.Popen(
        [sys.executable, "-m", "headrace_integral"],
        env={**environment, "HEADRACE_NATS_URL": server.url},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


async def confirmed(bus: Bus, tree: SimulatedTree) -> None:
    """Everything is sent until it is confirmed, as long as there is nobody as well."""
    await stand_in_for(bus, role_of("fair_share", TREE))
    with anyio.fail_after(30.0):
        while (head := tree.unconfirmed()) is not None:
            try:
                data = await bus.request(subjects.integral_advance(TREE), encode(head), timeout_s=0.5)
            except BusError:
                await anyio.sleep(0.01)
                continue
            tree.answered(decode(data, _Answer))


async def sent_and_killed(bus: Bus, tree: SimulatedTree, process: subprocess.Popen[bytes]) -> None:
    """An advance is on its way when the process ends; nobody knows how far it came."""
    head = tree.unconfirmed()
    assert head is not None
    await bus.publish(subjects.integral_advance(TREE), encode(head))
    await bus.barrier()
    process.kill()
    process.wait()


@pytest.mark.both
@pytest.mark.timeout(120)
async def test_processes_that_end_by_sigkill_lose_nothing_and_apply_nothing_twice() -> None:
    tree, alone = a_tree_of_savers(), a_tree_of_savers()
    number = 0
    with nats_server() as server:
        await provision_stores(server.url)
        async with a_bus(server) as bus:
            for _ in range(KILLS):
                with a_process(server) as process:
                    for at in range(UPDATES_BETWEEN):
                        begin(tree, number)
                        begin(alone, number)
                        number += 1
                        if at == UPDATES_BETWEEN - 1:
                            await sent_and_killed(bus, tree, process)
                            break
                        await confirmed(bus, tree)
                        tree.finish_update()
                        alone.exchange()
                        alone.finish_update()
                with a_process(server):
                    await confirmed(bus, tree)
                tree.finish_update()
                alone.exchange()
                alone.finish_update()
            with a_process(server):
                stored = await ask(bus, subjects.integral_volumes(TREE), GetVolumes(TREE), Advanced)

    assert stored.pools == alone.integral.record.pools
    assert stored.version == alone.integral.record.version
    assert tree.points() == alone.points()


BRISK = FairShareSettings(administrators="*", fair_share_update_period_ms=20, advance_budget_ms=1_000)


class Heard:
    """Every advance that is sent, in the order of sending, and what an integral of its own makes of them."""

    def __init__(self) -> None:
        self.engine = IntegralEngine(TREE, 1)
        self.applied: list[Advance] = []
        self._more = anyio.Event()

    async def listen(self, bus: Bus, *, task_status: Any = anyio.TASK_STATUS_IGNORED) -> None:
        inbox = await bus.subscribe(subjects.integral_advance(TREE))
        task_status.started()
        async for message in inbox:
            advance = decode(message.data, Advance)
            outcome = self.engine.on_advance(advance, NOW)
            if outcome.effects:
                self.engine.on_saved(outcome.effects[0].record, NOW)
                self.applied.append(advance)
                self._more.set()

    async def until_epoch(self, term: int, epoch: int) -> None:
        with anyio.fail_after(30.0):
            while not any(each.version.term == term and each.version.epoch >= epoch for each in self.applied):
                self._more = anyio.Event()
                await self._more.wait()


async def test_a_killed_fair_share_loses_the_time_that_it_was_down_and_nothing_else() -> None:
    """Credited is what its lives have seen pass; in between nothing is, and the gap is told."""
    heard = Heard()
    with nats_server() as server:
        async with (
            small_world(server) as world,
            a_bus(server, "service", "listener") as bus,
            anyio.create_task_group() as tasks,
            running(server, IntegralSettings(), serve, "integral"),
        ):
            await tasks.start(heard.listen, bus)
            saver = a_saver("saver", ROOT_POOL, IntegralType.BURST, 100, 200)
            for life in range(3):
                async with killed(server, BRISK, serve_fair_share, "fair-share"):
                    if not life:
                        request = create_pool("saver", config=saver.settings)
                        made = await world.ask("pool.change", request, PoolPlan)
                        assert isinstance(made, PoolPlan)
                    await heard.until_epoch(life + 1, 5)
                await anyio.sleep(0.3)
            told = await ask(world.service, subjects.integral_volumes(TREE), GetVolumes(TREE), Advanced)
            tasks.cancel_scope.cancel()

    begun = [each for each in heard.applied if each.previous == NEVER]
    assert [each.version.term for each in begun][-2:] == [2, 3]
    assert {each.dt_us for each in begun} == {0}
    assert told.version == heard.engine.record.version
    assert told.pools == heard.engine.record.pools
    assert told.pools[0].ratio_volume > 0
    assert told.downtime.gaps == 2
    assert told.downtime == heard.engine.record.downtime
    assert told.downtime.together_ms > 0
