"""The buckets and streams that a service needs, which it does not make."""

from __future__ import annotations

import contextlib
from collections.abc import Collection
from typing import Final

import anyio

from headrace.access.permissions import Party, streams_of
from headrace.access.routes import PartyKind
from headrace.bus.nats.bus import NatsBus
from headrace.bus.protocol import BusClosed, BusError
from headrace.bus.provisioning import missing_streams
from headrace.ids import TreeName
from headrace.obs.log_throttle import LogThrottle
from headrace.obs.logging import logger
from headrace.runtime.engine import Figure, gauge
from headrace.wire import subjects

#: Whoever provisions may be at it.
_LOOK_AGAIN_S: Final = 0.1
_WORTH_SAYING_S: Final = 2.0
_LOOK_AT_REPLICAS_S: Final = 60.0


def needed_streams(service: str, tree: TreeName) -> list[str]:
    """The streams that a service cannot do without, by its name. None for an agent. The records of pools are not among them."""
    kinds = {kind.value: kind for kind in PartyKind if kind.is_service}
    used = streams_of(Party(kind=kinds[service], tree=tree)) if service in kinds else []
    return [stream for stream in used if stream != subjects.history_stream(tree)]


async def until_there(bus: NatsBus, streams: Collection[str]) -> None:
    """Returns when all are there. Says which are missing, and what makes them. Raises `BusClosed`."""
    throttle = LogThrottle()
    began_s = anyio.current_time()
    while True:
        try:
            missing = await missing_streams(bus, streams)
            if not missing:
                return
            if anyio.current_time() - began_s > _WORTH_SAYING_S and throttle.due(" ".join(missing)):
                logger().error(
                    "waiting for buckets and streams that are missing: `headrace bus provision` makes them",
                    missing=missing,
                )
        except BusClosed:
            raise
        except BusError as error:
            if throttle.due("trouble"):
                logger().info("buckets and streams cannot be looked at", error=str(error))
        await anyio.sleep(_LOOK_AGAIN_S)


class ReplicaWatch:
    """Looks whether as many servers keep each stream as are to. Fewer than half of them may be lost without a loss."""

    def __init__(self, bus: NatsBus, streams: Collection[str], replicas: int) -> None:
        self._bus = bus
        self._streams = streams
        self._replicas = replicas
        #: Streams that fewer servers keep, and how many.
        self._short: dict[str, int] = {}

    async def keep_looking(self) -> None:
        """Looks now and then, until cancelled."""
        while True:
            with contextlib.suppress(BusError):
                await self._look()
            await anyio.sleep(_LOOK_AT_REPLICAS_S)

    def trouble(self) -> str:
        """Words for people, empty if all is well."""
        if not self._short:
            return ""
        told = ", ".join(f"{stream} by {count}" for stream, count in sorted(self._short.items()))
        return (
            f"to be kept by {self._replicas} servers, but {told}: "
            f"`headrace bus provision --replicas {self._replicas}` has them kept so"
        )

    def figures(self) -> list[Figure]:
        """The number of such streams."""
        says = "Buckets and streams that fewer servers keep than the setting `replicas` says."
        return [gauge("stores_short_of_replicas", "stores", len(self._short), says)]

    async def _look(self) -> None:
        infos = [await self._bus.jetstream.stream(name) for name in self._streams]
        kept = {info.config.name: info.config.num_replicas for info in infos if info is not None}
        short = {name: count for name, count in kept.items() if count < self._replicas}
        if short and short != self._short:
            logger().warning("too few servers keep buckets and streams", replicas=self._replicas, kept_by=short)
        self._short = short
