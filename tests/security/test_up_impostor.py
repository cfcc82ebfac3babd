"""Another account of the machine listens at the port of `headrace up` while the server is gone: it learns nothing, and commands nobody."""

from __future__ import annotations

import os
import signal
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest

import headrace
from headrace.bus import Credential, CredentialRefused, connect
from headrace.client.place import find_place
from headrace_cli.cluster.certificates import new_certificates
from tests.support.headrace_up import Up

pytestmark = pytest.mark.long

GREETING = b'INFO {"server_id":"x","version":"2.15.1","max_payload":1048576,"auth_required":true}\r\n'
#: Connections of four services, of which each has two, of the agent, and of `up` itself.
CONNECTIONS = 10


class Impostor:
    """Greets every connection in the clear, or after a handshake of its own where it has a `context`, and keeps what it hears."""

    def __init__(self, port: int, context: ssl.SSLContext | None = None) -> None:
        self.context = context
        self.heard: list[bytes] = []
        self.greeted = 0
        self.enough = threading.Event()
        self._socket = self._bound(port)

    @staticmethod
    def _bound(port: int) -> socket.socket:
        while True:
            with suppress(OSError):  # the server has not gone yet
                return socket.create_server(("127.0.0.1", port))

    def serve(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._socket.accept()
                threading.Thread(target=self._greet, args=(connection,), daemon=True).start()

    def _greet(self, connection: socket.socket) -> None:
        connection.settimeout(1.0)
        data = b""
        with connection, suppress(OSError):
            if self.context is not None:
                connection = self.context.wrap_socket(connection, server_side=True)
            self.greeted += 1
            connection.sendall(GREETING)
            while piece := connection.recv(65_536):
                data += piece
        self.heard.append(data)
        if len(self.heard) >= CONNECTIONS:
            self.enough.set()

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


@contextmanager
def impostor_at(up: Up, context: ssl.SSLContext | None = None) -> Iterator[Impostor]:
    """Takes the port of an `up` that is held back from starting its server again."""
    port = urlsplit(find_place(state=up.state).url).port or 0
    up.send(signal.SIGSTOP)
    try:
        (server,) = (found.pid for found in up.processes() if found.role == "nats-server")
        os.kill(server, signal.SIGKILL)
        impostor = Impostor(port, context)
        threading.Thread(target=impostor.serve, daemon=True).start()
        try:
            yield impostor
        finally:
            impostor.close()
    finally:
        up.send(signal.SIGCONT)


def secrets_of(up: Up) -> list[bytes]:
    files = [up.state / "credential", *(up.state / "credentials").iterdir()]
    return [file.read_bytes().strip().partition(b":")[2] for file in files]


def test_no_word_of_a_credential_reaches_an_impostor_and_work_goes_on_after_it(tmp_path: Path) -> None:
    for name, text in new_certificates("127.0.0.1").items():
        (tmp_path / name).write_text(text)
    forged = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    forged.load_cert_chain(tmp_path / "server.pem", tmp_path / "server.key")
    with Up() as up, up.begin("events", "--follow") as follower:
        for context in (None, forged):
            with impostor_at(up, context) as impostor:
                assert impostor.enough.wait(30.0)
            said = b"".join(impostor.heard)

            assert [word for word in (b"CONNECT", *secrets_of(up)) if word in said] == []
            if context is None:
                # The beginning of a handshake, or nothing.
                assert {data[:1] for data in impostor.heard} - {b""} == {b"\x16"}
            else:
                assert impostor.greeted == 0  # each client ended the handshake
            up.run("run", "--wait", "--", "true")
        follower.kill()


async def test_passwords_and_authority_are_new_at_each_start() -> None:
    with Up() as up:
        old, secrets = find_place(state=up.state), secrets_of(up)
        authority = (up.state / "ca.pem").read_text()
        user, _, password = (up.state / "credential").read_text().strip().partition(":")
        up.stop()
        up.start()
        new = find_place(state=up.state)

        assert set(secrets_of(up)).isdisjoint(secrets)
        assert (up.state / "ca.pem").read_text() != authority
        assert (old.url[:6], new.url[:6]) == ("tls://", "tls://")
        try:
            credential = Credential(user=user, password=password)
            async with connect([new.url], name="test", credential=credential, ca_file=new.ca_file):
                raise AssertionError("an old password opens a new server")
        except CredentialRefused:
            pass


@pytest.mark.long
async def test_a_client_that_stays_open_finds_the_next_up_at_another_port_with_its_new_credential() -> None:
    with Up() as up:
        async with headrace.connect(state=up.state) as client:
            before = find_place(state=up.state).url
            script = "echo up; [ -e go ] || exec sleep 1000"
            with up.begin("run", "--id", "waited-for", "--wait", "--", "sh", "-c", script) as waiting:
                while not await client.list(limit=1):
                    pass
                up.wait_line("waited-for", "up")
                up.stop()
                (up.state / "go").touch()
                up.start()
                assert find_place(state=up.state).url != before
                view = await client.get("waited-for")
                assert waiting.wait(45.0) == 0

    assert view.operation == "waited-for"


@pytest.mark.long
def test_a_state_folder_of_a_release_without_tls_is_taken_over() -> None:
    """Its passwords may have been seen, so none of them opens the new server. What it recorded stays."""
    with Up() as up:
        operation = up.start_operation("--", "true")
        up.run("op", "wait", operation)
        up.stop()
        for name in ("ca.pem", "server.pem", "server.key"):
            (up.state / name).unlink(missing_ok=True)
        (up.state / "credential").write_text("headrace:known-to-others\n")
        # As it stays behind when `up` is killed.
        (up.state / "endpoint.json").write_text('{"url":"nats://127.0.0.1:1","tree":"default","pid":1}')
        up.start()

        assert "known-to-others" not in (up.state / "nats.conf").read_text()
        assert "completed" in up.run("op", "get", operation).stdout
        up.run("run", "--wait", "--", "true")
