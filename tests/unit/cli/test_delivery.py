"""Attempts of deliveries that the other side delays."""

from __future__ import annotations

import threading

import pytest

from headrace_cli.outgoing import delivery


async def test_an_answer_that_never_ends_holds_a_delivery_for_a_bounded_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "LONGEST_ATTEMPT_S", 0.05)
    ended = threading.Event()
    try:
        failure = await delivery.deliver(lambda: (ended.wait(20), None)[1], lambda *_: None, give_up_after_s=0)
    finally:
        ended.set()
    assert "does not answer within" in str(failure)
