"""Keeping up with admission: what was published and lost is read from the log, in order, each once or harmlessly again."""

from __future__ import annotations

from collections.abc import Callable

import anyio
import msgspec
import pytest

from headrace.bus import Bus, Log, Message, YieldBudget
from headrace.ids import OperationId, PoolName, TreeName
from headrace.resources import Resources
from headrace.runtime.clock import SystemClock
from headrace.runtime.endpoints import Endpoints
from headrace.runtime.feeds import OperationsFeed, SnapshotFeed
from headrace.runtime.role import Deposition
from headrace.wire import subjects
from headrace.wire.codec import decode, encode
from headrace.wire.ledger import LiveOperation, WholeOperationsRequest
from headrace.wire.log import Event, LogBatch, OperationSuspended, Published
from headrace.wire.operations import OperationSpec, StartAnswer, StartOperation
from headrace.wire.snapshot_parts import Applied, SnapshotPublisher, SnapshotReader
from headrace.wire.snapshots import UsageFrame, UsageItem, UsagePart, WholeRequest
from headrace_admission import queries
from headrace_admission.engine import AdmissionEngine
from headrace_admission.state.indexed_numbers import IndexedNumbers
from headrace_admission.state.rules import GlobalRules, TreeRules
from tests.simulation.bus import connect_to
from tests.simulation.clock import LoopClock
from tests.simulation.loop import VirtualLoop, run_virtually
from tests.simulation.server import Faults, SimulatedServer
from tests.support.clocks import HandClock, at
from tests.support.nats_server import NatsServer, nats_server
from tests.support.tree_services import SmallAdmission, SmallAllocator, a_bus, live

TREE = TreeName("default")
PATIENCE_S = 20.0


class Hearing:
    """A reader that only notes."""

    def __init__(self) -> None:
        self.wholes: list[list[str]] = []
        self.operations: list[LiveOperation] = []
        self.events: list[int] = []
        self.moved = anyio.Event()

    async def on_operations(self, operations: list[LiveOperation], sequence: int) -> None:
        self.operations = operations
        self.wholes.append([operation.operation for operation in operations])
        self._move()

    async def on_events(self, events: list[Event], sequence: int) -> None:
        self.events += [event.at_ms for event in events if isinstance(event, OperationSuspended)]
        self._move()

    async def until(self, count: int) -> None:
        with anyio.fail_after(PATIENCE_S):
            while len(self.events) < count:
                await self.moved.wait()

    def _move(self) -> None:
        moved, self.moved = self.moved, anyio.Event()
        moved.set()


def an_event(number: int) -> OperationSuspended:
    return OperationSuspended(OperationId("operation-1"), suspended=True, at_ms=number)


async def record(log: Log, number: int) -> None:
    await log.append(encode(LogBatch(1, [an_event(number)])), expected_last=number - 1, timeout_s=5)


async def tell(bus: Bus, number: int, *, events: bool = True) -> None:
    published = Published(TREE, 1, number, number - 1, [an_event(number)] if events else [])
    await bus.publish(subjects.EVENTS, encode(published))


async def hear(server: NatsServer, what: list[str], expected: int) -> Hearing:
    """Records four events, publishes what is named, and returns who heard."""
    hearing = Hearing()
    async with a_bus(server, "service", "admission") as bus, a_bus(server, "service", "reader") as reading:
        log = await bus.log(subjects.STREAM, subjects.LOG)
        admission = SmallAdmission(bus)
        admission.operations = [live("operation-1", "p")]
        await admission.serve()
        feed = OperationsFeed(reading, Endpoints(reading, SystemClock(), Deposition()), TREE, hearing)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(feed.run)
            await feed.catch_up()
            for number in range(1, 5):
                await record(log, number)
            for word in what:
                await tell(bus, int(word.rstrip("-")), events=not word.endswith("-"))
            await hearing.until(expected)
            tasks.cancel_scope.cancel()
    return hearing


async def test_events_that_were_published_and_lost_are_read_from_the_log() -> None:
    with nats_server() as server:
        hearing = await hear(server, ["1", "4"], expected=4)

    assert hearing.events == [1, 2, 3, 4]
    assert hearing.wholes == [["operation-1"]]


async def test_a_lost_last_event_is_noticed_by_the_position_that_is_told_at_a_period() -> None:
    with nats_server() as server:
        hearing = await hear(server, ["1", "4-"], expected=4)

    assert hearing.events == [1, 2, 3, 4]


async def test_an_event_that_comes_twice_or_late_is_passed_over() -> None:
    with nats_server() as server:
        hearing = await hear(server, ["1", "1", "2", "1", "3", "4"], expected=4)

    assert hearing.events == [1, 2, 3, 4]


async def test_when_the_log_has_forgotten_what_was_missed_the_whole_is_asked_for_again() -> None:
    hearing = Hearing()
    with nats_server() as server:
        async with a_bus(server, "service", "admission") as bus, a_bus(server, "service", "reader") as reading:
            log = await bus.log(subjects.STREAM, subjects.LOG)
            admission = SmallAdmission(bus)
            await admission.serve()
            feed = OperationsFeed(reading, Endpoints(reading, SystemClock(), Deposition()), TREE, hearing)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(feed.run)
                await feed.catch_up()
                for number in range(1, 5):
                    await record(log, number)
                await log.forget(3)
                admission.operations = [live("operation-2", "p")]
                admission.sequence = 4
                await tell(bus, 4)
                with anyio.fail_after(PATIENCE_S):
                    while len(hearing.wholes) < 2:
                        await hearing.moved.wait()
                tasks.cancel_scope.cancel()

    assert hearing.wholes == [[], ["operation-2"]]


async def test_an_operation_of_which_100_000_jobs_run_again_is_learnt_in_pages() -> None:
    """Its attempts alone are more than one message carries."""
    engine = AdmissionEngine(GlobalRules())
    engine.on_configuration(TREE, TreeRules(), at(0, 1))
    name = OperationId("operation-1")
    for each in (name, OperationId("operation-2")):
        spec = OperationSpec(PoolName("p"), ["x" * 100_000], 1_000_000, tree=TREE)
        assert isinstance(engine.on_start(StartOperation(each, spec), "anna", at(0, 1)).answer, StartAnswer)
    book = engine.state.live[name].ledger
    book.draw(1_000_000, 1)
    book.attempts = IndexedNumbers(numbers={index: 2 + index % 3 for index in range(7, 1_000_000, 9)})

    async def answer(message: Message) -> bytes:
        request = decode(message.data, WholeOperationsRequest)
        return encode(queries.whole_operations(engine.state, request, 1))

    hearing = Hearing()
    with nats_server() as server:
        async with a_bus(server, "service", "admission") as bus, a_bus(server, "service", "reader") as reading:
            await bus.log(subjects.STREAM, subjects.LOG)
            await bus.serve(subjects.OPERATIONS_WHOLE, answer)
            feed = OperationsFeed(reading, Endpoints(reading, SystemClock(), Deposition()), TREE, hearing)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(feed.run)
                with anyio.fail_after(PATIENCE_S):
                    await feed.catch_up()
                tasks.cancel_scope.cancel()

    assert hearing.wholes == [["operation-1", "operation-2"]]
    assert {slot.index: slot.attempt for slot in hearing.operations[0].attempts} == dict(book.attempts.items())
    assert hearing.operations[1].attempts == []


def test_a_published_entry_reads_the_same_as_what_the_log_holds() -> None:
    event = an_event(1)

    assert msgspec.msgpack.decode(encode(LogBatch(1, [event])), type=LogBatch).events == [event]


def following(
    bus: Bus,
    loop: VirtualLoop,
    reader: SnapshotReader[UsageItem, UsageFrame],
    *,
    silence_s: float = 0.5,
    on_applied: Callable[[], None] = lambda: None,
) -> SnapshotFeed[UsageItem, UsageFrame]:
    """Asks for the whole after so long a silence."""

    async def applied(_applied: Applied) -> None:
        on_applied()

    endpoints = Endpoints(bus, HandClock(), Deposition())
    subject, whole = subjects.usage(TREE), subjects.usage_whole(TREE)
    return SnapshotFeed(
        bus, endpoints, LoopClock(loop), subject, whole, UsagePart, reader, applied, silence_s=silence_s
    )


def follow_usage(seed: int, faults: Faults) -> int:
    """A reader follows 200 versions that come while it asks for the whole; returns how often it asked."""
    asked: list[int] = []

    async def world(loop: VirtualLoop) -> None:
        server = SimulatedServer(loop, faults)
        async with connect_to(server, "allocator") as bus, connect_to(server, "reader") as reading:
            allocator = SmallAllocator(bus)
            for number in range(20):
                allocator.publisher.advance(UsageFrame(), [usage(number, 0)])
            await bus.serve(subjects.usage_whole(TREE), allocator.answer_whole)
            reader: SnapshotReader[UsageItem, UsageFrame] = SnapshotReader(
                TREE, UsageFrame(), key=lambda item: item.operation
            )

            feed = following(reading, loop, reader)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(feed.run)
                for number in range(200):
                    await anyio.sleep(loop.random.choice((0.0001, 0.001, 0.01)))
                    for part in allocator.publisher.advance(UsageFrame(), [usage(number % 20, number)]):
                        await bus.publish(subjects.usage(TREE), part)
                server.faults = Faults()
                await anyio.sleep(5)
                tasks.cancel_scope.cancel()
            assert not reader.needs_whole
            assert reader.items == allocator.publisher.items
            asked.append(feed.asked)

    run_virtually(seed, world)
    return asked[0]


class Waiting:
    """A subscription of which so many messages wait, whatever is done."""

    pending = 0

    async def close(self) -> None:
        return None

    def statistics(self) -> dict[str, int]:
        return {"pending": self.pending}


def test_messages_that_wait_go_before_the_parts_of_a_snapshot_but_not_for_ever() -> None:
    took_s: list[float] = []

    async def world(loop: VirtualLoop) -> None:
        server, waiting = SimulatedServer(loop, Faults()), Waiting()
        async with connect_to(server, "allocator") as bus, connect_to(server, "reader") as reading:
            allocator = SmallAllocator(bus)
            await bus.serve(subjects.usage_whole(TREE), allocator.answer_whole)
            reader: SnapshotReader[UsageItem, UsageFrame] = SnapshotReader(
                TREE, UsageFrame(), key=lambda item: item.operation
            )
            applied_s: list[float] = []
            feed = following(reading, loop, reader, silence_s=60, on_applied=lambda: applied_s.append(loop.time()))
            feed.way = YieldBudget(waiting)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(feed.run)
                for waiting.pending, items, count in (0, 5_000, 4), (1, 5_000, 4), (1, 50_000, 34):
                    await anyio.sleep(1)
                    parts = allocator.publisher.advance(
                        UsageFrame(), [usage(number, len(took_s) + 1) for number in range(items)]
                    )
                    assert len(parts) == count
                    began_s = loop.time()
                    for part in parts:
                        await bus.publish(subjects.usage(TREE), part)
                    await anyio.sleep(1)
                    took_s.append(applied_s[-1] - began_s)
                # Ten a second, that would be given more time than passes.
                for number in range(30):
                    await anyio.sleep(0.1)
                    for part in allocator.publisher.advance(
                        UsageFrame(), [usage(each, 10 + number) for each in range(5_000)]
                    ):
                        await bus.publish(subjects.usage(TREE), part)
                await anyio.sleep(0.5)
                assert reader.version == allocator.publisher.version
                tasks.cancel_scope.cancel()
            assert reader.items == allocator.publisher.items

    run_virtually(1, world)
    at_once_s, given_s, most_s = took_s
    assert at_once_s < 0.01
    # Between four parts, and of more than thirty for no longer than half a second.
    assert given_s == pytest.approx(3 * 0.04, abs=0.01)
    assert most_s == pytest.approx(0.5, abs=0.05)


def usage(operation: int, cpu: int) -> UsageItem:
    return UsageItem(OperationId(f"operation-{operation}"), Resources(cpu=cpu))


def test_who_has_the_newest_whole_reads_no_more_than_a_page_of_it_while_the_publisher_is_silent() -> None:
    """Beside a slow publisher each reader read all of it every few seconds, and made it slower."""
    pages: list[int] = []

    async def world(loop: VirtualLoop) -> None:
        server = SimulatedServer(loop, Faults())
        async with connect_to(server, "allocator") as bus, connect_to(server, "reader") as reading:
            allocator = SmallAllocator(bus)
            allocator.publisher.advance(UsageFrame(), [usage(number, number) for number in range(5_000)])

            async def answer(message: Message) -> bytes:
                pages.append(decode(message.data, WholeRequest).part)
                return await allocator.answer_whole(message)

            await bus.serve(subjects.usage_whole(TREE), answer)
            reader: SnapshotReader[UsageItem, UsageFrame] = SnapshotReader(
                TREE, UsageFrame(), key=lambda item: item.operation
            )
            feed = following(reading, loop, reader)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(feed.run)
                await anyio.sleep(5)
                tasks.cancel_scope.cancel()
            assert reader.items == allocator.publisher.items

    run_virtually(1, world)

    of_the_whole = pages.index(max(pages)) + 1
    assert of_the_whole > 1
    assert set(pages[of_the_whole:]) == {0}


@pytest.mark.parametrize("seed", range(10))
def test_a_reader_that_misses_parts_while_it_asks_comes_to_rest(seed: int) -> None:
    """It turned for ever once, when a part had come while it asked."""
    assert follow_usage(seed, Faults(drop=0.2, late=0.2, late_s=0.05)) < 200


def test_many_who_ask_for_a_whole_of_several_pages_while_it_changes_all_get_one() -> None:
    """Two readers once kept each other from it for ever, each asking for the newest."""
    publisher: SnapshotPublisher[UsageItem, UsageFrame] = SnapshotPublisher(
        UsagePart, TREE, 1, UsageFrame(), key=lambda item: item.operation
    )
    publisher.advance(UsageFrame(), [usage(number, number) for number in range(1_250)])
    readers: list[SnapshotReader[UsageItem, UsageFrame]] = [
        SnapshotReader(TREE, UsageFrame(), key=lambda item: item.operation) for _ in range(30)
    ]
    requests = [WholeRequest() for _ in readers]
    asked = 0
    while any(reader.needs_whole for reader in readers):
        asked += 1
        assert asked < 100
        for number, reader in enumerate(readers):
            if reader.needs_whole:
                changes = publisher.advance(UsageFrame(), [usage(1, asked * 100 + number)])
                for each in readers:
                    for change in changes:
                        each.on_part(decode(change, UsagePart))
                part = decode(publisher.page(requests[number]), UsagePart)
                reader.on_part(part)
                last = part.part + 1 >= part.parts
                requests[number] = WholeRequest() if last else WholeRequest(part.version, part.part + 1)
