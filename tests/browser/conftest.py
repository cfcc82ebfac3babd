"""A Headrace with operations and a console, and a browser that has entered it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, sync_playwright

from tests.acceptance.test_web import Web, a_web
from tests.browser.console import Console
from tests.support.headrace_up import Up


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    path = shutil.which("chromium") or shutil.which("google-chrome") or ""
    assert path, "these tests need Chromium: apt-get install chromium"
    with sync_playwright() as playwright:
        # Chromium cannot make its sandbox as root.
        found = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        print(f"Chromium {found.version}")
        yield found
        found.close()


@pytest.fixture(scope="module")
def up() -> Iterator[Up]:
    with Up(nodes=("alpha:cpu=2,memory=2G", "beta:cpu=2,memory=2G")) as up:
        yield up


@pytest.fixture(scope="module")
def web(up: Up) -> Iterator[Web]:
    with a_web(up) as web:
        yield web


@pytest.fixture(scope="module")
def entered(browser: Browser, web: Web) -> Iterator[Console]:
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    context.set_default_timeout(20_000)
    found = Console(context.new_page(), web)
    found.enter()
    yield found
    context.close()


@pytest.fixture
def console(entered: Console) -> Iterator[Console]:
    """A tab that has entered. Afterwards no script failed, and no other host was asked."""
    entered.page.set_viewport_size({"width": 1280, "height": 900})
    entered.page.emulate_media(color_scheme="light")
    yield entered
    faults, entered.faults = entered.faults, []
    assert faults == []
    assert entered.foreign == []
