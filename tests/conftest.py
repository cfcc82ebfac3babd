"""The rules for every test: how hard Hypothesis tries, which effort runs it, and that no test is skipped in silence."""

import gc
import os
import signal
import sys
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from headrace.obs import tracing
from tests.support.dealing import dealt
from tests.support.effort import CASES, LONG

# As in the Makefile: the processes that tests start shall not compile all that they import, each anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# The colour settings of a person or of the gate are for the output of pytest, not for the output that tests look at.
for name in ("NO_COLOR", "FORCE_COLOR"):
    os.environ.pop(name, None)

# A shell that starts tests in the background has them ignore Ctrl-C, and so would all that they start.
signal.signal(signal.SIGINT, signal.default_int_handler)

# `make test` and the gate judge a change and not the luck of a draw: there the same cases come each time, everywhere else new ones.
same = not LONG or "CI" in os.environ
settings.register_profile("today", max_examples=CASES, deadline=None, print_blob=True, derandomize=same)
settings.load_profile("today")


@pytest.fixture(autouse=True)
def tracing_ends() -> Iterator[None]:
    """A client that starts an operation turns tracing on for its process, which is that of the next test, too."""
    yield
    tracing.end()


@pytest.fixture(scope="module")
def heartbeats_compared() -> Iterator[None]:
    """Compare every heartbeat of the module's tests with the plain reference."""
    # Most tests have no allocator.
    from tests.reference.heartbeats.comparing import every_heartbeat_compared

    with every_heartbeat_compared():
        yield


_skipped: list[str] = []
_TESTS = Path(__file__).parent


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is collected stays to the end, so the collector of cycles need not go through it again and again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out what only the other effort runs: see `tests/support/effort.py`."""
    if LONG:
        chosen = [item for item in items if _draws(item) or any(map(item.get_closest_marker, ("long", "both")))]
    else:
        chosen = [item for item in items if not item.get_closest_marker("long")]
    runs = set(chosen)
    config.hook.pytest_deselected(items=[item for item in items if item not in runs])
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    items[:] = dealt(chosen, workers, _place) if workers > 1 else chosen


def _place(item: pytest.Item) -> tuple[str, str]:
    folder = item.path.relative_to(_TESTS).parts[0]
    return folder, str(item.path)


def _draws(item: pytest.Item) -> bool:
    """True for a test of Hypothesis. Its marker may come only after this."""
    return bool(getattr(getattr(item, "obj", None), "is_hypothesis_test", False))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Remembers a skipped test; an expected failure (`xfail`) is none."""
    if report.skipped and not hasattr(report, "wasxfail"):
        _skipped.append(report.nodeid)


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """Remembers a module that skipped itself as a whole."""
    if report.skipped:
        _skipped.append(report.nodeid)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """A skipped test looks like a passed one and proves nothing, so it fails the run."""
    if _skipped and exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Says which tests were skipped."""
    for name in _skipped:
        terminalreporter.write_line(f"skipped, and nothing may be: {name}", red=True)
