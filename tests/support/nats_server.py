"""A real nats-server on a free loopback port, for tests. It ends only the process that it started itself."""

from __future__ import annotations

import os
import random
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

__all__ = ["NatsServer", "nats_cluster", "nats_server"]

_START_TIMEOUT_S = 20.0


class NatsServer:
    """One server with JetStream in a folder of its own, which survives `kill` and `restart`, as does the port.

    `config` is appended to the configuration, an authorization for example; `store_bytes` is the room for streams, else that of the disk.
    """

    def __init__(self, config: str = "", *, jetstream: bool = True, store_bytes: int | None = None) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="headrace-nats-"))
        self.port = 0
        self._config = config
        self._jetstream = jetstream
        self._store_bytes = store_bytes
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """Of the process that runs now."""
        assert self._process is not None
        return self._process.pid

    def log(self) -> str:
        """What the server has written."""
        return (self.folder / "log").read_text(encoding="utf-8", errors="replace")

    def start(self) -> None:
        """Starts it and returns when it listens. Another process may take a free port first, so a few are tried."""
        for _ in range(1 if self.port else 5):
            if self._start_once(self.port or free_port()):
                return
        raise RuntimeError(f"nats-server does not start:\n{self.log()}")

    def kill(self) -> None:
        """SIGKILL, as the worst end of it."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Ends it, orderly."""
        self._end(signal.SIGTERM)

    def restart(self) -> None:
        """Kills it where it runs and starts it again, with the same port, store and configuration."""
        self.kill()
        self.start()

    def freeze(self) -> None:
        """SIGSTOP: its connections stay open and nothing moves when this returns."""
        self._signal(signal.SIGSTOP)
        assert self._process is not None
        os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WNOWAIT)

    def thaw(self) -> None:
        """SIGCONT."""
        self._signal(signal.SIGCONT)

    def fill_disk(self) -> None:
        """No file of it may grow any more, until it is started anew: that is what a full disk is to it."""
        assert self._process is not None
        resource.prlimit(self._process.pid, resource.RLIMIT_FSIZE, (1, resource.RLIM_INFINITY))

    def reload(self, config: str) -> None:
        """Puts another configuration in force; the server takes it a moment later."""
        self._config = config
        self._write_config()
        self._signal(signal.SIGHUP)

    def forget_store(self) -> None:
        """Deletes what JetStream kept. Only while it does not run."""
        assert self._process is None
        shutil.rmtree(self.folder / "store", ignore_errors=True)

    def remove(self) -> None:
        """Ends it and deletes its folder."""
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _start_once(self, port: int) -> bool:
        assert self._process is None
        self.port = port
        self._write_config()
        (self.folder / "log").write_bytes(b"")
        binary = Path(sys.executable).with_name("nats-server")
        program = str(binary) if binary.exists() else "nats-server"
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen([program, "-c", str(self.folder / "config")], stdout=log, stderr=log)
        deadline = time.monotonic() + _START_TIMEOUT_S
        while time.monotonic() < deadline and self._process.poll() is None:
            # A port that answers may be somebody else's; the log is this one's.
            if "Server is ready" in self.log():
                return True
            time.sleep(0.01)
        self._end(signal.SIGKILL)
        return False

    def _write_config(self) -> None:
        text = f'listen: "127.0.0.1:{self.port}"\nserver_name: "s{self.port}"\n'
        if self._jetstream:
            room = f", max_file_store: {self._store_bytes}" if self._store_bytes is not None else ""
            text += f'jetstream {{ store_dir: "{self.folder / "store"}", sync_interval: always{room} }}\n'
        (self.folder / "config").write_text(text + self._config, encoding="utf-8")

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def _end(self, number: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if process.poll() is None:
            process.send_signal(signal.SIGCONT)
            process.send_signal(number)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextmanager
def nats_server(config: str = "", *, jetstream: bool = True, store_bytes: int | None = None) -> Iterator[NatsServer]:
    """A running server, removed at the end."""
    server = NatsServer(config, jetstream=jetstream, store_bytes=store_bytes)
    try:
        server.start()
        yield server
    finally:
        server.remove()


@contextmanager
def nats_cluster(servers: int, config: str = "") -> Iterator[list[NatsServer]]:
    """Running servers of one cluster. `s<port>` is the name of each."""
    ports = [free_port() for _ in range(servers)]
    routes = ", ".join(f'"nats://127.0.0.1:{port}"' for port in ports)
    with ExitStack() as stack:
        yield [
            stack.enter_context(
                nats_server(f'cluster {{ name: tested, listen: "127.0.0.1:{port}", routes: [{routes}] }}\n{config}')
            )
            for port in ports
        ]


#: Descriptors that keep other processes from the ports that this one was given last, until they are used. At most `_MOST_CLAIMS`.
_claims: deque[int] = deque()
_MOST_CLAIMS = 8


def free_port() -> int:
    """A port that is free now, below those that Linux gives to outgoing connections: none of them takes it before it is used."""
    while True:
        # Of its own: others seed that of everybody, and two workers would look at the same ports.
        port = random.SystemRandom().randrange(10_000, 32_000)
        claim = socket.socket(socket.AF_UNIX)
        with socket.socket() as probe:
            try:
                # Two processes that looked at the same time would both find the port free. Only one gets the name.
                claim.bind(f"\0headrace-test-port-{port}")
                probe.bind(("127.0.0.1", port))
            except OSError:
                claim.close()
                continue
        _claims.append(claim.detach())
        if len(_claims) > _MOST_CLAIMS:
            os.close(_claims.popleft())
        return port
