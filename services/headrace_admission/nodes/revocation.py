"""Keys of nodes that count no more. They are kept in the bucket of keys, and the server ends their connections."""

from __future__ import annotations

from typing import Final

import anyio

from headrace.access.account_authority import OPERATOR_INBOX, AccountAuthority
from headrace.bus import Bus, connect
from headrace.bus.account_word import tell_account_word
from headrace.errors import HeadraceError
from headrace.ids import NodeName
from headrace.obs.logging import logger
from headrace.runtime.clock import Clock
from headrace_admission.nodes.keys import Keys, RevokedKey
from headrace_admission.settings import AdmissionSettings

_CONNECT_S: Final = 2.0
_LOOK_AGAIN_S: Final = 30.0
#: A server may have come back without the newest word.
_LOOK_AT_CONNECTION_S: Final = 1.0
#: Longer than any credential of a node lasts, whatever the setting said when it was signed.
_REVOKED_S: Final = 367 * 86_400


class Revocations:
    """The one that tells the server. It only adds to what the server's word revokes, so none is undone."""

    def __init__(
        self, bus: Bus, keys: Keys, settings: AdmissionSettings, clock: Clock, authority: AccountAuthority
    ) -> None:
        self._bus = bus
        self._keys = keys
        self._settings = settings
        self._clock = clock
        self._authority = authority
        #: Whoever reads what the server revokes writes it before the next one reads.
        self._telling = anyio.Lock()
        #: In words, while the server does not have all of them.
        self.trouble = ""

    async def revoke(self, node: NodeName, key: str) -> None:
        """Ends the connection of a node's key and lets it in no more. Raises `BusError`: it is kept, and told again."""
        await self._keys.revoke(key, RevokedKey(node, self._now_s() + _REVOKED_S))
        logger().info("key revoked", node=node, key=key)
        await self.tell()

    async def tell(self) -> None:
        """Has the server know all of them. Raises `BusError`."""
        connection = connect(
            self._settings.server_urls,
            name="headrace-admission-account",
            credential=self._authority.system,
            inbox_prefix=OPERATOR_INBOX,
            connect_timeout_s=_CONNECT_S,
            ca_file=self._settings.ca_file,
        )
        async with self._telling, connection as system:
            revoked = await self._keys.revoked()
            now_s = self._now_s()
            if await tell_account_word(
                system, self._authority.account, lambda known: self._authority.account_word(known, revoked, now_s)
            ):
                logger().info("server told which keys count no more", keys=len(revoked))

    async def keep(self) -> None:
        """Tells it at once, whenever the server may have come back, and now and then, until cancelled."""
        while True:
            reconnects = self._bus.statistics().get("reconnects", 0)
            try:
                await self.tell()
                self.trouble = ""
            except (HeadraceError, OSError) as error:
                self.trouble = f"the server was not told which keys count no more: {error}"
                logger().warning("server not told which keys count no more", error=str(error))
            with anyio.move_on_after(_LOOK_AGAIN_S):
                while self._bus.statistics().get("reconnects", 0) == reconnects and not self.trouble:  # noqa: ASYNC110
                    await anyio.sleep(_LOOK_AT_CONNECTION_S)
                await anyio.sleep(_LOOK_AT_CONNECTION_S)

    def _now_s(self) -> int:
        return self._clock.wall_ms() // 1000
