"""Attempts of deliveries that the other side delays."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headrace_cli.notify import sending
from headrace_cli.notify.notifier import Message, Occurrence
from headrace_cli.notify.rules import Mail, RuleKind, Target
from headrace_cli.outgoing import delivery
from tests.support.http_receiver import http_receiver


async def test_an_answer_that_never_ends_holds_a_delivery_for_a_bounded_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "LONGEST_ATTEMPT_S", 0.05)
    ended = threading.Event()
    try:
        failure = await delivery.deliver(lambda: (ended.wait(20), None)[1], lambda *_: None, give_up_after_s=0)
    finally:
        ended.set()
    assert "does not answer within" in str(failure)


def test_a_netrc_file_does_not_replace_the_given_header(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login other password secret\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    with http_receiver() as hook:
        delivery.post(hook.url, b"{}", {"Authorization": "Bearer given"})
    assert hook.accepted[0].headers["authorization"] == "Bearer given"


@contextmanager
def dripping(first: bytes, drip: bytes) -> Iterator[int]:
    """A server that sends `first`, and then `drip` again and again until the other side closes the connection. Yields its port."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with contextlib.suppress(OSError):
                connection, _ = server.accept()
                with connection:
                    connection.sendall(first)
                    connection.settimeout(0.01)
                    while True:
                        with contextlib.suppress(TimeoutError):
                            if not connection.recv(65_536):
                                return
                        connection.sendall(drip)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield server.getsockname()[1]
        thread.join(20)
        assert not thread.is_alive()


def _a_mail(port: int) -> Callable[[], None]:
    mail = Mail(recipients=["b@example.org"], sender="a@example.org", host="127.0.0.1", port=port, security="none")
    occurrence = Occurrence("", "", RuleKind.NODE_LOST, 0, "node lost", {}, [*mail.recipients])
    return sending.attempt_for(Target(name="", to=mail, pause_ms=0, give_up_after_ms=0), Message([occurrence], 0))


def _a_post(port: int) -> Callable[[], None]:
    return lambda: delivery.post(f"http://127.0.0.1:{port}", b"", {})


@pytest.mark.parametrize(
    ("first", "drip", "attempt"),
    [
        (b"HTTP/1.1 200 OK\r\nA: ", b"a", _a_post),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n", _a_post),
        (b"220-", b"a", _a_mail),
        (b"220 mail\r\n", b"250-a\r\n", _a_mail),
    ],
)
def test_a_server_that_answers_a_little_for_ever_holds_no_thread(
    monkeypatch: pytest.MonkeyPatch, first: bytes, drip: bytes, attempt: Callable[[int], Callable[[], None]]
) -> None:
    for module in (delivery, sending):
        monkeypatch.setattr(module, "LONGEST_ATTEMPT_S", 0.2)
    with dripping(first, drip) as port, pytest.raises(delivery.Undelivered, match="does not answer"):
        attempt(port)()
