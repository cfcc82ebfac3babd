"""Renews the agent's credential: at each start of the agent, and whenever about half of the credential's lifetime has passed.

The renewal at the start gives the credential the rights that nodes have in the present release.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Final

import anyio
import msgspec

from headrace.access.jwt import claims_of
from headrace.access.key_credential import KeyCredential
from headrace.bus import Bus, BusError
from headrace.bus.credential_files import read_credential
from headrace.files.durable import replace_durably
from headrace.obs.logging import logger
from headrace.runtime.clock import Clock

#: Smallest and largest fraction of a credential's lifetime that passes before it is renewed. Each agent draws a fraction between the two at
#: random, so that not all nodes renew at once.
_RENEWED_AFTER: Final = (0.5, 0.6)
#: Longest time in seconds until the wall clock is read again. The clock may be set, or advance while the machine is suspended, and the
#: renewal may then be due sooner.
_LOOK_AT_CLOCK_S: Final = 60.0
#: Pause between two tries to renew, as a fraction of the time that has passed since the renewal was due.
_PART_OF_DELAY: Final = 0.05
_SHORTEST_PAUSE_S: Final = 0.2


class CredentialRenewal:
    """Renews the credential in a file before it expires. Does nothing if the credential does not expire."""

    def __init__(
        self, file: str, buses: Iterable[Bus], clock: Clock, ask: Callable[[str], Awaitable[str | None]]
    ) -> None:
        """`buses` are all connections of the agent; each of them will use the renewed credential.

        `ask` returns a new JWT for a public key, or None if no JWT was granted. Raises `BadInput`.
        """
        self._buses = list(dict.fromkeys(buses))
        self._clock = clock
        self._ask = ask
        self._file = file
        credential = read_credential(file)
        expires = isinstance(credential, KeyCredential) and "exp" in claims_of(credential.jwt)
        self._credential = credential if isinstance(credential, KeyCredential) and expires else None
        self._part = random.Random().uniform(*_RENEWED_AFTER)

    async def renew(self) -> bool:
        """Renew the credential, write it to the file, and make all connections use it.

        Return False if there is nothing to renew or no JWT was granted.
        """
        if self._credential is None:
            return False
        word = await self._ask(claims_of(self._credential.jwt)["sub"])
        if word is None:
            return False
        self._credential = msgspec.structs.replace(self._credential, jwt=word)
        try:
            replace_durably(Path(self._file), self._credential.text())
        except OSError as error:
            logger().error(
                "credential not written to its file: after a restart the agent uses the old credential",
                error=str(error),
            )
        for bus in self._buses:
            try:
                await bus.renew(self._credential)
            except BusError as error:
                logger().warning("credential renewed, but not used for a new connection yet", error=str(error))
        logger().info("credential renewed", next_in_s=round(self._left_s()))
        return True

    async def keep(self) -> None:
        """Renew the credential whenever that is due, until cancelled."""
        while self._credential is not None:
            if (left_s := self._left_s()) > 0:
                await anyio.sleep(min(left_s, _LOOK_AT_CLOCK_S))
            elif not await self.renew():
                await anyio.sleep(max(_SHORTEST_PAUSE_S, min(-left_s * _PART_OF_DELAY, _LOOK_AT_CLOCK_S)))

    def _left_s(self) -> float:
        """Return the seconds until the renewal is due. The number is negative if the renewal is overdue."""
        assert self._credential is not None
        claims = claims_of(self._credential.jwt)
        due_s: float = claims["iat"] + (claims["exp"] - claims["iat"]) * self._part
        return due_s - self._clock.wall_ms() / 1000
