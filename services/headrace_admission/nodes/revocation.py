"""Revokes keys of nodes and of tokens, and holds keys out for a pause.

These keys are stored in the bucket of keys and sent to the server, which closes the connections that use them.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Final

import anyio

from headrace.access import jwt
from headrace.access.account_authority import OPERATOR_INBOX, AccountAuthority
from headrace.bus import Bus, BusError, connect
from headrace.bus.account_jwt import push_account_jwt
from headrace.errors import HeadraceError
from headrace.ids import NodeName
from headrace.obs.logging import logger
from headrace.runtime.clock import Clock
from headrace_admission.nodes.join_tokens import (
    HeldOutKey,
    Keys,
    PersonToken,
    Record,
    RevokedKey,
    next_pause,
    revoked_in,
)
from headrace_admission.settings import AdmissionSettings

_CONNECT_S: Final = 2.0
#: Seconds after which the server's list is read again. Tokens of a removed person are revoked then.
_LOOK_AGAIN_S: Final = 5.0
#: Seconds between two checks of the connection: a server may have restarted without the newest account JWT.
_LOOK_AT_CONNECTION_S: Final = 1.0
#: Seconds for which a key is revoked: longer than the lifetime of any node credential, whatever the setting was when it was
#: signed.
_REVOKED_S: Final = 367 * 86_400


class Revocations:
    """Sends the revoked keys to the server, in the JWT of the account.

    Revocations that the server has already stay in the JWT until their time has passed.

    The server compares the time of a revocation with the time at which a JWT was signed, not with its clock. So a key whose pause is
    over is let in only when the server gets an account JWT without the key.
    """

    def __init__(
        self, bus: Bus, keys: Keys, settings: AdmissionSettings, clock: Clock, authority: AccountAuthority
    ) -> None:
        self._bus = bus
        self._keys = keys
        self._settings = settings
        self._clock = clock
        self._authority = authority
        #: Held during an update of the server's revocations, so that no update overwrites another.
        self._telling = anyio.Lock()
        #: Why the server does not have all revoked keys; empty: it has them.
        self._not_sent = ""
        #: Keys that sign the JWTs of the account's users, according to the server; empty before the first answer.
        self.signers: frozenset[str] = frozenset()
        #: The keys that the server has revoked, as far as is known, each with the Unix time in seconds up to which it is revoked.
        self._revoked: dict[str, int] = {}
        #: The records of the bucket when they were last read.
        self._records: dict[str, Record] = {}
        #: Pauses that this process has begun and that are not over, whether they were recorded or not.
        self._pauses: dict[str, HeldOutKey] = {}
        #: Unix time in seconds at which the first of the present pauses ends.
        self._next_end_s = math.inf

    async def is_revoked(self, key: str, issued_at_s: int) -> bool:
        """Ask the server whether it has revoked the JWT that was issued for a key at this Unix time in seconds. Raises `BusError`."""
        await self.send()
        return self._revoked.get(key, -1) >= issued_at_s

    async def revoke(self, node: NodeName, key: str) -> None:
        """Revoke a node's key and end its connection. Raises `BusError`. If the key was stored but not sent, `keep` sends it later."""
        await self._revoke(key, RevokedKey(node, self._now_s() + _REVOKED_S))

    async def revoke_token(self, key: str, token: PersonToken) -> None:
        """Revoke a person's token and end its connections. Raises `BusError`, as `revoke`."""
        await self._revoke(key, token.revoked)

    async def _revoke(self, key: str, revoked: RevokedKey) -> None:
        await self._keys.revoke(key, revoked)
        logger().info("key revoked", node=revoked.node, user=revoked.user, key=key)
        await self.send()

    async def hold_out(self, system: Bus, key: str, party: str, why: str) -> HeldOutKey | None:
        """End the connections of a key, and let the key in again after a pause.

        Return None if the key is revoked or held out already. Raises `BusError`. `system` is an open connection of the server's
        system account, because opening one can take minutes during a flood.
        """
        now_s = self._now_s()
        known = self._known().get(key)
        if isinstance(known, RevokedKey | HeldOutKey) and now_s <= known.until_s:
            await self._push(system)
            return None
        record = next_pause(known, party, why, first_s=self._settings.flood_pause_ms // 1000, now_s=now_s)
        # The pause is sent to the server before it is recorded, since in a flood the bucket answers late. A pause that is not
        # recorded ends all the same: each update leaves out revocations whose time has passed.
        self._pauses[key] = record
        await self._push(system)
        try:
            await self._keys.hold_out(key, record)
        except BusError as error:
            logger().warning("key that is held out not recorded", party=party, key=key, error=str(error))
        return record

    def trouble(self) -> str:
        """Return a text that says why the server does not have all revoked keys, and which parties are held out; empty: no trouble."""
        now_s = self._now_s()
        told = [
            f"{each.party} is held out until {datetime.fromtimestamp(each.until_s, UTC):%Y-%m-%d %H:%M:%S} UTC: {each.why}"
            for each in self._known().values()
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
            self._records = await self._keys.records()
            await self._push(system)

    async def _push(self, system: Bus) -> None:
        async with self._telling:
            now_s = self._now_s()
            self._pauses = {key: each for key, each in self._pauses.items() if now_s <= each.until_s}
            records = self._known()

            def next_jwt(known: str) -> str | None:
                claims = jwt.claims_of(known)
                self.signers = jwt.signers_of(claims)
                revoked = revoked_in(records, jwt.revoked_by(claims))
                lasting = {key: until_s for key, until_s in revoked.items() if now_s <= until_s}
                self._revoked = {**jwt.revoked_by(claims), **lasting}
                return self._authority.account_jwt(known, lasting, now_s)

            if await push_account_jwt(system, self._authority.account, next_jwt):
                logger().info("list of revoked keys sent to the server")
            pauses = (each.until_s for each in records.values() if isinstance(each, HeldOutKey))
            self._next_end_s = min((until_s for until_s in pauses if now_s <= until_s), default=math.inf)

    def _known(self) -> dict[str, Record]:
        """Return the records, with the pauses that this process has begun. A revocation counts more than a pause."""
        pauses = {key: each for key, each in self._pauses.items() if not isinstance(self._records.get(key), RevokedKey)}
        return {**self._records, **pauses}

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
