"""What fair_share makes of what it hears; the numbers of sharing itself stand in the properties."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from headrace.ids import ROOT_POOL, OperationId, PoolName, TreeName
from headrace.pools import (
    IntegralGuarantees,
    IntegralType,
    PartialResources,
    Person,
    Pool,
    PoolConfig,
    PoolMode,
    Tree,
    TreeOptions,
)
from headrace.resources import Resources
from headrace.runtime.engine import Moment
from headrace.wire.codec import LARGEST_MESSAGE_BYTES
from headrace.wire.integral import Advanced, PoolVolume, Volume
from headrace.wire.log import (
    EphemeralPoolSet,
    Event,
    OperationPlaced,
    OperationStarted,
    OperationStateChanged,
    OperationSuspended,
    ParametersChanged,
    StateCause,
)
from headrace.wire.operations import OperationState
from headrace.wire.placements import EphemeralPool, TreePlacement
from headrace.wire.pool_changes import ChangePools, PoolPlan
from headrace.wire.pools import GetPools, PoolList
from headrace.wire.refusals import BadRequest, NotFound, NotReady, Refusal, StaleTerm, WrongState
from headrace.wire.snapshot_parts import SnapshotPublisher
from headrace.wire.snapshots import (
    SchedulingStatus,
    ShareFrame,
    ShareItem,
    SharePart,
    StarvationStatus,
    UsageFrame,
    UsageItem,
)
from headrace.wire.version import NEVER, Version
from headrace_fair_share.configuration.change_decisions import Change, StoredTree
from headrace_fair_share.effects import (
    Compute,
    Effect,
    KeepBrokenTree,
    OfferSample,
    Publish,
    SendAdvance,
    StepDown,
    WriteTree,
)
from headrace_fair_share.engine import EngineOptions, FairShareEngine
from headrace_fair_share.facts.usage import UsageChange
from headrace_fair_share.hdrf.arrays import BrokenInvariant
from headrace_fair_share.hdrf.model import TreeInput
from headrace_fair_share.hdrf.tree_update import TreeShares, TreeUpdater
from headrace_fair_share.starvation.clocks import Age, Ages, clocks_of
from headrace_fair_share.update.results import MAX_REBUILT_ITEMS
from headrace_fair_share.update.unsaturated.resting import RestingOperations
from headrace_fair_share.update.updater import FailedUpdate, Update, Updater
from headrace_fair_share.view import pool_list
from tests.support.clocks import NOW
from tests.support.fair_share import create_pool, remove_pool, set_pool, stored, updated
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
        self.updater = Updater()
        self.now_ms = 1_000_000
        self.epoch = 0
        self.revision = 0
        self.configure(*pools)
        self.operations()
        self.usage()

    @property
    def now(self) -> Moment:
        return Moment(self.now_ms * 1_000_000, 1_700_000_000_000 + self.now_ms)

    def configure(self, *pools: tuple[str, str] | tuple[str, str, PoolConfig], pause_starts: bool = False) -> None:
        listed = [Pool(PoolName(each[0]), PoolName(each[1]), *each[2:]) for each in pools]
        self.revision += 1
        tree = Tree(tree=TREE, pools=listed, options=TreeOptions(pause_starts=pause_starts))
        self.engine.on_stored_tree(stored(tree, self.revision), self.now)

    def operations(self, *operations: Any) -> bool:
        return bool(self.engine.on_operations(operations, self.now).effects)

    def usage(self, *items: UsageItem, whole: bool = False, term: int = 1, **frame: Any) -> bool:
        self.epoch += 1
        removed = frozenset(frame.pop("removed", ()))
        told = UsageFrame(**{"total": TOTAL, "complete": True, **frame})
        change = UsageChange(Version(term, self.epoch), told, list(items), removed, whole)
        return bool(self.engine.on_usage(change, self.now).effects)

    def events(self, *events: Event) -> bool:
        return bool(self.engine.on_events(events, self.now).effects)

    def asks(self, request: ChangePools) -> PoolPlan | Refusal | Change:
        """A change to be written, or the answer."""
        outcome = self.engine.on_change_request(request, ANYBODY, None, self.now)
        for effect in outcome.effects:
            assert isinstance(effect, WriteTree)
            return effect.change
        assert outcome.answer is not None
        return outcome.answer

    def changes(self, request: ChangePools) -> PoolPlan:
        """A change that is written."""
        change = self.asks(request)
        assert isinstance(change, Change), change
        (plan,) = self.engine.on_tree_written([change], 9, self.now).answer
        return plan

    def update(self, after_ms: int = 200) -> Update:
        self.now_ms += after_ms
        return updated(self.engine, self.updater, self.now)

    def figure(self, name: str) -> float:
        (value,) = [each.value for each in self.engine.figures() if each.name == name]
        assert isinstance(value, float | int)
        return value

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
    heavier = ParametersChanged(one.operation, PoolName("b"), 2.0, False, 3)
    moved = OperationPlaced(one.operation, TreePlacement(TREE, PoolName("b"), 2))
    halted = OperationSuspended(one.operation, True, 4)
    ended = OperationStateChanged(one.operation, OperationState.COMPLETED, StateCause.JOBS_DONE, "", 5)

    assert [desk.events(event) for event in (started, started, changed, changed, heavier, moved, halted)] == [
        True,
        False,
        True,
        False,
        True,
        True,
        True,
    ]
    known = desk.engine.operations.by_id[one.operation]
    assert (known.pool, known.weight, known.suspended, known.state) == ("b", 2.0, True, OperationState.RUNNING)
    assert desk.events(ended)
    assert not desk.events(ended, moved)
    assert desk.engine.operations.by_id == {}


def test_an_operation_with_the_very_figures_of_another_is_told_when_it_comes() -> None:
    desk = Desk(("a", ROOT_POOL))
    one, other = live("operation-1", "a", 4), live("operation-2", "a", 4)
    desk.operations(one)
    desk.update()
    desk.operations(one, other)
    update = desk.update()

    assert "operation-2" in {item.key for item in update.changed}
    assert desk.item("operation-1").fair_share == desk.item("operation-2").fair_share


def test_operations_of_another_tree_are_not_ours() -> None:
    desk = Desk()
    other = live("operation-1", "a")
    other = msgspec.structs.replace(other, spec=msgspec.structs.replace(other.spec, tree=TreeName("gpu")))
    started = OperationStarted(other.operation, "anna", other.spec, OperationState.RUNNING, False, 4, 0, 1)

    assert not desk.operations(other)
    assert not desk.events(started)


def test_a_pool_that_nobody_configured_lives_while_it_has_operations() -> None:
    desk = Desk(("a", ROOT_POOL))
    desk.operations(live("operation-1", "ephemeral", ephemeral_pool=True))
    desk.update()
    ephemeral = desk.item("/ephemeral")
    desk.operations()
    update = desk.update()

    assert (ephemeral.parent, ephemeral.ephemeral, ephemeral.weight) == (ROOT_POOL, True, 1.0)
    assert set(update.removed) == {"/ephemeral", "operation-1"}


def test_a_pool_that_is_configured_under_its_name_adopts_it() -> None:
    desk = Desk(("a", ROOT_POOL))
    desk.operations(live("operation-1", "ephemeral", ephemeral_pool=True))
    desk.update()
    desk.changes(create_pool("ephemeral", "a", PoolConfig(weight=5.0)))
    desk.update()

    assert (desk.item("/ephemeral").parent, desk.item("/ephemeral").ephemeral) == ("a", False)
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


@pytest.mark.parametrize(
    "changes",
    [
        [uses("operation-39", 0, 0)],
        [uses(f"operation-{number}", 1, 4) for number in range(20)],
        [*(uses(f"operation-{number}", 2, 9) for number in range(20)), uses("operation-39", 1, 0)],
    ],
    ids=["demand of one", "usage of some", "both"],
)
def test_what_changes_alike_for_many_is_told_as_if_all_was_worked_out_anew(changes: list[UsageItem]) -> None:
    desk, names = Desk(("a", ROOT_POOL)), [f"operation-{number}" for number in range(40)]
    desk.operations(*(live(name, "a", 5) for name in names))
    desk.usage(*(uses(name, 0, 5) for name in names))
    desk.update()
    desk.usage(*changes)
    desk.now_ms += 200
    desk.engine.on_update_due(desk.now)
    (compute,) = desk.engine.on_advance_answer(None, desk.now).effects
    assert isinstance(compute, Compute)
    update = desk.updater.update(compute.cut)
    desk.engine.on_updated(update, desk.now)

    assert len(update.changed) > MAX_REBUILT_ITEMS
    assert {item.key: item for item in Updater().update(compute.cut).changed} == desk.engine.items


def test_the_total_stays_while_the_allocator_recovers() -> None:
    desk = Desk()
    desk.usage(total=Resources(cpu=100), complete=False)
    update = desk.update()

    assert update.frame.total == TOTAL
    assert update.frame.usage_version == Version(1, 2)


def test_before_anything_is_complete_the_total_is_what_is_there() -> None:
    engine = FairShareEngine(TREE, 1, EngineOptions())
    engine.on_usage(UsageChange(Version(1, 1), UsageFrame(Resources(cpu=100)), []), NOW)

    assert engine.usage.total == Resources(cpu=100)


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
    assert (desk.engine.ages()[0].below_ms or 0) <= 2_000


def test_incomplete_usage_judges_nobody() -> None:
    desk = a_starving_desk()
    for _ in range(100):
        desk.usage(uses("operation-1", 50, 0), complete=False)
        desk.update(1_000)

    assert desk.item("operation-1").scheduling_status is SchedulingStatus.BELOW_FAIR_SHARE


def test_while_an_operator_pauses_starts_nobody_begins_to_starve_and_the_clocks_go_on_afterwards() -> None:
    desk = a_starving_desk()
    desk.configure(pause_starts=True)
    for _ in range(100):
        desk.usage(uses("operation-1", 1, 99))
        desk.update(1_000)
    paused = desk.item("operation-1").starvation_status
    desk.configure()
    for _ in range(32):
        desk.usage(uses("operation-1", 1, 99))
        desk.update(1_000)

    assert paused is StarvationStatus.NON_STARVING
    assert desk.item("operation-1").starvation_status is StarvationStatus.STARVING
    assert (desk.engine.ages()[0].below_ms or 0) <= 33_000


def test_clocks_go_on_after_a_restart_from_where_they_stood() -> None:
    desk = a_starving_desk()
    for _ in range(29):
        desk.usage(uses("operation-1", 1, 99))
        desk.update(1_000)
    saved = [Ages(desk.engine.ages())]
    second = Desk(term=4)
    second.engine.on_leading(4, saved, second.now)
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


def test_an_operation_whose_fair_share_covers_its_demand_is_owed_everything() -> None:
    desk = Desk()
    desk.operations(live("operation-1", "a", 2), live("operation-2", "a", 100))
    desk.update()

    assert desk.item("operation-1").owed_everything
    assert not desk.item("operation-2").owed_everything
    assert not desk.item("/a").owed_everything


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
    first, second = desk.engine.volumes.chain._waiting

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
    (compute,) = desk.engine.on_advance_answer(answer, desk.now).effects

    assert late
    assert isinstance(compute, Compute)
    cut = compute.cut
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

    assert [advance.dt_us for advance in desk.engine.volumes.chain._waiting] == [0, 0, 0, 500_000]


def test_what_integral_cannot_use_is_given_up_but_patience_is_not() -> None:
    desk = Desk(("a", ROOT_POOL, BURST))
    desk.update()

    (first,) = desk.engine.on_advance_answer(NotReady("starting"), desk.now).effects
    waiting = len(desk.engine.volumes.chain)
    (second,) = desk.engine.on_advance_answer(BadRequest("pools", "", ""), desk.now).effects

    assert isinstance(first, Compute)
    assert isinstance(second, Compute)
    assert (waiting, len(desk.engine.volumes.chain)) == (1, 0)
    assert desk.figure("advances_given_up") == 1


def test_advances_are_sent_one_after_another_while_the_update_may_wait_for_them() -> None:
    desk = Desk(("a", ROOT_POOL, BURST))
    desk.update()
    (first,) = desk.engine.on_update_due(desk.now).effects
    assert isinstance(first, SendAdvance)
    desk.now_ms += 5
    (second,) = desk.engine.on_advance_answer(Advanced(TREE, first.advance.version, []), desk.now).effects
    assert isinstance(second, SendAdvance)
    desk.now_ms += 15
    (third,) = desk.engine.on_advance_answer(Advanced(TREE, first.advance.version, []), desk.now).effects

    assert (first.advance.version, first.timeout_s) == (Version(3, 1), 0.02)
    assert (second.advance.version, second.timeout_s) == (Version(3, 2), 0.015)
    assert isinstance(third, Compute)
    assert third.cut.stale_volumes


def test_a_process_that_another_one_may_have_succeeded_looks_it_up_and_goes_on_meanwhile() -> None:
    desk = Desk(("a", ROOT_POOL, BURST))
    desk.update()
    effect, compute = desk.engine.on_advance_answer(StaleTerm("fair_share.default", 9, 3), desk.now).effects

    assert effect == StepDown(9, "integral")
    assert isinstance(compute, Compute)
    assert len(desk.engine.volumes.chain) == 1


# When an update is due, and what comes of one that fails.


@pytest.mark.parametrize(
    ("cost_ms", "pause_ms"),
    [(2, 5), (3, 6), (4, 16), (10, 40), (25, 100), (40, 100), (50, 100), (60, 120), (400, 800), (700, 1_000)],
)
def test_an_update_follows_a_change_but_not_before_a_pause_that_the_cost_of_the_one_before_tells(
    cost_ms: int, pause_ms: int
) -> None:
    desk = Desk(("a", ROOT_POOL))
    engine = desk.engine
    first = engine.seconds_until_update(desk.now)
    engine.on_update_due(desk.now)
    # Waiting for volumes costs nothing.
    desk.now_ms += 20
    engine.on_advance_answer(None, desk.now)
    desk.now_ms += cost_ms
    engine.on_published(desk.now)
    idle = engine.seconds_until_update(desk.now)
    desk.usage(uses("operation-1", 1, 0))
    wanted = engine.seconds_until_update(desk.now)
    desk.now_ms += pause_ms

    assert (first, idle, wanted) == (0, max(180 - cost_ms, pause_ms) / 1_000, pause_ms / 1_000)
    assert engine.seconds_until_update(desk.now) == 0


def test_operations_are_put_to_rest_only_once_all_others_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    desk, looks = Desk(("a", ROOT_POOL)), []
    monkeypatch.setattr(RestingOperations, "rest", lambda self, *_: looks.append(self))
    idle = [live(f"operation-{number}", "a", 0) for number in range(200)]

    def looks_with(jobs: int) -> int:
        desk.operations(*idle, live("busy", "a", jobs))
        before = len(looks)
        desk.update(after_ms=1_000)
        return len(looks) - before

    assert [looks_with(jobs) for jobs in (1_000, 1_001, 1, 1_000)] == [0, 0, 1, 0]


@pytest.mark.parametrize("cost_ms", [0, 50])
def test_whether_an_update_is_brief_is_remembered_while_nothing_changes(cost_ms: int) -> None:
    desk = Desk(("a", ROOT_POOL))
    many = [live(f"operation-{number}", "a", 1) for number in range(40)]
    desk.operations(*many)
    desk.engine.on_update_due(desk.now)
    desk.now_ms += cost_ms
    desk.engine.on_published(desk.now)
    told = due(desk, after_ms=2_000)
    desk.operations(*many[1:], live("operation-0", "a", 2))
    desk.now_ms += 100

    effects = desk.engine.on_update_due(desk.now).effects

    assert told == [OfferSample, Publish]
    assert [(each.afresh, each.is_brief) for each in effects if isinstance(each, Compute)] == [(False, not cost_ms)]


@pytest.mark.parametrize(
    ("after_ms", "changed", "afresh"),
    [(3_999, False, False), (4_000, False, True), (4_999, True, False), (5_000, True, True)],
)
def test_an_update_is_made_afresh_in_a_pause_if_there_is_one_before_it_must_be(
    after_ms: int, changed: bool, afresh: bool
) -> None:
    desk = Desk(("a", ROOT_POOL))
    desk.operations(live("one", "a", 1))
    desk.update()
    desk.usage(uses("one", 1, 0))
    desk.update(after_ms=after_ms - 500)
    if changed:
        desk.usage(uses("one", 0, 1))
    desk.now_ms += 500

    effects = desk.engine.on_update_due(desk.now).effects

    assert [each.afresh for each in effects if isinstance(each, Compute)] == [afresh]


def test_the_update_that_is_made_afresh_comes_20_ms_after_the_last_change() -> None:
    desk = Desk(("a", ROOT_POOL))
    desk.operations(live("one", "a", 1))
    desk.update()
    desk.now_ms += 4_300
    desk.usage(uses("one", 1, 0))
    desk.update(after_ms=0)
    wait_s = desk.engine.seconds_until_update(desk.now)
    desk.update(after_ms=20)

    assert wait_s == 0.02
    assert desk.engine.seconds_until_update(desk.now) == 1.0
    assert due(desk, after_ms=1_000) == [OfferSample, Publish]


def test_no_longer_pause_follows_an_update_made_afresh_however_long_that_took() -> None:
    desk = Desk(("a", ROOT_POOL))

    def wait_after(after_ms: int, cost_ms: int) -> tuple[bool, float]:
        desk.now_ms += after_ms
        desk.operations(live("one", "a", desk.now_ms))
        (compute,) = desk.engine.on_update_due(desk.now).effects
        assert isinstance(compute, Compute)
        update = desk.updater.update(compute.cut, afresh=compute.afresh)
        desk.now_ms += cost_ms
        desk.engine.on_updated(update, desk.now)
        desk.engine.on_published(desk.now)
        desk.operations(live("one", "a", desk.now_ms))
        return compute.afresh, desk.engine.seconds_until_update(desk.now)

    assert wait_after(0, cost_ms=300) == (True, 0.005)
    assert wait_after(100, cost_ms=10) == (False, 0.04)
    assert wait_after(5_000, cost_ms=300) == (True, 0.04)


def test_with_many_operations_an_update_that_nothing_asks_for_comes_later() -> None:
    desk = Desk()
    desk.operations(*(live(f"operation-{number}", "a", 1) for number in range(1_000)))
    desk.update()

    assert desk.engine.seconds_until_update(desk.now) == 1.0


def fails(desk: Desk, fault: Exception) -> list[Effect]:
    return list(desk.engine.on_update_failed(FailedUpdate(fault, TreeInput(total=TOTAL), 7), desk.now).effects)


def test_an_update_that_fails_leaves_the_shares_and_its_tree_is_kept_once() -> None:
    desk = Desk(("a", ROOT_POOL))
    before = desk.update()
    first, second = fails(desk, BrokenInvariant("x")), fails(desk, BrokenInvariant("x"))
    others = [fails(desk, BrokenInvariant(str(number))) for number in range(20)]

    told = msgspec.structs.replace(
        before.frame, at_ms=7, errors=["an update failed, and the previous shares stay in force: x"]
    )
    assert first[1:] == second == [Publish(told, [], [])]
    assert [type(effects[0]) for effects in (first, *others)].count(KeepBrokenTree) == 10
    assert desk.figure("failed_updates") == 22
    assert set(desk.engine.items) == {"/<Root>", "/a"}


def test_what_is_broken_inside_is_found() -> None:
    desk = Desk(("a", ROOT_POOL, BURST), ("b", "a"))
    desk.operations(live("operation-1", "b", 4))
    desk.usage(uses("operation-1", 1, 3))
    desk.update()
    desk.update()
    engine = desk.engine
    healthy = engine.check()
    engine.usage.named.clear()
    engine.clocks = clocks_of([Age("/c", 1, StarvationStatus.NON_STARVING)], 0)
    engine.operations.by_id[OperationId("operation-2")] = engine.operations.by_id[OperationId("operation-1")]
    engine.volumes.chain._waiting.append(engine.volumes.chain._waiting[0])
    fair = msgspec.structs.replace(desk.item("/b").fair_share, total=(0.0, 0.9, 0.0, 0.0, 0.0))
    engine.items["/b"] = msgspec.structs.replace(desk.item("/b"), fair_share=fair)
    found = engine.check()

    assert healthy == []
    assert [words.split()[0] for words in found] == ["the", "usage", "advance", "pool", "a"]


# Views for people.


def listed(desk: Desk, **request: Any) -> PoolList:
    answer = pool_list(desk.engine, GetPools(**request), Version(3, 7))
    assert isinstance(answer, PoolList)
    return answer


def test_pools_are_listed_with_their_figures() -> None:
    desk = Desk(("a", ROOT_POOL, BURST), ("b", "a"), ("c", ROOT_POOL))
    desk.operations(live("operation-1", "b", 4), live("operation-2", "ephemeral", 4, state=OperationState.PENDING))
    desk.usage(uses("operation-1", 1, 3))
    desk.update()
    answer = listed(desk, operations=True)
    views = {view.name: view for view in answer.pools}

    assert [view.path for view in answer.pools] == ["/", "/a", "/a/b", "/c", "/ephemeral"]
    assert (views[PoolName("a")].usage, views[PoolName("a")].demand) == (JOB, JOB * 4)
    assert views[PoolName("a")].fair_resources == JOB * 4
    assert (views[ROOT_POOL].operation_count, views[ROOT_POOL].running_operation_count) == (2, 1)
    assert views[PoolName("a")].accumulated_resource_ratio_volume == 0.0
    assert views[PoolName("c")].accumulated_resource_volume is None
    assert views[PoolName("ephemeral")].ephemeral
    assert {item.name for item in answer.operations} == {"operation-1", "operation-2"}
    assert answer.version == Version(3, 7)


def test_lightweight_operations_are_counted_apart() -> None:
    quick = PoolConfig(mode=PoolMode.FIFO, enable_lightweight_operations=True)
    desk = Desk(("above", ROOT_POOL), ("quick", "above", quick), ("slow", "above"))
    other = live("operation-3", "quick", 1)
    desk.operations(
        live("operation-1", "quick", 1),
        live("operation-2", "quick", 1, state=OperationState.PENDING),
        msgspec.structs.replace(other, spec=msgspec.structs.replace(other.spec, type="map")),
        live("operation-4", "slow", 1),
    )
    desk.update()

    def counts() -> dict[str, tuple[int, int]]:
        views = listed(desk).pools
        return {view.name: (view.running_operation_count, view.lightweight_running_operation_count) for view in views}

    assert counts() == {ROOT_POOL: (2, 1), "above": (2, 1), "quick": (1, 1), "slow": (1, 0)}

    lists = [msgspec.structs.replace(quick, enable_lightweight_operations=False), quick]
    for config, expected in zip(lists, [(2, 0), (1, 1)], strict=True):
        desk.configure(("above", ROOT_POOL), ("quick", "above", config), ("slow", "above"))
        desk.update()
        assert counts()["quick"] == expected


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

    # Amounts are cut before they are added up, to somewhat less than what fits.
    assert 2**62 - 2**54 < listed(desk).pools[0].demand.memory <= 2**62


# Configuration.


def test_a_broken_configuration_leaves_the_former_one_in_force_and_refuses_changes() -> None:
    desk = Desk(("a", ROOT_POOL))
    desk.engine.on_stored_tree(StoredTree(9, None, "rubbish"), desk.now)
    update = desk.update()
    refusal = desk.asks(remove_pool("a"))

    assert "/a" in desk.engine.items
    assert "revision 9" in update.frame.errors[0]
    assert isinstance(refusal, WrongState)


def test_an_older_revision_changes_nothing() -> None:
    desk = Desk(("a", ROOT_POOL))

    assert not desk.engine.on_stored_tree(stored(Tree(tree=TREE), 1), desk.now).effects
    assert list(desk.engine.configuration.pools.pools) == ["a"]


def test_the_tree_of_another_name_is_not_taken() -> None:
    desk = Desk()

    desk.engine.on_stored_tree(stored(Tree(tree=TreeName("gpu")), 9), desk.now)

    assert "no tree 'gpu'" in desk.engine.configuration.trouble


def test_a_new_pool_whose_name_differs_only_in_capital_letters_is_warned_of() -> None:
    desk = Desk(("research", ROOT_POOL))

    assert desk.changes(create_pool("Research")).warnings == [
        "pools Research and research differ only in capital letters, and are two pools"
    ]
    assert desk.changes(create_pool("vision")).warnings == []


def test_guarantees_over_the_cluster_are_warned_of_when_made_and_reported_by_the_update() -> None:
    desk = Desk(("a", ROOT_POOL, PoolConfig(strong_guarantee_resources=PartialResources(cpu=900))))
    answer = desk.changes(create_pool("b", config=PoolConfig(strong_guarantee_resources=PartialResources(cpu=600))))
    update = desk.update()

    assert answer.warnings == ["strong guarantees of the top pools promise 15 of cpu; the cluster has 10"]
    complaint = update.frame.complaints[-1]
    assert "15 of cpu where there are 10 (5 too much)" in complaint.text
    assert "1.5 GiB of memory where there are 1 GiB (512 MiB too much)" in complaint.text
    assert "all of them were scaled to 0.666667 of their configured size" in complaint.text
    assert complaint.pools == ["a", "b"]
    assert update.frame.errors[-1] == complaint.text
    assert "15 of cpu where there are 10 (5 too much)" in update.frame.errors[0]
    assert "scaled to 0.666667" in update.frame.errors[1]
    assert desk.item("/a").strong_guarantee_share[1] == pytest.approx(0.6)


def test_complaints_about_thousands_of_pools_fit_every_part_of_a_snapshot() -> None:
    """Each part carries the frame; with the names of 3,000 pools in it none could be published."""
    promised = PoolConfig(strong_guarantee_resources=PartialResources(cpu=10))
    desk = Desk(*((f"pool-{number:04}".ljust(100, "p"), ROOT_POOL, promised) for number in range(3_000)))
    update = desk.update()
    publisher = SnapshotPublisher[ShareItem, ShareFrame](SharePart, TREE, 1, ShareFrame(), key=lambda item: item.key)

    parts = publisher.advance(update.frame, desk.engine.items.values())

    assert len(parts) > 1
    assert all(len(part) <= LARGEST_MESSAGE_BYTES for part in parts)
    assert len(update.frame.complaints[-1].pools) == 100


def test_a_burst_pool_without_a_burst_is_warned_of() -> None:
    desk = Desk()
    figures = IntegralGuarantees(guarantee_type=IntegralType.BURST, resource_flow=PartialResources(cpu=100))

    (warning,) = desk.changes(create_pool("a", config=PoolConfig(None, integral_guarantees=figures))).warnings
    assert "burst pool a has no burst_guarantee_resources: it gets nothing from its savings" in warning


def test_settings_of_an_unknown_pool_are_not_read() -> None:
    answer = Desk(("a", ROOT_POOL)).asks(set_pool("b", b"rubbish"))

    assert answer == NotFound("pool", "b", [])


def test_a_figure_that_is_no_number_never_leaves_an_update(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk(("a", ROOT_POOL))
    desk.updater = Updater(largest_unsaturated=0)
    desk.operations(live("operation-1", "a", 4))
    desk.update()
    before = dict(desk.engine.items)

    def sick(engine: TreeUpdater, tree: TreeInput) -> TreeShares:
        outcome = healthy(engine, tree)
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
        pool = EphemeralPool(PoolName(f"ephemeral-{number}"), ROOT_POOL, "anna")
        engine.on_events([EphemeralPoolSet(TREE, pool)], NOW)

    assert len(engine._ephemeral_pools.pools) <= 1_001


def due(desk: Desk, after_ms: int = 10_000) -> list[type[Effect]]:
    """Kinds of effects of an update that is due after a time; it is worked out where it is to be."""
    desk.now_ms += after_ms
    effects = desk.engine.on_update_due(desk.now).effects
    if any(isinstance(effect, Compute) for effect in effects):
        update = desk.updater.update(effects[0].cut, afresh=effects[0].afresh)  # type: ignore[union-attr]
        desk.engine.on_updated(update, desk.now)
    desk.engine.on_published(desk.now)
    return [type(effect) for effect in effects]


def test_when_nothing_changed_and_no_clock_runs_readers_are_told_just_that_once_a_second() -> None:
    desk = Desk(("a", ROOT_POOL))
    desk.operations(live("operation-1", "a", 4))
    desk.usage(uses("operation-1", running=4, pending=0))
    first = due(desk)
    shares, soon = desk.item("operation-1"), desk.engine.seconds_until_update(desk.now)
    desk.usage(uses("operation-1", running=4, pending=0), whole=True)
    rest = [due(desk), due(desk)]

    assert first == [Compute]
    assert rest == [[OfferSample, Publish]] * 2
    assert soon == 1.0
    assert desk.item("operation-1") is shares
    assert (desk.engine.updates, desk.engine.frame.usage_version) == (1, Version(1, desk.epoch))
    assert desk.engine.frame.at_ms == desk.now.wall_ms


def test_whatever_changes_is_worked_out_and_once_more_afresh_before_it_rests_again() -> None:
    desk = Desk(("a", ROOT_POOL))
    assert due(desk) == [Compute]
    assert due(desk) == [OfferSample, Publish]
    desk.operations(live("operation-1", "a", 4))
    desk.usage(uses("operation-1", running=4, pending=0))

    # The first comes long after the last that was afresh, so it is afresh itself; the next change does not wait for that.
    assert due(desk) == [Compute]
    desk.usage(uses("operation-1", running=3, pending=0))
    assert [due(desk, 1_000), due(desk, 1_000), due(desk, 4_000), due(desk, 1_000)] == [
        [Compute],
        [Compute],
        [Compute],
        [OfferSample, Publish],
    ]


def test_while_a_clock_runs_updates_go_on() -> None:
    desk = a_starving_desk()

    assert due(desk) == [Compute]
    assert due(desk) == [Compute]


def test_while_savings_grow_updates_go_on() -> None:
    integral = IntegralGuarantees(IntegralType.RELAXED, PartialResources(cpu=100))
    desk = Desk(("a", ROOT_POOL, PoolConfig(integral_guarantees=integral)))

    assert due(desk) == [SendAdvance]
    assert due(desk) == [SendAdvance]
