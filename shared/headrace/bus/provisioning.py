"""Provisioning: one process creates all buckets and streams, as listed in the table of stores.

Services may not create streams: a party that may create a stream can have it record any subject and republish it on any other.
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
#: Error code of JetStream while it has no leader.
_NOT_AVAILABLE: Final = 10008
_LOOK_AGAIN_S: Final = 0.05


class RecordBounds(msgspec.Struct, frozen=True):
    """The bounds of the records of pools: age in seconds and size in bytes."""

    max_age_s: float = 7 * 86_400.0
    max_bytes: int = 512 * 2**20


class Provisioned(msgspec.Struct, frozen=True):
    """The result of provisioning one bucket or stream."""

    kind: StoreKind
    name: str
    outcome: Literal["made", "changed", "found"]
    replicas: int
    #: Number of servers that have a complete copy now.
    copies: int
    #: Changes made, one sentence for each changed setting.
    changes: list[str] = []


async def provision(
    bus: NatsBus,
    trees: Collection[TreeName],
    *,
    replicas: int | None = None,
    records: RecordBounds | None = None,
) -> Sequence[Provisioned]:
    """Create every missing store of these trees. Set `replicas` and the bounds of records on existing stores if they are given.

    Returns when every new stream has been copied to all its replicas, or after half a minute.
    Raises `WrongConfiguration` if an existing store would lose what is written, and other kinds of `BusError`. If the
    server refuses a store, all other stores are created before the error is raised.
    """
    done: list[Provisioned] = []
    refusals: list[JetStreamRefused] = []
    for store, tree, _ in _places(trees):
        try:
            done.append(await _provision(bus, store, tree, replicas, records))
        except JetStreamRefused as refusal:
            # The remaining stores are still tried: the disk may have free space for the stores that services need, but
            # not for the records of pools.
            refusals.append(refusal)
    if refusals:
        raise refusals[0]
    with anyio.move_on_after(_COPY_S):
        # Wait until each new stream is copied. If the only server that has a stream dies before the stream is copied, the content of the
        # stream is out of reach.
        return [each if each.outcome == "found" else await _copied(bus, each) for each in done]
    return done


async def has_all_stores(bus: NatsBus, trees: Collection[TreeName]) -> bool:
    """True if every store of these trees exists. Sends one request to the server. Raises `BusError`."""
    return {stream for _, _, stream in _places(trees)} <= await bus.jetstream.names()


async def missing_streams(bus: NatsBus, streams: Collection[str]) -> list[str]:
    """Return the names of the streams that do not exist. Raises `BusError`."""
    return [name for name in streams if await bus.jetstream.stream(name) is None]


def has_no_leader(error: BusError) -> bool:
    """True if the error may mean that the cluster has no leader at the moment."""
    if isinstance(error, JetStreamRefused):
        return error.err_code == _NOT_AVAILABLE
    return isinstance(error, RequestTimeout | NoResponders)


def _places(trees: Collection[TreeName]) -> Iterator[tuple[Store, str, str]]:
    """Yield each store, the name of the tree it belongs to ("" for none), and the name of its stream."""
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
        # A stream that an older version created lets any writer of a key remove all other keys. The setting that allows this is switched
        # off here.
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
        "values kept per key": "max_msgs_per_subject",
        "writers may remove other values": "allow_rollup_hdrs",
        "nanoseconds that an entry is kept": "max_age",
        "largest size in bytes": "max_bytes",
    }
    pairs = {says: (getattr(before.config, field), getattr(after.config, field)) for says, field in figures.items()}
    return [f"{says}: {old} before, {new} now" for says, (old, new) in pairs.items() if old != new]
