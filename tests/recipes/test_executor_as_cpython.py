"""`headrace.Executor` passes CPython's own tests of executors: those that come with the interpreter that runs the tests.

If the interpreter came without its tests, as on Debian, they are taken from Debian's package into `build/`. Left out are the tests of
`max_workers`, which this executor does not have, those that start a program with an executor of `concurrent.futures` by its name, and the
test that expects a call to run as soon as it is submitted: this executor first gathers calls for an operation. Of CPython 3.11's 28 tests,
23 run and 5 are left out.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
import unittest
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest
import test  # type: ignore[import-not-found]

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
#: Debian's package of the tests, and where its files are put.
_PACKAGE = f"libpython{sys.version_info.major}.{sys.version_info.minor}-testsuite"
_UNPACKED = Path(__file__).parents[2] / "build" / "recipes" / _PACKAGE


def _find_tests() -> dict[str, str]:
    """Make the tests importable here and in jobs. Raise `RuntimeError` if neither the interpreter nor Debian has them.

    The whole package `test` is put together, because a job finds it by its `PYTHONPATH` alone.
    """
    if find_spec(_MODULE) is not None:
        return {}
    library = _UNPACKED / "usr" / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}"
    if not (library / "test" / "support").exists():
        _UNPACKED.mkdir(parents=True, exist_ok=True)
        own = shlex.quote(test.__path__[0])
        download = f"apt-get download -qq {_PACKAGE} && dpkg -x {_PACKAGE}_*.deb . && cp -rn {own} {library}"
        done = subprocess.run(download, shell=True, cwd=_UNPACKED, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(
                f"{sys.executable} came without CPython's tests, and Debian's package cannot be had:\n{done.stderr}"
                f"Install {_PACKAGE}, or run the tests by a Python that has the module {_MODULE}."
            )
    test.__path__.append(str(library / "test"))
    return {"PYTHONPATH": str(library)}


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
        self.executor = headrace.Executor(self.client, cpu=0.1, environment=_ENVIRONMENT)

    def tearDown(self) -> None:
        self.executor.shutdown(wait=True)


def _on_headrace(part: str, name: str) -> type:
    tests = getattr(import_module(_MODULE + part), name)
    return type(name, (_OnHeadrace, tests), {each: None for each in _LEFT_OUT if hasattr(tests, each)})


_ENVIRONMENT = _find_tests()
TestCalls, TestWait, TestAsCompleted, TestShutdown = map(
    _on_headrace, _PARTS, ("ExecutorTest", "WaitTests", "AsCompletedTests", "ExecutorShutdownTest")
)
