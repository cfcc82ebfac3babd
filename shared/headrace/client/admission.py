"""Persons and hosts, as admission knows them."""

from __future__ import annotations

from headrace.client.asking import Asker
from headrace.wire.joining import MakeToken, TokenMade
from headrace.wire.rights import GetRights, Rights


class Persons:
    """Questions of a person about themselves."""

    def __init__(self, asker: Asker) -> None:
        self._asker = asker

    async def rights(self) -> Rights:
        """The caller's name and rights. Raises `Refused`, `Unanswered`."""
        return await self._asker.ask("rights", GetRights(), Rights)


class Hosts:
    """The hosts that join as nodes."""

    def __init__(self, asker: Asker) -> None:
        self._asker = asker

    async def make_token(self, request: MakeToken) -> TokenMade:
        """Has a key let in one host, for some minutes. It is for administrators. Raises `Refused`, `Unanswered`."""
        return await self._asker.ask("node.token", request, TokenMade)
