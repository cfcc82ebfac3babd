"""What fair_share makes of what it hears; the numbers of sharing itself stand in the properties."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from headrace.ids import ROOT_POOL, OperationId, PoolName, TreeName
from headrace.pools import PartialResources, Person
from headrace.resources import Resources
from headrace.wire.integral import Advanced, PoolVolume, Volume
from headrace.wire.log import (
    EphemeralPoolSet,
    OperationStarted,
    OperationStateChanged,
    OperationSuspended,
    ParametersChanged,
    StateCause,
)
from headrace.wire.operations import OperationState
from headrace.wire.placements import EphemeralPool
from headrace.wire.pools import (
    CreatePool,
    GetPools,
    IntegralGuarantees,
    IntegralType,
    Pool,
    PoolConfig,
    PoolList,
    RemovePool,
    SetPool,
    Tree,
)
from headrace.wire.refusals import BadRequest, NotFound, NotReady, WrongState
from headrace.wire.snapshots import SchedulingStatus, ShareItem, StarvationStatus, UsageFrame, UsageItem
from headrace.wire.version import NEVER, Version
from headrace_fair_share.configuration.tree_book import Change
from headrace_fair_share.engine import EngineOptions, FairShareEngine, UsageChange
from headrace_fair_share.hdrf.arrays import BrokenInvariant
from headrace_fair_share.hdrf.model import TreeInput
from headrace_fair_share.hdrf.tree_shares import TreeShares
from headrace_fair_share.hdrf.tree_update import TreeUpdater
from headrace_fair_share.starvation.clocks import Ages
from headrace_fair_share.starvation.time_that_counts import Moment
from headrace_fair_share.update.run import Update
from headrace_fair_share.view import pool_list
from tests.support.tree_services import live

TREE = TreeName("default")
#: Ten cores.
ANYBODY = Person("anybody", administrator=True)
TOTAL = Resources(user_slots=100, cpu=1_000, memory=2**30)
JOB = Resources(user_slots=1, cpu=100)


class Desk:
    """An engine, and time that moves when told; usage is complete and fresh unless told otherwise."""

    def __init__(self, *pools: tuple[str, str] | tuple[str, str, PoolConfig], term: int = 3) -> None:
        self.engine = FairShareEngine(TREE, term, EngineOptions())
        self.now_ms = 1_000_000
        self.epoch = 0
        self.revision = 0
        self.configure(*pools)
        self.operations()
        self.usage()

    @property
    def now(self) -> Moment:
        return Moment(wall_ms=1_700_000_000_000 + self.now_ms, steady_us=self.now_ms * 1_000)

    def configure(self, *pools: tuple[str, str] | tuple[str, str, PoolConfig]) -> None:
        listed = [Pool(PoolName(each[0]), PoolName(each[1]), *each[2:]) for each in pools]
        self.revision += 1
        self.engine.book.on_tree(Tree(tree=TREE, pools=listed), self.revision)

    def operations(self, *operations: Any) -> bool:
        return self.engine.on_operations(operations)

    def usage(self, *items: UsageItem, whole: bool = False, term: int = 1, **frame: Any) -> bool:
        self.epoch += 1
        removed = frozenset(frame.pop("removed", ()))
        told = UsageFrame(**{"total": TOTAL, "complete": True, **frame})
        change = UsageChange(Version(term, self.epoch), told, list(items), removed, whole)
        return self.engine.on_usage(change, self.now)

    def update(self, after_ms: int = 200) -> Update:
        self.now_ms += after_ms
        return self.engine.on_update(self.now)

    def item(self, key: str) -> ShareItem:
        return self.engine.items[key]


def uses(operation: str, running: int, pending: int, precommit: int = 0) -> UsageItem:
    return UsageItem(
        OperationId(operation),
        usage=JOB * running,
        precommit=JOB * precommit,
        pending_jobs=pending,
        pending=JOB * pending,
    )


def cpu(item: ShareItem) -> tuple[float, float, float]:
    return item.usage_share[1], item.demand_share[1], item.fair_share.total[1]


def test_until_the_allocator_names_it_an_operation_wants_what_its_jobs_want_together() -> None:
    desk = Desk()
    desk.operations(live("operation-1", "a", 4))
    desk.update()
    before = cpu(desk.item("operation-1"))
    desk.usage(uses("operation-1", running=2, pending=1, precommit=1))
    desk.update()

    assert before == (0.0, 0.4, 0.4)
    assert cpu(desk.item("operation-1")) == (0.2, 0.4, 0.4)


def test_jobs_that_are_done_are_not_wanted_again() -> None:
    desk = Desk()
    desk.operations(live("operation-1", "a", 4, done=bytes([0b0101])))
    desk.update()

    assert cpu(desk.item("operation-1")) == (0.0, 0.2, 0.2)


def test_once_named_an_operation_wants_only_what_the_allocator_says() -> None:
    desk = Desk()
    desk.operations(live("operation-1", "a", 4))
    desk.usage(uses("operation-1", 0, 4))
    desk.usage(removed=["operation-1"])
    desk.update()

    assert cpu(desk.item("operation-1")) == (0.0, 0.0, 0.0)


def test_a_new_allocator_has_named_nobody() -> None:
    desk = Desk()
    desk.operations(live("operation-1", "a", 4))
    desk.usage(uses("operation-1", 0, 0))
    desk.usage(whole=True, term=2)
    desk.update()

    assert cpu(desk.item("operation-1")) == (0.0, 0.4, 0.4)


@pytest.mark.parametrize(
    "changes",
    [{"suspended": True}, *({"state": state} for state in OperationState if state is not OperationState.RUNNING)],
)
def test_who_is_not_admitted_or_suspended_wants_what_it_has(changes: dict[str, Any]) -> None:
    desk = Desk()
    desk.operations(live("operation-1", "a", 4, **changes))
    desk.update()
    before = desk.item("operation-1")
    desk.usage(uses("operation-1", running=2, pending=5))
    desk.update()

    assert cpu(before) == (0.0, 0.0, 0.0)
    assert not before.schedulable
    assert cpu(desk.item("operation-1")) == (0.2, 0.2, 0.2)


def test_the_log_says_who_comes_changes_and_goes() -> None:
    desk = Desk(("b", ROOT_POOL))
    one = live("operation-1", "a", 4)
    started = OperationStarted(one.operation, "anna", one.spec, OperationState.PENDING, False, 4, 0, 1)
    changed = OperationStateChanged(one.operation, OperationState.RUNNING, StateCause.ADMITTED, "", 2)
    moved = ParametersChanged(one.operation, PoolName("b"), 2.0, False, 3)
    halted = OperationSuspended(one.operation, True, 4)
    ended = OperationStateChanged(one.operation, OperationState.COMPLETED, StateCause.JOBS_DONE, "", 5)
    engine = desk.engine

    assert [engine.on_events([event]) for event in (started, started, changed, changed, moved, halted)] == [
        True,
        False,
        True,
        False,
        True,
        True,
    ]
    known = engine.operations[one.operation]
    assert (known.pool, known.weight, known.suspended, known.state) == ("b", 2.0, True, OperationState.RUNNING)
    assert engine.on_events([ended])
    assert not engine.on_events([ended, moved])
    assert engine.operations == {}


def test_operations_of_another_tree_are_not_ours() -> None:
    desk = Desk()
    other = live("operation-1", "a")
    other = msgspec.structs.replace(other, spec=msgspec.structs.replace(other.spec, tree=TreeName("gpu")))
    started = OperationStarted(other.operation, "anna", other.spec, OperationState.RUNNING, False, 4, 0, 1)

    assert not desk.operations(other)
    assert not desk.engine.on_events([started])


def test_a_pool_that_nobody_configured_lives_while_it_has_operations() -> None:
    desk = Desk(("a", ROOT_POOL))
    desk.operations(live("operation-1", "guest", ephemeral_pool=True))
    desk.update()
    guest = desk.item("/guest")
    desk.operations()
    update = desk.update()

    assert (guest.parent, guest.ephemeral, guest.weight) == (ROOT_POOL, True, 1.0)
    assert set(update.removed) == {"/guest", "operation-1"}


def test_a_pool_that_is_configured_under_its_name_adopts_it() -> None:
    desk = Desk(("a", ROOT_POOL))
    desk.operations(live("operation-1", "guest", ephemeral_pool=True))
    desk.update()
    request = CreatePool(PoolName("guest"), PoolName("a"), PoolConfig(weight=5.0))
    change = desk.engine.book.decide(request, desk.engine.in_use(), ANYBODY, TOTAL)
    assert isinstance(change, Change)
    desk.engine.book.on_written(change, 9)
    desk.update()

    assert (desk.item("/guest").parent, desk.item("/guest").ephemeral) == ("a", False)
    assert desk.item("operation-1").fair_share.total[1] == 1.0


def test_a_pool_may_be_named_like_an_operation() -> None:
    desk = Desk(("operation-1", ROOT_POOL))
    desk.operations(live("operation-1", "operation-1"))
    desk.update()

    assert set(desk.engine.items) == {"/<Root>", "/operation-1", "operation-1"}


def test_only_what_is_different_is_told() -> None:
    desk = Desk(("a", ROOT_POOL), ("b", ROOT_POOL))
    desk.operations(live("operation-1", "a", 2), live("operation-2", "b", 2))
    first = desk.update()
    second = desk.update()
    desk.usage(uses("operation-1", 1, 1))
    third = desk.update()

    assert len(first.changed) == 5
    assert second.changed == []
    assert {item.key for item in third.changed} == {"/<Root>", "/a", "operation-1"}


def test_the_total_stays_while_the_allocator_recovers() -> None:
    desk = Desk()
    desk.usage(total=Resources(cpu=100), complete=False)
    update = desk.update()

    assert update.frame.total == TOTAL
    assert update.frame.usage_version == Version(1, 2)


def test_before_anything_is_complete_the_total_is_what_is_there() -> None:
    engine = FairShareEngine(TREE, 1, EngineOptions())
    engine.on_usage(UsageChange(Version(1, 1), UsageFrame(Resources(cpu=100)), []), Moment(0, 0))

    assert engine.total == Resources(cpu=100)


def test_usage_that_says_nothing_new_calls_for_no_update() -> None:
    desk = Desk()

    assert desk.usage(uses("operation-1", 1, 1))
    assert not desk.usage()
    assert not desk.usage(uses("operation-1", 1, 1), whole=True)
    assert desk.usage(whole=True)
    assert desk.usage(total=Resources(cpu=7))
    assert desk.usage(complete=False, total=Resources(cpu=7))


# Starvation.


def a_starving_desk() -> Desk:
    desk = Desk()
    desk.operations(live("operation-1", "a", 100))
    desk.usage(uses("operation-1", 1, 99))
    desk.update(0)
    return desk


def test_who_is_short_for_longer_than_the_timeout_starves_and_so_does_its_pool() -> None:
    desk = a_starving_desk()
    assert desk.item("operation-1").scheduling_status is SchedulingStatus.BELOW_FAIR_SHARE
    for _ in range(31):
        desk.usage(uses("operation-1", 1, 99))
        desk.update(1_000)
    item, pool = desk.item("operation-1"), desk.item("/a")

    assert item.starvation_status is StarvationStatus.STARVING
    assert pool.starvation_status is StarvationStatus.STARVING
    assert desk.item("/<Root>").scheduling_status is SchedulingStatus.NORMAL
    assert item.starving_since_ms is not None
    assert item.below_fair_share_since_ms is not None
    assert item.starving_since_ms - item.below_fair_share_since_ms == 31_000


def test_old_usage_judges_nobody_and_the_clocks_stand() -> None:
    desk = a_starving_desk()
    for _ in range(100):
        desk.update(1_000)

    # The first updates came while the usage was young enough.
    assert desk.item("operation-1").starvation_status is StarvationStatus.NON_STARVING
    assert desk.item("operation-1").scheduling_status is SchedulingStatus.BELOW_FAIR_SHARE
    assert desk.engine.ages()[0].below_ms <= 2_000


def test_incomplete_usage_judges_nobody() -> None:
    desk = a_starving_desk()
    for _ in range(100):
        desk.usage(uses("operation-1", 50, 0), complete=False)
        desk.update(1_000)

    assert desk.item("operation-1").scheduling_status is SchedulingStatus.BELOW_FAIR_SHARE


def test_clocks_go_on_after_a_restart_from_where_they_stood() -> None:
    desk = a_starving_desk()
    for _ in range(29):
        desk.usage(uses("operation-1", 1, 99))
        desk.update(1_000)
    saved = [Ages(desk.engine.ages())]
    second = Desk(term=4)
    second.engine.on_ages(saved)
    second.operations(live("operation-1", "a", 100))
    second.now_ms += 10_000_000
    second.usage(uses("operation-1", 1, 99))
    second.update(0)
    before = second.item("operation-1").starvation_status
    for _ in range(2):
        second.usage(uses("operation-1", 1, 99))
        second.update(1_000)

    assert before is StarvationStatus.NON_STARVING
    assert second.item("operation-1").starvation_status is StarvationStatus.STARVING


def test_satisfaction_of_a_pool_is_that_of_its_least_satisfied_operation() -> None:
    desk = Desk(("a", ROOT_POOL))
    desk.operations(live("operation-1", "a", 10), live("operation-2", "a", 10))
    desk.usage(uses("operation-1", 4, 6), uses("operation-2", 1, 9))
    desk.update()

    assert desk.item("/a").satisfaction_ratio == pytest.approx(0.2)
    assert desk.item("/a").local_satisfaction_ratio == pytest.approx(0.5)


def test_who_is_owed_all_it_wants_cannot_be_preempted() -> None:
    desk = Desk()
    desk.operations(live("operation-1", "a", 2), live("operation-2", "a", 100))
    desk.update()

    assert not desk.item("operation-1").preemptible
    assert desk.item("operation-2").preemptible


# Volumes.

BURST = PoolConfig(
    integral_guarantees=IntegralGuarantees(
        guarantee_type=IntegralType.BURST,
        resource_flow=PartialResources(cpu=100),
        burst_guarantee_resources=PartialResources(cpu=200),
    )
)


def test_an_update_asks_for_volumes_with_flow_and_burst_as_shares_of_the_total() -> None:
    desk = Desk(("a", ROOT_POOL, BURST), ("b", ROOT_POOL))
    desk.update()
    desk.update(250)
    first, second = desk.engine.chain._waiting

    assert (first.version, first.previous, first.dt_us, first.total) == (Version(3, 1), NEVER, 0, TOTAL)
    assert [(flow.pool, flow.flow_ratio, flow.burst_ratio, flow.grant_ratio) for flow in first.pools] == [
        ("a", 0.1, 0.2, 0.0)
    ]
    assert (second.previous, second.dt_us) == (Version(3, 1), 250_000)


def test_volumes_that_did_not_come_are_said_to_be_old() -> None:
    desk = Desk(("a", ROOT_POOL, BURST))
    desk.update()
    late = desk.engine.frame.stale_volumes
    answer = Advanced(TREE, Version(3, 1), [PoolVolume(PoolName("a"), Volume(cpu=500), 0.5)])
    following = desk.engine.on_advance_answer(answer)
    cut = desk.engine.cut(desk.now)

    assert late
    assert following is None
    assert not cut.stale_volumes
    assert cut.volumes[PoolName("a")].ratio_volume == 0.5


def test_while_the_allocator_recovers_no_time_passes_for_volumes() -> None:
    desk = Desk(("a", ROOT_POOL, BURST))
    desk.update()
    desk.usage(complete=False)
    desk.update(500)
    desk.usage()
    desk.update(500)
    desk.update(500)

    assert [advance.dt_us for advance in desk.engine.chain._waiting] == [0, 0, 0, 500_000]


def test_what_integral_cannot_use_is_given_up_but_patience_is_not() -> None:
    desk = Desk(("a", ROOT_POOL, BURST))
    desk.update()

    assert desk.engine.on_advance_answer(NotReady("starting")) is None
    assert len(desk.engine.chain) == 1
    assert desk.engine.on_advance_answer(BadRequest("pools", "", "")) is None
    assert len(desk.engine.chain) == 0
    assert desk.engine.statistics()["advances_given_up"] == 1


# What people see.


def listed(desk: Desk, **request: Any) -> PoolList:
    answer = pool_list(desk.engine, GetPools(**request), Version(3, 7))
    assert isinstance(answer, PoolList)
    return answer


def test_pools_are_listed_with_their_figures() -> None:
    desk = Desk(("a", ROOT_POOL, BURST), ("b", "a"), ("c", ROOT_POOL))
    desk.operations(live("operation-1", "b", 4), live("operation-2", "guest", 4, state=OperationState.PENDING))
    desk.usage(uses("operation-1", 1, 3))
    desk.update()
    answer = listed(desk, operations=True)
    views = {view.name: view for view in answer.pools}

    assert [view.path for view in answer.pools] == ["/", "/a", "/a/b", "/c", "/guest"]
    assert (views[PoolName("a")].usage, views[PoolName("a")].demand) == (JOB, JOB * 4)
    assert views[PoolName("a")].fair_resources == JOB * 4
    assert (views[ROOT_POOL].operation_count, views[ROOT_POOL].running_operation_count) == (2, 1)
    assert views[PoolName("a")].accumulated_resource_ratio_volume == 0.0
    assert views[PoolName("c")].accumulated_resource_volume is None
    assert views[PoolName("guest")].ephemeral
    assert {item.name for item in answer.operations} == {"operation-1", "operation-2"}
    assert answer.version == Version(3, 7)


def test_a_pool_that_was_made_a_moment_ago_is_listed_before_its_first_update() -> None:
    desk = Desk()
    desk.update()
    desk.configure(("a", ROOT_POOL, PoolConfig(weight=4.0)))

    assert listed(desk, name="a").pools[0].share.weight == 4.0


def test_pages_follow_each_other_without_gap_or_repetition() -> None:
    desk = Desk(*((f"p{number}", ROOT_POOL) for number in range(450)))
    desk.update()
    seen: list[str] = []
    more = True
    while more:
        page = listed(desk, first=len(seen))
        seen += [view.name for view in page.pools]
        more = page.more

    assert seen == [ROOT_POOL, *(f"p{number}" for number in range(450))]


def test_operations_without_room_on_the_page_are_counted() -> None:
    desk = Desk(("a", ROOT_POOL))
    desk.operations(*(live(f"operation-{number}", "a", 1) for number in range(2_000)))
    desk.update()
    answer = listed(desk, name="a", operations=True)

    assert 0 < len(answer.operations) < 2_000
    assert len(answer.operations) + answer.operations_left_out == 2_000


def test_an_unknown_pool_is_not_found() -> None:
    answer = pool_list(Desk(("research", ROOT_POOL)).engine, GetPools(name="serach"), NEVER)

    assert answer == NotFound("pool", "serach", ["research"])


def test_sums_beyond_what_the_wire_carries_are_told_as_that_much() -> None:
    desk = Desk()
    huge = live("operation-1", "a", 1_000_000)
    huge = msgspec.structs.replace(huge, spec=msgspec.structs.replace(huge.spec, resources=Resources(memory=2**60)))
    desk.operations(*(msgspec.structs.replace(huge, operation=OperationId(f"operation-{n}")) for n in range(9)))
    desk.update()

    assert listed(desk).pools[0].demand.memory == 2**62


# Configuration.


def test_a_broken_configuration_leaves_the_former_one_in_force_and_refuses_changes() -> None:
    desk = Desk(("a", ROOT_POOL))
    desk.engine.book.on_unusable(9, "rubbish")
    update = desk.update()
    refusal = desk.engine.book.decide(RemovePool(PoolName("a")), {}, ANYBODY, TOTAL)

    assert "/a" in desk.engine.items
    assert "revision 9" in update.frame.errors[0]
    assert isinstance(refusal, WrongState)


def test_an_older_revision_changes_nothing() -> None:
    desk = Desk(("a", ROOT_POOL))

    assert not desk.engine.book.on_tree(Tree(tree=TREE), 1)
    assert list(desk.engine.book.pools.pools) == ["a"]


def test_the_tree_of_another_name_is_not_taken() -> None:
    desk = Desk()

    desk.engine.book.on_tree(Tree(tree=TreeName("gpu")), 9)

    assert "no tree 'gpu'" in desk.engine.book.trouble


def test_guarantees_over_the_cluster_are_warned_of_when_made_and_reported_by_the_update() -> None:
    desk = Desk(("a", ROOT_POOL, PoolConfig(strong_guarantee_resources=PartialResources(cpu=900))))
    request = CreatePool(PoolName("b"), ROOT_POOL, PoolConfig(strong_guarantee_resources=PartialResources(cpu=600)))
    change = desk.engine.book.decide(request, {}, ANYBODY, TOTAL)
    assert isinstance(change, Change)
    answer = desk.engine.book.on_written(change, 9)
    update = desk.update()

    assert answer.warnings == ["strong guarantees of the top pools promise 15 of cpu; the cluster has 10"]
    complaint = update.frame.complaints[-1]
    assert "15 of cpu where there are 10 (5 too much)" in complaint.text
    assert "1.5 GiB of memory where there are 1 GiB (512 MiB too much)" in complaint.text
    assert "all of them were scaled to 0.666667 of what they are" in complaint.text
    assert complaint.pools == ["a", "b"]
    assert update.frame.errors[-1] == complaint.text
    assert "15 of cpu where there are 10 (5 too much)" in update.frame.errors[0]
    assert "scaled to 0.666667" in update.frame.errors[1]
    assert desk.item("/a").strong_guarantee_share[1] == pytest.approx(0.6)


def test_a_burst_pool_without_a_burst_is_warned_of() -> None:
    desk = Desk()
    figures = IntegralGuarantees(guarantee_type=IntegralType.BURST, resource_flow=PartialResources(cpu=100))
    change = desk.engine.book.decide(
        CreatePool(PoolName("a"), ROOT_POOL, PoolConfig(None, integral_guarantees=figures)), {}, ANYBODY, TOTAL
    )
    assert isinstance(change, Change)

    (warning,) = desk.engine.book.on_written(change, 9).warnings
    assert "burst pool a has no burst_guarantee_resources: it gets nothing from its savings" in warning


def test_settings_of_an_unknown_pool_are_not_read() -> None:
    answer = Desk(("a", ROOT_POOL)).engine.book.decide(SetPool(PoolName("b"), b"rubbish"), {}, ANYBODY, TOTAL)

    assert answer == NotFound("pool", "b", [])


def test_a_figure_that_is_no_number_never_leaves_an_update(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk(("a", ROOT_POOL))
    desk.operations(live("operation-1", "a", 4))
    desk.update()
    before = dict(desk.engine.items)

    def sick(engine: TreeUpdater, tree: TreeInput, *, afresh: bool = False) -> TreeShares:
        outcome = healthy(engine, tree, afresh=afresh)
        outcome.promised[2, -1] = float("nan")
        return outcome

    healthy = TreeUpdater.update
    monkeypatch.setattr(TreeUpdater, "update", sick)

    with pytest.raises(BrokenInvariant, match="promised_fair_share of operation-1 is"):
        desk.update()
    assert desk.engine.items == before


def test_ephemeral_pools_that_are_over_are_not_remembered_for_ever() -> None:
    engine = FairShareEngine(TREE, 1, EngineOptions())
    for number in range(5_000):
        pool = EphemeralPool(PoolName(f"guest-{number}"), ROOT_POOL, "anna")
        engine.on_events([EphemeralPoolSet(TREE, pool)])

    assert len(engine._guests) <= 1_001
