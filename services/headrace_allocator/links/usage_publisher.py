"""Publish the usage of a tree for fair_share: collect it in slices, and publish what changed."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

import anyio
import anyio.lowlevel
import anyio.to_thread

from headrace.bus import BusError
from headrace.ids import TreeName
from headrace.obs.logging import logger
from headrace.runtime.endpoints import Caller
from headrace.runtime.service import Runtime
from headrace.runtime.shell import Shell
from headrace.wire import subjects
from headrace.wire.snapshot_parts import SnapshotPublisher
from headrace.wire.snapshots import UsageFrame, UsageItem, UsagePart, WholeRequest
from headrace.wire.version import Term
from headrace_allocator.effects import Effect
from headrace_allocator.engine import AllocatorEngine
from headrace_allocator.settings import AllocatorSettings
from headrace_allocator.usage_changes import UsageChanges, usage_changed

T = TypeVar("T")

#: Number of operations whose usage is collected between two turns of the event loop; 100 take some 2 ms.
_SLICE: Final = 100
#: Number of items above which the items are compared and encoded in a thread. A thread costs as much as some fifty items.
_MANY: Final = 500


class UsagePublisher:
    """Publishes the usage of one tree while this allocator leads."""

    _publisher: SnapshotPublisher[UsageItem, UsageFrame]

    def __init__(
        self, runtime: Runtime[AllocatorSettings], tree: TreeName, engine: AllocatorEngine, shell: Shell[Effect]
    ) -> None:
        self._runtime = runtime
        self._tree = tree
        self._engine = engine
        self._shell = shell
        self._changed = anyio.Event()
        #: Held by the task that works on the publisher. No other task may access the publisher meanwhile.
        self._publishing = anyio.Lock()

    def lead(self, term: Term) -> None:
        """Publish with this term from now on."""
        self._publisher = SnapshotPublisher(UsagePart, self._tree, term, UsageFrame(), key=lambda item: item.operation)

    def wake_if_changed(self) -> None:
        """Wake the publishing task if usage has changed."""
        if not self._changed.is_set() and usage_changed(self._engine.facts):
            self._changed.set()

    async def run(self) -> None:
        """Publish changes as they occur, and an empty update once a period if nothing changed, until cancelled."""
        settings = self._runtime.settings
        while True:
            with anyio.move_on_after(settings.usage_period_ms / 1000) as unchanged:
                await self._changed.wait()
            self._changed = anyio.Event()
            while (cut := self._shell.perform(self._engine.on_usage_due(_SLICE, self._shell.now()))) is None:
                await anyio.lowlevel.checkpoint()
            for part in await self._parts(cut):
                await self._try_publish(part)
            if not unchanged.cancelled_caught:
                await anyio.sleep(settings.usage_interval_ms / 1000)

    async def on_whole(self, request: WholeRequest, _caller: Caller) -> bytes:
        """Return a page of all usage that was published."""
        async with self._publishing:
            return await _beside(len(self._publisher.items), partial(self._publisher.page, request))

    async def _parts(self, cut: UsageChanges) -> list[bytes]:
        async with self._publishing:
            many = len(cut.items) + len(cut.gone)
            return await _beside(many, partial(self._publisher.advance, cut.frame, cut.items, cut.gone))

    async def _try_publish(self, part: bytes) -> None:
        try:
            await self._runtime.bus.publish(subjects.usage(self._tree), part)
        except BusError as error:
            # A reader that misses a part asks for all usage (`on_whole`).
            logger().debug("usage not published", tree=self._tree, error=str(error))


async def _beside(many: int, work: Callable[[], T]) -> T:
    return await anyio.to_thread.run_sync(work) if many > _MANY else work()
