"""Attempts of deliveries that the other side delays."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

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
