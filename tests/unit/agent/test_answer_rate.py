"""How much output of jobs an agent sends to readers in a second."""

from __future__ import annotations

import anyio
import pytest

from headrace_admission.settings import AdmissionSettings
from headrace_agent.job_logs import requests
from headrace_agent.job_logs.requests import AnswerRate
from tests.support.clocks import HandClock

CHUNK = 256 * 1024


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> HandClock:
    """A clock that only `anyio.sleep` moves."""
    clock = HandClock()

    async def sleep(seconds: float) -> None:
        clock.now_s += seconds

    monkeypatch.setattr(anyio, "sleep", sleep)
    return clock


async def test_readers_get_no_more_than_half_of_what_a_node_may_send(clock: HandClock) -> None:
    rate, began_s = AnswerRate(clock), clock.now_s
    for _ in range(1_000):
        await rate.wait(CHUNK)

    per_s = 1_000 * CHUNK / (clock.now_s - began_s)
    assert per_s == pytest.approx(requests._MOST_READ_BYTES_PER_S, rel=0.01)
    assert AdmissionSettings().most_sent_bytes_per_s >= 2 * requests._MOST_READ_BYTES_PER_S


async def test_a_reader_after_a_while_waits_for_nothing(clock: HandClock) -> None:
    rate = AnswerRate(clock)
    await rate.wait(100 * CHUNK)
    clock.now_s += 60
    began_s = clock.now_s
    await rate.wait(CHUNK)

    assert clock.now_s == began_s
