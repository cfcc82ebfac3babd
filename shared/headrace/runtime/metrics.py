"""The HTTP paths `/metrics`, for Prometheus, and `/health`, for a supervisor that restarts the process if it hangs.

A thread serves HTTP, and has the event loop read the values for each answer. So an answer also shows that the loop does not hang.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from http.server import BaseHTTPRequestHandler
from socketserver import ThreadingMixIn
from threading import Semaphore, Thread
from typing import TYPE_CHECKING, Any, Final
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

import anyio
import anyio.from_thread
import anyio.lowlevel
import anyio.to_thread

from headrace.bus import Bus
from headrace.errors import BadInput
from headrace.obs.health import Health
from headrace.obs.logging import logger
from headrace.runtime.engine import Figure, gauge

if TYPE_CHECKING:
    from wsgiref.types import WSGIApplication

    from anyio.abc import TaskStatus

    from headrace.runtime.role import Role

#: Seconds after which a client that sends no request is disconnected.
_SILENCE_S: Final = 10
#: Largest number of connections that are served at a time, each in a thread. Any further connection is closed at once.
MOST_CONNECTIONS: Final = 16
#: Function that takes a snapshot on the event loop and returns a second function, which builds the detailed metrics from the
#: snapshot. The second function runs in a thread, because so many metrics would block the loop.
Details = Callable[[], Callable[[], Iterable[Figure]]]


def no_details() -> Callable[[], Iterable[Figure]]:
    """Return a function that returns no metrics, for a process without detailed metrics."""
    return tuple


class Metrics:
    """The metrics and the health of one process. Until the process leads a role, they describe only the process itself."""

    def __init__(self, bus: Bus, labels: dict[str, str]) -> None:
        """`labels` are added to every metric."""
        self._bus = bus
        self._labels = labels
        self._figures: Callable[[], list[Figure]] = list
        self._details: Details = no_details
        self._role: Role | None = None

    def report(self, role: Role | None, figures: Callable[[], list[Figure]], details: Details) -> None:
        """Report these metrics and this role from now on."""
        self._role, self._figures, self._details = role, figures, details

    async def serve(self, host: str, port: int, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Serve HTTP until cancelled. Raises `BadInput` if the port is not free."""
        application = self._application(anyio.lowlevel.current_token())
        try:
            # The server is made in a thread, because looking up the host's name may take long.
            server = await anyio.to_thread.run_sync(make_server, host, port, application, _Server, _Handler)
        except OSError as error:
            raise BadInput("metrics_port", f"{host}:{port}", f"a free port ({error.strerror})") from None
        logger().info("metrics are served", host=host, port=server.server_port)
        # The thread is started even if nothing is served, because `shutdown` of a server that never served would never
        # return.
        Thread(target=server.serve_forever, daemon=True).start()
        task_status.started()
        try:
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(server.shutdown)
            server.server_close()

    def figures(self) -> list[Figure]:
        """Return all metrics except the detailed metrics. They include whether the process leads its role, and in which term."""
        leads, term = (0, 0) if self._role is None else (1, self._role.term)
        return [
            *self._figures(),
            gauge("leads", "", leads, "1 while this process is the leader of its role, 0 while it is a standby."),
            gauge("term", "", term, "Term of this process as the leader, 0 while it is a standby."),
        ]

    def _application(self, loop: anyio.lowlevel.EventLoopToken) -> WSGIApplication:
        # The import is here because it takes a tenth of a second, which a process without metrics need not spend.
        from headrace.obs.metrics import application

        def read() -> tuple[list[Figure], Callable[[], Iterable[Figure]]]:
            return anyio.from_thread.run_sync(lambda: (self.figures(), self._details()), token=loop)

        def health() -> Health:
            return anyio.from_thread.run_sync(self.health, token=loop)

        return application(read, health, self._labels)

    def health(self) -> Health:
        """Return the health of the process as it is now."""
        return Health(self._bus.connected, self._role is not None, 0 if self._role is None else self._role.term)


def _not_logged(_handler: BaseHTTPRequestHandler, format: str, *_arguments: object) -> None:
    """Log nothing: requests arrive every few seconds."""


class _Handler(WSGIRequestHandler):
    timeout = _SILENCE_S
    log_message = _not_logged


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True

    def __init__(self, *arguments: Any) -> None:
        self._free = Semaphore(MOST_CONNECTIONS)
        super().__init__(*arguments)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection in a thread, or close it if too many connections are open."""
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve a connection, in its thread."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()
