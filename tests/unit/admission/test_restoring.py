"""The start of admission, after it stood by or not: what it announces can be read by everybody who starts after it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import anyio
import pytest

from headrace.bus import AppendUnknown, Bus
from headrace.ids import OperationId, PoolName, TreeName
from headrace.resources import Resources
from headrace.runtime.role import Deposed
from headrace.wire import subjects
from headrace.wire.log import ClockMoved, OperationStarted
from headrace.wire.operations import OperationSpec, OperationState
from headrace_admission.engine import AdmissionEngine
from headrace_admission.log.byte_budget import encode_event
from headrace_admission.log.checkpoint import Checkpoint, CheckpointStore
from headrace_admission.log.recorder import encode_batch
from headrace_admission.log.restoring import LogFollower
from tests.contract.waiting import eventually
from tests.simulation.bus import connect_to
from tests.simulation.clock import LoopClock
from tests.simulation.loop import VirtualLoop, run_virtually
from tests.simulation.server import SimulatedServer


class _SilentTwice:
    """A log that leaves the first two appends unanswered and does not make them."""

    def __init__(self, log: Any) -> None:
        self._log = log
        self._silences = 2

    async def append(self, data: bytes, *, expected_last: int, timeout_s: float) -> int:
        if self._silences:
            self._silences -= 1
            raise AppendUnknown("no answer")
        return int(await self._log.append(data, expected_last=expected_last, timeout_s=timeout_s))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)


def a_reader(bus: Bus, loop: VirtualLoop) -> LogFollower:
    return LogFollower(bus, AdmissionEngine(), LoopClock(loop))


async def finish(reader: LogFollower, bus: Bus, term: int, log: Any = None) -> int:
    """Takes the lead with this term."""
    store = CheckpointStore(await bus.key_value(subjects.CHECKPOINT_BUCKET), term)
    log = log or await bus.log(subjects.STREAM, subjects.LOG)
    return await reader.finish(log, store, term=term, writer=f"admission-{term}")


async def append(bus: Bus, last: int, names: Sequence[str], term: int = 1) -> int:
    """An entry of the log with a start of each name."""
    log = await bus.log(subjects.STREAM, subjects.LOG)
    for name in names:
        spec = OperationSpec(PoolName("work"), ["true"], 1, Resources(user_slots=1, cpu=100), tree=TreeName("default"))
        event = OperationStarted(OperationId(name), "anna", spec, OperationState.RUNNING, False, 1, 0, at_ms=1)
        entry = encode_batch(term, [encode_event(event)], f"admission-{term}", last)
        last = await log.append(entry, expected_last=last, timeout_s=5.0)
    return last


async def save(reader: LogFollower, bus: Bus, term: int) -> None:
    """Writes a checkpoint of all that the reader knows, and lets the log forget it."""
    store = CheckpointStore(await bus.key_value(subjects.CHECKPOINT_BUCKET), term)
    await store.claim()
    await store.save(Checkpoint(reader.engine.state))
    await (await bus.log(subjects.STREAM, subjects.LOG)).forget(reader.sequence)


def test_a_term_that_was_announced_at_a_later_try_does_not_keep_the_next_one_from_starting() -> None:
    async def course(loop: VirtualLoop) -> list[int]:
        server, announced = SimulatedServer(loop), []
        async with connect_to(server, "admission") as bus:
            log = _SilentTwice(await bus.log(subjects.STREAM, subjects.LOG))
            for term in (1, 2):
                announced += [await finish(a_reader(bus, loop), bus, term, log)]
        return announced

    assert run_virtually(1, course) == [1, 2]


def test_whoever_stands_by_has_the_log_and_when_it_leads_reads_only_the_rest() -> None:
    async def course(loop: VirtualLoop) -> None:
        server = SimulatedServer(loop)
        async with connect_to(server, "leads") as leads, connect_to(server, "stands-by") as stands_by:
            leader, standby = a_reader(leads, loop), a_reader(stands_by, loop)
            last = await append(leads, await finish(leader, leads, 1), ["one", "two"])
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(standby.follow)
                await eventually(lambda: standby.sequence == last)
                tasks.cancel_scope.cancel()
            assert list(standby.engine.state.operations) == ["one", "two"]

            last = await append(leads, last, ["three"])
            read: list[int] = []
            log = await stands_by.log(subjects.STREAM, subjects.LOG)

            class Counted:
                def __getattr__(self, name: str) -> Any:
                    return getattr(log, name)

                def read(self, after: int, *, batch_bytes: int | None = None) -> Any:
                    read.append(after)
                    return log.read(after)

            assert await finish(standby, stands_by, 2, Counted()) == last + 1
            assert list(standby.engine.state.operations) == ["one", "two", "three"]
            assert read == [last - 1]

    run_virtually(1, course)


def test_whoever_stands_by_begins_anew_where_the_log_has_forgotten_what_comes_next() -> None:
    async def course(loop: VirtualLoop) -> None:
        server = SimulatedServer(loop)
        async with connect_to(server, "leads") as leads, connect_to(server, "stands-by") as stands_by:
            leader, standby = a_reader(leads, loop), a_reader(stands_by, loop)
            last = await append(leads, await finish(leader, leads, 1), ["one"])
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(standby.follow)
                await eventually(lambda: standby.sequence == last)
                before = standby.engine.state
                last = await append(leads, last, ["two", "three"])
                with anyio.move_on_after(0.5):
                    await leader.follow()
                await save(leader, leads, 1)
                last = await append(leads, last, ["four"])
                await eventually(lambda: standby.sequence == last)
                tasks.cancel_scope.cancel()

            assert standby.engine.state is not before
            assert list(standby.engine.state.operations) == ["one", "two", "three", "four"]
            assert standby.engine.check() == []

    run_virtually(1, course)


def test_a_log_that_lost_what_was_read_of_it_is_not_led() -> None:
    """A server that came back without its newest entries would have them given again, to other operations."""

    async def course(loop: VirtualLoop) -> None:
        server = SimulatedServer(loop)
        async with connect_to(server, "leads") as leads, connect_to(server, "stands-by") as stands_by:
            standby = a_reader(stands_by, loop)
            last = await append(leads, await finish(a_reader(leads, loop), leads, 1), ["one", "two"])
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(standby.follow)
                await eventually(lambda: standby.sequence == last)
                tasks.cancel_scope.cancel()
            server.store.roll_back([subjects.STREAM], 1)

            with pytest.raises(Deposed, match="entries are missing"):
                await finish(standby, stands_by, 2)

    run_virtually(1, course)


def test_without_the_checkpoint_nobody_leads_what_the_log_alone_cannot_tell() -> None:
    async def course(loop: VirtualLoop) -> None:
        server = SimulatedServer(loop)
        async with connect_to(server, "admission") as bus:
            reader = a_reader(bus, loop)
            await append(bus, await finish(reader, bus, 1), ["one", "two"])
            with anyio.move_on_after(0.5):
                await reader.follow()
            await save(reader, bus, 1)
            server.store.lose_bucket(subjects.CHECKPOINT_BUCKET)

            with pytest.raises(
                Deposed, match=r"begins with entry 4, and the checkpoint .* is lost. Restore the bucket"
            ):
                await finish(a_reader(bus, loop), bus, 2)
            # Whoever knows what was there may lead; the log that is whole needs no checkpoint.
            assert await finish(reader, bus, 3) == 4

    run_virtually(1, course)


async def a_checkpointed_log(bus: Bus, loop: VirtualLoop, *, forgotten: bool) -> LogFollower:
    """Two operations in the log and in a checkpoint. `forgotten`: the log has let go of what the checkpoint covers."""
    reader = a_reader(bus, loop)
    await append(bus, await finish(reader, bus, 1), ["one", "two"])
    with anyio.move_on_after(0.5):
        await reader.follow()
    store = CheckpointStore(await bus.key_value(subjects.CHECKPOINT_BUCKET), 1)
    await store.claim()
    await store.save(Checkpoint(reader.engine.state))
    if forgotten:
        await (await bus.log(subjects.STREAM, subjects.LOG)).forget(reader.sequence)
    return reader


async def damage(bus: Bus, what: str) -> None:
    """Truncates the head of the checkpoint or its page."""
    bucket = await bus.key_value(subjects.CHECKPOINT_BUCKET)
    for key, entry in (await bucket.entries()).items():
        if (key == "head") == (what == "head"):
            await bucket.put(key, entry.value[:-3])


def test_moves_of_the_clock_add_up_over_a_checkpoint() -> None:
    """The log holds their sum, of which the checkpoint has a part already."""

    async def moved(bus: Bus, last: int, total_ms: int) -> int:
        log = await bus.log(subjects.STREAM, subjects.LOG)
        entry = encode_batch(1, [encode_event(ClockMoved(total_ms, at_ms=1))], "admission-1", last)
        return int(await log.append(entry, expected_last=last, timeout_s=5.0))

    async def course(loop: VirtualLoop) -> None:
        async with connect_to(SimulatedServer(loop), "admission") as bus:
            last = await append(bus, await finish(a_reader(bus, loop), bus, 1), ["one"])
            last = await moved(bus, last, 5_000)
            await finish(first := a_reader(bus, loop), bus, 1)
            await save(first, bus, 1)
            await moved(bus, first.sequence, 7_000)
            await finish(second := a_reader(bus, loop), bus, 2)

            state = second.engine.state
            assert (state.clock_moved_ms, state.operations[OperationId("one")].runs_since_ms) == (7_000, 7_001)

    run_virtually(1, course)


@pytest.mark.parametrize("what", ["head", "page"])
def test_a_damaged_checkpoint_does_no_harm_while_the_log_has_everything(what: str) -> None:
    async def course(loop: VirtualLoop) -> None:
        async with connect_to(SimulatedServer(loop), "admission") as bus:
            await a_checkpointed_log(bus, loop, forgotten=False)
            await damage(bus, what)
            reader = a_reader(bus, loop)
            store = CheckpointStore(await bus.key_value(subjects.CHECKPOINT_BUCKET), 2)
            log = await bus.log(subjects.STREAM, subjects.LOG)

            assert await reader.finish(log, store, term=2, writer="admission-2") == 4

            assert list(reader.engine.state.operations) == ["one", "two"]
            await store.save(Checkpoint(reader.engine.state))
            assert await finish(again := a_reader(bus, loop), bus, 3) == 5
            assert list(again.engine.state.operations) == ["one", "two"]

    run_virtually(1, course)


@pytest.mark.parametrize(("what", "named"), [("head", "key head"), ("page", r"page 1 of 1 \(keys page\.1\.3\.0\.\*\)")])
def test_a_damaged_checkpoint_that_is_needed_is_named_with_what_to_do(what: str, named: str) -> None:
    async def course(loop: VirtualLoop) -> None:
        async with connect_to(SimulatedServer(loop), "admission") as bus:
            await a_checkpointed_log(bus, loop, forgotten=True)
            await damage(bus, what)
            before = await (await bus.key_value(subjects.CHECKPOINT_BUCKET)).entries()

            with pytest.raises(
                Deposed, match=f"begins with entry 4, .*bucket headrace_checkpoint, {named}: .* from a backup"
            ):
                await finish(a_reader(bus, loop), bus, 2)

            after = await (await bus.key_value(subjects.CHECKPOINT_BUCKET)).entries()
            assert what == "page" or after == before

    run_virtually(1, course)


def test_a_checkpoint_is_gone_on_from_where_the_log_is_lost_and_its_entries_get_no_sequence_again() -> None:
    async def course(loop: VirtualLoop) -> None:
        server = SimulatedServer(loop)
        async with connect_to(server, "admission") as bus:
            await a_checkpointed_log(bus, loop, forgotten=False)
            del server.store.streams[subjects.STREAM]

            for term in (2, 3):
                reader = a_reader(bus, loop)
                assert await finish(reader, bus, term) == 2 + term
                assert list(reader.engine.state.operations) == ["one", "two"]
                assert reader.trouble() == ""

    run_virtually(1, course)


def test_a_log_that_does_not_belong_to_the_checkpoint_is_refused() -> None:
    async def course(loop: VirtualLoop) -> None:
        server = SimulatedServer(loop)
        async with connect_to(server, "admission") as bus:
            await a_checkpointed_log(bus, loop, forgotten=False)
            del server.store.streams[subjects.STREAM]
            await append(bus, 0, ["other"], term=7)

            with pytest.raises(
                Deposed, match=r"entry 1 of term 7, and the checkpoint covers entries up to 3 .* do not belong together"
            ):
                await finish(a_reader(bus, loop), bus, 8)
            assert (await (await bus.log(subjects.STREAM, subjects.LOG)).bounds()) == (1, 1)

    run_virtually(1, course)


@pytest.mark.parametrize("lost", [0, 2])
def test_acknowledged_entries_that_the_log_lost_are_told_with_their_number(lost: int) -> None:
    async def course(loop: VirtualLoop) -> None:
        server = SimulatedServer(loop)
        async with connect_to(server, "admission") as bus:
            await append(bus, await finish(a_reader(bus, loop), bus, 1), ["one", "two", "three"])
            server.store.roll_back([subjects.STREAM], lost)
            reader = a_reader(bus, loop)
            store = CheckpointStore(await bus.key_value(subjects.CHECKPOINT_BUCKET), 2)
            log = await bus.log(subjects.STREAM, subjects.LOG)

            await reader.finish(log, store, term=2, writer="admission-2", acknowledged=4)

            assert ("at least 2 acknowledged entries (3 to 4)" in reader.trouble()) == bool(lost)
            assert [figure.value for figure in reader.figures()] == [lost]
            assert list(reader.engine.state.operations) == ["one", "two", "three"][: 3 - lost]

    run_virtually(1, course)
