"""Create the buckets and streams on the NATS server, once or for as long as `headrace up` runs."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Final

import anyio
import msgspec

from headrace.access.routes import PartyKind
from headrace.bus import BusError
from headrace.bus.nats.streams.api import JetStreamRefused
from headrace.bus.provisioning import Provisioned, RecordBounds, has_all_stores, has_no_leader, provision
from headrace.client import Place
from headrace.client.connecting import open_bus
from headrace.client.places.endpoint import CREDENTIAL_FILE
from headrace.errors import HeadraceError
from headrace.ids import TreeName
from headrace.obs.log_throttle import LogThrottle
from headrace.obs.logging import logger
from headrace_cli.up.state_folder import StateFolder

#: File name of the provisioner's credential in the folder of credentials.
PROVISIONER: Final = PartyKind.PROVISIONER.value
#: Seconds to wait for a leader. A NATS cluster that has just started has no leader for some seconds.
_SERVERS_BEGIN_S: Final = 30.0
_TRY_AGAIN_S: Final = 0.05
#: Seconds before the next attempt after a refusal. A server refuses a bucket if it has too little space, which lasts for a while.
_REFUSED_S: Final = 1.0
#: Seconds between two checks for buckets and streams that were lost.
_POLL_S: Final = 10.0


def as_provisioner(place: Place) -> Place:
    """Return `place` with the credential of the provisioner, from the state folder that `place` names.

    Returns `place` unchanged if its credential is not the one in its folder, or if the folder has no credential of a provisioner.
    """
    folder = Path(place.folder)
    file = StateFolder(folder).credentials / PROVISIONER
    is_chosen = not place.folder or place.credential_file != str(folder / CREDENTIAL_FILE)
    return place if is_chosen or not file.exists() else msgspec.structs.replace(place, credential_file=str(file))


async def provision_at(
    place: Place, trees: Collection[TreeName], replicas: int | None, records: RecordBounds | None
) -> Sequence[Provisioned]:
    """Create the missing buckets and streams once the servers are ready.

    Raises `ClientError`, `BusError`, `BadInput`.
    """
    until_s = anyio.current_time() + _SERVERS_BEGIN_S
    async with open_bus(place, "headrace bus provision", PartyKind.PROVISIONER.inbox, replicas=replicas or 1) as bus:
        while True:
            try:
                return await provision(bus, trees, replicas=replicas, records=records)
            except BusError as error:
                if not has_no_leader(error) or anyio.current_time() > until_s:
                    raise
            await anyio.sleep(_TRY_AGAIN_S)


async def keep_stores(place: Place, trees: Collection[TreeName]) -> None:
    """Create missing buckets and streams, and keep them right until cancelled.

    Buckets and streams of an older version are updated, and lost buckets and streams are created again.
    """
    throttle = LogThrottle()
    is_known = False
    while True:
        try:
            async with open_bus(place, "headrace up", PartyKind.PROVISIONER.inbox) as bus:
                while True:
                    is_known = is_known and await has_all_stores(bus, trees)
                    for each in () if is_known else await provision(bus, trees):
                        if each.outcome != "found":
                            logger().info("store", name=each.name, outcome=each.outcome, changes=each.changes)
                    is_known = True
                    await anyio.sleep(_POLL_S)
        except HeadraceError as error:
            if throttle.due(str(error)):
                logger().info("buckets and streams not checked", error=str(error))
            await anyio.sleep(_REFUSED_S if isinstance(error, JetStreamRefused) else _TRY_AGAIN_S)
