"""The renewal of the agent's credential, at each start and from half of its time on.

At its start it gets the rights that nodes have now.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import anyio
import msgspec

from headrace.access.jwt import claims_of
from headrace.access.key_credential import KeyCredential
from headrace.bus import Bus, BusError
from headrace.bus.credential_files import read_credential
from headrace.durable_files import replace_durably
from headrace.obs.logging import logger
from headrace.runtime.clock import Clock

#: Parts of its whole time, between which it is first renewed: each node at a time of its own.
_RENEWED_AFTER: Final = (0.5, 0.6)
#: The wall clock may be set meanwhile, and time passes while the machine sleeps.
_LOOK_AT_CLOCK_S: Final = 60.0
#: Between two tries: a part of the time since the first.
_PART_OF_DELAY: Final = 0.05
_SHORTEST_PAUSE_S: Final = 0.2


class CredentialRenewal:
    """Keeps the file of a credential that expires. Does nothing with one that lasts."""

    def __init__(self, file: str, bus: Bus, clock: Clock, ask: Callable[[str], Awaitable[str | None]]) -> None:
        """`ask` returns a new word about a public key, None if nobody gave one. Raises `BadInput`."""
        self._bus = bus
        self._clock = clock
        self._ask = ask
        self._file = file
        credential = read_credential(file)
        expires = isinstance(credential, KeyCredential) and "exp" in claims_of(credential.jwt)
        self._credential = credential if isinstance(credential, KeyCredential) and expires else None
        self._part = random.Random().uniform(*_RENEWED_AFTER)

    async def renew(self) -> bool:
        """True if it was renewed, and is in use over a new connection."""
        if self._credential is None:
            return False
        word = await self._ask(claims_of(self._credential.jwt)["sub"])
        if word is None:
            return False
        self._credential = msgspec.structs.replace(self._credential, jwt=word)
        try:
            replace_durably(Path(self._file), self._credential.text())
        except OSError as error:
            logger().error("credential not kept: the next life of the agent has the old one", error=str(error))
        try:
            await self._bus.renew(self._credential)
        except BusError as error:
            logger().warning("credential renewed, and no new connection yet", error=str(error))
        logger().info("credential renewed", next_in_s=round(self._left_s()))
        return True

    async def keep(self) -> None:
        """Renews it whenever that is due, until cancelled."""
        while self._credential is not None:
            if (left_s := self._left_s()) > 0:
                await anyio.sleep(min(left_s, _LOOK_AT_CLOCK_S))
            elif not await self.renew():
                await anyio.sleep(max(_SHORTEST_PAUSE_S, min(-left_s * _PART_OF_DELAY, _LOOK_AT_CLOCK_S)))

    def _left_s(self) -> float:
        """Seconds until it is to be renewed."""
        assert self._credential is not None
        claims = claims_of(self._credential.jwt)
        due_s: float = claims["iat"] + (claims["exp"] - claims["iat"]) * self._part
        return due_s - self._clock.wall_ms() / 1000
