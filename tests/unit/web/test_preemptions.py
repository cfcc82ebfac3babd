"""The list of preempted runs: pages of the log become pages of runs, and each run is listed once."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from headrace.client import Refused
from headrace.ids import AllocationId, NodeName, OperationId
from headrace.wire.heartbeat import JobEnd, JobResult
from headrace.wire.log import JobsEnded, LoggedEnd
from headrace.wire.preemption import PreemptionReason, PreemptionRecord
from headrace.wire.refusals import NotFound
from headrace.wire.replay import LogPage, ToldEntry
from headrace_web.api import preemptions
from headrace_web.api.context import Context
from headrace_web.api.preemptions import PreemptionPage, PreemptionRequest, list_preemptions

MINUTE_MS = 60_000
PATHS = {"vision": "/research/vision", "research": "/research", "production": "/production"}
POOLS = {"holds": "vision", "waits": "production", "old": "research$anna"}


def end(operation: str, index: int, at_ms: int, beneficiary: str = "waits") -> LoggedEnd:
    record = PreemptionRecord(PreemptionReason.PREEMPTION, OperationId(beneficiary), decided_at_ms=at_ms - 1)
    ended = JobEnd(
        operation=OperationId(operation), index=index, attempt=1, allocation=AllocationId(f"a{index}"),
        result=JobResult.ABORTED, started_at_ms=1, ended_at_ms=at_ms, preemption=record,
    )  # fmt: skip
    return LoggedEnd(ended, NodeName("alpha"))


def entry(sequence: int, at_ms: int, *ends: LoggedEnd) -> ToldEntry:
    """An entry with preempted runs, and a run that nobody preempted."""
    other = LoggedEnd(
        JobEnd(OperationId("holds"), 99, 1, AllocationId("b"), JobResult.COMPLETED, ended_at_ms=at_ms), NodeName("beta")
    )
    return ToldEntry(sequence, 1, [JobsEnded(each.end.operation, [each], at_ms) for each in (*ends, other)])


class Log:
    """A log in pages of two entries."""

    def __init__(self, entries: Sequence[ToldEntry], oldest: int = 1) -> None:
        self.entries = entries
        self.oldest = oldest
        self.read = 0

    async def log(self, since_ms: int = 0, *, after: int = 0) -> AsyncIterator[LogPage]:
        left = [each for each in self.entries if each.sequence > after and each.events[0].at_ms >= since_ms]  # type: ignore[union-attr]
        for first in range(0, max(1, len(left)), 2):
            self.read += 1
            page = left[first : first + 2]
            yield LogPage(page, page[-1].sequence if first + 2 < len(left) else None, self.oldest)


class Pools:
    def of(self, tree: str) -> Pools:
        return self

    async def at(self, pool: str) -> str:
        return pool.rpartition("/")[2]

    async def list(self, name: str) -> Any:
        if name not in PATHS:
            raise Refused(NotFound("pool", name))
        return SimpleNamespace(pools=[SimpleNamespace(path=PATHS[name])])


async def get(operation: str) -> Any:
    if operation not in POOLS:
        raise Refused(NotFound("operation", operation))
    return SimpleNamespace(spec=SimpleNamespace(pool=POOLS[operation]), user="anna")


async def ask(log: Log, **request: Any) -> PreemptionPage:
    client = SimpleNamespace(happenings=log, pools=Pools(), place=SimpleNamespace(tree="default"), get=get)
    context = Context(cast("Any", client), cast("Any", None))
    return await list_preemptions(context, PreemptionRequest(**request))


def runs(page: PreemptionPage) -> list[int]:
    return [each.run.slot.index for each in page.preemptions]


FIVE = [entry(number, number * MINUTE_MS, end("holds", number, number * MINUTE_MS)) for number in range(1, 6)]


@pytest.mark.parametrize("limit", [1, 2, 3, 500])
async def test_each_run_is_on_one_page(limit: int) -> None:
    log, found, cursor = Log(FIVE), list[int](), 0
    while True:
        page = await ask(log, limit=limit, cursor=cursor)
        found += runs(page)
        assert len(page.preemptions) <= limit
        if page.next is None:
            break
        cursor = page.next
    assert found == [1, 2, 3, 4, 5]
    later = await ask(Log([*FIVE, entry(6, 6 * MINUTE_MS, end("holds", 6, 6 * MINUTE_MS))]), cursor=page.read_to)
    assert (runs(later), later.read_to, later.read_to_ms) == ([6], 6, 6 * MINUTE_MS)


async def test_a_page_reads_a_bounded_part_of_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preemptions, "_MOST_LOG_PAGES", 2)
    log = Log([entry(number, number) for number in range(1, 10)])
    page = await ask(log)
    assert (page.preemptions, page.next, page.read_to_ms, log.read) == ([], 4, 4, 2)


async def test_an_end_that_was_recorded_late_is_in_its_period() -> None:
    late = entry(6, 9 * MINUTE_MS, end("holds", 6, 2 * MINUTE_MS))
    after = entry(7, 60 * MINUTE_MS, end("holds", 7, 2 * MINUTE_MS))
    page = await ask(Log([*FIVE, late, after]), since_ms=2 * MINUTE_MS, until_ms=4 * MINUTE_MS)
    assert (runs(page), page.next) == ([2, 3, 6], None)


@pytest.mark.parametrize(
    ("pool", "expected"),
    [
        ("", [1, 2, 3]),
        ("research", [1, 3]),
        ("/research/vision", [1]),
        ("production", [1]),
        ("gone", []),
    ],
)
async def test_the_pool_of_either_side_selects(pool: str, expected: list[int]) -> None:
    """The pool of an ephemeral operation is gone with it, and counts to its hub; an operation may be forgotten altogether."""
    ends = [end("holds", 1, 5), end("forgotten", 2, 5, "nobody"), end("old", 3, 5, "")]
    page = await ask(Log([entry(1, 5, *ends)]), pool=pool)
    assert runs(page) == expected
    for each in page.preemptions:
        assert each.words.startswith("preempted")
        assert (each.pool, each.user) == (
            POOLS.get(each.run.operation, ""),
            "anna" if each.run.operation in POOLS else "",
        )


@pytest.mark.parametrize(("oldest", "since_ms", "is_late"), [(1, 0, False), (3, 0, True), (3, 4 * MINUTE_MS, False)])
async def test_a_log_that_begins_late_says_so(oldest: int, since_ms: int, is_late: bool) -> None:
    page = await ask(Log(FIVE[oldest - 1 :], oldest), since_ms=since_ms)
    assert page.begins_late is is_late
