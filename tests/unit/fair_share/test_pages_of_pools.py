"""Lists of pools: filters, and pages that follow each other while pools come and go."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from headrace.ids import ROOT_POOL, PoolName, TreeName
from headrace.pools import Pool, Tree
from headrace.resources import Resources
from headrace.wire.pool_explanations import ExplainPool
from headrace.wire.pools import GetPools, PoolList
from headrace.wire.refusals import NotFound
from headrace.wire.snapshots import StarvationStatus, UsageFrame
from headrace.wire.version import NEVER, Version
from headrace_fair_share.engine import EngineOptions, FairShareEngine
from headrace_fair_share.explain import Shares, explain_pool
from headrace_fair_share.facts.usage import UsageChange
from headrace_fair_share.update.updater import Updater
from headrace_fair_share.view import pool_list
from tests.support.clocks import NOW
from tests.support.fair_share import stored, updated
from tests.support.tree_services import live

TREE = TreeName("default")
TEAMS = ("team-1", "team-2", "team-3")


class Desk:
    """A tree of three teams with two pools each, one of them with an ephemeral pool."""

    def __init__(self) -> None:
        self.engine = FairShareEngine(TREE, 1, EngineOptions())
        self.revision = 0
        self.configure(*TEAMS, *(f"{team}-{part}" for team in TEAMS for part in "ab"))
        self.engine.on_operations([live("operation-1", "passing", 1)], NOW)
        frame = UsageFrame(total=Resources(user_slots=10, cpu=1_000), complete=True)
        self.engine.on_usage(UsageChange(Version(1, 1), frame, []), NOW)
        updated(self.engine, Updater(), NOW)

    def configure(self, *names: str) -> None:
        self.revision += 1
        pools = [Pool(PoolName(name), PoolName(name[:6] if name[6:] else ROOT_POOL)) for name in names]
        self.engine.on_stored_tree(stored(Tree(tree=TREE, pools=pools), self.revision), NOW)

    def page(self, **wanted: Any) -> PoolList:
        answer = pool_list(self.engine, GetPools(**wanted), NEVER)
        assert isinstance(answer, PoolList)
        return answer

    def starves(self, pool: str) -> None:
        item = self.engine.items[f"/{pool}"]
        self.engine.items[f"/{pool}"] = msgspec.structs.replace(item, starvation_status=StarvationStatus.STARVING)


def names(page: PoolList) -> Sequence[str]:
    return [each.name for each in page.pools]


def below(team: str) -> Sequence[str]:
    return [f"{team}-a", f"{team}-b"]


ALL = [ROOT_POOL, *(name for team in TEAMS for name in (team, *below(team))), "passing"]


def test_filters_choose_the_children_of_a_pool_names_that_begin_alike_and_pools_that_starve() -> None:
    desk = Desk()
    desk.starves("team-2-b")

    assert names(desk.page()) == ALL
    assert names(desk.page(parent="team-2")) == below("team-2")
    assert names(desk.page(parent=ROOT_POOL)) == [*TEAMS, "passing"], "without the root itself"
    assert names(desk.page(name_prefix="team-3")) == ["team-3", *below("team-3")]
    assert names(desk.page(starving=True)) == ["team-2-b"]
    assert names(desk.page(parent="team-2", name_prefix="team-2-b", starving=True)) == ["team-2-b"]
    assert names(desk.page(parent="team-2", name_prefix="team-3")) == []
    assert pool_list(desk.engine, GetPools(parent="team-4"), NEVER) == NotFound("pool", "team-4", [*TEAMS[::-1]])


@pytest.mark.parametrize("wanted", [{}, {"parent": ROOT_POOL}, {"name_prefix": "team-2"}, {"parent": "team-1"}])
def test_pages_of_a_filtered_list_make_up_the_whole_list(wanted: dict[str, Any]) -> None:
    desk = Desk()
    whole = names(desk.page(**wanted))
    for limit in range(1, len(whole) + 2):
        seen: list[str] = []
        page = desk.page(**wanted, limit=limit)
        seen += names(page)
        while page.more:
            assert len(page.pools) == limit
            page = desk.page(**wanted, limit=limit, first=page.next_first, after=page.pools[-1].name)
            seen += names(page)
        assert seen == whole


def test_the_next_page_begins_after_the_last_pool_wherever_it_stands_now() -> None:
    desk = Desk()
    page = desk.page(limit=4)
    assert (names(page)[-1], page.next_first) == ("team-1-b", 4)

    # A pool before the cursor is removed, and another is made: positions move, and the list goes on where it was.
    desk.configure(*TEAMS, "team-1-b", *below("team-2"))
    assert names(desk.page(after="team-1-b", first=4)) == ["team-2", *below("team-2"), "team-3", "passing"]
    desk.configure(*TEAMS, *(f"team-1-{part}" for part in "vwxyab"))
    rest = names(desk.page(after="team-1-b", first=4))
    assert "team-1-b" not in rest
    assert [each for each in rest if each in TEAMS] == ["team-2", "team-3"]


def test_no_pool_is_lost_if_the_last_pool_of_the_page_before_is_removed() -> None:
    desk = Desk()
    desk.configure(*TEAMS, "team-1-a", *below("team-2"), *below("team-3"))

    assert names(desk.page(after="team-1-b", first=4))[0] == "team-2"
    assert names(desk.page(after="team-1-b", first=4, name_prefix="team-3")) == ["team-3", *below("team-3")]


def test_a_pool_that_no_longer_starves_does_not_end_the_list_of_starving_pools() -> None:
    desk = Desk()
    for name in ("team-1", "team-2-a", "team-3"):
        desk.starves(name)
    page = desk.page(starving=True, limit=1)
    assert (names(page), page.more) == (["team-1"], True)
    item = desk.engine.items["/team-1"]
    desk.engine.items["/team-1"] = msgspec.structs.replace(item, starvation_status=StarvationStatus.NON_STARVING)

    assert names(desk.page(starving=True, first=page.next_first, after="team-1")) == ["team-2-a", "team-3"]


@pytest.mark.parametrize(("name", "against"), [("", ""), ("", "team-1"), ("team-9", ""), ("team-1", "team-9")])
def test_a_pool_that_does_not_exist_is_not_explained(name: str, against: str) -> None:
    desk = Desk()
    request = ExplainPool(name, against=against)

    assert isinstance(explain_pool(Shares.of(desk.engine), request), NotFound)
