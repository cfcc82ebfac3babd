"""Addresses of NATS servers as people write them: one address, or the addresses of a cluster separated by commas."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

from headrace.errors import BadInput

_SCHEMES: Final = ("nats", "tls", "ws", "wss")


def parse_server_urls(text: str, *, place: str) -> list[str]:
    """Return the addresses in the order in which they are written. Raises `BadInput`."""
    urls = [each.strip() for each in text.split(",")]
    for url in urls:
        if not _is_address(url):
            raise BadInput(place, url, "addresses such as nats://host:4222, with commas between them")
    return urls


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in _SCHEMES and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
