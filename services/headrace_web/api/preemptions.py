"""Endpoints about starvation and preemption in all pools."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from contextlib import aclosing, suppress
from typing import Annotated, Final, TypeVar

import msgspec

from headrace.client import Unanswered
from headrace.client.asking import at_once
from headrace.client.pools import Pools
from headrace.client.preemptions import Starving, observes, preempted_runs, preemption_words, starving_in
from headrace.ids import ROOT_POOL, OperationId, PoolName
from headrace.pools.pool_tree import HUB_SIGN
from headrace.suggestions import near
from headrace.wire.happenings import JobEnded
from headrace.wire.history import UnixMs
from headrace.wire.operations import OperationView
from headrace.wire.pools import PoolList
from headrace.wire.preemption import ObservedPreemption
from headrace.wire.refusals import NotFound, Refused
from headrace.wire.replay import LogPage, ToldEntry
from headrace.wire.version import Counter
from headrace_web.api.context import Context
from headrace_web.api.endpoint import Endpoint

#: Upper bound of the pages of the log that are read for one answer.
_MOST_LOG_PAGES: Final = 20
#: Milliseconds by which an end may be recorded later than it happened: for so long a node may be cut off and keep its jobs.
_LATEST_RECORD_MS: Final = 600_000
#: Upper bound of the requests for operations and pools that are under way at a time.
_AT_ONCE: Final = 50
K = TypeVar("K")
V = TypeVar("V")


class StarvingRequest(msgspec.Struct, frozen=True):
    """Which starving pools and operations to list."""

    #: Only this pool, the pools below it, and the operations in them; empty: the whole tree.
    pool: str = ""
    #: Tree of the pools; empty: the tree that this service was started for.
    tree: str = ""


class StarvingNow(msgspec.Struct, frozen=True):
    """All that starves, the longest starving first."""

    starving: list[Starving]
    #: Name of the pool that was asked for; `<Root>` is the whole tree.
    pool: PoolName
    #: Unix time in milliseconds of the shares that show it.
    at_ms: Counter
    #: Number of operations that did not fit into the answer.
    operations_left_out: int


class PreemptionRequest(msgspec.Struct, frozen=True):
    """Which preempted runs of jobs to list."""

    #: Unix time in milliseconds of the beginning; 0: the beginning of the log.
    since_ms: UnixMs = 0
    #: Unix time in milliseconds of the end, which is excluded; null: now.
    until_ms: UnixMs | None = None
    #: Only runs that were preempted in this pool or a pool below it, or for an operation there; empty: all.
    pool: str = ""
    #: Tree of the pool; empty: the tree that this service was started for.
    tree: str = ""
    #: Number of runs after which the page ends, together with the entry of the log in which it has so many.
    limit: Annotated[int, msgspec.Meta(ge=1, le=500)] = 100
    #: `next` or `read_to` of the page before; 0 for the first page.
    cursor: Annotated[int, msgspec.Meta(ge=0)] = 0


class PreemptedRun(msgspec.Struct, frozen=True):
    """A run of a job that was preempted."""

    run: JobEnded
    #: Why it was preempted and what proves it, in the words of `headrace op history`.
    words: str
    #: Pool of the operation now; empty: the operation is not known any more.
    pool: str
    user: str
    #: Pool of the operation that got the resources; empty: there is no such operation, or it is not known any more.
    beneficiary_pool: str
    beneficiary_user: str


class PreemptionPage(msgspec.Struct, frozen=True):
    """A page of preempted runs, in the order in which their ends were recorded."""

    preemptions: list[PreemptedRun]
    #: `cursor` of the next page, which may have runs even if this page has none; null on the last page.
    next: int | None
    #: `cursor` with which a later request gets only what was recorded after this page.
    read_to: int
    #: Unix time in milliseconds of the newest entry that was read; 0: none was read.
    read_to_ms: Counter
    #: True if the log does not keep the beginning of the period any more.
    begins_late: bool


async def list_starving(context: Context, request: StarvingRequest) -> StarvingNow:
    """List the pools and operations that starve now: since when, for which share, and which operations may preempt for them."""
    pools = context.client.pools.of(await context.tree(request.tree))
    pool = await pools.at(request.pool) if request.pool else ROOT_POOL
    answer = await pools.list(operations=True, only_starving=True)
    observed: list[ObservedPreemption] = []
    if any(map(observes, answer.pools)):
        with suppress(Refused, Unanswered):
            observed = (await pools.preemptions()).observed
    within = _below(answer, pool)
    found = [each for each in starving_in(answer, observed) if not {each.name, each.parent}.isdisjoint(within)]
    return StarvingNow(found, pool, answer.frame.at_ms, answer.operations_left_out)


async def list_preemptions(context: Context, request: PreemptionRequest) -> PreemptionPage:
    """List runs of jobs that were preempted, with the proof of each preemption, as far back as the log goes.

    A page ends early after a part of a long log; follow `next`. `read_to` gets what is recorded later.
    """
    search = _Search(context, request, await _Filter.of(context, request))
    since_ms = 0 if request.cursor else request.since_ms
    async with aclosing(context.client.happenings.log(since_ms, after=request.cursor)) as pages:
        async for page in pages:
            await search.read(page)
            if search.is_over:
                break
    return search.page()


def _below(answer: PoolList, pool: PoolName) -> Collection[str]:
    """Return the names of a pool and of all pools below it. Raises `Refused`."""
    path = next((each.path for each in answer.pools if each.name == pool), None)
    if path is None:
        raise Refused(NotFound("pool", pool, near=near(pool, [each.name for each in answer.pools])))
    return {each.name for each in answer.pools if pool == ROOT_POOL or _is_below(each.path, path)}


def _is_below(path: str, upper: str) -> bool:
    return path == upper or path.startswith(f"{upper}/")


class _Filter:
    """Selects pools: a pool and those below it. Asks once about each pool."""

    def __init__(self, pools: Pools, pool: PoolName, path: str) -> None:
        self._pools = pools
        self._pool = pool
        self._path = path
        self._known: dict[PoolName, bool] = {}

    @classmethod
    async def of(cls, context: Context, request: PreemptionRequest) -> _Filter:
        """Return the filter of a request. A pool that does not exist any more is selected by its name."""
        pools = context.client.pools.of(await context.tree(request.tree))
        pool = await pools.at(request.pool) if request.pool else ROOT_POOL
        return cls(pools, pool, await _path_of(pools, pool) if pool != ROOT_POOL else "")

    async def learn(self, names: Iterable[PoolName]) -> None:
        """Find out which of these pools are selected."""
        new = [] if self._pool == ROOT_POOL else sorted(set(names) - self._known.keys())
        paths = await _some_at_once(lambda name: _path_of(self._pools, name), new)
        for name, path in paths.items():
            hub = name.partition(HUB_SIGN)[0]
            self._known[name] = _is_below(path, self._path) if path and self._path else self._pool in (name, hub)

    def wants(self, *names: PoolName) -> bool:
        """True if one of the pools is selected."""
        return self._pool == ROOT_POOL or any(self._known.get(name, False) for name in names)


async def _path_of(pools: Pools, name: PoolName) -> str:
    """Return the path of a pool; empty if it does not exist any more."""
    try:
        return (await pools.list(name)).pools[0].path
    except Refused as error:
        if isinstance(error.refusal, NotFound):
            return ""
        raise


class _Search:
    """The preempted runs of one page, while the log is read."""

    def __init__(self, context: Context, request: PreemptionRequest, selected: _Filter) -> None:
        self._client = context.client
        self._request = request
        self._filter = selected
        self._found: list[PreemptedRun] = []
        self._views: dict[OperationId, OperationView | None] = {}
        self._pages = 0
        self._read_to = request.cursor
        self._read_to_ms = 0
        self._begins_late = False
        #: True when the whole period was read.
        self._is_complete = False

    @property
    def is_over(self) -> bool:
        """True when the page is full."""
        return self._is_complete or self._pages >= _MOST_LOG_PAGES or len(self._found) >= self._request.limit

    async def read(self, page: LogPage) -> None:
        """Add the runs in a page of the log."""
        if not self._pages and not self._request.cursor and page.entries:
            self._begins_late = page.oldest > 1 and page.entries[0].sequence == page.oldest
        self._pages += 1
        await self._learn([run for entry in page.entries for run in self._runs(entry)])
        for entry in page.entries:
            at_ms = max((getattr(event, "at_ms", 0) for event in entry.events), default=0)
            if self._request.until_ms is not None and at_ms >= self._request.until_ms + _LATEST_RECORD_MS:
                self._is_complete = True
                return
            self._read_to, self._read_to_ms = entry.sequence, max(self._read_to_ms, at_ms)
            self._found.extend(filter(None, map(self._told, self._runs(entry))))
            if len(self._found) >= self._request.limit:
                # The rest of the page is read again by the next request.
                return
        self._is_complete = page.next is None

    def page(self) -> PreemptionPage:
        """Return the answer."""
        following = None if self._is_complete else self._read_to
        return PreemptionPage(self._found, following, self._read_to, self._read_to_ms, self._begins_late)

    def _runs(self, entry: ToldEntry) -> Iterator[JobEnded]:
        until_ms = self._request.until_ms
        for run in preempted_runs(entry):
            if run.at_ms >= self._request.since_ms and (until_ms is None or run.at_ms < until_ms):
                yield run

    async def _learn(self, runs: Iterable[JobEnded]) -> None:
        """Find out to whom the operations belong, and in which pools they are."""
        names = {name for run in runs for name in (run.operation, _beneficiary(run)) if name}
        self._views |= await _some_at_once(self._view, sorted(names - self._views.keys()))
        await self._filter.learn(each.spec.pool for each in self._views.values() if each is not None)

    async def _view(self, operation: OperationId) -> OperationView | None:
        try:
            return await self._client.get(operation)
        except Refused as error:
            if isinstance(error.refusal, NotFound):
                return None
            raise

    def _told(self, run: JobEnded) -> PreemptedRun | None:
        """Return the run as people see it; None if the filter does not select it."""
        assert run.preemption is not None
        own, other = self._views.get(run.operation), self._views.get(_beneficiary(run))
        pools = [each.spec.pool if each is not None else PoolName("") for each in (own, other)]
        if not self._filter.wants(*pools):
            return None
        users = [each.user if each is not None else "" for each in (own, other)]
        return PreemptedRun(run, preemption_words(run.preemption), pools[0], users[0], pools[1], users[1])


async def _some_at_once(ask: Callable[[K], Awaitable[V]], about: Sequence[K]) -> dict[K, V]:
    """Return the result of `ask` for each item. Services refuse a request if too many wait for them."""
    found: dict[K, V] = {}
    for first in range(0, len(about), _AT_ONCE):
        found |= await at_once(ask, about[first : first + _AT_ONCE])
    return found


def _beneficiary(run: JobEnded) -> OperationId:
    return run.preemption.beneficiary if run.preemption is not None else OperationId("")


ENDPOINTS: Final = (
    Endpoint("GET", "/starving", list_starving),
    Endpoint("GET", "/preemptions", list_preemptions),
)
