"""What is around the console: other sites, hidden tabs, a service that goes and comes back."""

from __future__ import annotations

import functools
import http.server
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, expect

from tests.acceptance.test_web import Web, a_web, start
from tests.browser.console import Console
from tests.support.headrace_up import Up

#: Asks for data as a foreign page can, and says in its title what it got.
FOREIGN = """<!doctype html><title>asks</title><script>
const all = [
  fetch("ORIGIN/api/v1/me", { credentials: "include" }).then(() => "read"),
  fetch("ORIGIN/api/v1/me", { credentials: "include", headers: { "x-headrace-token": "x" } }).then(() => "read"),
  fetch("ORIGIN/api/v1/operations/wanted/abort", { method: "POST", mode: "no-cors", credentials: "include" }).then(() => "sent"),
  new Promise((done) => { const events = new EventSource("ORIGIN/api/v1/events", { withCredentials: true });
    events.onopen = () => done("followed"); events.onerror = () => done("refused"); }),
];
Promise.all(all.map((each) => each.catch(() => "refused"))).then((words) => (document.title = words.join()));
</script>"""


@contextmanager
def a_site(folder: Path) -> Iterator[str]:
    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=folder))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_page_of_another_origin_gets_nothing(console: Console, web: Web, tmp_path: Path) -> None:
    start(web, "wanted", "true", cpu=64, memory="8M")
    (tmp_path / "index.html").write_text(FOREIGN.replace("ORIGIN", web.origin), encoding="utf-8")
    with a_site(tmp_path) as site:
        # In the same browser, which has the cookie: another port of a host gets it, too.
        other = console.page.context.new_page()
        other.goto(site)
        expect(other).to_have_title("refused,refused,refused,refused")
        other.close()
    assert web.ask("GET", "/operations/wanted")["state"] == "running"


def test_a_hidden_tab_has_no_stream(console: Console) -> None:
    """Chromium without a window shows every tab, so the test says that the tab is hidden, as the browser would."""
    begun: list[str] = []
    ended: list[str] = []
    console.page.on("request", lambda request: begun.append(request.url))
    console.page.on("requestfailed", lambda request: ended.append(request.url))
    turn = "isHidden => { Object.defineProperty(document, 'hidden', { get: () => isHidden, configurable: true });" \
        " document.dispatchEvent(new Event('visibilitychange')); }"  # fmt: skip
    with console.page.expect_request("**/api/v1/events"):
        console.open("/operations")
    console.page.evaluate(turn, True)
    expect(console.page.locator("#as-of")).to_have_text("paused while hidden")
    assert [url for url in ended if url.endswith("/api/v1/events")]
    begun.clear()
    # Two of its periods.
    console.page.wait_for_timeout(6_000)
    assert begun == []
    with console.page.expect_request("**/api/v1/events"):
        console.page.evaluate(turn, False)
    expect(console.page.locator("#as-of")).to_contain_text("as of")


def test_the_page_says_that_the_service_is_gone_and_comes_back(browser: Browser, up: Up) -> None:
    context = browser.new_context()
    with a_web(up) as web:
        console = Console(context.new_page(), web)
        console.enter()
        console.open("/operations")
        port = web.origin.rpartition(":")[2]
        web.end(signal.SIGKILL)
        expect(console.page.locator("#state")).to_contain_text("the web service does not answer", timeout=20_000)
    with a_web(up, port=port) as again:
        # The secrets of the former process are gone with it. The page says what to do, and goes on once that is done in another tab.
        expect(console.page.locator("#state")).to_contain_text("open the address", timeout=20_000)
        other = Console(context.new_page(), again)
        other.enter()
        console.live()
        assert console.faults == []
    context.close()


def test_the_page_says_that_headrace_is_gone_and_comes_back(browser: Browser) -> None:
    with Up() as up, a_web(up) as web:
        context = browser.new_context()
        console = Console(context.new_page(), web)
        console.enter()
        up.stop(signal.SIGKILL)
        expect(console.page.locator("body")).to_have_class("trouble", timeout=60_000)
        up.start()
        expect(console.page.locator("body")).not_to_have_class("trouble", timeout=60_000)
        console.live()
        context.close()


def test_a_service_that_is_read_only_says_so(browser: Browser, up: Up) -> None:
    with a_web(up, "--read-only") as web:
        context = browser.new_context()
        console = Console(context.new_page(), web)
        console.enter()
        console.open("/nodes/alpha")
        console.button("Drain").click()
        expect(console.page.get_by_role("status").last).to_contain_text("--read-only")
        assert web.ask("GET", "/nodes/alpha")["drain"] is None
        context.close()
