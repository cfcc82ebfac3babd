"""The console as a person uses it: pages, tables, and what must never happen on them."""

from __future__ import annotations

import importlib.resources
import json
from typing import Any

from playwright.sync_api import Locator, Page

from tests.acceptance.test_web import Web

AXE = (importlib.resources.files("axe_playwright_python") / "axe.min.js").read_text(encoding="utf-8")


class Console:
    """One tab of a browser, and a list of what went wrong in it."""

    def __init__(self, page: Page, web: Web) -> None:
        self.page = page
        self.web = web
        #: Errors of scripts, and complaints of the browser about the page's policy.
        self.faults: list[str] = []
        #: Requests to other hosts.
        self.foreign: list[str] = []
        page.on("pageerror", lambda error: self.faults.append(str(error)))
        page.on("console", lambda message: self._note(message.type, message.text))
        page.on("request", lambda request: self._note_request(request.url))

    def _note(self, kind: str, text: str) -> None:
        # Chromium writes refused requests as errors, too; the pages show these to the person.
        if kind == "error" and "Failed to load resource" not in text:
            self.faults.append(text)

    def _note_request(self, url: str) -> None:
        if not url.startswith(f"{self.web.origin}/"):
            self.foreign.append(url)

    def enter(self) -> None:
        """Open the printed address, and take note of the next one."""
        self.page.goto(self.web.told["url"])
        self.live()
        assert self.web.process.stdout is not None
        self.web.told = json.loads(self.web.process.stdout.readline())

    def open(self, address: str) -> None:
        self.page.goto(f"{self.web.origin}{address}")
        self.live()

    def live(self) -> None:
        """Wait until the page has drawn what the API answered."""
        self.page.locator("#state", has_text="live").wait_for()
        self.page.locator("main h1").wait_for()

    def rows(self, caption: str) -> Locator:
        """The rows of the table whose caption has this text."""
        return self.page.locator("table", has=self.page.locator("caption", has_text=caption)).locator("tbody tr")

    def row(self, key: str) -> Locator:
        return self.page.locator(f'tr[data-key="{key}"]')

    def button(self, name: str) -> Locator:
        return self.page.get_by_role("button", name=name, exact=True)

    def barriers(self) -> list[dict[str, Any]]:
        """What keeps people from using this page: serious and critical findings of axe-core."""
        self.page.evaluate(f"{AXE}; undefined")
        found: dict[str, Any] = self.page.evaluate("axe.run()")
        return [
            {"rule": each["id"], "where": [node["html"][:200] for node in each["nodes"][:3]]}
            for each in found["violations"]
            if each["impact"] in ("serious", "critical")
        ]
