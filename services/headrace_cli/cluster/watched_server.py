"""`python -m headrace_cli.cluster.watched_server nats-server -c FILE`: the NATS server of a systemd unit, with a watcher beside it.

The NATS server sends systemd no messages. So this process becomes the server, and a child process watches the server: the child connects as
a client does, and reports a sign of life to systemd when the server greets it. A server that is stopped or hangs accepts connections, but
greets nobody. The process of the unit is the server itself, so that signals and logs are as without a watcher.
"""

from __future__ import annotations

import os
import re
import socket
import sys
import time
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from headrace.systemd.notifier import Notifier, notifier_of

if TYPE_CHECKING:
    import ssl

#: The address in a server's configuration at which it listens for clients.
LISTEN: Final = re.compile(r'^listen: "(.*):([0-9]+)"$', re.MULTILINE)
#: The setting of a server that greets a client only after the handshake of TLS.
_HANDSHAKE_FIRST: Final = "handshake_first: true"
#: First bytes that a server sends to each client.
_GREETING: Final = b"INFO "
#: Longest time to wait for a greeting, in seconds.
_GREETING_S: Final = 5.0
#: Seconds between two attempts to get the first greeting of a server.
_LOOK_S: Final = 0.1
#: Addresses that stand for all interfaces. For each, an address at which this host reaches a server that listens on all interfaces.
_EVERYWHERE: Final = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}


class ClientAddress(NamedTuple):
    """The address at which a server greets clients."""

    host: str
    port: int
    handshake_first: bool = False


def main() -> None:
    """Start the watcher, and become the server."""
    command = sys.argv[1:]
    notifier = notifier_of(os.environ, os.getpid(), time.monotonic)
    address = client_address(Path(command[-1]).read_text(encoding="utf-8"))
    server = os.getpid()
    if notifier.is_heard and os.fork() == 0:
        watch(address, notifier, server)
        os._exit(0)
    os.execv(command[0], command)


def client_address(configuration: str) -> ClientAddress | None:
    """Return the address at which a server greets clients; None if the configuration, which people may change, does not name it."""
    found = LISTEN.search(configuration)
    if found is None:
        return None
    host = found[1].strip("[]")
    return ClientAddress(_EVERYWHERE.get(host, host), int(found[2]), _HANDSHAKE_FIRST in configuration)


def watch(address: ClientAddress | None, notifier: Notifier, server: int) -> None:
    """Tell systemd that the server is alive, until the server has ended.

    `server` is the process id of the server, which is the parent of this process. Without an address, only the end of the server is
    noticed.
    """
    while os.getppid() == server:
        is_greeted = address is None or greets(address, min(_GREETING_S, notifier.period_s))
        if is_greeted and not notifier.is_ready:
            where = f"at port {address.port}" if address else "at an address that is not watched"
            notifier.ready(f"serves clients {where}")
        elif is_greeted or not notifier.is_ready:
            # A server that has not greeted yet counts as alive: reading a large store at its start may take a long time.
            notifier.alive()
        _wait(notifier.period_s if notifier.is_ready else _LOOK_S, server)


def greets(address: ClientAddress, timeout_s: float = _GREETING_S) -> bool:
    """Return True if the server greets a new client in time."""
    try:
        with socket.create_connection((address.host, address.port), timeout=timeout_s) as plain:
            if not address.handshake_first:
                return plain.recv(len(_GREETING), socket.MSG_WAITALL) == _GREETING
            with _unchecked().wrap_socket(plain) as client:
                return client.recv(len(_GREETING)) == _GREETING
    except OSError:
        return False


@cache
def _unchecked() -> ssl.SSLContext:
    """Return a context that trusts any server: nothing is sent to it, and its certificate may name other addresses."""
    # Only a server with TLS needs the module, which takes 4 MB.
    import ssl

    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def _wait(wait_s: float, server: int) -> None:
    until_s = time.monotonic() + wait_s
    while time.monotonic() < until_s and os.getppid() == server:
        time.sleep(min(1.0, wait_s))


if __name__ == "__main__":
    main()
