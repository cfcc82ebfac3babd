"""Headrace shares a fleet of hosts between teams: pools own guarantees and weights, operations run their jobs in pools.

Programs use `headrace.Client()`, or `headrace.connect()` in an event loop. The classes and errors of both are in `headrace.client`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from headrace import client
    from headrace.client.blocking import Client
    from headrace.executor import Executor

__all__ = ["Client", "Executor", "__version__", "connect"]

#: The version of the distribution and of the image. pyproject.toml reads it from here.
__version__ = "0.1.0"


def connect(
    *,
    state: Path | str | None = None,
    url: str = "",
    credential_file: Path | str | None = None,
    ca_file: Path | str | None = None,
    user: str = "",
    timeout_s: float = 10.0,
) -> AbstractAsyncContextManager[client.Client]:
    """Connect to Headrace: `async with headrace.connect() as client`.

    Without arguments it connects to the server that `headrace up` runs, which it finds by the state folder. See
    `headrace.client.connect`.
    """
    # The client is imported only when it is used, because it loads the bus, which engines and the runner must never load.
    from headrace.client import connect as open_client

    return open_client(
        state=state, url=url, credential_file=credential_file, ca_file=ca_file, user=user, timeout_s=timeout_s
    )


def __getattr__(name: str) -> object:
    # Both classes are imported only when they are used, as in `connect`, because they load the bus.
    match name:
        case "Client":
            from headrace.client.blocking import Client

            return Client
        case "Executor":
            from headrace.executor import Executor

            return Executor
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
