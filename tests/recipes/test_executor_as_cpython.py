"""`headrace.Executor` passes CPython's own tests of executors: those that come with the interpreter that runs the tests.

Debian has them in `libpython3-testsuite`. Left out are the tests of `max_workers`, which this executor does not have, those that start a
program with an executor of `concurrent.futures` by its name, and the test that expects a call to run as soon as it is submitted: this
executor first gathers calls for an operation.
"""

from __future__ import annotations

import sys
import unittest
from collections.abc import Iterator
from importlib import import_module

import pytest

import headrace
from tests.support.headrace_up import Up

_MODULE = "test.test_concurrent_futures"
#: The modules of the tests. CPython 3.12 made a package of them.
_PARTS = (
    ("",) * 4 if sys.version_info < (3, 12) else (".executor", ".test_wait", ".test_as_completed", ".test_shutdown")
)
_LEFT_OUT = (
    "test_max_workers_negative",
    "test_cancel_futures",
    "test_interpreter_shutdown",
    "test_submit_after_interpreter_shutdown",
    "test_hang_gh83386",
    "test_hang_gh94440",
)


@pytest.fixture(scope="module")
def client() -> Iterator[headrace.Client]:
    with Up(nodes=("alpha:cpu=4,memory=4G",)) as up, headrace.Client(state=up.state) as opened:
        yield opened


class _OnHeadrace(unittest.TestCase):
    worker_count = 5
    executor_type = headrace.Executor

    @pytest.fixture(autouse=True)
    def _connected(self, client: headrace.Client) -> None:
        self.client = client

    def setUp(self) -> None:
        self.executor = headrace.Executor(self.client, cpu=0.1)

    def tearDown(self) -> None:
        self.executor.shutdown(wait=True)


def _on_headrace(part: str, name: str) -> type:
    tests = getattr(import_module(_MODULE + part), name)
    return type(name, (_OnHeadrace, tests), {each: None for each in _LEFT_OUT if hasattr(tests, each)})


TestCalls, TestWait, TestAsCompleted, TestShutdown = map(
    _on_headrace, _PARTS, ("ExecutorTest", "WaitTests", "AsCompletedTests", "ExecutorShutdownTest")
)
