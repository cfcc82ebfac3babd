"""The console with 10,000 pools, and the page *Now* with more pending operations than it shows."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs, urlsplit

from playwright.sync_api import Request, expect

from tests.acceptance.test_web import Web, start
from tests.browser.console import Console

TEAMS = 10
#: Pools of each team, the team's own pool included.
EACH = 1_000
PATIENCE_MS = 20_000
#: Child pools that the console shows of a pool.
MOST_SHOWN = 500


def test_the_operations_that_have_waited_longest_are_shown(console: Console, web: Web) -> None:
    one = {"change": "create", "pool": "narrow", "attributes": {"max_running_operation_count": 1}}
    web.ask("POST", "/pools/changes", {"changes": [one]})
    for number in range(14):
        start(web, f"waits-{number:02}", "sleep", "600", pool="narrow", memory="8M")
    console.open("/")
    oldest = console.rows("Longest pending operations")
    expect(oldest).to_have_count(10)
    expect(oldest.first).to_contain_text("waits-01")
    expect(oldest.last).to_contain_text("waits-10")


def test_ten_thousand_pools_are_a_tree(console: Console, web: Web) -> None:
    for team in range(TEAMS):
        changes: list[dict[str, Any]] = [{"change": "create", "pool": f"team-{team}"}]
        changes += [
            {"change": "create", "pool": f"team-{team}-{number:03}", "to": f"team-{team}"} for number in range(1, EACH)
        ]
        web.ask("POST", "/pools/changes", {"changes": changes})
    names, cursor = [], ""
    while cursor is not None:
        # Comparing so many pools with the description of the API would take minutes.
        page = web.client.get("/pools", params={"cursor": cursor, "name_prefix": "team-"}).json()
        names += [each["name"] for each in page["pools"]]
        cursor = page["next"]
    assert (len(names), len(set(names))) == (TEAMS * EACH, TEAMS * EACH)

    console.open("/")
    rows = console.rows("The open pools of a large tree")
    expect(rows).to_have_count(TEAMS + 2, timeout=PATIENCE_MS)  # and the root and the pool of the other test
    console.button("pools below team-7").click()
    expect(console.row("team-7-001")).to_be_visible(timeout=PATIENCE_MS)
    expect(rows).to_have_count(TEAMS + 2 + MOST_SHOWN, timeout=PATIENCE_MS)
    console.button("pools below team-7").click()
    expect(rows).to_have_count(TEAMS + 2)
    console.page.get_by_label("find a pool").fill("team-7-99")
    console.page.keyboard.press("Enter")
    expect(rows).to_have_count(10)
    expect(console.row("team-7-998")).to_be_visible()

    # The page of a pool asks for its own child pools only.
    asked: list[dict[str, list[str]]] = []

    def note(request: Request) -> None:
        if urlsplit(request.url).path == "/api/v1/pools":
            asked.append(parse_qs(urlsplit(request.url).query))

    console.page.on("request", note)
    console.open("/pools/team-3")
    expect(console.row("team-3-001")).to_be_visible(timeout=PATIENCE_MS)
    console.page.remove_listener("request", note)
    assert {each["parent"][0] for each in asked if "parent" in each} == {"team-3"}
    assert [each for each in asked if "parent" not in each] == []
