"""Pools, as a person manages them: list, make, change, remove."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from headrace.client.asking import Asker
from headrace.ids import ROOT_POOL, OperationId, PoolName, TreeName, pool_name, pool_or_path, slashed
from headrace.wire import subjects
from headrace.wire.history import GetHistory, HistoryPoint, PoolHistory
from headrace.wire.lost_work import GetLostWork, LostWorkTold
from headrace.wire.nodes import ListProgress, OperationProgress, ProgressList
from headrace.wire.operation_spec import OperationSpec
from headrace.wire.pool_changes import ChangePools, Create, PoolChange, PoolPlan, Remove, Set
from headrace.wire.pool_explanations import ExplainPool, PoolExplained
from headrace.wire.pools import GetPools, PoolList
from headrace.wire.preemption import ListObserved, ObservedPreemptions
from headrace.wire.refusals import NotFound, Refused
from headrace.wire.snapshots import ShareItem
from headrace.wire.trees import MovePoolToTree
from headrace.wire.what_if import SupposedNodes, SupposedOperation, WhatIf, WhatIfAnswer

#: Fields of changes that name existing pools.
_POOLS_OF_CHANGES: Final = ("name", "parent", "source", "destination")


class Pools:
    """The pools of one tree. Remembers the newest revision that its own changes made, so that an operation that is started afterwards finds
    the changed pools.
    """

    def __init__(self, asker: Asker, tree: TreeName) -> None:
        self._asker = asker
        self._tree = tree

    @property
    def revision(self) -> int:
        """The newest revision of the pool configuration that a change through this client made; 0 for none."""
        return self._asker.revision

    def of(self, tree: TreeName) -> Pools:
        """Return the pools of another tree."""
        return Pools(self._asker, tree)

    async def list(
        self, name: str = "", *, operations: bool = False, only_starving: bool = False, outlook_of: str = ""
    ) -> PoolList:
        """Return all pools with their shares, or only the pool `name`. Parents come before their children.

        With `only_starving`, only operations that starve or may preempt are included beside the pools. With `outlook_of`, the key of an
        element, the answer also says when the element and the pools above it will starve. Raises `Refused`, `Unanswered`.
        """
        pages: list[PoolList] = []
        request = GetPools(name, self._tree, operations, only_starving=only_starving, outlook_of=outlook_of)
        while True:
            page = await self.page(request)
            pages.append(page)
            if not page.more or not page.pools:
                break
            first = request.first + len(page.pools)
            request = msgspec.structs.replace(request, first=first, after=page.pools[-1].name)
        return msgspec.structs.replace(
            pages[0],
            pools=[pool for page in pages for pool in page.pools],
            operations=[operation for page in pages for operation in page.operations],
            operations_left_out=sum(page.operations_left_out for page in pages),
            more=False,
        )

    async def page(self, request: GetPools) -> PoolList:
        """Return one page of the pools of this object's tree. Raises `Refused`, `Unanswered`."""
        return await self._asker.ask("pool.list", msgspec.structs.replace(request, tree=self._tree), PoolList)

    async def at(self, pool: str) -> PoolName:
        """Return the name of the pool at a path such as `/research/vision` or `root.research.vision`. A name is returned as it is.

        Raises `Refused` if no pool has that path, `Unanswered`, `BadInput`.
        """
        pool = slashed(pool)
        if "/" not in pool:
            return PoolName(pool)
        path = f"/{pool_or_path(pool).strip('/')}"
        if path == f"/{ROOT_POOL}":
            return ROOT_POOL
        try:
            (found,) = (await self.list(path.rpartition("/")[2])).pools
        except Refused as error:
            if isinstance(error.refusal, NotFound):
                raise Refused(NotFound("pool", pool, near=error.refusal.near)) from None
            raise
        if found.path != path:
            raise Refused(NotFound("pool", pool, near=[found.path]))
        return found.name

    async def named_in(self, spec: OperationSpec) -> OperationSpec:
        """Return an operation spec with the names of its pools in place of their paths. Raises the errors of `at`."""
        by_tree = {
            tree: msgspec.structs.replace(said, pool=await self.of(tree).at(said.pool))
            for tree, said in spec.scheduling_options_per_pool_tree.items()
        }
        pool = await self.at(spec.pool)
        return msgspec.structs.replace(spec, pool=pool, scheduling_options_per_pool_tree=by_tree)

    async def explain(self, name: str, against: str = "") -> PoolExplained:
        """Explain the fair share of a pool level by level from the root down, with the elements that hold the resources that the pool
        lacks. If `against` names another pool, explain that pool too, for comparison.

        Raises `Refused` (there is no such pool), `Unanswered`.
        """
        return await self._asker.ask("pool.explain", ExplainPool(name, self._tree, against), PoolExplained)

    async def preemptions(self, name: str = "", *, timeout_s: float | None = None) -> ObservedPreemptions:
        """Return counts of the preemptions below a pool. Where preemption is only observed and not carried out, also return the preemptions
        that would have been made.

        Raises `Refused`, `Unanswered` while no allocator serves the tree.
        """
        verb = subjects.of_tree("preemption.observed", self._tree)
        request = ListObserved(PoolName(name))
        return await self._asker.ask(verb, request, ObservedPreemptions, timeout_s=timeout_s)

    async def progress(self, operations: Sequence[OperationId]) -> Sequence[OperationProgress]:
        """Return the progress of the running jobs of some operations of the tree. Only jobs that report progress are included.

        Raises `Refused`, `Unanswered` while no allocator serves the tree.
        """
        verb = subjects.of_tree("op.progress", self._tree)
        return (await self._asker.ask(verb, ListProgress([*operations]), ProgressList)).operations

    async def starving(self) -> Sequence[ShareItem]:
        """Return all pools, and the operations that starve or may preempt. Raises `Refused`, `Unanswered`."""
        listed = await self.list(operations=True, only_starving=True)
        return [*(pool.share for pool in listed.pools), *listed.operations]

    async def history(
        self,
        name: str,
        *,
        since_ms: int,
        until_ms: int,
        resource: str = "cpu",
        points: int = 1_000,
        from_oldest: bool = False,
    ) -> PoolHistory:
        """Return one resource of a pool over time, in at most `points` stretches of equal length.

        Stretches without a record are left out. With `from_oldest` the period begins at the oldest record of the tree, if that is later
        than `since_ms`. Raises `Refused` (no such pool is known, no such resource), `Unanswered`.
        """
        request = GetHistory(
            pool=PoolName(name),
            since_ms=since_ms,
            until_ms=until_ms,
            resource=resource,
            points=points,
            tree=self._tree,
            from_oldest=from_oldest,
        )
        joined: dict[int, HistoryPoint] = {}
        known = False
        while True:
            page = await self._asker.ask("pool.history", request, PoolHistory)
            known = known or page.known
            for point in page.points:
                earlier = joined.get(point.stretch)
                joined[point.stretch] = earlier.joined(point) if earlier is not None else point
            if page.next is None:
                break
            request = msgspec.structs.replace(
                request, since_ms=page.since_ms, from_oldest=False, first=page.next, known_until_ms=page.known_until_ms
            )
        if not known:
            raise Refused(NotFound(what="pool", name=name, near=page.near))
        return msgspec.structs.replace(page, points=[joined[stretch] for stretch in sorted(joined)], known=known)

    async def lost_work(self, name: str, *, since_ms: int, until_ms: int) -> LostWorkTold:
        """Return the work that a pool and all pools below it lost to preemption, by hour and reason. Raises `Refused`, `Unanswered`."""
        request = GetLostWork(PoolName(name), since_ms, until_ms, self._tree)
        return await self._asker.ask("pool.lost_work", request, LostWorkTold)

    async def create(
        self, name: str, *, parent: str = ROOT_POOL, attributes: Mapping[str, object] | None = None
    ) -> PoolPlan:
        """Make a pool. Raises `Refused` (the name is taken, there is no such parent), `Unanswered`, `BadInput`."""
        return await self.change([Create(pool_name(name), pool_or_path(parent), msgspec.json.encode(attributes or {}))])

    async def set(self, name: str, attributes: Mapping[str, object]) -> PoolPlan:
        """Change the given attributes. None resets an attribute to its default."""
        return await self.change([Set(pool_or_path(name), msgspec.json.encode(attributes))])

    async def remove(self, name: str) -> PoolPlan:
        """Remove a pool that has neither child pools nor operations."""
        return await self.change([Remove(pool_or_path(name))])

    async def change(
        self,
        changes: Sequence[PoolChange],
        *,
        dry_run: bool = False,
        expected_revision: int = 0,
    ) -> PoolPlan:
        """Make all of the changes or none. With `dry_run` only return the resulting plan, including broken rules.

        With `expected_revision` the changes are refused if the tree has changed meanwhile. Raises `Refused`, `Unanswered`.
        """
        named = [await self._named(each) for each in changes]
        request = ChangePools(named, self._tree, dry_run, expected_revision=expected_revision)
        answer = await self._asker.ask("pool.change", request, PoolPlan, repeatable=dry_run)
        self._asker.revision = max(self.revision, answer.revision)
        return answer

    async def _named(self, change: PoolChange) -> PoolChange:
        """Return the change with names of pools instead of their paths."""
        pools = {key: await self.at(text) for key in _POOLS_OF_CHANGES if "/" in (text := getattr(change, key, ""))}
        return msgspec.structs.replace(change, **pools) if pools else change

    async def what_if(
        self,
        changes: Sequence[PoolChange] = (),
        *,
        operations: Sequence[SupposedOperation] = (),
        nodes: Sequence[SupposedNodes] = (),
    ) -> WhatIfAnswer:
        """Return the present shares, and the shares that the given changes together would lead to. Nothing is changed. Raises `Refused`,
        `Unanswered`.
        """
        named = [await self._named(change) for change in changes]
        # This request only checks that a process serves the tree. If no process does, it fails sooner than the request for the long
        # computation.
        await self.list(ROOT_POOL)
        request = WhatIf(self._tree, named, [*operations], [*nodes])
        return await self._asker.ask("pool.what_if", request, WhatIfAnswer, computes=True)

    async def move_to_tree(self, request: MovePoolToTree) -> PoolPlan:
        """Make a pool, with all pools below it, in another tree and remove it here. Raises `Refused`, `Unanswered`."""
        parent = await self.of(request.to_tree).at(request.parent)
        request = msgspec.structs.replace(request, name=await self.at(request.name), parent=parent, tree=self._tree)
        answer = await self._asker.ask("pool.move_to_tree", request, PoolPlan, repeatable=request.dry_run)
        self._asker.revision = max(self.revision, answer.revision)
        return answer
