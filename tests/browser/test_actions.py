"""What a person does in the console: filter, sort, act on operations, change pools, drain nodes."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import expect

from tests.acceptance.test_web import Web, start
from tests.browser.console import Console
from tests.support.effort import few_or_many

#: Two pages of operations, and a few more.
MANY = few_or_many(230, 10_000)


def hold(web: Web, name: str, **options: object) -> None:
    """Start an operation that is live until somebody ends it: no node is large enough."""
    start(web, name, "true", cpu=64, memory="8M", **options)


def state(web: Web, name: str) -> str:
    return str(web.ask("GET", f"/operations/{name}")["state"])


def test_filters_order_and_columns_are_in_the_address(console: Console, web: Web) -> None:
    hold(web, "b-first", weight=2, title="of a filter")
    hold(web, "a-second")
    web.ask("POST", "/operations/a-second/abort", {"reason": "enough"})
    console.open("/operations")
    console.page.get_by_label("only live").check()
    expect(console.row("b-first")).to_be_visible()
    expect(console.row("a-second")).to_have_count(0)
    console.page.get_by_label("only live").uncheck()
    console.page.get_by_text("Columns").click()
    console.page.get_by_role("checkbox", name="weight").check()
    expect(console.page.get_by_role("columnheader", name="weight")).to_be_visible()
    console.button("operation").click()
    expect(console.page.get_by_role("columnheader", name="operation")).to_have_attribute("aria-sort", "ascending")
    names = console.page.locator("tbody tr").evaluate_all("all => all.map(each => each.dataset.key)")
    assert names == sorted(names)
    console.page.reload()
    console.live()
    assert console.page.locator("tbody tr").evaluate_all("all => all.map(each => each.dataset.key)") == names
    expect(console.page.get_by_role("columnheader", name="weight")).to_be_visible()
    console.page.get_by_role("textbox", name="user", exact=True).fill("nobody")
    console.page.keyboard.press("Enter")
    expect(console.page.locator("main")).to_contain_text("No operation matches.")
    console.page.go_back()
    expect(console.row("b-first")).to_be_visible()
    web.ask("POST", "/operations/b-first/abort", {})


def test_rows_stay_where_they_are_read(console: Console, web: Web) -> None:
    hold(web, "steady")
    console.open("/operations?live=true")
    expect(console.row("steady")).to_be_visible()
    hold(web, "newer")
    expect(console.button("Show 1 new operation")).to_be_visible()
    # The end of an operation changes its row, which stays although the filter does not match it any more.
    web.ask("POST", "/operations/steady/abort", {})
    expect(console.row("steady")).to_contain_text("aborted")
    assert console.page.locator("tbody tr").first.get_attribute("data-key") == "steady"
    console.button("Show 1 new operation").click()
    expect(console.row("newer")).to_be_visible()
    expect(console.row("steady")).to_have_count(0)
    web.ask("POST", "/operations/newer/abort", {})


def test_each_operation_answers_an_action(console: Console, web: Web) -> None:
    hold(web, "one")
    hold(web, "two")
    console.open("/operations?live=true")
    for name in ("one", "two"):
        console.page.get_by_label(f"select {name}").check()
    console.button("Move").click()
    console.page.get_by_label("to the pool").fill("elsewhere")
    web.ask("POST", "/operations/two/abort", {})
    console.button("Move: 2 operations").click()
    answers = console.rows("Answers")
    expect(answers).to_have_count(2)
    expect(answers.filter(has_text="two")).to_have_class("bad")
    console.button("Close").click()
    expect(answers).to_have_count(0)


def test_every_action_on_one_operation(console: Console, web: Web) -> None:
    hold(web, "acted")
    console.open("/operations/acted")
    word = console.page.locator("dd .state")
    console.button("Suspend").click()
    console.page.get_by_label("end running jobs, too").check()
    console.button("Suspend: 1 operation").click()
    expect(word).to_have_text("running, suspended")
    console.button("Resume").click()
    console.button("Resume: 1 operation").click()
    expect(word).to_have_text("running")
    console.button("Weight").click()
    console.page.get_by_label("new weight").fill("2.5")
    console.button("Weight: 1 operation").click()
    expect(console.rows("Answers")).to_contain_text("running")
    assert web.ask("GET", "/operations/acted")["spec"]["weight"] == 2.5
    console.button("Abort").click()
    console.page.get_by_label("reason").fill("no node is so large")
    console.page.keyboard.press("Enter")
    expect(console.page.locator("dl").first).to_contain_text("no node is so large")
    assert state(web, "acted") == "aborted"
    hold(web, "done-enough")
    console.open("/operations/done-enough")
    console.button("Complete").click()
    console.button("Complete: 1 operation").click()
    expect(word).to_have_text("completed")


def test_an_action_on_all_that_a_filter_matches(console: Console, web: Web) -> None:
    made = {"changes": [{"change": "create", "pool": "narrow", "attributes": {"max_running_operation_count": 1}}]}
    web.ask("POST", "/pools/changes", made)
    for number in range(MANY):
        start(web, f"many-{number:05}", "true", cpu=64, pool="narrow", memory="8M")
    console.open("/operations?pool=narrow&live=true")
    expect(console.page.locator("tbody tr")).to_have_count(100)
    console.button("Next 100").click()
    expect(console.row(f"many-{MANY - 101:05}")).to_be_visible()
    console.button("First page").click()
    console.button("Select all that the filter matches").click()
    expect(console.page.get_by_text(f"{MANY:,} operations selected")).to_be_visible()
    console.button("Abort").click()
    console.button(f"Abort: {MANY:,} operations").click()
    expect(console.page.get_by_text(f"{MANY:,} operations changed, 0 refused.")).to_be_visible(timeout=120_000)
    assert web.ask("GET", "/operations", pool="narrow", live=True)["operations"] == []


def test_changes_of_pools_are_staged_looked_at_and_applied(console: Console, web: Web) -> None:
    web.ask("POST", "/pools/changes", {"changes": [{"change": "create", "pool": "edited"}]})
    hold(web, "wants", pool="edited")
    console.open("/pools/edited")
    console.page.get_by_label("resource_limits/cpu").fill("1")
    console.page.get_by_label("weight", exact=True).first.fill("3")
    console.button("Stage the changes").click()
    staged = console.page.get_by_role("region", name="staged changes")
    expect(staged).to_contain_text("set edited weight=3, resource_limits/cpu=1")
    assert web.ask("GET", "/pools/edited")["pool"]["settings"]["resource_limits"] == {}
    expect(console.button("Apply")).to_be_disabled()
    console.button("What if").click()
    expect(console.button("Apply")).to_be_enabled()
    # Somebody else changes pools meanwhile.
    web.ask("POST", "/pools/changes", {"changes": [{"change": "create", "pool": "meanwhile"}]})
    console.button("Apply").click()
    expect(staged.get_by_role("status")).to_contain_text("revision")
    console.button("Drop all").click()
    expect(staged).to_have_count(0)
    revision = web.ask("POST", "/pools/changes", {"changes": [{"change": "remove", "pool": "meanwhile"}]})["revision"]
    expect(console.page.get_by_text(f"The pools are at revision {revision}.")).to_be_visible(timeout=20_000)

    console.page.get_by_label("weight", exact=True).first.fill("4")
    console.button("Stage the changes").click()
    console.page.get_by_label("new pool below it").fill("child")
    console.button("Stage the new pool").click()
    console.button("What if").click()
    console.button("Apply").click()
    expect(console.page.get_by_text("Applied as revision")).to_be_visible()
    expect(console.row("child")).to_be_visible()
    assert web.ask("GET", "/pools/edited")["pool"]["settings"]["weight"] == 4
    console.open("/pools/child")
    console.button("Stage the removal").click()
    console.button("What if").click()
    console.button("Apply").click()
    expect(console.page.locator("#state")).to_contain_text("child")
    web.ask("GET", "/pools/child", expect=404)
    web.ask("POST", "/operations/wants/abort", {})


def test_a_rule_that_a_change_breaks_is_shown(console: Console, web: Web) -> None:
    web.ask("POST", "/pools/changes", {"changes": [{"change": "create", "pool": "ruled"}]})
    console.open("/pools/ruled")
    console.page.get_by_label("weight", exact=True).first.fill("-1")
    console.button("Stage the changes").click()
    console.button("What if").click()
    expect(console.page.locator(".staged .bad")).to_contain_text("-1")
    expect(console.button("Apply")).to_be_disabled()
    console.button("Drop all").click()


def test_a_node_is_drained_and_undrained(console: Console, web: Web) -> None:
    console.open("/nodes")
    console.row("beta").get_by_role("link", name="beta").click()
    console.live()
    console.page.get_by_label("reason").fill("a new disk")
    console.button("Drain").click()
    expect(console.page.locator("dl")).to_contain_text("a new disk, ordered by")
    assert web.ask("GET", "/nodes/beta")["drain"]["reason"] == "a new disk"
    console.open("/")
    expect(console.row("beta")).to_contain_text("a new disk")
    console.open("/nodes?state=drained")
    expect(console.row("beta")).to_be_visible()
    expect(console.row("alpha")).to_have_count(0)
    console.open("/nodes/beta")
    console.button("Undrain").click()
    expect(console.button("Drain")).to_be_visible()
    assert web.ask("GET", "/nodes/beta")["drain"] is None


@pytest.mark.parametrize("by", ["user", "day", "operation"])
def test_usage_by(console: Console, web: Web, by: str) -> None:
    start(web, f"used-{by}", "true", memory="8M")
    period: dict[str, Any] = {"since": "2026-01-01", "until": "2100-01-01", "by": "operation"}
    while f"used-{by}" not in [each["operation"] for each in web.ask("GET", "/usage", **period)["lines"]]:
        pass
    console.open(f"/usage?by={by}")
    rows = console.rows("hours of a core")
    expect(rows.first).to_be_visible()
    expected = {"user": web.told["user"], "day": "20", "operation": f"used-{by}"}[by]
    expect(rows.filter(has_text=expected).first).to_be_visible()
