"""Configurations of trees that another fair_share serves, or nobody: read from the bucket, changed by compare-and-set."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec

from headrace.bus import BusError, Entry, KeyValue, RequestTimeout, WrongRevision
from headrace.errors import BadInput
from headrace.ids import TreeName, tree_name
from headrace.near import near
from headrace.obs.logging import logger
from headrace.pools import Person, PoolTree, Tree, write_tree
from headrace.resources import ZERO
from headrace.wire.pool_changes import ChangePools, PoolPlan, SetOptions
from headrace.wire.refusals import Exists, NotFound, NotReady, NotRecorded, Refusal, WrongState
from headrace.wire.trees import CreateTree, RemoveTree, TreeList, TreeView
from headrace_fair_share.configuration.differences import planned
from headrace_fair_share.configuration.rights import to_make_trees, to_remove_trees
from headrace_fair_share.configuration.rules import Bounds, as_refusal
from headrace_fair_share.configuration.store import read_stored
from headrace_fair_share.configuration.tree_configuration import Change, TreeConfiguration, option_warnings

__all__ = ["OtherTrees"]

#: How often a change is decided anew because somebody else wrote meanwhile.
_MOST_TRIES = 5


class OtherTrees:
    """The trees of the bucket, without keeping any of them."""

    def __init__(self, bucket: KeyValue, own: TreeName, bounds: Bounds) -> None:
        self._bucket = bucket
        self._own = own
        self._bounds = bounds

    async def list(self, name: str = "") -> TreeList | Refusal:
        """All trees, or one of them."""
        try:
            entries = await self._bucket.entries()
        except BusError as error:
            return NotReady(f"trees cannot be read: {error}")
        if name and name not in entries:
            return NotFound("tree", name, near(name, entries))
        return TreeList([self._view(entry) for key, entry in sorted(entries.items()) if not name or key == name])

    async def create(self, request: CreateTree, person: Person) -> PoolPlan | Refusal:
        """Makes a tree without pools."""
        try:
            name = tree_name(request.name)
        except BadInput as error:
            return as_refusal(error)
        refusal = to_make_trees(person)
        if refusal is not None:
            return refusal
        configured = TreeConfiguration(name, self._bounds)
        change = ChangePools([SetOptions(request.options)], name, request.dry_run)
        decision = configured.decide(change, {}, person, ZERO)
        if not isinstance(decision, Change):
            return decision
        value = write_tree(decision.tree)
        return await self._write(lambda: self._bucket.update(name, value, 0), decision.plan, Exists("tree", name))

    async def remove(self, request: RemoveTree, person: Person) -> PoolPlan | Refusal:
        """Takes a tree away."""
        refusal = to_remove_trees(person)
        if refusal is not None:
            return refusal
        if request.name == self._own:
            expected = "a tree that this fair_share does not serve; stop what serves it and ask that of another tree"
            return WrongState("tree", request.name, "being served", expected)
        configured = await self._configured(request.name)
        if not isinstance(configured, TreeConfiguration):
            return configured
        if configured.pools.pools and not request.recursive:
            count = len(configured.pools.pools)
            return WrongState(
                "tree", request.name, f"the home of {count} pools", "a tree without pools, or to remove all"
            )
        plan = msgspec.structs.replace(planned(configured.pools, PoolTree(Tree(request.name))), dry_run=request.dry_run)
        if request.dry_run:
            return plan

        async def delete() -> int:
            # Only what was looked at is deleted: nothing that somebody wrote meanwhile.
            empty = write_tree(Tree(request.name))
            revision = await self._bucket.update(request.name, empty, configured.revision)
            await self._bucket.delete(request.name)
            return revision

        return await self._write(delete, plan, _busy(request.name))

    async def change(self, request: ChangePools, person: Person) -> PoolPlan | Refusal:
        """Changes a tree of which no operations are known here."""
        busy = _busy(request.tree)
        for _ in range(_MOST_TRIES):
            configured = await self._configured(request.tree)
            if not isinstance(configured, TreeConfiguration):
                return configured
            decision = configured.decide(request, {}, person, ZERO)
            if not isinstance(decision, Change):
                return decision
            value, revision = write_tree(decision.tree), configured.revision

            async def update(value: bytes = value, revision: int = revision) -> int:
                return await self._bucket.update(request.tree, value, revision)

            answer = await self._write(update, decision.plan, busy)
            if answer != busy:
                return answer
        return busy

    async def _configured(self, tree: TreeName) -> TreeConfiguration | Refusal:
        try:
            entries = await self._bucket.entries()
        except BusError as error:
            return NotReady(f"trees cannot be read: {error}")
        entry = entries.get(tree)
        if entry is None:
            return NotFound("tree", tree, near(tree, entries))
        configured = TreeConfiguration(tree, self._bounds)
        configured.on_stored(read_stored(entry))
        return configured

    async def _write(self, write: Callable[[], Awaitable[int]], plan: PoolPlan, lost: Refusal) -> PoolPlan | Refusal:
        try:
            revision = await write()
        except WrongRevision:
            return lost
        except RequestTimeout as error:
            logger().warning("unknown whether a tree was written", tree=plan.tree, error=str(error))
            return NotRecorded(waited_ms=0)
        except BusError as error:
            return NotReady(f"the configuration cannot be written: {error}")
        return msgspec.structs.replace(plan, revision=revision)

    def _view(self, entry: Entry) -> TreeView:
        stored = read_stored(entry)
        name = TreeName(entry.key)
        if stored.tree is None:
            return TreeView(name, Tree(name).options, entry.revision, 0, stored.defect)
        configured = TreeConfiguration(name, self._bounds)
        configured.on_stored(stored)
        tree = PoolTree(stored.tree)
        return TreeView(name, tree.options, entry.revision, len(tree.pools), configured.trouble, option_warnings(tree))


def _busy(tree: TreeName) -> WrongState:
    return WrongState("tree", tree, "being changed by somebody else", "one change at a time; try again")
