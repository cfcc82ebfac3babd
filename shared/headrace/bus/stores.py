"""The buckets and streams that a service needs, which it does not make."""

from __future__ import annotations

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
from headrace.wire import subjects

#: Whoever provisions may be at it.
_LOOK_AGAIN_S: Final = 0.1
_WORTH_SAYING_S: Final = 2.0


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
