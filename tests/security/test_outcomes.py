"""Outcomes of calls of an executor that mislead or refuse to be unpickled fail their own future only."""

from __future__ import annotations

import base64
import pickle
import re
from collections.abc import AsyncIterator
from concurrent import futures
from types import SimpleNamespace
from typing import Any

import anyio
import pytest

from headrace.executor import JobFailed, executor
from headrace.executor.job import MARK
from headrace.executor.outcomes import needed_bytes, outcome_in
from headrace.wire.heartbeat import JobResult


class _Raising:
    def __reduce__(self) -> tuple[Any, ...]:
        return exec, ("raise SystemExit(7)",)


def _tail(outcome: object) -> bytes:
    line = MARK + b" " + base64.b64encode(pickle.dumps(outcome))
    return b"\n" + line + b"\n" + MARK + b"-bytes %d\n" % len(line)


def test_a_result_that_exits_when_it_is_unpickled_is_a_failure_of_its_call() -> None:
    with pytest.raises(JobFailed, match=re.escape("cannot be unpickled: SystemExit: 7")):
        outcome_in(_tail((True, _Raising())))


@pytest.mark.parametrize("number", [b"9" * 13, b"9" * 40, b"-5", b"1 2", b"x"])
def test_a_length_that_no_outcome_has_is_no_outcome(number: bytes) -> None:
    assert needed_bytes(MARK + b"-bytes " + number + b"\n") == 0


async def test_a_future_gets_an_exception_if_the_connection_ends_while_its_outcome_is_read() -> None:
    async def logs(*_: object, **__: object) -> AsyncIterator[object]:
        await anyio.sleep_forever()
        yield None

    future = futures.Future[object]()
    row = SimpleNamespace(slot=SimpleNamespace(index=0), result=JobResult.COMPLETED, exit_code=0, node="n")
    with anyio.move_on_after(0.01):
        await executor._settle(SimpleNamespace(logs=logs), "1-2", row, future)  # type: ignore[arg-type]

    assert future.done()
