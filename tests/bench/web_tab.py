"""A tab of the console beside a cluster whose jobs end as fast as they can: the CPU of the whole browser."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psutil

from tests.acceptance.test_web import Web, a_web
from tests.bench.registry import REGISTRY, CannotMeasure, Figure
from tests.support.headrace_up import Up

#: Pages that a person keeps open.
PAGES = {"now": "/", "operations": "/operations", "operation": "/operations/flood", "pool": "/pools/research"}
#: Seconds for which each page is watched.
WATCHED_S = 10.0
_JOBS = 1_000_000
_PER = 1_000


@contextmanager
def _a_tab(web: Web, path: str) -> Iterator[psutil.Process]:
    """A browser whose only tab shows this page. Yields the browser's process."""
    try:
        from playwright.sync_api import sync_playwright

        from tests.browser.console import Console
    except ImportError:
        raise CannotMeasure("it needs the packages of `.ci/setup-browser`") from None
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        raise CannotMeasure("it needs Chromium: apt-get install chromium")
    before = set(psutil.Process().children())
    with (
        sync_playwright() as playwright,
        playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"]) as browser,
    ):
        console = Console(browser.new_page(viewport={"width": 1280, "height": 900}), web)
        console.enter()
        console.open(path)
        (driver,) = set(psutil.Process().children()) - before
        (found,) = driver.children()
        yield found


def _cpu_s(browser: psutil.Process) -> float:
    total = 0.0
    for each in (browser, *browser.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):
            times = each.cpu_times()
            total += times.user + times.system
    return total


def _ended(web: Web) -> int:
    found: int = web.ask("GET", "/operations/flood")["completed_jobs"]
    return found


def _cores(web: Web, path: str) -> float:
    """CPU seconds of the browser for 1,000 ends of jobs. Fewer jobs a second end on a busy machine, so ends are counted."""
    with _a_tab(web, path) as browser:
        before_s, before = _cpu_s(browser), _ended(web)
        time.sleep(WATCHED_S)
        spent_s, ended = _cpu_s(browser) - before_s, _ended(web) - before
    print(f"{path}: {spent_s / WATCHED_S:.2f} cores at {ended / WATCHED_S:,.0f} ends a second")
    return spent_s / ended * _PER


@REGISTRY.add(
    "web_tab_cores", "CPU of a browser with one page of the console at 1,000 ends a second: the worst page", 0.5
)
def web_tab() -> Figure:
    with Up(nodes=("alpha:cpu=16,memory=8G",)) as up, a_web(up) as web:
        up.run("run", "--id", "flood", "--pool", "research", "-n", str(_JOBS), "-c", "0.25", "--", "true")
        return Figure.of([max(_cores(web, path) for path in PAGES.values()) for _ in range(3)], "cores")
