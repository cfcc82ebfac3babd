"""A connection to a NATS server without a client library: it sends any line, and returns what the server refuses."""

from __future__ import annotations

import base64
import json
import re
import socket
import ssl
from collections.abc import Iterable
from types import TracebackType
from typing import Self

from headrace.access.key_credential import KeyCredential
from headrace.access.nkeys import SigningKey
from headrace.wire.subjects import INBOX_QUEUE

__all__ = ["BareConnection", "NotLetIn"]

_TIMEOUT_S = 20.0
#: Lines that are sent before the answers to them are read: neither side may wait for the other to read.
_LINES_AT_ONCE = 500
_REFUSED = re.compile(r"-ERR 'Permissions Violation for (?P<what>Publish|Subscription) to \"(?P<subject>[^\"]*)\"")


class NotLetIn(Exception):
    """The server refused the connection or closed it."""


class BareConnection:
    """A connection with TLS. Raises `NotLetIn` if the server refuses the credential."""

    def __init__(self, port: int, ca_file: str, credential: KeyCredential | None) -> None:
        context = ssl.create_default_context(cafile=ca_file)
        plain = socket.create_connection(("127.0.0.1", port), timeout=_TIMEOUT_S)
        self._socket = context.wrap_socket(plain, server_hostname="127.0.0.1")
        self._lines = self._socket.makefile("rb")
        #: Messages that came, each with its subject.
        self.heard: list[tuple[str, bytes]] = []
        info = json.loads(self._line().removeprefix("INFO "))
        options: dict[str, object] = {"verbose": False, "pedantic": False, "protocol": 1, "headers": True, "echo": True}
        options |= {"lang": "python", "version": "1", "name": "test"}
        if credential is not None:
            signature = SigningKey.from_seed(credential.seed).sign(info["nonce"].encode())
            options |= {"jwt": credential.jwt, "sig": base64.b64encode(signature).decode()}
        self._send([f"CONNECT {json.dumps(options)}"])
        try:
            errors = self.flush()
        except NotLetIn:
            self.close()
            raise
        assert not errors, errors

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connection."""
        self._lines.close()
        self._socket.close()

    def refused_publishes(self, subjects: Iterable[str]) -> set[str]:
        """Publishes an empty message on each subject, and returns the subjects that the server refused."""
        return self._refused("Publish", [f"PUB {subject} 0\r\n" for subject in subjects])

    def refused_subscriptions(self, subjects: Iterable[str], queue: str = "") -> set[str]:
        """Subscribes to each subject for a moment, and returns the subjects that the server refused."""
        lines = []
        for number, subject in enumerate(subjects, start=1):
            lines.append(f"SUB {subject} {f'{queue} ' if queue else ''}{number}\r\nUNSUB {number}")
        return self._refused("Subscription", lines)

    def subscribe(self, subject: str) -> None:
        """Hears what is published there, until the end."""
        self._send([f"SUB {subject} {f'{INBOX_QUEUE} ' if '.answered.' in subject else ''}{subject}"])

    def send(self, subject: str, data: bytes, reply: str = "") -> None:
        """Publishes one message."""
        head = f"PUB {subject} {f'{reply} ' if reply else ''}{len(data)}\r\n"
        self._socket.sendall(head.encode() + data + b"\r\n")

    def flush(self) -> list[str]:
        """Waits until the server has read all, and returns the errors that it told. Raises `NotLetIn` if it closed.

        What was published to us before has come by then.
        """
        self._send(["PING"])
        errors = []
        while (line := self._line()) != "PONG":
            if line.startswith("-ERR"):
                errors.append(line)
            elif line.startswith(("MSG ", "HMSG ")):
                self.heard.append((line.split()[1], self._lines.read(int(line.split()[-1]) + 2)))
        return errors

    def wait_closed(self) -> str:
        """Waits until the server closes the connection, and returns its reason. Raises TimeoutError."""
        reason = ""
        try:
            while True:
                line = self._line()
                reason = line if line.startswith("-ERR") else reason
        except NotLetIn as closed:
            return reason or str(closed)

    def _refused(self, what: str, lines: list[str]) -> set[str]:
        refused = set()
        for start in range(0, len(lines), _LINES_AT_ONCE):
            self._send(lines[start : start + _LINES_AT_ONCE])
            for error in self.flush():
                found = _REFUSED.match(error)
                assert found is not None, error
                assert found["what"] == what, error
                refused.add(found["subject"])
        return refused

    def _send(self, lines: list[str]) -> None:
        try:
            self._socket.sendall("".join(f"{line}\r\n" for line in lines).encode())
        except (BrokenPipeError, ConnectionResetError, ssl.SSLError) as error:
            raise NotLetIn(str(error)) from error

    def _line(self) -> str:
        try:
            line = self._lines.readline()
        except (ConnectionResetError, ssl.SSLError) as error:
            raise NotLetIn(str(error)) from error
        if not line.endswith(b"\n"):
            raise NotLetIn("the server closed the connection")
        text = line.decode().strip()
        if text.startswith("-ERR") and "Permissions Violation" not in text:
            raise NotLetIn(text)
        return text
