"""Every page of the console: at three widths, in light and dark, without operations and with some."""

from __future__ import annotations

import re
from typing import Literal
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Route, expect

from headrace_web.app import PAGES
from tests.acceptance.test_web import Web, start
from tests.browser.console import Console

WIDTHS = (400, 1000, 2000)
#: An address for each page.
ADDRESSES = {
    "/": "/",
    "/operations": "/operations",
    "/operations/{operation}": "/operations/fails",
    "/pools/{pool}": "/pools/research",
    "/preemptions": "/preemptions",
    "/nodes": "/nodes",
    "/nodes/{node}": "/nodes/alpha",
    "/usage": "/usage",
    "/me": "/me",
}
#: Pages that exist before there are operations and pools.
EMPTY = ("/", "/operations", "/preemptions", "/nodes", "/usage", "/me", "/pools/%3CRoot%3E")
MARKUP = '<img src="x" onerror="document.title=1">'


def look(console: Console, address: str, *schemes: Literal["light", "dark"]) -> None:
    console.open(address)
    for width in WIDTHS:
        console.page.set_viewport_size({"width": width, "height": 900})
        beyond = console.page.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert beyond <= 0, f"{address} is wider than a window of {width} pixels"
    for scheme in schemes:
        console.page.emulate_media(color_scheme=scheme)
        assert console.barriers() == [], f"{address} in {scheme}"


@pytest.mark.parametrize("address", EMPTY)
def test_a_page_without_operations(console: Console, address: str) -> None:
    look(console, address, "light")


@pytest.fixture(scope="module")
def operations(web: Web) -> None:
    start(web, "fails", "sh", "-c", "echo it broke >&2; exit 3", jobs=2, tries=1, title=MARKUP, memory="8M")
    start(web, "sleeps", "sh", "-c", "echo begun; sleep 300", title="sleeps", memory="8M")
    start(web, "large", "true", cpu=64, memory="8M")
    for number in range(7):
        start(web, f"quick-{number}", "true", memory="8M")
    while web.ask("GET", "/operations/fails")["state"] != "failed":
        pass


def test_every_page_has_an_address() -> None:
    assert ADDRESSES.keys() == set(PAGES)


@pytest.mark.usefixtures("operations")
@pytest.mark.parametrize("address", ADDRESSES.values())
def test_a_page_with_ten_operations(console: Console, address: str) -> None:
    look(console, address, "light", "dark")


@pytest.mark.usefixtures("operations")
def test_no_link_is_dead(console: Console) -> None:
    for address in ADDRESSES.values():
        console.open(address)
        for link in console.page.locator("a[href]").evaluate_all("all => all.map(each => each.getAttribute('href'))"):
            assert console.page.request.get(f"{console.web.origin}{link}").ok, f"{link} on {address}"


@pytest.mark.usefixtures("operations")
def test_texts_of_others_are_texts(console: Console) -> None:
    console.open("/operations/fails")
    expect(console.page.locator("h1")).to_have_text(MARKUP)
    console.open("/operations")
    expect(console.row("fails")).to_contain_text(MARKUP)
    assert console.page.locator("img").count() == 0


@pytest.mark.usefixtures("operations")
def test_an_operation_says_why_it_waits_and_what_failed(console: Console) -> None:
    console.open("/operations/large")
    expect(console.page.locator(".causes")).to_contain_text("each job is larger than every node")
    expect(console.page.locator(".causes .cure")).to_contain_text("add a larger node")
    console.open("/operations/fails")
    failures = console.rows("Ended runs that did not complete")
    expect(failures.first).to_contain_text("failed: exit code 3")
    # The output of the job that failed last is there without a click.
    expect(console.page.get_by_role("log")).to_contain_text("it broke")
    expect(console.rows("Jobs in the order")).to_have_count(2)
    console.page.get_by_label("only jobs whose last run is").select_option("completed")
    expect(console.page.locator("main")).to_contain_text("No job.")
    assert "results=completed" in console.page.url


@pytest.mark.usefixtures("operations")
def test_a_page_does_not_wait_for_a_long_history(console: Console) -> None:
    """The history of a flood of 10,000 jobs kept its page empty for as long as the history was read."""
    start(console.web, "read-late", "true", jobs=2)
    address = "**/operations/read-late/history**"
    console.page.route(address, lambda route: None)
    console.open("/operations/read-late")

    expect(console.rows("Jobs in the order")).to_have_count(2)
    expect(console.page.get_by_text("completed").first).to_be_visible()
    expect(console.page.get_by_text("0 events")).to_be_visible()

    console.page.unroute(address)
    console.open("/operations/read-late")
    expect(console.page.get_by_text("4 events")).to_be_visible()


def test_output_arrives_while_the_job_runs(console: Console) -> None:
    console.open("/operations/sleeps")
    console.page.locator("#output summary").click()
    expect(console.page.get_by_role("log")).to_contain_text("begun")


@pytest.mark.usefixtures("operations")
def test_now_shows_pools_and_services(console: Console) -> None:
    console.open("/")
    bar = console.row("research").get_by_role("img")
    expect(bar).to_have_attribute(
        "aria-label", re.compile("cpu: uses 25 % of the cluster, fair share 25 %, guarantee 0 %")
    )
    expect(console.rows("Services")).to_have_count(4)
    console.button("memory").click()
    assert "mode=memory" in console.page.url
    console.page.get_by_label("find a pool").fill("RESEA")
    console.page.keyboard.press("Enter")
    expect(console.rows("pools").filter(has_text="the tree")).to_have_count(0)
    console.page.go_back()
    expect(console.rows("pools").filter(has_text="the tree")).to_have_count(1)


def test_me_says_where_tokens_can_be_made(console: Console) -> None:
    """A Headrace on one machine has no operator, and so no tokens."""
    console.open("/me")
    expect(console.page.locator("main")).to_contain_text("This console cannot manage your tokens")
    expect(console.page.locator("main pre")).to_contain_text(
        "headrace token create --name NAME --read-only --expires 30d"
    )


def test_an_address_without_a_page_says_so(console: Console) -> None:
    answer = console.page.goto(f"{console.web.origin}/operation")
    assert answer is not None
    assert answer.status == 404
    console.page.goto(f"{console.web.origin}/operations/unknown")
    expect(console.page.locator("#state")).to_contain_text("unknown")


def test_the_keyboard_reaches_the_page(console: Console) -> None:
    console.open("/operations")
    console.page.keyboard.press("Tab")
    expect(console.page.locator(".skip")).to_be_focused()
    console.page.keyboard.press("Enter")
    expect(console.page.locator("main")).to_be_focused()
    console.page.keyboard.press("Tab")
    expect(console.page.get_by_role("textbox", name="pool", exact=True)).to_be_focused()


def test_ten_thousand_nodes_are_a_map(console: Console, web: Web) -> None:
    """No machine runs so many agents, so the answers about nodes are made from the answer about a real node."""
    (alpha, _) = web.ask("GET", "/nodes")["nodes"]
    nodes = [
        alpha | {"node": f"n{number:05}", "state": "online" if number % 97 else "suspect"} for number in range(10_000)
    ]

    def answer(route: Route) -> None:
        first = int(parse_qs(urlsplit(route.request.url).query).get("cursor", ["0"])[0])
        more = first + 1000 if first + 1000 < len(nodes) else None
        route.fulfill(json={"nodes": nodes[first : first + 1000], "recovering": "", "next": more})

    console.page.route(re.compile(r"/api/v1/nodes(\?|$)"), answer)
    try:
        console.open("/nodes")
        assert (
            console.page.locator("canvas").get_attribute("aria-label")
            == "map of 10,000 nodes; the list below has the same nodes"
        )
        console.page.get_by_label("state").select_option("suspect")
        expect(console.page.locator("main")).to_contain_text("104 nodes,")
        console.page.get_by_label("name or tag").fill("n0009")
        console.page.keyboard.press("Enter")
        expect(console.row("n00097")).to_be_visible()
        expect(console.page.locator("tbody tr")).to_have_count(1)
        console.page.locator("canvas").hover(position={"x": 4, "y": 4})
        expect(console.page.locator(".heat")).to_contain_text("n00097: suspect")
    finally:
        console.page.unroute_all()
