"""Group commit over a log that loses answers, delays messages and is taken over: nothing lost, nothing doubled, order kept."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterator
from enum import Enum

import anyio
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.bus import (
    MAX_GROUP_BYTES,
    AppenderFenced,
    AppendRefused,
    AppendUnknown,
    BusError,
    GroupAppender,
    LogEntry,
    NoResponders,
    TooLarge,
)


@pytest.fixture(autouse=True, scope="module")
def without_pauses() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("headrace.bus.group_commit._FIRST_RETRY_S", 0.0)
        patch.setattr("headrace.bus.group_commit._LONGEST_RETRY_S", 0.0)
        yield


class Fate(Enum):
    """What becomes of an append."""

    FINE = "fine"
    LOST_ON_THE_WAY = "lost on the way"
    ANSWER_LOST = "answer lost"
    #: It arrives, though nobody waits for it any more: with the next message, or the one after.
    LATE = "late"
    LATER = "later"
    USURPED = "somebody of a higher term appends first"
    USURPED_AFTER = "somebody of a higher term appends right after, and the answer is lost"


HONEST = [Fate.FINE, Fate.LOST_ON_THE_WAY, Fate.ANSWER_LOST, Fate.LATE, Fate.LATER]


class TreacherousLog:
    """A log in memory that does to each append what its fate says, and sometimes cannot be read."""

    def __init__(self, fates: list[Fate], unreadable: list[bool]) -> None:
        self.entries: list[bytes] = []
        self.appends = 0
        self.in_flight = 0
        self.gate: anyio.Event | None = None
        self._fates = iter(fates)
        self._unreadable = iter(unreadable)
        self._delayed: list[tuple[int, bytes, int]] = []

    async def append(self, data: bytes, *, expected_last: int, timeout_s: float) -> int:
        assert self.in_flight == 0, "only one append may be in flight"
        self.in_flight += 1
        try:
            if self.gate is not None:
                await self.gate.wait()
            await asyncio.sleep(0)
            self.appends += 1
            self._arrive()
            return self._append(data, expected_last, next(self._fates, Fate.FINE))
        finally:
            self.in_flight -= 1

    def _append(self, data: bytes, expected_last: int, fate: Fate) -> int:
        match fate:
            case Fate.LOST_ON_THE_WAY:
                raise AppendUnknown
            case Fate.LATE | Fate.LATER:
                self._delayed.append((1 if fate is Fate.LATE else 3, data, expected_last))
                raise AppendUnknown
            case Fate.USURPED:
                self.entries.append(usurper())
        if not self._take(data, expected_last):
            raise AppendRefused
        if fate is Fate.USURPED_AFTER:
            self.entries.append(usurper())
        if fate in (Fate.ANSWER_LOST, Fate.USURPED_AFTER):
            raise AppendUnknown
        return len(self.entries)

    def _take(self, data: bytes, expected_last: int) -> bool:
        if expected_last != len(self.entries):
            return False
        self.entries.append(data)
        return True

    def _arrive(self) -> None:
        due = [item for item in self._delayed if item[0] <= 1]
        self._delayed = [(turns - 1, data, last) for turns, data, last in self._delayed if turns > 1]
        for _, data, expected_last in due:
            self._take(data, expected_last)

    async def last(self) -> LogEntry | None:
        await asyncio.sleep(0)
        self._check_readable()
        self._arrive()
        return LogEntry(len(self.entries), self.entries[-1]) if self.entries else None

    async def bounds(self) -> tuple[int, int]:
        self._check_readable()
        return 1, len(self.entries)

    async def size_bytes(self) -> int:
        return sum(map(len, self.entries))

    async def read(self, after: int, *, batch_bytes: int | None = None) -> AsyncGenerator[LogEntry, None]:
        self._check_readable()
        for sequence, data in enumerate(self.entries[after:], start=after + 1):
            yield LogEntry(sequence, data)

    async def forget(self, up_to: int) -> None:
        raise NotImplementedError

    def _check_readable(self) -> None:
        if next(self._unreadable, False):
            raise NoResponders

    def events(self) -> list[bytes]:
        return [event for term, events in map(decode, self.entries) if term == 1 for event in events]


def usurper() -> bytes:
    return msgspec.msgpack.encode((2, []))


def decode(data: bytes) -> tuple[int, list[bytes]]:
    return msgspec.msgpack.decode(data, type=tuple[int, list[bytes]])


def an_appender(log: TreacherousLog, on_durable: Callable[[list[bytes], int], None] | None = None) -> GroupAppender:
    return GroupAppender(
        log,
        encode=lambda events: msgspec.msgpack.encode((1, events)),
        term=1,
        term_of=lambda data: decode(data)[0],
        last=0,
        clock=lambda: 5.0,
        on_durable=on_durable,
    )


class Outcome(msgspec.Struct):
    #: Events of each call, in the order of the calls.
    calls: list[list[bytes]]
    #: By number of the call.
    sequences: dict[int, int] = {}
    deposed: set[int] = set()
    ended: bool = False


async def play(log: TreacherousLog, calls: list[tuple[int, bool]]) -> Outcome:
    """Each call appends so many events, after a pause or not."""
    outcome = Outcome([[f"{call}.{n}".encode() for n in range(events)] for call, (events, _) in enumerate(calls)])
    appender = an_appender(log)

    async def run() -> None:
        try:
            await appender.run()
        except AppenderFenced:
            outcome.ended = True

    async def append(call: int) -> None:
        try:
            outcome.sequences[call] = await appender.append(outcome.calls[call])
        except AppenderFenced:
            outcome.deposed.add(call)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        async with anyio.create_task_group() as appends:
            for call, (_, pause) in enumerate(calls):
                appends.start_soon(append, call)
                if pause:
                    for _ in range(5):
                        await asyncio.sleep(0)
        assert appender.waiting == 0
        tasks.cancel_scope.cancel()
    return outcome


CALLS = st.lists(st.tuples(st.integers(1, 4), st.booleans()), min_size=1, max_size=30)


@given(CALLS, st.lists(st.sampled_from(HONEST), max_size=40), st.lists(st.booleans(), max_size=20))
def test_never_is_an_event_lost_doubled_or_out_of_order(
    calls: list[tuple[int, bool]], fates: list[Fate], unreadable: list[bool]
) -> None:
    log = TreacherousLog(fates, unreadable)
    outcome = asyncio.run(play(log, calls))

    assert log.events() == [event for events in outcome.calls for event in events]
    assert len(outcome.sequences) == len(calls)
    for call, sequence in outcome.sequences.items():
        assert outcome.calls[call][-1] in decode(log.entries[sequence - 1])[1]


@given(
    CALLS,
    st.lists(st.sampled_from(HONEST), max_size=10),
    st.sampled_from([Fate.USURPED, Fate.USURPED_AFTER]),
    st.lists(st.booleans(), max_size=20),
)
def test_never_does_a_deposed_writer_add_anything_or_disown_what_it_acknowledged(
    calls: list[tuple[int, bool]], fates: list[Fate], usurped: Fate, unreadable: list[bool]
) -> None:
    log = TreacherousLog([*fates, usurped], unreadable)
    outcome = asyncio.run(play(log, calls))

    terms = [decode(entry)[0] for entry in log.entries]
    assert terms == sorted(terms)
    written = log.events()
    assert written == [event for events in outcome.calls for event in events][: len(written)]
    for call, sequence in outcome.sequences.items():
        assert outcome.calls[call][-1] in decode(log.entries[sequence - 1])[1]
    assert outcome.sequences.keys() | outcome.deposed == set(range(len(calls)))
    assert outcome.ended or not outcome.deposed


async def test_what_a_deposed_writer_had_in_the_log_already_is_acknowledged() -> None:
    log = TreacherousLog([Fate.USURPED_AFTER], [])
    appender = an_appender(log)
    async with anyio.create_task_group() as tasks:

        async def run() -> None:
            with pytest.raises(AppenderFenced):
                await appender.run()

        tasks.start_soon(run)
        assert await appender.append([b"a"]) == 1
        with pytest.raises(AppenderFenced, match=r"entry 2 .* term 2, and this process has term 1"):
            await appender.append([b"b"])


async def test_what_arrives_during_an_append_travels_in_the_next() -> None:
    log = TreacherousLog([], [])
    log.gate = anyio.Event()
    appender = an_appender(log)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(appender.run)
        tasks.start_soon(appender.append, [b"0"])
        while not log.in_flight:  # noqa: ASYNC110 - a few turns of the loop
            await asyncio.sleep(0)
        async with anyio.create_task_group() as appends:
            for number in range(1, 1_000):
                appends.start_soon(appender.append, [str(number).encode()])
            while appender.waiting < 1_000:  # noqa: ASYNC110 - a few turns of the loop
                await asyncio.sleep(0)
            assert appender.oldest_waiting_s(7.5) == 2.5
            log.gate.set()
        assert (len(log.entries), log.appends) == (2, 2)
        assert appender.statistics() == {
            "last": 2, "entries": 2, "events": 1_000, "waiting": 0, "doubts": 0, "resent": 0, "foreign": 0,
        }  # fmt: skip
        assert appender.oldest_waiting_s(99) == 0
        tasks.cancel_scope.cancel()


async def test_of_many_that_wait_for_one_entry_a_few_go_on_a_turn() -> None:
    log = TreacherousLog([], [])
    appender = an_appender(log)
    turn = 0
    went_on: list[int] = []

    async def append(event: bytes) -> None:
        await appender.append([event])
        went_on.append(turn)

    async def count_turns() -> None:
        nonlocal turn
        while True:
            turn += 1
            await asyncio.sleep(0)

    async with anyio.create_task_group() as tasks:
        async with anyio.create_task_group() as appends:
            for number in range(500):
                appends.start_soon(append, str(number).encode())
            tasks.start_soon(count_turns)
            tasks.start_soon(appender.run)
        tasks.cancel_scope.cancel()

    assert log.appends < 5
    assert max(Counter(went_on).values()) <= 16


async def test_an_entry_holds_at_most_so_much_and_a_call_that_fits_is_not_torn() -> None:
    log = TreacherousLog([], [])
    appender = an_appender(log)
    async with anyio.create_task_group() as tasks:
        async with anyio.create_task_group() as appends:
            for _ in range(10):
                appends.start_soon(appender.append, [bytes(50_000)] * 3)
            appends.start_soon(appender.append, [bytes(100_000)] * 10)
            tasks.start_soon(appender.run)
        tasks.cancel_scope.cancel()

    assert [len(decode(entry)[1]) for entry in log.entries] == [3] * 10 + [2] * 5
    assert all(len(entry) <= MAX_GROUP_BYTES for entry in log.entries)


async def test_an_event_too_large_is_refused_before_anything_is_queued() -> None:
    appender = an_appender(TreacherousLog([], []))
    with pytest.raises(TooLarge):
        await appender.append([bytes(MAX_GROUP_BYTES)])
    with pytest.raises(TooLarge):
        await appender.append([b"small", bytes(MAX_GROUP_BYTES)])
    assert appender.waiting == 0


async def test_a_stopped_appender_leaves_nobody_waiting() -> None:
    log = TreacherousLog([], [])
    log.gate = anyio.Event()
    appender = an_appender(log)
    failures: list[BusError] = []

    async def append() -> None:
        try:
            await appender.append([b"x"])
        except BusError as error:
            failures.append(error)

    async with anyio.create_task_group() as waiters, anyio.create_task_group() as tasks:
        tasks.start_soon(appender.run)
        for _ in range(3):
            waiters.start_soon(append)
        while not log.in_flight:  # noqa: ASYNC110 - a few turns of the loop
            await asyncio.sleep(0)
        tasks.cancel_scope.cancel()
    assert [type(failure) for failure in failures] == [AppendUnknown] * 3
    with pytest.raises(AppendUnknown):
        await appender.append([b"later"])


async def test_a_log_that_lost_what_it_acknowledged_ends_the_writer() -> None:
    log = TreacherousLog([], [])
    appender = an_appender(log)
    async with anyio.create_task_group() as tasks:

        async def run() -> None:
            with pytest.raises(AppenderFenced, match="lost entries"):
                await appender.run()

        tasks.start_soon(run)
        await appender.append([b"a"])
        await appender.append([b"b"])
        log.entries.pop()
        with pytest.raises(AppenderFenced, match="lost entries"):
            await appender.append([b"c"])


async def test_a_log_that_leaves_a_question_unanswered_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """After the loss of a stream's leader starts waited up to four seconds longer than the stream: for a question nobody would answer."""
    monkeypatch.setattr("headrace.bus.group_commit._READ_TIMEOUT_S", 0.01)
    silences = [1]

    class Silent(TreacherousLog):
        async def bounds(self) -> tuple[int, int]:
            while silences:
                silences.pop()
                await anyio.sleep_forever()
            return await super().bounds()

    log = Silent([Fate.LOST_ON_THE_WAY], [])
    appender = an_appender(log)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(appender.run)
        with anyio.fail_after(20):
            assert await appender.append([b"a"]) == 1
        tasks.cancel_scope.cancel()

    assert log.events() == [b"a"]


async def test_flush_waits_for_all_that_was_appended_before() -> None:
    log = TreacherousLog([Fate.ANSWER_LOST, Fate.LOST_ON_THE_WAY], [True, True])
    appender = an_appender(log)
    async with anyio.create_task_group() as tasks:
        for number in range(5):
            tasks.start_soon(appender.append, [str(number).encode()])
        while appender.waiting < 5:  # noqa: ASYNC110 - a few turns of the loop
            await asyncio.sleep(0)
        tasks.start_soon(appender.run)
        await appender.flush()
        assert log.events() == [b"0", b"1", b"2", b"3", b"4"]
        tasks.cancel_scope.cancel()


async def test_flush_adds_nothing_to_the_log_and_waits_until_it_can_be_read() -> None:
    log = TreacherousLog([], [True, True, True])
    told: list[int] = []
    appender = an_appender(log, on_durable=lambda _, sequence: told.append(sequence))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(appender.run)
        for _ in range(2):
            await appender.flush()
        assert await appender.append([b"a"]) == 1
        await appender.flush()
        tasks.cancel_scope.cancel()

    assert not next(log._unreadable, False)
    assert (log.events(), told, appender.entries) == ([b"a"], [1], 1)


async def test_many_who_flush_at_once_need_two_looks() -> None:
    looks = 0

    class Counted(TreacherousLog):
        async def bounds(self) -> tuple[int, int]:
            nonlocal looks
            looks += 1
            await asyncio.sleep(0)
            return await super().bounds()

    appender = an_appender(Counted([], []))
    async with anyio.create_task_group() as tasks:
        async with anyio.create_task_group() as flushes:
            tasks.start_soon(appender.run)
            for _ in range(500):
                flushes.start_soon(appender.flush)
        tasks.cancel_scope.cancel()

    assert looks <= 2


async def test_who_was_succeeded_notices_that_when_it_flushes() -> None:
    """What needs no entry of the log would be answered from before, until the next event."""
    log = TreacherousLog([], [])
    appender = an_appender(log)
    async with anyio.create_task_group() as tasks:

        async def run() -> None:
            with pytest.raises(AppenderFenced):
                await appender.run()

        tasks.start_soon(run)
        assert await appender.append([b"a"]) == 1
        await appender.flush()
        log.entries.append(usurper())
        for _ in range(2):
            with pytest.raises(AppenderFenced, match=r"entry 2 .* term 2, and this process has term 1"):
                await appender.flush()
