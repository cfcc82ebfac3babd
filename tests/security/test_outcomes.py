"""Outcomes of calls of an executor that mislead or refuse to be unpickled fail their own future only."""

from __future__ import annotations

import base64
import pickle
import re
from collections.abc import AsyncIterator, Callable
from concurrent import futures
from functools import partial
from types import SimpleNamespace
from typing import Any

import anyio
import cloudpickle
import pytest

from headrace.executor import JobFailed, executor
from headrace.executor.job import MARK, outcome_of
from headrace.executor.outcomes import needed_bytes, outcome_in
from headrace.wire.heartbeat import JobResult


class _Raising:
    def __reduce__(self) -> tuple[Any, ...]:
        return exec, ("raise SystemExit(7)",)


def _tail(outcome: object) -> bytes:
    return _written(pickle.dumps(outcome))


def _written(pickled: bytes) -> bytes:
    line = MARK + b" " + base64.b64encode(pickled)
    return b"\n" + line + b"\n" + MARK + b"-bytes %d\n" % len(line)


def test_a_result_that_exits_when_it_is_unpickled_is_a_failure_of_its_call() -> None:
    with pytest.raises(JobFailed, match=re.escape("cannot be unpickled: SystemExit: 7")):
        outcome_in(_tail((True, _Raising())))


class _Picky(Exception):
    """An exception that is pickled with one argument, and takes two."""

    def __init__(self, code: int, words: str) -> None:
        super().__init__(f"{code} {words}")


class _Disguised(Exception):
    def __reduce__(self) -> tuple[Any, ...]:
        return str, ("no exception",)


class _Unusable:
    """A result that is pickled on the node and cannot be unpickled there."""

    def __reduce__(self) -> tuple[Any, ...]:
        return int, ("no number",)


def _raise(error: Exception) -> None:
    raise error


@pytest.mark.parametrize("make", [partial(_Picky, 7, "no disk"), _Disguised])
def test_an_exception_that_cannot_be_unpickled_leaves_the_remote_traceback(make: Callable[[], Exception]) -> None:
    has_returned, outcome = outcome_of(cloudpickle.dumps((lambda: _raise(make()), (), {})))
    succeeded, exception = outcome_in(_written(outcome))

    assert (has_returned, succeeded) == (False, False)
    assert isinstance(exception, JobFailed)
    assert make().__class__.__name__ in str(exception.__cause__)


def test_a_call_whose_result_cannot_be_unpickled_has_returned() -> None:
    """Otherwise the job would count as failed, and with more tries the call would be made again."""
    has_returned, outcome = outcome_of(cloudpickle.dumps((_Unusable, (), {})))

    assert has_returned
    with pytest.raises(JobFailed, match="cannot be read"):
        outcome_in(_written(outcome))


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
