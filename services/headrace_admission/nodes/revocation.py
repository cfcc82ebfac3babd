"""Revoked keys of nodes and of tokens. They are stored in the bucket of keys, and the server closes their connections."""

from __future__ import annotations

from typing import Final

import anyio

from headrace.access import jwt
from headrace.access.account_authority import OPERATOR_INBOX, AccountAuthority
from headrace.bus import Bus, connect
from headrace.bus.account_jwt import push_account_jwt
from headrace.errors import HeadraceError
from headrace.ids import NodeName
from headrace.obs.logging import logger
from headrace.runtime.clock import Clock
from headrace_admission.nodes.join_tokens import Keys, PersonToken, RevokedKey, revoked_in
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
    """Sends the revoked keys to the server. It only adds to the server's revocations, so none is undone."""

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
        self.trouble = ""

    async def revoke(self, node: NodeName, key: str) -> None:
        """Revoke a node's key and end its connection. Raises `BusError`. If the key was stored but not sent, `keep` sends it later."""
        await self._revoke(key, RevokedKey(node, self._now_s() + _REVOKED_S))

    async def revoke_token(self, key: str, token: PersonToken) -> None:
        """Revoke a person's token and end its connections. Raises `BusError`, as `revoke`."""
        await self._revoke(key, RevokedKey(NodeName(""), token.expires_at_ms // 1000 + 1, token.user))

    async def _revoke(self, key: str, revoked: RevokedKey) -> None:
        await self._keys.revoke(key, revoked)
        logger().info("key revoked", node=revoked.node, user=revoked.user, key=key)
        await self.send()

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
        async with self._telling, connection as system:
            records = await self._keys.records()
            now_s = self._now_s()

            def next_jwt(known: str) -> str | None:
                revoked = revoked_in(records, jwt.revoked_by(jwt.claims_of(known)))
                return self._authority.account_jwt(known, revoked, now_s)

            if await push_account_jwt(system, self._authority.account, next_jwt):
                logger().info("list of revoked keys sent to the server")

    async def keep(self) -> None:
        """Send the revoked keys now, whenever the server may have restarted, and at intervals, until cancelled."""
        while True:
            reconnects = self._bus.statistics().get("reconnects", 0)
            try:
                await self.send()
                self.trouble = ""
            except (HeadraceError, OSError) as error:
                self.trouble = f"the server did not get the list of revoked keys: {error}"
                logger().warning("list of revoked keys not sent to the server", error=str(error))
            with anyio.move_on_after(_LOOK_AGAIN_S):
                while self._bus.statistics().get("reconnects", 0) == reconnects and not self.trouble:  # noqa: ASYNC110
                    await anyio.sleep(_LOOK_AT_CONNECTION_S)
                await anyio.sleep(_LOOK_AT_CONNECTION_S)

    def _now_s(self) -> int:
        return self._clock.wall_ms() // 1000
