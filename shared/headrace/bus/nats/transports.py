"""Access to the transport of a nats-py client. `abort` closes the transport in cases in which nats-py would leave it open."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nats.aio.client import Client


def transport_of(client: Client) -> asyncio.WriteTransport | None:
    """Return the transport of the client's latest socket, or None while there is none."""
    writer = getattr(getattr(client, "_transport", None), "_io_writer", None)
    return None if writer is None else writer.transport


def abort(client: Client) -> None:
    """Close the socket at once, without sending what is left. Does nothing if the socket is closed."""
    if (transport := transport_of(client)) is not None:
        with contextlib.suppress(AttributeError):  # early releases of Python 3.11 raise this if TLS is already closed
            transport.abort()
