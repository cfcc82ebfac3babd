"""The trees' configurations as they arrive from the bucket of pools, until the engine takes them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import anyio

from headrace.bus import BusError, Entry, Mirror, PermissionRefused, Writes
from headrace.errors import BadInput
from headrace.ids import PoolName, TreeName, user_name
from headrace.obs.logging import logger
from headrace.pools import read_tree
from headrace.runtime.service import Runtime
from headrace.wire import subjects
from headrace.wire.codec import UNREADABLE
from headrace.wire.operations import StartOperation
from headrace.wire.refusals import BadRequest, NotReady
from headrace_admission.missing_writes import MissingWrites
from headrace_admission.settings import AdmissionSettings
from headrace_admission.state.rules import TreeRules, rules_of
from headrace_admission.state.tree_book import TreeBook

_RETRY_S: Final = 0.5


class PoolsWatch:
    """Follows the bucket, and keeps new configurations until they are taken."""

    def __init__(self, runtime: Runtime[AdmissionSettings]) -> None:
        self._runtime = runtime
        #: New configurations by tree; None for a removed tree. The tree that is named in the settings of the service exists even
        #: without a configuration.
        self._came: dict[TreeName, TreeRules | None] = {TreeName(runtime.settings.tree): TreeRules()}
        self._changed = anyio.Event()
        self._mirror: Mirror | None = None
        self._writes: Writes | None = None
        self._missing = MissingWrites()
        #: Number of reads of the bucket that have begun, and the number of the newest read that succeeded.
        self._looks = self._last_good_look = 0
        self._looking = anyio.Lock(fast_acquire=True)
        #: Set when the whole content of the bucket has arrived.
        self.known = anyio.Event()

    async def follow(self) -> None:
        """Follow the bucket until cancelled."""
        bucket = await self._runtime.bus.key_value(subjects.POOLS_BUCKET, history=subjects.POOLS_HISTORY)
        await self._listen()
        async with bucket.mirror(self._on_entries) as mirror:
            self._mirror = mirror
            self._on_entries(mirror.entries, frozenset(mirror.entries))
            self.known.set()
            await anyio.sleep_forever()

    def take(self) -> Iterator[tuple[TreeName, TreeRules | None]]:
        """Yield the new configurations, each once."""
        while self._came:
            yield self._came.popitem()

    async def wait_for_change(self) -> None:
        """Wait until there are new configurations."""
        await self._changed.wait()
        self._changed = anyio.Event()

    async def _wait_for_revision(self, revision: int, timeout_s: float) -> NotReady | None:
        """Wait until the mirror has a revision. A revision that the bucket does not have is refused at once.

        A client learns a revision only after the bucket has stored it. So if the bucket does not have a revision, it has lost changes.
        """
        assert self._mirror is not None
        if revision <= self._mirror.revision:
            return None
        if not await self._look_once_more(timeout_s):
            return NotReady(f"the pool configuration could not be read within {timeout_s:g} s")
        if revision <= self._mirror.revision:
            return None
        known = self._mirror.revision
        why = f"revision {revision} of the pool configuration does not exist; the newest is {known}, so later changes were lost"
        return NotReady(why, revision=known)

    async def _look_once_more(self, timeout_s: float) -> bool:
        """Wait until the mirror has everything that the bucket has now. Return False if reading fails or takes too long.

        Concurrent calls share a read of the bucket: one read serves all calls that were made before the read began.
        """
        begun = self._looks
        with anyio.move_on_after(timeout_s):
            async with self._looking:
                if self._last_good_look <= begun:
                    self._looks += 1
                    if not await self.catch_up(timeout_s):
                        return False
                    self._last_good_look = self._looks
                return True
        return False

    async def wait_for_pool(
        self, books: Mapping[TreeName, TreeBook], revision: int, tree: TreeName, pool: PoolName
    ) -> NotReady | None:
        """Wait until a pool that was just created is known, so that `pool create && run` finds it.

        The bucket is read only if this process heard of a write recently. A client can know of a pool only after it was written, and by
        then this process has heard of the write.
        """
        wait_s = self._runtime.settings.revision_wait_ms / 1000
        not_ready = await self._wait_for_revision(revision, wait_s)
        if not_ready is not None:
            return not_ready
        book = books.get(tree)
        if (book is None or not book.exists(pool)) and self._may_lack_writes():
            await self.catch_up(wait_s)
        return None

    async def wait_for_start(
        self, books: Mapping[TreeName, TreeBook], request: StartOperation, user: str
    ) -> BadRequest | NotReady | None:
        """Wait until the pool of a start is known, in the same way as `wait_for_pool`. A user whose name is not legal is refused."""
        spec = request.spec
        tree = spec.pool_trees[0] if spec.pool_trees else spec.tree
        try:
            user = user_name(user)
        except BadInput as error:
            return BadRequest.of(error.at("user"))
        return await self.wait_for_pool(books, request.min_revision, tree, spec.pool or PoolName(user))

    async def catch_up(self, timeout_s: float) -> bool:
        """Wait until the mirror has everything that the bucket has now. Return False if that cannot be confirmed before the timeout."""
        assert self._mirror is not None
        try:
            return await self._mirror.catch_up(timeout_s=timeout_s)
        except BusError as error:
            logger().info("pools not read", error=str(error))
            return False

    async def catch_up_from_start(self, known: Iterable[TreeName]) -> None:
        """Wait until everything that the bucket has now has arrived, however long that takes.

        Trees in `known` that the bucket does not have were removed while this process was not running.
        """
        await self.known.wait()
        while not await self.catch_up(_RETRY_S):  # noqa: ASYNC110 - each is a question
            await anyio.sleep(_RETRY_S)
        assert self._mirror is not None
        for tree in known:
            if tree not in self._mirror.entries:
                self._came.setdefault(tree, None)

    async def _listen(self) -> None:
        """Listen to writes on the connection of users' requests, so that writes and requests are heard in the order in which
        they were made.
        """
        try:
            self._writes = await self._runtime.users.writes(subjects.POOLS_BUCKET)
        except PermissionRefused:
            # A server of the previous release does not permit this. Then `_missing` stays as it is, so each start in an unknown pool reads
            # the bucket.
            logger().info(
                "the server does not send writes to the pools bucket; each start in an unknown pool reads the bucket",
                bucket=subjects.POOLS_BUCKET,
            )
        else:
            self._missing.listens()

    def _may_lack_writes(self) -> bool:
        assert self._mirror is not None
        now_s = self._runtime.clock.steady_s()
        if self._writes is not None:
            self._missing.note(self._writes.take(), now_s)
        return self._missing.some_from(self._mirror.entries, now_s)

    def _on_entries(self, entries: Mapping[str, Entry], changed: frozenset[str]) -> None:
        for key in changed:
            if key not in entries:
                self._came[TreeName(key)] = None
                continue
            try:
                tree = read_tree(entries[key].value)
                self._came[tree.tree] = rules_of(tree)
            except (*UNREADABLE, BadInput) as error:
                self._runtime.endpoints.report_malformed(f"bucket {subjects.POOLS_BUCKET}", key, str(error))
        self._changed.set()
