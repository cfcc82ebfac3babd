"""Prints the addresses of the web service of `headrace up`. Each address lets one browser in; then the web service writes a new address to
its file.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

import anyio
import msgspec

_POLL_S: Final = 0.3


class _Address(msgspec.Struct, frozen=True):
    """Content of the file that the web service writes when it begins to listen, and after each use of the ticket in its address."""

    url: str
    api: str
    header_file: str


async def tell_addresses(file: Path, tell: Callable[[str], None]) -> None:
    """Print each address that the web service writes to its file. Runs until cancelled."""
    told = b""
    while True:
        text = _content(file)
        if text not in (b"", told):
            address = msgspec.json.decode(text, type=_Address)
            tell(f"open  {address.url}")
            if not told:
                tell(f"API   curl -H @{address.header_file} {address.api}/operations")
            told = text
        await anyio.sleep(_POLL_S)


def _content(file: Path) -> bytes:
    """Return the content of a file, or nothing if the service does not listen yet."""
    try:
        return file.read_bytes()
    except OSError:
        return b""
