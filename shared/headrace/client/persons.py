"""The person who asks, as services know them."""

from __future__ import annotations

from headrace.client.asking import Asker
from headrace.wire.rights import GetRights, Rights


class Persons:
    """Questions of a person about themselves."""

    def __init__(self, asker: Asker) -> None:
        self._asker = asker

    async def rights(self) -> Rights:
        """The caller's name and rights. Raises `Refused`, `Unanswered`."""
        return await self._asker.ask("rights", GetRights(), Rights)
