"""Checks of the buckets and streams that a service needs. Services do not create buckets and streams."""

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

#: Seconds between two checks for missing streams, while provisioning may be under way.
_LOOK_AGAIN_S: Final = 0.1
_WORTH_SAYING_S: Final = 2.0
_LOOK_AT_REPLICAS_S: Final = 60.0


def needed_streams(service: str, tree: TreeName) -> list[str]:
    """Return the streams that the service of this name needs. An agent needs none. The stream with the records of pools
    is left out.
    """
    kinds = {kind.value: kind for kind in PartyKind if kind.is_service}
    used = streams_of(Party(kind=kinds[service], tree=tree)) if service in kinds else []
    return [stream for stream in used if stream != subjects.history_stream(tree)]


async def until_there(bus: NatsBus, streams: Collection[str]) -> None:
    """Return when all streams exist. Log which streams are missing and the command that creates them. Raises `BusClosed`."""
    throttle = LogThrottle()
    began_s = anyio.current_time()
    while True:
        try:
            missing = await missing_streams(bus, streams)
            if not missing:
                return
            if anyio.current_time() - began_s > _WORTH_SAYING_S and throttle.due(" ".join(missing)):
                logger().error(
                    "waiting for buckets and streams that are missing: `headrace bus provision` creates them",
                    missing=missing,
                )
        except BusClosed:
            raise
        except BusError as error:
            if throttle.due("trouble"):
                logger().info("buckets and streams cannot be checked", error=str(error))
        await anyio.sleep(_LOOK_AGAIN_S)


class ReplicaWatch:
    """Checks periodically whether each stream has the configured number of replicas. Data is safe while fewer than half of
    the replicas are lost.
    """

    def __init__(self, bus: NatsBus, streams: Collection[str], replicas: int) -> None:
        self._bus = bus
        self._streams = streams
        self._replicas = replicas
        #: Streams with too few replicas, and their number of replicas.
        self._short: dict[str, int] = {}

    async def keep_looking(self) -> None:
        """Check every minute, until cancelled."""
        while True:
            with contextlib.suppress(BusError):
                await self._look()
            await anyio.sleep(_LOOK_AT_REPLICAS_S)

    def trouble(self) -> str:
        """Return a message for people, or "" if no stream has too few replicas."""
        if not self._short:
            return ""
        told = ", ".join(f"{stream} has {count}" for stream, count in sorted(self._short.items()))
        return (
            f"buckets and streams need {self._replicas} replicas, but {told}: "
            f"`headrace bus provision --replicas {self._replicas}` adds replicas"
        )

    def figures(self) -> list[Figure]:
        """Return the metric that counts the streams with too few replicas."""
        says = "Buckets and streams with fewer replicas than the setting `replicas` says."
        return [gauge("stores_short_of_replicas", "stores", len(self._short), says)]

    async def _look(self) -> None:
        infos = [await self._bus.jetstream.stream(name) for name in self._streams]
        kept = {info.config.name: info.config.num_replicas for info in infos if info is not None}
        short = {name: count for name, count in kept.items() if count < self._replicas}
        if short and short != self._short:
            logger().warning("buckets and streams have too few replicas", wanted=self._replicas, actual=short)
        self._short = short
