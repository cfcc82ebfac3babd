"""A real HTTP endpoint on loopback that keeps what it gets, and answers as the test says."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple

__all__ = ["Received", "Receiver", "http_receiver", "serving"]

_PATIENCE_S = 40.0


class Received(NamedTuple):
    headers: dict[str, str]
    body: bytes


class Receiver:
    """`answer` gets the number of each request, from 0, and returns a status; 0: the connection is closed without an answer."""

    def __init__(self, answer: Callable[[int], int]) -> None:
        self.answer = answer
        self.url = ""
        self.count = 0
        self.accepted: list[Received] = []
        #: All requests, in the order of their arrival.
        self.requests: queue.Queue[Received] = queue.Queue()

    def next(self) -> Received:
        """The next request; waits for it."""
        return self.requests.get(timeout=_PATIENCE_S)


@contextmanager
def http_receiver(answer: Callable[[int], int] = lambda _: 204) -> Iterator[Receiver]:
    receiver = Receiver(answer)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            received = Received({name.lower(): value for name, value in self.headers.items()}, body)
            nth, receiver.count = receiver.count, receiver.count + 1
            status = receiver.answer(nth)
            if 200 <= status < 300:
                receiver.accepted.append(received)
            receiver.requests.put(received)
            if status:
                self.send_response(status)
                self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with serving(Handler) as url:
        receiver.url = f"{url}/ended"
        yield receiver


@contextmanager
def serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """Serve requests in threads, and yield the address of the server."""
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
