"""Revoked keys of nodes, and keys that are held out for a pause. They are stored in the bucket of keys, and the server closes
their connections.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

import anyio

from headrace.access.account_authority import OPERATOR_INBOX, AccountAuthority
from headrace.bus import Bus, BusError, connect
from headrace.bus.account_jwt import push_account_jwt
from headrace.errors import HeadraceError
from headrace.ids import NodeName
from headrace.obs.logging import logger
from headrace.runtime.clock import Clock
from headrace_admission.nodes.join_tokens import HeldOutKey, Keys, RevokedKey, next_pause
from headrace_admission.settings import AdmissionSettings

_CONNECT_S: Final = 2.0
_LOOK_AGAIN_S: Final = 30.0
#: Seconds between two checks of the connection: a server may have restarted without the newest account JWT.
_LOOK_AT_CONNECTION_S: Final = 1.0
#: Seconds for which a key is revoked: longer than the lifetime of any node credential, whatever the setting was when it was
#: signed.
_REVOKED_S: Final = 367 * 86_400


class Revocations:
    """Sends the revoked keys to the server. It only adds to the server's revocations, and leaves out those whose time has passed.

    A server compares the time of a revocation with the time at which a JWT was signed. So a key whose pause is over is let in when the
    server has an account JWT without the key.
    """

    def __init__(
        self, bus: Bus, keys: Keys, settings: AdmissionSettings, clock: Clock, authority: AccountAuthority
    ) -> None:
        self._bus = bus
        self._keys = keys
        self._settings = settings
        self._clock = clock
        self._authority = authority
        #: Serializes updates: each reads the server's revocations and writes them before the next update reads.
        self._telling = anyio.Lock()
        #: Why the server does not have all revoked keys; empty: it has them.
        self._not_sent = ""
        #: The records of the bucket, and those that are still to be written there.
        self._records: dict[str, RevokedKey | HeldOutKey] = {}
        #: Unix time in seconds at which the first of the present pauses ends.
        self._next_end_s = math.inf

    async def revoke(self, node: NodeName, key: str) -> None:
        """Revoke a node's key and end its connection. Raises `BusError`. If the key was stored but not sent, `keep` sends it later."""
        await self._keys.revoke(key, RevokedKey(node, self._now_s() + _REVOKED_S))
        logger().info("key revoked", node=node, key=key)
        await self.send()

    async def hold_out(self, system: Bus, key: str, party: str, why: str) -> HeldOutKey | None:
        """End the connections of a key, and let it in again after a pause. Return None if it is not let in anyway. Raises `BusError`.

        `system` is a connection of the server's system account: in a flood it can take minutes to open one.
        """
        now_s = self._now_s()
        known = self._records.get(key)
        if known is not None and now_s <= known.until_s:
            await self._push(system)
            return None
        record = next_pause(known, party, why, first_s=self._settings.flood_pause_ms // 1000, now_s=now_s)
        # The server is told first, since in a flood the bucket answers late. The pause also ends if it was not recorded: each update
        # leaves out revocations whose time has passed.
        await self._push(system, {key: record})
        try:
            await self._keys.hold_out(key, record)
        except BusError as error:
            logger().warning("key that is held out not recorded", party=party, key=key, error=str(error))
        return record

    def trouble(self) -> str:
        """Return why the server does not have all revoked keys, and who is held out."""
        now_s = self._now_s()
        told = [
            f"{each.party} is held out until {datetime.fromtimestamp(each.until_s, UTC):%Y-%m-%d %H:%M:%S} UTC: {each.why}"
            for each in self._records.values()
            if isinstance(each, HeldOutKey) and now_s <= each.until_s
        ]
        return "; ".join(filter(None, [self._not_sent, *told]))

    async def send(self) -> None:
        """Send all revoked keys to the server. Raises `BusError`."""
        connection = connect(
            self._settings.server_urls,
            name="headrace-admission-account",
            credential=self._authority.system,
            inbox_prefix=OPERATOR_INBOX,
            connect_timeout_s=_CONNECT_S,
            ca_file=self._settings.ca_file,
        )
        async with connection as system:
            await self._push(system, await self._keys.revoked())

    async def _push(self, system: Bus, more: Mapping[str, RevokedKey | HeldOutKey] = {}) -> None:
        async with self._telling:
            now_s = self._now_s()
            newer = {key: each for key, each in more.items() if each.until_s > self._until_s(key)}
            records = {**self._records, **newer}
            revoked = {key: each.until_s for key, each in records.items() if now_s <= each.until_s}
            if await push_account_jwt(
                system, self._authority.account, lambda known: self._authority.account_jwt(known, revoked, now_s)
            ):
                logger().info("list of revoked keys sent to the server", keys=len(revoked))
            self._records = records
            ends_s = (revoked[key] for key in revoked if isinstance(records[key], HeldOutKey))
            self._next_end_s = min(ends_s, default=math.inf)

    def _until_s(self, key: str) -> int:
        return self._records[key].until_s if key in self._records else 0

    async def keep(self) -> None:
        """Send the revoked keys now, whenever the server may have restarted, at the end of each pause, and at intervals, until
        cancelled.
        """
        while True:
            reconnects = self._bus.statistics().get("reconnects", 0)
            try:
                await self.send()
                self._not_sent = ""
            except (HeadraceError, OSError) as error:
                self._not_sent = f"the server did not get the list of revoked keys: {error}"
                logger().warning("list of revoked keys not sent to the server", error=str(error))
            with anyio.move_on_after(_LOOK_AGAIN_S):
                while self._bus.statistics().get("reconnects", 0) == reconnects and not self._not_sent:
                    await anyio.sleep(_LOOK_AT_CONNECTION_S)
                    if self._now_s() > self._next_end_s:
                        break
                await anyio.sleep(_LOOK_AT_CONNECTION_S)

    def _now_s(self) -> int:
        return self._clock.wall_ms() // 1000
