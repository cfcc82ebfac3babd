"""The store of pool trees: one key per tree, changed by compare-and-set, followed by a mirror."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

import anyio
import msgspec

from headrace.bus import (
    BusError,
    Entry,
    KeyValue,
    NoResponders,
    NotConnected,
    PermissionRefused,
    TooLarge,
    WrongRevision,
)
from headrace.ids import TreeName
from headrace.obs.logging import logger
from headrace.pools import Tree, TreeOptions, read_tree, write_tree
from headrace.runtime.clock import Clock
from headrace.wire.pool_changes import PoolPlan
from headrace.wire.refusals import SLOW_BUS, BadRequest, Busy, NotReady, NotRecorded, Refusal, WrongState
from headrace_fair_share.configuration.tree_configuration import Change, StoredTree

#: Largest value that is written; far above what the rules of a tree allow with ordinary names.
LARGEST_TREE_BYTES = 500 * 1024
#: Seconds that a write may take. The client waits for 4 s and must be able to learn why the change was not written.
_WRITE_S = 2.0
#: Seconds after which a pending change is not started: with its write it would take longer than its client waits.
_LONGEST_WAIT_S = 1.5
#: Number of tries to decide and write a change; another process may write in between.
_MOST_TRIES = 5


def read_stored(entry: Entry) -> StoredTree:
    """Read a value of the bucket: a tree, or the reason why the value is not a tree."""
    try:
        return StoredTree(entry.revision, read_tree(entry.value))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return StoredTree(entry.revision, None, str(error))


#: Checks a decided change against other trees and nodes; returns a refusal or None.
Judge = Callable[[Change], Awaitable[Refusal | None]]


class PoolStore:
    """The stored configuration of one tree. `on_stored` is called with every value, including values that this process wrote."""

    def __init__(
        self, bucket: KeyValue, tree: TreeName, clock: Clock, on_stored: Callable[[StoredTree], object], judge: Judge
    ) -> None:
        self._bucket = bucket
        self._judge = judge
        self._tree = tree
        self._clock = clock
        self._on_stored = on_stored
        self._turn = anyio.Lock()
        #: Revision of the newest known value, 0 if there is none.
        self.revision = 0
        #: All trees that have a configuration.
        self.trees: frozenset[str] = frozenset()
        #: Set when the bucket has lost a revision that is known here.
        self.lost = anyio.Event()
        self._is_changing = False
        #: Number of pending changes.
        self._waiting = 0
        #: The newest value from the mirror during a change. Usually it is the value that this process wrote, which need not be read.
        self._told: Entry | None = None

    def on_change(self, entries: Mapping[str, Entry], changed: frozenset[str]) -> None:
        """Take changes from the mirror of the bucket."""
        self.trees = frozenset(entries)
        entry = entries.get(self._tree)
        if entry is not None:
            if entry.revision < self.revision:
                self.lost.set()
            if self._is_changing:
                self._told = entry
            else:
                self._take(entry)

    async def ensure(self, options: TreeOptions) -> None:
        """Write an empty tree with these options if there is no tree, so that all services see that it exists. Raises `BusError`."""
        entry = await self._bucket.get(self._tree)
        if entry is None and not self.revision:
            value = write_tree(Tree(tree=self._tree, options=options))
            try:
                revision = await self._bucket.update(self._tree, value, 0)
            except WrongRevision:
                entry = await self._bucket.get(self._tree)
            else:
                entry = Entry(key=self._tree, value=value, revision=revision)
        if entry is not None:
            self._take(entry)

    async def change(
        self,
        decide: Callable[[], Change | PoolPlan | Refusal],
        on_written: Callable[[Change, int], PoolPlan],
    ) -> PoolPlan | Refusal:
        """Decide, write unless only a plan was requested, and answer only when the change is durable.

        The change is decided again if another process wrote in between. A change that waited too long for its turn is refused before
        anything is done. Otherwise its client would stop waiting in the middle of the write, and would not know whether it was written.
        """
        came_s = self._clock.steady_s()
        self._waiting += 1
        try:
            await self._turn.acquire()
        finally:
            self._waiting -= 1
        try:
            waited_s = self._clock.steady_s() - came_s
            if waited_s > _LONGEST_WAIT_S:
                return Busy(self._waiting + 1, int(waited_s * 1000), "changes of pools are made one after the other")
            self._is_changing = True
            try:
                return await self._change(decide, on_written)
            finally:
                self._is_changing = False
                told, self._told = self._told, None
                if told is not None:
                    self._take(told)
        finally:
            self._turn.release()

    async def _change(
        self,
        decide: Callable[[], Change | PoolPlan | Refusal],
        on_written: Callable[[Change, int], PoolPlan],
    ) -> PoolPlan | Refusal:
        for _ in range(_MOST_TRIES):
            decision = decide()
            if not isinstance(decision, Change):
                return decision
            refusal = await self._judge(decision)
            if refusal is not None:
                return refusal
            if decision.plan.dry_run:
                return decision.plan
            value = write_tree(decision.tree)
            if len(value) > LARGEST_TREE_BYTES:
                return BadRequest("tree", f"{len(value)} bytes", f"at most {LARGEST_TREE_BYTES} bytes of pools")
            started = self._clock.steady_s()
            try:
                with anyio.fail_after(_WRITE_S):
                    revision = await self._bucket.update(self._tree, value, self.revision)
            except WrongRevision:
                refusal = await self._reload()
                if refusal is not None:
                    return refusal
                continue
            except (NotConnected, NoResponders, PermissionRefused, TooLarge) as error:
                return NotReady(f"the configuration cannot be written: {error}")
            except (BusError, TimeoutError) as error:
                logger().warning("unknown whether pools were written", tree=self._tree, error=str(error))
                waited_ms = int((self._clock.steady_s() - started) * 1000)
                return NotRecorded(waited_ms, str(error) or SLOW_BUS)
            self.revision = max(self.revision, revision)
            return on_written(decision, revision)
        return WrongState("tree", self._tree, "being changed by another process", "one change at a time; try again")

    async def _reload(self) -> NotReady | None:
        try:
            entry = await self._bucket.get(self._tree)
        except BusError as error:
            return NotReady(f"another process changed the pools, and they cannot be read: {error}")
        if entry is None:
            # The key was deleted: the next try creates it again.
            self.revision = 0
            return None
        logger().info("pools were changed by another process", tree=self._tree, revision=entry.revision)
        self._take(entry)
        # If this revision is lower than the known one, the bucket lost writes, and the next try writes them again.
        self.revision = entry.revision
        return None

    def _take(self, entry: Entry) -> None:
        if entry.revision > self.revision:
            self.revision = entry.revision
            self._on_stored(read_stored(entry))
