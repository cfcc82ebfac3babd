"""The store of pool trees: one key per tree, changed by compare-and-set, followed by a mirror."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence

import anyio.lowlevel
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
from headrace.pools import PoolTree, Tree, TreeOptions, read_tree, write_tree
from headrace.runtime.clock import Clock
from headrace.wire.codec import UNREADABLE
from headrace.wire.pool_changes import PoolPlan
from headrace.wire.refusals import SLOW_BUS, BadRequest, Busy, NotReady, NotRecorded, Refusal, WrongState
from headrace_fair_share.configuration.change_decisions import Change, StoredTree

#: Largest size in bytes of a stored tree. Trees that keep the rules and have names of ordinary length stay far below it.
LARGEST_TREE_BYTES = 500 * 1024
#: Seconds that a write may take. It is less than the 4 s for which the client waits, so that the client learns why its change was not
#: written.
_WRITE_S = 2.0
#: Longest time in seconds that a change may wait for its turn. After that the change is refused, because its client would give up before
#: the change is written.
_LONGEST_WAIT_S = 1.5
#: Seconds during which waiting changes are decided before the decided changes are written. Changes that are not decided by then are left
#: for the next write.
_DECIDING_S = 0.05
#: Number of tries to decide and write a change. A try fails if another process writes the tree between decision and write.
_MOST_TRIES = 5


def read_stored(entry: Entry) -> StoredTree:
    """Read a value of the bucket: a tree, or the reason why the value is not a tree."""
    try:
        return StoredTree(entry.revision, read_tree(entry.value))
    except UNREADABLE as error:
        return StoredTree(entry.revision, None, str(error))


#: Function that decides on a change of the given pools; None stands for the newest known pools.
Decide = Callable[[PoolTree | None], Change | PoolPlan | Refusal]
#: Function that checks a decided change against other trees and nodes; it returns a refusal, or None if the change is allowed.
Judge = Callable[[Change], Awaitable[Refusal | None]]
#: Function that takes over changes that were written together and are durable at the given revision; it returns the plan of each change.
OnWritten = Callable[[Sequence[Change], int], list[PoolPlan]]


class _Pending(msgspec.Struct, eq=False):
    """A request that has no answer yet."""

    decide: Decide
    #: True if the request must be the first of a write.
    is_first: bool
    answer: PoolPlan | Refusal | None = None


#: Requests of one write, each with the decision on it, in order. The first decision is always a change.
_Decided = list[tuple[_Pending, Change | PoolPlan | Refusal]]


class PoolStore:
    """The stored configuration of one tree. `on_stored` is called with every value, including values that this process wrote."""

    def __init__(
        self,
        bucket: KeyValue,
        tree: TreeName,
        clock: Clock,
        on_stored: Callable[[StoredTree], object],
        on_written: OnWritten,
        judge: Judge,
    ) -> None:
        self._bucket = bucket
        self._judge = judge
        self._tree = tree
        self._clock = clock
        self._on_stored = on_stored
        self._on_written = on_written
        self._turn = anyio.Lock()
        #: Revision of the newest known value, 0 if there is none.
        self.revision = 0
        #: All trees that have a configuration.
        self.trees: frozenset[str] = frozenset()
        #: Set when the bucket has lost a revision that this process knows.
        self.lost = anyio.Event()
        self._is_changing = False
        #: All requests that have no answer yet, in the order in which they came.
        self._pending: dict[_Pending, None] = {}
        #: The newest value that the mirror passed on during a change. It is looked at after the change, because usually it is the value
        #: that this process has just written, which need not be read again.
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
        """If the tree is not stored yet, write it without pools and with these options, so that all services see that it exists. Raises
        `BusError`.
        """
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

    async def change(self, decide: Decide, *, is_first: bool = False) -> PoolPlan | Refusal:
        """Decide on a change, and answer when the change is durable. If only a plan was requested, nothing is written.

        Changes that wait for a write are decided in order, each on the result of the change before it, and are written together. If another
        process wrote the tree in between, these changes are decided again. With `is_first`, the change is decided on the stored pools, as
        the first change of a write. A change that waited too long for its turn is refused without being written. Otherwise its client would
        stop waiting in the middle of the write, and would not know whether the change was written.
        """
        pending, came_s = _Pending(decide, is_first), self._clock.steady_s()
        self._pending[pending] = None
        try:
            async with self._turn:
                if pending.answer is None:
                    waited_s = self._clock.steady_s() - came_s
                    if waited_s > _LONGEST_WAIT_S:
                        waited_ms = int(waited_s * 1000)
                        return Busy(len(self._pending), waited_ms, "changes of pools are decided one after the other")
                    # If this request is cancelled, the requests whose changes are written with it must still get their answers.
                    with anyio.CancelScope(shield=True):
                        await self._take_turn(pending)
        finally:
            self._pending.pop(pending, None)
        assert pending.answer is not None
        return pending.answer

    async def _take_turn(self, own: _Pending) -> None:
        """Answer `own`, the first pending request, and the pending requests that can be written together with it."""
        waiting = list(self._pending)
        self._is_changing = True
        try:
            for _ in range(_MOST_TRIES):
                decided = await self._decide(own, waiting)
                if not decided or await self._write(decided) or own.answer is not None:
                    return
            expected = "one change at a time; try again"
            own.answer = WrongState("tree", self._tree, "being changed by another process", expected)
        finally:
            self._is_changing = False
            told, self._told = self._told, None
            if told is not None:
                self._take(told)

    async def _decide(self, own: _Pending, waiting: list[_Pending]) -> _Decided:
        """Decide waiting requests in order, each on the result of the changes before it, and answer requests that need no write.

        A plan or a refusal that follows a change in this order depends on that change. So it is returned together with the change, and its
        sender gets the answer after the write.
        """
        decided: _Decided = []
        base: PoolTree | None = None
        until_s = self._clock.steady_s() + _DECIDING_S
        for pending in waiting:
            if pending not in self._pending:
                continue
            if pending is not own and ((pending.is_first and decided) or self._clock.steady_s() >= until_s):
                break
            try:
                decision = await self._judged(pending.decide(base))
            except Exception:
                if pending is own:
                    raise
                # Stop before the request that failed. It is decided again when it is the `own` request of a later turn, so that no other
                # request fails with it.
                break
            if isinstance(decision, Change):
                base = decision.pools
                decided.append((pending, decision))
            elif decided:
                decided.append((pending, decision))
            else:
                self._answer(pending, decision)
            await anyio.lowlevel.checkpoint()
        return decided

    async def _judged(self, decision: Change | PoolPlan | Refusal) -> Change | PoolPlan | Refusal:
        """Return the decision, a refusal by the judge, or the plan if only a plan was requested."""
        if not isinstance(decision, Change):
            return decision
        refusal = await self._judge(decision)
        if refusal is not None:
            return refusal
        return decision.plan if decision.plan.dry_run else decision

    async def _write(self, decided: _Decided) -> bool:
        """Write all changes with one write, and answer the requests. Return False if another process wrote the tree, so that all requests
        must be decided again.
        """
        changes = [decision for _, decision in decided if isinstance(decision, Change)]
        value = write_tree(changes[-1].tree)
        if len(value) > LARGEST_TREE_BYTES:
            # If all changes together make the tree too large, write only the first of them. The other requests stay pending, so that only
            # the change that makes the tree too large is refused.
            decided, changes = decided[:1], changes[:1]
            value = write_tree(changes[0].tree)
        if len(value) > LARGEST_TREE_BYTES:
            self._answer(
                decided[0][0],
                BadRequest.because(
                    "tree", f"the pools of the tree have {len(value)} bytes; at most {LARGEST_TREE_BYTES} are allowed"
                ),
            )
            return True
        started = self._clock.steady_s()
        failure: Refusal | None
        try:
            with anyio.fail_after(_WRITE_S):
                revision = await self._bucket.update(self._tree, value, self.revision)
        except WrongRevision:
            failure = await self._reload()
            if failure is None:
                return False
        except (NotConnected, NoResponders, PermissionRefused, TooLarge) as error:
            failure = NotReady(f"the configuration cannot be written: {error}")
        except (BusError, TimeoutError) as error:
            logger().warning("unknown whether pools were written", tree=self._tree, error=str(error))
            failure = NotRecorded(int((self._clock.steady_s() - started) * 1000), str(error) or SLOW_BUS)
        else:
            self.revision = max(self.revision, revision)
            plans = iter(self._on_written(changes, revision))
            for pending, decision in decided:
                self._answer(pending, next(plans) if isinstance(decision, Change) else decision)
            return True
        for pending, decision in decided:
            # Only the changes get the failure as their answer. Plans and refusals depend on these changes, which may not have been written.
            # So their requests stay pending, and each is decided again in a turn of its own.
            if isinstance(decision, Change):
                self._answer(pending, failure)
        return True

    def _answer(self, pending: _Pending, answer: PoolPlan | Refusal) -> None:
        pending.answer = answer
        self._pending.pop(pending, None)

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
        # If this revision is lower than the known revision, the bucket has lost writes. Then the next try writes the pools known here, with
        # the change, on top of this revision.
        self.revision = entry.revision
        return None

    def _take(self, entry: Entry) -> None:
        if entry.revision > self.revision:
            self.revision = entry.revision
            self._on_stored(read_stored(entry))
