"""The console in a real browser while operations end: the CPU of its tab. Needs what `make test-browser` installs."""

from __future__ import annotations

import shutil

import anyio
import anyio.to_thread
import psutil
from playwright.async_api import Page, async_playwright

from tests.bench.registry import REGISTRY, Figure
from tests.bench.web_load import ENDS_PER_S, FOLLOWED_S, Publisher, Web, a_web

#: A page of each kind that follows events.
_PAGES = ("/", "/operations", "/preemptions")
_TURNS = 3


@REGISTRY.add(
    "web_tab_cores",
    f"CPU of a tab of the console at {ENDS_PER_S:,} ends of jobs a second, the busiest of {len(_PAGES)} pages",
    0.5,
)
def web_tab() -> Figure:
    return Figure.of(anyio.run(_cores), "cores")


async def _cores() -> list[float]:
    """In each turn, the cores that the busiest page takes."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    async with a_web() as (web, anna), async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = await browser.new_page()
        await _enter(page, web)
        publisher, found = Publisher(anna), []
        for _ in range(_TURNS):
            taken = []
            for address in _PAGES:
                await page.goto(f"{web.origin}{address}")
                await page.locator("#state", has_text="live").wait_for()
                before_s = _renderers_s()
                await publisher.publish(ENDS_PER_S * FOLLOWED_S, ENDS_PER_S)
                taken.append((_renderers_s() - before_s) / FOLLOWED_S)
            found.append(max(taken))
        await browser.close()
        return found


async def _enter(page: Page, web: Web) -> None:
    await page.goto(web.told["url"])
    await page.locator("#state", has_text="live").wait_for()


def _renderers_s() -> float:
    """CPU seconds of the processes of Chromium that run the scripts of pages and draw them."""
    total = 0.0
    for each in psutil.Process().children(recursive=True):
        if "--type=renderer" in each.cmdline():
            times = each.cpu_times()
            total += times.user + times.system
    return total
