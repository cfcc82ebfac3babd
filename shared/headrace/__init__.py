"""Headrace shares a fleet of hosts between teams: pools own guarantees and weights, operations run their jobs in pools.

`headrace.connect()` is the way in for programs. `headrace.client` holds what it returns and raises.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from headrace.client import Client

__all__ = ["connect"]


def connect(
    *,
    state: Path | str | None = None,
    url: str = "",
    credential_file: Path | str | None = None,
    ca_file: Path | str | None = None,
    user: str = "",
    timeout_s: float = 10.0,
) -> AbstractAsyncContextManager[Client]:
    """Connects to Headrace: `async with headrace.connect() as client`.

    Without arguments it finds the server that `headrace up` runs, by its state folder. See `headrace.client.connect`.
    """
    # The client stands on the bus, which engines and the runner must never load: it is imported when it is wanted.
    from headrace.client import connect as open_client

    return open_client(
        state=state, url=url, credential_file=credential_file, ca_file=ca_file, user=user, timeout_s=timeout_s
    )
