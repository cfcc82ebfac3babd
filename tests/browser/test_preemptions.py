"""The page of preemptions and starvation, and the timeline of an operation, with a pool that gets its share back."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.acceptance.test_web import Web, start
from tests.browser.console import Console
from tests.browser.test_pages import look
from tests.support.headrace_up import Up

#: Options of the tree with which a pool starves soon.
SOON = {"fair_share_starvation_timeout": "500ms", "preemptive_scheduling_backoff": 0}


@pytest.fixture(scope="module")
def up() -> Iterator[Up]:
    with Up(nodes=("alpha:cpu=2,memory=2G",)) as up:
        yield up


def options(web: Web, **given: object) -> None:
    web.ask("PATCH", "/trees/default", {"options": given})


@pytest.fixture(scope="module")
def pools(web: Web) -> None:
    below = {"change": "create", "pool": "vision", "to": "research"}
    pools = [{"change": "create", "pool": name} for name in ("research", "production", "other")]
    web.ask("POST", "/pools/changes", {"changes": [*pools, below]})
    options(web, preemption="off", **SOON)


@pytest.fixture(scope="module")
def starving(web: Web, pools: None) -> None:
    """Operation `holds` has the whole cluster, and `waits` is owed half of it."""
    start(web, "holds", "sleep", "300", jobs=2, cpu=1, memory="8M", pool="vision")
    while web.ask("GET", "/operations/holds/places")["running_jobs"] < 2:
        pass
    start(web, "waits", "true", cpu=1, memory="8M", pool="production")
    while len(web.ask("GET", "/starving")["starving"]) < 2:
        pass


def preempted(web: Web) -> list[Any]:
    found: list[Any] = web.ask("GET", "/preemptions")["preemptions"]
    return found


@pytest.fixture(scope="module")
def preemption(web: Web, starving: None) -> dict[str, Any]:
    """A job of `holds` was preempted for `waits`, which is over."""
    options(web, preemption="on")
    while not preempted(web):
        pass
    while web.ask("GET", "/operations/waits")["state"] != "completed":
        pass
    options(web, preemption="off")
    (found,) = preempted(web)
    return dict(found)


@pytest.mark.usefixtures("pools")
def test_a_quiet_tree_has_no_rows(console: Console) -> None:
    look(console, "/preemptions", "light", "dark")
    expect(console.page.locator("main")).to_contain_text("No pool and no operation starves.")
    expect(console.page.locator("main")).to_contain_text("No run was preempted in this period.")
    console.page.get_by_role("textbox", name="pool and the pools below it").fill("reserch")
    console.page.keyboard.press("Enter")
    expect(console.page.get_by_role("alert")).to_contain_text("research")
    assert "pool=reserch" in console.page.url


@pytest.mark.usefixtures("starving")
def test_what_starves_is_listed_with_its_why(console: Console) -> None:
    look(console, "/preemptions", "light", "dark")
    rows = console.rows("1 pool and 1 operation starve")
    expect(rows).to_have_count(2)
    pool = console.row("pool production")
    expect(pool).to_contain_text("fair share")
    operation = console.row("operation waits")
    expect(operation.get_by_role("link", name="production")).to_have_attribute("href", "/pools/production")
    operation.get_by_role("link", name="why waits waits").click()
    console.live()
    assert console.page.url.endswith("/operations/waits#why")
    expect(console.page.locator("#why")).to_be_in_viewport()
    console.open("/preemptions?pool=research")
    expect(console.page.locator("main")).to_contain_text("No pool and no operation starves.")
    console.open("/preemptions?pool=production")
    expect(console.row("operation waits")).to_be_visible()


def test_a_preempted_run_is_listed_with_its_proof(console: Console, web: Web, preemption: dict[str, Any]) -> None:
    look(console, "/preemptions", "light", "dark")
    (row,) = console.rows("1 run, by the end of the run").all()
    expect(row).to_contain_text(preemption["words"])
    assert "preempted for waits, which starves; cpu 100% → 50% of the cluster, owed 50%" in preemption["words"]
    assert (preemption["pool"], preemption["beneficiary_pool"]) == ("vision", "production")
    links = row.get_by_role("link").evaluate_all("all => all.map(each => each.getAttribute('href'))")
    assert {"/operations/holds", "/operations/waits", "/pools/vision", "/pools/production", "/nodes/alpha"} < set(links)
    row.get_by_role("link", name="history").click()
    console.live()
    expect(console.page.locator("#history")).to_be_in_viewport()


@pytest.mark.parametrize(
    ("filters", "number"),
    [
        ("pool=vision", 1),
        ("pool=research", 1),
        ("pool=production", 1),
        ("pool=/research/vision&period=1d", 1),
        ("since=2020-01-01T00:00&until=2100-01-01T00:00", 1),
        ("since=2100-01-01T00:00", 0),
        ("until=2020-01-01T00:00&since=2019-01-01T00:00", 0),
    ],
)
def test_filters_are_in_the_address(console: Console, preemption: dict[str, Any], filters: str, number: int) -> None:
    console.open(f"/preemptions?{filters}")
    if number:
        expect(console.rows("by the end of the run")).to_have_count(number)
    else:
        expect(console.page.locator("main")).to_contain_text("No run was preempted in this period.")


def test_another_pool_has_no_preempted_run(console: Console, preemption: dict[str, Any]) -> None:
    console.open("/preemptions")
    expect(console.rows("by the end of the run")).to_have_count(1)
    console.page.get_by_role("textbox", name="pool and the pools below it").fill("other")
    console.page.keyboard.press("Enter")
    expect(console.page.locator("main")).to_contain_text("No run was preempted in this period.")
    console.page.go_back()
    expect(console.rows("by the end of the run")).to_have_count(1)
    console.button("last 6h").click()
    assert "period=6h" in console.page.url


def test_pages_of_the_log_have_each_preemption_once(web: Web, preemption: dict[str, Any]) -> None:
    at_ms = preemption["run"]["at_ms"]
    assert web.ask("GET", "/preemptions", since_ms=at_ms, until_ms=at_ms + 1)["preemptions"] == [preemption]
    assert web.ask("GET", "/preemptions", since_ms=at_ms + 1)["preemptions"] == []
    assert web.ask("GET", "/preemptions", until_ms=at_ms)["preemptions"] == []
    first = web.ask("GET", "/preemptions", limit=1)
    assert first["preemptions"] == [preemption]
    assert web.ask("GET", "/preemptions", limit=1, cursor=first["read_to"])["preemptions"] == []


def test_the_timeline_shows_the_life_of_each_job(console: Console, preemption: dict[str, Any]) -> None:
    index = preemption["run"]["slot"]["index"]
    look(console, "/operations/holds", "light", "dark")
    bar = console.row(f"job {index}").get_by_role("img")
    expect(bar).to_have_attribute("aria-label", re.compile(rf"job {index}: waits, .*attempt 1.*preempted, runs again"))
    expect(console.row("operation").get_by_role("img")).to_have_attribute("aria-label", re.compile("running"))
    expect(console.row(f"job {1 - index}").locator("rect.used")).to_have_count(1)
    console.button(f"timeline of job {index}").focus()
    console.page.keyboard.press("Enter")
    expect(console.button(f"timeline of job {index}")).to_have_attribute("aria-pressed", "true")
    details = console.rows(f"job {index}")
    expect(details.filter(has_text="preempted").get_by_role("link", name="waits", exact=True)).to_have_attribute(
        "href", "/operations/waits"
    )
    console.page.keyboard.press("Enter")
    expect(details).to_have_count(0)


def test_the_timeline_says_how_many_jobs_it_leaves_out(console: Console, web: Web) -> None:
    start(web, "many", "true", jobs=1000, cpu=64, memory="8M", pool="other")
    console.open("/operations/many")
    rows = console.page.locator("#waterfall tbody tr")
    expect(rows).to_have_count(21)
    expect(console.page.locator("main")).to_contain_text("The first 20 of 1,000 jobs; 980 jobs more.")
    console.button("Show 20 more").click()
    expect(rows).to_have_count(41)
    web.ask("POST", "/operations/many/abort", {})
    expect(console.page.locator("dl").first).to_contain_text("aborted")
    expect(console.row("job 40")).to_have_count(0)
    expect(console.row("job 39").get_by_role("img")).to_have_attribute(
        "aria-label", re.compile("waits until the operation is over")
    )


def test_a_new_run_waits_for_a_click(console: Console, web: Web, preemption: dict[str, Any]) -> None:
    console.open("/preemptions")
    rows = console.rows("by the end of the run")
    expect(rows).to_have_count(1)
    options(web, preemption="on")
    start(web, "waits-too", "true", cpu=1, memory="8M", pool="production")
    expect(console.button("Show 1 new run")).to_be_visible(timeout=60_000)
    expect(rows).to_have_count(1)
    console.button("Show 1 new run").click()
    expect(rows).to_have_count(2)
    expect(rows.first).to_contain_text("waits-too")
    options(web, preemption="off")
