"""A real mail server on loopback, with STARTTLS and a login, that keeps what it gets."""

from __future__ import annotations

import datetime
import queue
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from email import message_from_bytes
from email.message import Message
from email.policy import default
from pathlib import Path
from typing import Any

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult

from headrace_cli.cluster.certificates import write_certificates
from tests.support.nats_server import free_port

__all__ = ["MailServer", "mail_server"]

_PATIENCE_S = 40.0


class MailServer:
    """`refused` are addresses that it does not know. `authority` is the file of the authority that vouches for it."""

    def __init__(self, authority: Path) -> None:
        self.address = ""
        self.authority = authority
        self.refused: set[str] = set()
        self.logins: list[bytes] = []
        self._mails: queue.Queue[tuple[list[str], Message]] = queue.Queue()

    def next(self) -> tuple[list[str], Message]:
        """Recipients and content of the next mail; waits for it."""
        return self._mails.get(timeout=_PATIENCE_S)

    @property
    def is_empty(self) -> bool:
        return self._mails.empty()

    async def handle_RCPT(self, _server: Any, _session: Any, envelope: Any, address: str, _options: Any) -> str:
        if address in self.refused:
            return "550 no such person"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, _server: Any, session: Any, envelope: Any) -> str:
        assert session.ssl is not None
        self._mails.put((envelope.rcpt_tos, message_from_bytes(envelope.content, policy=default)))
        return "250 OK"

    def log_in(self, _server: Any, _session: Any, _envelope: Any, _mechanism: str, data: Any) -> AuthResult:
        self.logins.append(data.password)
        return AuthResult(success=True)


@contextmanager
def mail_server(folder: Path) -> Iterator[MailServer]:
    write_certificates(folder, ["127.0.0.1"], datetime.datetime.now(datetime.UTC))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.pem", folder / "server.key")
    server = MailServer(folder / "ca.pem")
    controller = Controller(
        server,
        "127.0.0.1",
        free_port(),
        tls_context=context,
        require_starttls=True,
        authenticator=server.log_in,
        auth_required=True,
    )
    controller.start()
    try:
        server.address = f"127.0.0.1:{controller.port}"
        yield server
    finally:
        controller.stop()
