"""Provisioning: buckets and streams are made by one process, by the table of stores.

Whoever may make a stream may have it take any subject and repeat it on any other. So services may not.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Final, Literal

import anyio
import msgspec

from headrace.access.routes import STORES, Store, StoreKind
from headrace.bus.nats.bus import NatsBus
from headrace.bus.nats.streams.api import JetStreamRefused, StreamInfo
from headrace.bus.protocol import BusError, NoResponders, RequestTimeout
from headrace.ids import TreeName

_COPY_S: Final = 30.0
#: What JetStream answers while it has no leader.
_NOT_AVAILABLE: Final = 10008
_LOOK_AGAIN_S: Final = 0.05


class RecordBounds(msgspec.Struct, frozen=True):
    """The bounds of records of pools."""

    max_age_s: float = 7 * 86_400.0
    max_bytes: int = 512 * 2**20


class Provisioned(msgspec.Struct, frozen=True):
    """A bucket or stream after provisioning."""

    kind: StoreKind
    name: str
    outcome: Literal["made", "changed", "found"]
    replicas: int
    #: Servers that have the whole of it now.
    copies: int
    #: In words.
    changes: list[str] = []


async def provision(
    bus: NatsBus,
    trees: Collection[TreeName],
    *,
    replicas: int | None = None,
    records: RecordBounds | None = None,
) -> Sequence[Provisioned]:
    """Makes each store that is missing. Gives those that are there so many `replicas`, and records these bounds, where that is said.

    Returns when all that is new has been copied, or after half a minute.
    Raises `WrongConfiguration` if one would lose what is written, and other kinds of `BusError`. Where the server refuses one, all
    others are made before.
    """
    done: list[Provisioned] = []
    refusals: list[JetStreamRefused] = []
    for store, tree, _ in _places(trees):
        try:
            done.append(await _provision(bus, store, tree, replicas, records))
        except JetStreamRefused as refusal:
            # A disk without room for the records of pools may have room for all that services cannot do without.
            refusals.append(refusal)
    if refusals:
        raise refusals[0]
    with anyio.move_on_after(_COPY_S):
        # Where its old server dies before, all that it holds is out of reach.
        return [each if each.outcome == "found" else await _copied(bus, each) for each in done]
    return done


async def has_all_stores(bus: NatsBus, trees: Collection[TreeName]) -> bool:
    """True if every store of these trees is there. Asks the server once. Raises `BusError`."""
    return {stream for _, _, stream in _places(trees)} <= await bus.jetstream.names()


async def missing_streams(bus: NatsBus, streams: Collection[str]) -> list[str]:
    """Those of the streams that are not there. Raises `BusError`."""
    return [name for name in streams if await bus.jetstream.stream(name) is None]


def has_no_leader(error: BusError) -> bool:
    """True if the servers of a cluster may have no leader for the moment."""
    if isinstance(error, JetStreamRefused):
        return error.err_code == _NOT_AVAILABLE
    return isinstance(error, RequestTimeout | NoResponders)


def _places(trees: Collection[TreeName]) -> Iterator[tuple[Store, str, str]]:
    """Each store, the tree whose it is or "", and its stream."""
    for store in STORES:
        for tree in trees if "{tree}" in store.name else ("",):
            yield store, tree, store.stream.replace("{tree}", tree)


async def _provision(
    bus: NatsBus, store: Store, tree: str, replicas: int | None, records: RecordBounds | None
) -> Provisioned:
    stream = store.stream.replace("{tree}", tree)
    before = await bus.jetstream.stream(stream)
    await _open(bus, store, tree, records or (RecordBounds() if before is None else None))
    if before is not None and before.config.allow_rollup_hdrs:
        # Older ones let whoever writes one key remove all others.
        await bus.jetstream.change_stream(stream, allow_rollup_hdrs=False)
    if before is not None and replicas is not None and before.config.num_replicas != replicas:
        await bus.jetstream.change_stream(stream, num_replicas=replicas)
    after = await bus.jetstream.existing(stream)
    changes = [] if before is None else _changes(before, after)
    return Provisioned(
        kind=store.kind,
        name=store.name.replace("{tree}", tree),
        outcome="made" if before is None else "changed" if changes else "found",
        replicas=after.config.num_replicas,
        copies=after.copies,
        changes=changes,
    )


async def _copied(bus: NatsBus, new: Provisioned) -> Provisioned:
    stream = f"KV_{new.name}" if new.kind is StoreKind.BUCKET else new.name
    while (copies := (await bus.jetstream.existing(stream)).copies) < new.replicas:  # noqa: ASYNC110 - each is a question
        await anyio.sleep(_LOOK_AGAIN_S)
    return msgspec.structs.replace(new, copies=copies)


async def _open(bus: NatsBus, store: Store, tree: str, records: RecordBounds | None) -> None:
    subject = store.writers[0][1].replace("{tree}", tree)
    match store.kind:
        case StoreKind.BUCKET:
            await bus.key_value(store.name, history=store.history)
        case StoreKind.LOG:
            await bus.log(store.name, subject)
        case StoreKind.RECORDS if records is not None:
            name = store.name.replace("{tree}", tree)
            await bus.records(name, subject, max_age_s=records.max_age_s, max_bytes=records.max_bytes)


def _changes(before: StreamInfo, after: StreamInfo) -> list[str]:
    figures = {
        "replicas": "num_replicas",
        "values kept of a key": "max_msgs_per_subject",
        "who writes a key may remove others": "allow_rollup_hdrs",
        "nanoseconds that each is kept": "max_age",
        "most bytes": "max_bytes",
    }
    pairs = {says: (getattr(before.config, field), getattr(after.config, field)) for says, field in figures.items()}
    return [f"{says}: {old} before, {new} now" for says, (old, new) in pairs.items() if old != new]
