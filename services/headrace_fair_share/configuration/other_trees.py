"""Configurations of the trees that this process does not serve: read from the bucket, changed by compare-and-set."""

from __future__ import annotations

from typing import Final

import anyio.to_thread
import msgspec

from headrace.bus import BusError, Entry, KeyValue
from headrace.errors import BadInput
from headrace.ids import TreeName, tree_name
from headrace.obs.logging import logger
from headrace.pools import Person, PoolTree, Tree
from headrace.pools.new_tree import NEW_TREE_OPTIONS
from headrace.resources import ZERO
from headrace.runtime.clock import Clock
from headrace.suggestions import near
from headrace.wire.pool_changes import ChangePools, PoolPlan, SetOptions
from headrace.wire.refusals import BadRequest, Exists, NotFound, NotReady, NotRecorded, Refusal, WrongState
from headrace.wire.trees import CreateTree, RemoveTree, TreeList, TreeView
from headrace_fair_share.configuration.change_decisions import Change, TreeConfiguration, configuration_warnings
from headrace_fair_share.configuration.differences import planned
from headrace_fair_share.configuration.rights import to_make_trees, to_remove_trees
from headrace_fair_share.configuration.rules import TreeBounds
from headrace_fair_share.configuration.store import Judge, PoolStore, read_stored

_PAGE_BYTES: Final = 256 * 1024
_LONGEST_TROUBLE: Final = 4_096


class _OtherTree(PoolStore):
    """The configuration of a tree that this process does not serve. It exists only while a change of that tree is decided."""

    def __init__(self, bucket: KeyValue, tree: TreeName, bounds: TreeBounds, clock: Clock, judge: Judge) -> None:
        self.configured = TreeConfiguration(tree, bounds)
        super().__init__(bucket, tree, clock, self.configured.on_stored, self.configured.on_written, judge)


class OtherTrees:
    """The trees of the bucket."""

    def __init__(self, bucket: KeyValue, own: TreeName, bounds: TreeBounds, clock: Clock, judge: Judge) -> None:
        self._judge = judge
        self._bucket = bucket
        self._own = own
        self._bounds = bounds
        self._clock = clock
        #: The newest view of each tree, with the stored value from which it was made.
        self._views: dict[str, tuple[Entry, TreeView]] = {}

    async def list(self, name: str = "", after: str = "") -> TreeList | Refusal:
        """Return a page of all trees, or the tree `name`."""
        try:
            # If only the tree of this process is requested, read only the key of this tree. Reading the whole bucket would create a
            # consumer on the server each time, and `headrace up` requests its tree again and again.
            one = await self._bucket.get(name) if name == self._own else None
            entries = await self._bucket.entries() if one is None else {one.key: one}
        except BusError as error:
            return NotReady(f"trees cannot be read: {error}")
        if name and name not in entries:
            return NotFound("tree", name, near(name, entries))
        wanted = [name] if name else sorted(key for key in entries if key > after)
        page: list[TreeView] = []
        for key in wanted:
            more = [*page, await self._view(entries[key])]
            if len(more) > 1 and len(msgspec.msgpack.encode(TreeList(more))) > _PAGE_BYTES:
                break
            page = more
        return TreeList(page, more=len(page) < len(wanted))

    async def create(self, request: CreateTree, person: Person) -> PoolPlan | Refusal:
        """Create a tree without pools."""
        try:
            name = tree_name(request.name)
        except BadInput as error:
            return BadRequest.of(error)
        refusal = to_make_trees(person)
        if refusal is not None:
            return refusal
        tree = _OtherTree(self._bucket, name, self._bounds, self._clock, self._judge)
        ours = SetOptions(msgspec.json.encode(NEW_TREE_OPTIONS))
        change = ChangePools([ours, SetOptions(request.options)], name, request.dry_run)
        return await tree.change(
            lambda _: Exists("tree", name) if tree.revision else tree.configured.decide(change, {}, person, ZERO)
        )

    async def remove(self, request: RemoveTree, person: Person) -> PoolPlan | Refusal:
        """Remove a tree."""
        refusal = to_remove_trees(person)
        if refusal is not None:
            return refusal
        if request.name == self._own:
            expected = "a tree that is not served; stop its services and send the request to fair_share of another tree"
            return WrongState("tree", request.name, "being served", expected)
        tree = await self._stored(request.name)
        if not isinstance(tree, _OtherTree):
            return tree

        def decide(_: PoolTree | None) -> Change | PoolPlan | Refusal:
            before = tree.configured.pools
            empty = PoolTree(Tree(request.name, options=before.options))
            if before.pools and not request.recursive:
                state = f"a tree with {len(before.pools)} pools"
                return WrongState(
                    "tree", request.name, state, "a tree without pools, or --recursive to remove the pools too"
                )
            plan = msgspec.structs.replace(planned(before, empty), dry_run=request.dry_run)
            return Change(empty, plan, before)

        answer = await tree.change(decide)
        if isinstance(answer, PoolPlan) and not answer.dry_run:
            # The tree was emptied by compare-and-set before, so at that time no other process had written pools that the delete would
            # remove.
            try:
                await self._bucket.delete(request.name)
            except BusError as error:
                logger().warning("unknown whether a tree was deleted", tree=request.name, error=str(error))
                return NotRecorded(waited_ms=0, why=str(error))
        return answer

    async def change(self, request: ChangePools, person: Person) -> PoolPlan | Refusal:
        """Change a tree that this process does not serve, and whose operations it therefore does not know."""
        tree = await self._stored(request.tree)
        if not isinstance(tree, _OtherTree):
            return tree
        return await tree.change(
            lambda _: (
                tree.configured.decide(request, {}, person, ZERO) if tree.revision else NotFound("tree", request.tree)
            )
        )

    async def _stored(self, name: TreeName) -> _OtherTree | Refusal:
        try:
            entries = await self._bucket.entries()
        except BusError as error:
            return NotReady(f"trees cannot be read: {error}")
        if name not in entries:
            return NotFound("tree", name, near(name, entries))
        tree = _OtherTree(self._bucket, name, self._bounds, self._clock, self._judge)
        tree.on_change(entries, frozenset())
        return tree

    async def _view(self, entry: Entry) -> TreeView:
        known = self._views.get(entry.key)
        if known is None or known[0] != entry:
            # The view is made in a worker thread, and only once: checking a tree of thousands of pools takes seconds.
            known = self._views[entry.key] = (entry, await anyio.to_thread.run_sync(self._viewed, entry))
        return known[1]

    def _viewed(self, entry: Entry) -> TreeView:
        stored = read_stored(entry)
        name = TreeName(entry.key)
        if stored.tree is None:
            return TreeView(name, Tree(name).options, entry.revision, 0, stored.defect)
        configured = TreeConfiguration(name, self._bounds)
        configured.on_stored(stored)
        tree = PoolTree(stored.tree)
        trouble = configured.trouble[:_LONGEST_TROUBLE]
        return TreeView(name, tree.options, entry.revision, len(tree.pools), trouble, configuration_warnings(tree))
