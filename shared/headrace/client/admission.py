"""Persons, hosts and files, as admission knows them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from headrace.client.asking import Asker
from headrace.wire.files import Archive, Upload, Uploaded
from headrace.wire.joining import MakeToken, TokenMade
from headrace.wire.rights import GetRights, Rights

if TYPE_CHECKING:
    from headrace.archives import Packed  # packing takes longer to load than most commands to run

#: A piece is sent again for so long.
_PIECE_S: Final = 30.0


class Files:
    """The files that a person sends for operations."""

    def __init__(self, asker: Asker) -> None:
        self._asker = asker

    async def send(self, packed: Packed, on_sent: Callable[[int], None] = lambda _: None) -> Archive:
        """Sends the pieces that are missing there. `on_sent` hears how many bytes are there.

        Raises `Refused`, `Unanswered`.
        """
        archive = packed.archive
        uploaded = await self._asker.ask("op.upload", Upload(archive), Uploaded)
        while uploaded.missing:
            piece = uploaded.missing[0]
            on_sent(archive.size_bytes - sum(map(archive.piece_bytes, uploaded.missing)))
            request = Upload(archive, piece, packed.piece(piece))
            uploaded = await self._asker.ask("op.upload", request, Uploaded, timeout_s=_PIECE_S)
        on_sent(archive.size_bytes)
        return archive


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
