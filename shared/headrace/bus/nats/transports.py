"""The transport below a client of nats-py, which leaves it open in places."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nats.aio.client import Client


def transport_of(client: Client) -> asyncio.WriteTransport | None:
    """The transport of the client's latest socket, or None while it has none."""
    writer = getattr(getattr(client, "_transport", None), "_io_writer", None)
    return None if writer is None else writer.transport


def abort(client: Client) -> None:
    """Closes the socket at once, without sending what is left. One that is closed already takes no notice."""
    if (transport := transport_of(client)) is not None:
        with contextlib.suppress(AttributeError):  # early releases of Python 3.11, at TLS that is closed already
            transport.abort()
