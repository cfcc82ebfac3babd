"""One web service for everybody, and two persons in two browsers: each sees what they may, and acts under their own name."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.support.secured_cluster import PATIENCE_S, whole_cluster
from tests.support.shared_web import Site, a_site

#: Starting a cluster, and two persons at it, take a minute on an idle machine with two cores.
pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    path = tmp_path_factory.mktemp("shared")
    people = ("anna", "ben", "eve")
    cluster = whole_cluster(path, nodes=["n1"], people=people, administrators="eve")
    # Playwright has a loop of asyncio in this thread, so the cluster is started in another thread.
    with ThreadPoolExecutor(1) as thread:
        started = thread.submit(cluster.__enter__).result()
        try:
            with a_site(started) as site:
                yield site
        finally:
            thread.submit(cluster.__exit__, None, None, None).result()


class Person:
    """A person at a browser of their own."""

    def __init__(self, page: Page, site: Site, name: str) -> None:
        self.page = page
        self.site = site
        self.name = name
        #: Errors of scripts, complaints of the browser about the page's policy, and requests to other hosts.
        self.faults: list[str] = []
        page.on("pageerror", lambda error: self.faults.append(str(error)))
        page.on("console", lambda message: self._note(message.type, message.text))
        page.on("request", lambda request: self._note_request(request.url))

    def _note(self, kind: str, text: str) -> None:
        if kind == "error" and "Failed to load resource" not in text:
            self.faults.append(text)

    def _note_request(self, url: str) -> None:
        if not url.startswith(f"{self.site.origin}/"):
            self.faults.append(url)

    def log_in(self, *options: str) -> str:
        """Type the command and open its address. Return the address."""
        told = json.loads(self.site.type(self.name, "web", "login", self.site.origin, "--json", *options))
        self.page.goto(told["url"])
        self.live()
        expect(self.page.locator("#who")).to_have_text(f"as {self.name}")
        return str(told["url"])

    def open(self, address: str) -> None:
        self.page.goto(f"{self.site.origin}{address}")

    def live(self) -> None:
        self.page.locator("#state", has_text="live").wait_for()

    def is_asked_to_log_in(self) -> None:
        expect(self.page.locator("main")).to_contain_text(f"headrace web login {self.site.origin}")


@pytest.fixture(autouse=True)
def _patience() -> Iterator[None]:
    """A logout waits for the server, and a tab asks again every two seconds."""
    expect.set_options(timeout=PATIENCE_S * 1000)
    yield
    expect.set_options(timeout=None)


@contextmanager
def a_person(browser: Browser, site: Site, name: str) -> Iterator[Person]:
    # Chromium knows the authorities of its host only.
    context = browser.new_context(ignore_https_errors=True)
    context.set_default_timeout(PATIENCE_S * 1000)
    person = Person(context.new_page(), site, name)
    try:
        yield person
        assert person.faults == []
    finally:
        context.close()


def test_two_persons_at_one_service(browser: Browser, site: Site) -> None:
    words = ("run", "--pool", "research", "--cpu", "64", "--memory", "8M", "--title", "of anna", "--json", "--", "true")
    operation = json.loads(site.type("anna", *words, "only-anna-sees-this"))["operation"]
    with a_person(browser, site, "anna") as anna, a_person(browser, site, "ben") as ben:
        ben.open(f"/operations/{operation}")
        ben.is_asked_to_log_in()
        used = anna.log_in()
        ben.log_in()
        for person in (anna, ben):
            person.open(f"/operations/{operation}")
            person.live()
        expect(anna.page.locator("main")).to_contain_text("only-anna-sees-this")
        expect(ben.page.locator("main h1")).to_be_visible()
        assert "only-anna-sees-this" not in ben.page.content()
        _abort(ben.page)
        expect(ben.page.locator("main")).to_contain_text("may not")
        _abort(anna.page)
        expect(anna.page.locator("main")).to_contain_text("aborted by anna")
        # A used address admits nobody, and the cookie of a browser is out of reach of its scripts.
        with a_person(browser, site, "ben") as other:
            other.page.goto(used)
            other.is_asked_to_log_in()
        assert anna.page.evaluate("document.cookie") == ""
        (cookie,) = anna.page.context.cookies()
        assert (cookie["name"], cookie["httpOnly"], cookie["secure"], cookie["sameSite"]) == (
            "__Host-headrace", True, True, "Strict",
        )  # fmt: skip


def _abort(page: Page) -> None:
    page.get_by_role("button", name="Abort", exact=True).click()
    page.get_by_role("button", name="Abort: 1 operation").click()


def test_a_person_logs_out(browser: Browser, site: Site) -> None:
    with a_person(browser, site, "eve") as eve:
        eve.log_in()
        second = eve.page.context.new_page()
        second.goto(f"{site.origin}/operations")
        second.locator("#state", has_text="live").wait_for()
        eve.open("/me")
        # The session has a token, and a token makes no tokens.
        expect(eve.page.locator("main")).to_contain_text("This console cannot manage your tokens")
        expect(eve.page.locator("main pre")).to_contain_text("headrace token create --name NAME")
        eve.page.get_by_role("button", name="Log out").click()
        eve.is_asked_to_log_in()
        expect(second.locator("#state")).to_contain_text("headrace web login")
        assert json.loads(site.type("eve", "token", "list", "--json"))["tokens"] == []
        assert eve.page.context.cookies() == []
        # After a new login, the other tab continues, too.
        eve.log_in("--read-only")
        second.locator("#state", has_text="live").wait_for()
        (token,) = json.loads(site.type("eve", "token", "list", "--json"))["tokens"]
        site.type("eve", "token", "revoke", token["key"])
        expect(eve.page.locator("#state")).to_contain_text("headrace web login")
