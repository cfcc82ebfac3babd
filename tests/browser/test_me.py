"""The page «Me» in a cluster with an operator: a person makes, copies and revokes tokens."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from playwright.sync_api import expect

from tests.acceptance.test_web import Web
from tests.browser.console import Console
from tests.browser.test_pages import look
from tests.support.headrace_up import Up
from tests.support.secured_cluster import whole_cluster


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """The commands of anna, who is logged in to the cluster. Nothing is started by it."""
    path = tmp_path_factory.mktemp("me")
    cluster = whole_cluster(path, nodes=["n1"], people=["anna", "eve"], administrators="eve")
    # The cluster starts in an event loop, and the thread of the tests has the loop of Playwright.
    with ThreadPoolExecutor(1) as thread:
        folder = thread.submit(cluster.__enter__).result().folder
        try:
            yield Up(state=folder / "client" / "people" / "anna")
        finally:
            thread.submit(cluster.__exit__, None, None, None).result()


def status(web: Web, token: str) -> int:
    return httpx.get(f"{web.told['api']}/me", headers={"authorization": f"Bearer {token}"}).status_code


def test_a_person_without_tokens(console: Console, web: Web) -> None:
    assert web.ask("GET", "/tokens")["tokens"] == []
    look(console, "/me", "light", "dark")
    expect(console.page.locator("h1")).to_have_text("anna")
    expect(console.page.locator("main")).to_contain_text("No token.")
    expect(console.rows("1 pool")).to_contain_text("no list names anybody for it")


def test_a_token_is_made_shown_once_copied_and_revoked(console: Console, web: Web) -> None:
    console.page.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=web.origin)
    console.open("/me")
    console.page.get_by_role("textbox", name="name").fill("my dashboard")
    console.page.get_by_role("textbox", name="ends after").fill("90d")
    expect(console.page.get_by_label("may only read")).to_be_checked()
    expect(console.page.locator("code")).to_have_text(
        "headrace token create --name 'my dashboard' --read-only --expires 90d"
    )
    console.button("Make the token").click()
    secret = console.page.locator("#secret")
    expect(secret).to_be_focused()
    text = secret.inner_text().strip()
    assert status(web, text) == 200
    console.button("Copy").click()
    expect(console.page.get_by_role("status").last).to_have_text("The token is copied.")
    assert console.page.evaluate("navigator.clipboard.readText()") == text
    look_at_page = console.barriers()
    assert look_at_page == []
    for width in (400, 2000):
        console.page.set_viewport_size({"width": width, "height": 900})
        assert console.page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    # The text is in no storage of the browser, and gone with the page.
    stored = console.page.evaluate("JSON.stringify([{...localStorage}, {...sessionStorage}, history.state])")
    assert text not in stored
    assert text not in console.page.url
    console.page.reload()
    console.live()
    expect(secret).to_have_count(0)
    assert text not in console.page.content()
    row = console.rows("1 token")
    expect(row).to_contain_text("my dashboard")
    expect(row.get_by_role("cell").first).to_have_text("read")
    console.button("revoke my dashboard").click()
    console.button("keep my dashboard").click()
    assert status(web, text) == 200
    console.button("revoke my dashboard").click()
    console.button("revoke my dashboard for good").click()
    expect(console.page.locator("main")).to_contain_text("No token.")
    expect(console.page.get_by_role("status").last).to_contain_text("my dashboard is revoked")
    assert status(web, text) == 401


def test_a_token_that_may_change_things(console: Console, web: Web) -> None:
    console.open("/me")
    console.page.get_by_role("textbox", name="name").fill("nightly")
    console.page.get_by_label("may only read").uncheck()
    console.page.get_by_role("textbox", name="ends after").fill("soon")
    console.button("Make the token").click()
    expect(console.page.get_by_role("status").last).to_contain_text("soon")
    console.page.get_by_role("textbox", name="ends after").fill("1h")
    console.button("Make the token").click()
    expect(console.page.locator("#secret")).to_be_visible()
    console.button("I have kept it").click()
    expect(console.page.locator("#secret")).to_have_count(0)
    (token,) = web.ask("GET", "/tokens")["tokens"]
    assert (token["name"], token["read_only"]) == ("nightly", False)
    assert token["expires_at_ms"] - token["created_at_ms"] == 3_600_000
    web.ask("DELETE", "/tokens/nightly")
