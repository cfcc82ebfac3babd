"""Follow the usage that the allocator publishes. The demo's figures are made from it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import msgspec

from headrace.access.permissions import Party
from headrace.access.routes import PartyKind
from headrace.client import find_place
from headrace.client.connecting import open_bus
from headrace.ids import TreeName
from headrace.runtime.clock import Clock
from headrace.runtime.endpoints import Endpoints
from headrace.runtime.feeds import SnapshotFeed
from headrace.runtime.role import Deposition
from headrace.wire import subjects
from headrace.wire.snapshot_parts import Applied, SnapshotReader
from headrace.wire.snapshots import UsageFrame, UsageItem, UsagePart

_TREE = TreeName("default")
_SILENCE_S = 1.0


@asynccontextmanager
async def watch_usage(
    state: Path, clock: Clock, on_usage: Callable[[Mapping[str, UsageItem]], None]
) -> AsyncIterator[None]:
    """Call `on_usage` with all operations by id at every change that the allocator publishes, until the block ends.

    The subscription uses the credential of fair_share, which is in the state folder, because the server lets fair_share read the usage.
    """
    place = msgspec.structs.replace(find_place(state=state), credential_file=str(state / "credentials" / "fair_share"))
    reader: SnapshotReader[UsageItem, UsageFrame] = SnapshotReader(_TREE, UsageFrame(), lambda item: item.operation)

    async def applied(_: Applied) -> None:
        on_usage(reader.items)

    async with (
        open_bus(place, "headrace demo", Party(kind=PartyKind.FAIR_SHARE, tree=_TREE).inbox) as bus,
        anyio.create_task_group() as tasks,
    ):
        feed = SnapshotFeed(
            bus,
            Endpoints(bus, clock, Deposition()),
            clock,
            subjects.usage(_TREE),
            subjects.usage_whole(_TREE),
            UsagePart,
            reader,
            applied,
            silence_s=_SILENCE_S,
        )
        tasks.start_soon(feed.run)
        yield
        tasks.cancel_scope.cancel()
