"""integral is killed at every update, at every place of it, and a run ends with the same volumes as one without."""

from __future__ import annotations

import enum
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from headrace.bus import Bus, BusError
from headrace.ids import PoolName
from headrace.runtime.role import role_of
from headrace.wire import subjects
from headrace.wire.codec import decode, encode
from headrace.wire.integral import Advance, Advanced, AdvanceGap, GetVolumes
from headrace.wire.refusals import NotReady
from headrace_integral import service
from headrace_integral.engine import VolumesRecord
from headrace_integral.settings import IntegralSettings
from headrace_integral.store import VolumeStore
from tests.support.effort import few_or_many
from tests.support.killing import killed
from tests.support.nats_server import NatsServer, nats_server
from tests.support.savers import a_tree_of_savers, begin
from tests.support.simulated_tree import SimulatedTree
from tests.support.tree_services import TREE, a_bus, ask, stand_in_for

pytestmark = pytest.mark.long

UPDATES = 500
KILLED_UPDATES = few_or_many(45, UPDATES)
SETTINGS = IntegralSettings()
_Answer: Any = Advanced | AdvanceGap | NotReady


class Fate(enum.Enum):
    """Where an update's kill falls."""

    BEFORE_SAVE = 0
    BEFORE_ANSWER = 1
    AFTER_ANSWER = 2


class FatalStore(VolumeStore):
    """The real store, which the process does not get beyond where that was arranged."""

    fate: Fate | None = None
    reached = anyio.Event()

    async def save(self, record: VolumesRecord) -> None:
        if self.fate is Fate.BEFORE_SAVE:
            await self._end()
        await super().save(record)
        if self.fate is Fate.BEFORE_ANSWER:
            await self._end()

    async def _end(self) -> None:
        self.reached.set()
        await anyio.sleep_forever()


class Process:
    """integral's real service, killed and started anew; what it knows then is what was saved."""

    def __init__(self, server: NatsServer, bus: Bus) -> None:
        self._server = server
        self._bus = bus
        self._life: Any = None
        self.lives = 0

    async def start(self) -> None:
        self._life = killed(self._server, SETTINGS, service.serve)
        await self._life.__aenter__()
        self.lives += 1
        await ask(self._bus, subjects.integral_volumes(TREE), GetVolumes(TREE), Advanced)

    async def kill(self) -> None:
        await self._life.__aexit__(None, None, None)


@asynccontextmanager
async def a_process(server: NatsServer, bus: Bus) -> AsyncIterator[Process]:
    process = Process(server, bus)
    await process.start()
    await stand_in_for(bus, role_of("fair_share", TREE))
    try:
        yield process
    finally:
        await process.kill()


async def sent(bus: Bus, advance: Advance) -> Advanced | AdvanceGap | NotReady | None:
    """The answer; None where there is none, as when nobody serves yet."""
    try:
        data = await bus.request(subjects.integral_advance(TREE), encode(advance), timeout_s=1.0)
    except BusError:
        return None
    return decode(data, _Answer)  # type: ignore[no-any-return]


async def confirmed(bus: Bus, tree: SimulatedTree) -> None:
    """fair_share sends again what was not confirmed."""
    while (head := tree.unconfirmed()) is not None:
        answer = await sent(bus, head)
        if answer is not None:
            tree.answered(answer)


async def killed_within(bus: Bus, process: Process, tree: SimulatedTree) -> None:
    """The newest advance is sent, and integral ends where that was arranged."""
    head = tree.unconfirmed()
    assert head is not None
    if FatalStore.fate is Fate.AFTER_ANSWER:
        await confirmed(bus, tree)
    else:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(sent, bus, head)
            await FatalStore.reached.wait()
            tasks.cancel_scope.cancel()
    await process.kill()
    FatalStore.fate, FatalStore.reached = None, anyio.Event()
    await process.start()


def without_kills(updates: int) -> SimulatedTree:
    tree = a_tree_of_savers()
    for number in range(updates):
        begin(tree, number)
        tree.exchange()
        tree.finish_update()
    return tree


@pytest.mark.both
@pytest.mark.timeout(300)
async def test_a_kill_at_each_update_changes_no_volume(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before it saves, between saving and answering, after answering: in turn, so that each place meets each kind of update."""
    monkeypatch.setattr(service, "VolumeStore", FatalStore)
    tree = a_tree_of_savers()
    with nats_server() as server:
        async with a_bus(server) as bus, a_process(server, bus) as process:
            for number in range(KILLED_UPDATES):
                begin(tree, number)
                FatalStore.fate = Fate(number % len(Fate))
                await killed_within(bus, process, tree)
                await confirmed(bus, tree)
                tree.finish_update()
            stored = await ask(bus, subjects.integral_volumes(TREE), GetVolumes(TREE), Advanced)
    alone = without_kills(KILLED_UPDATES)

    assert tree.fair_share.volumes.chain.given_up == 0
    assert process.lives == KILLED_UPDATES + 1
    assert stored.pools == alone.integral.record.pools
    assert stored.version == alone.integral.record.version
    assert dict(tree.points()) == dict(alone.points())


@pytest.mark.both
def test_the_course_of_updates_has_everything_in_it() -> None:
    """Else the comparison would say little: savings run out and fill up, grants are limited by them, volume is handed on."""
    tree = a_tree_of_savers()
    seen: dict[str, set[str]] = {name: set() for name in ("burst", "relaxed", "first", "second")}
    for number in range(KILLED_UPDATES):
        begin(tree, number)
        tree.exchange()
        tree.finish_update()
        for name, kinds in seen.items():
            pool = tree.fair_share.volumes.of[PoolName(name)]
            ratio, flow = pool.ratio_volume, tree.fair_share.items[f"/{name}"].specified_resource_flow_ratio
            kinds.add("full" if ratio >= flow * 29.0 else "empty" if ratio < flow else "between")

    assert all({"full", "between"} <= kinds for kinds in seen.values()), seen
