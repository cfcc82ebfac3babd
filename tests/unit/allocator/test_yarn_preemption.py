"""Preemption under YARN's policies in the allocator: plans become orders on a heartbeat, and what is not ordered may be dropped."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from headrace.ids import ROOT_POOL, OperationId, PoolName
from headrace.pools import PreemptionPolicy, YarnOptions
from headrace.pools.effective_options import EffectiveOptions
from headrace.pools.pool_config import PreemptionSwitch
from headrace.resources import Resources
from headrace.wire.explanations import ExplainWaiting, WaitingExplained
from headrace.wire.heartbeat import AllocationReport, AllocationState, Orders, RunningJob, Start, TakeBackReason
from headrace.wire.nodes import NodeRecord
from headrace.wire.preemption import PreemptionReason
from headrace.wire.snapshots import DetailedShare, ElementKind, ShareItem
from headrace_allocator.effects import NudgeNode
from headrace_allocator.facts.allocations import Allocation
from headrace_allocator.facts.pool_tree import ShareSnapshot
from headrace_allocator.preemption.yarn.plans import Plan, Plans
from tests.support.allocating import Desk, an_operation, cores
from tests.support.yarn_course import Comer, Course, course


def a_claim(name: str, fair: float, due: int, *, claims: bool = True) -> ShareItem:
    """An operation that is owed a part of the cluster and claims so many cores."""
    share = (1.0, fair, 0.0, 0.0, 0.0)
    return ShareItem(
        ElementKind.OPERATION,
        name,
        PoolName("p"),
        fair_share=DetailedShare(total=share),
        demand_share=(1.0, 1.0, 0.0, 0.0, 0.0),
        due_to_fair_share=Resources(cpu=due * 100) if due else None,
        claims=bool(due) and claims,
    )


class YarnDesk(Desk):
    """Two nodes of four cores that `hog` fills, and `poor`, which has nothing."""

    def __init__(self) -> None:
        super().__init__({"n1": cores(4, slots=9), "n2": cores(4, slots=9)})
        self.options = msgspec.structs.replace(
            self.options, preemption_policy=PreemptionPolicy.YARN, yarn=YarnOptions(enabled=True)
        )
        self.start(an_operation("hog", 8), an_operation("poor", 8))
        self.tell([a_claim("hog", 1.0, 0), a_claim("poor", 0.0, 0)])
        self.shown = {node: self.started(self.beat(node)[0]) for node in self.nodes}
        for node in self.nodes:
            self.beat(node, allocations=self.shown[node])

    def started(self, orders: Orders) -> list[AllocationReport]:
        return [self.running(start) for start in orders.start]

    @staticmethod
    def running(start: Start) -> AllocationReport:
        job = RunningJob(start.slots[0].index, start.slots[0].attempt, 1, 0)
        return AllocationReport(start.allocation, start.operation, AllocationState.RUNNING, start.resources, job, [], 0)

    def claim(self, due: int) -> list[str]:
        """`poor` claims so many cores, and so much of the cluster is its fair share. Returns the nodes that are nudged."""
        effects = self.tell([a_claim("hog", 0.5, 0), a_claim("poor", 0.5, due)])
        return [each.node for each in effects if isinstance(each, NudgeNode)]


def test_what_is_taken_and_what_starts_for_it_are_ordered_together() -> None:
    desk = YarnDesk()

    assert desk.claim(2) == ["n1"]
    orders, _ = desk.beat("n1", allocations=desk.shown["n1"])

    assert [start.operation for start in orders.start] == ["poor", "poor"]
    assert [order.reason for order in orders.take_back] == [TakeBackReason.PREEMPTED] * 2
    record = orders.take_back[0].preemption
    assert record is not None
    assert (record.reason, record.beneficiary, record.timeout_ms) == (PreemptionReason.PREEMPTION, "poor", 15_000)
    assert record.words == "for poor, which starves"
    assert not desk.beat("n2", allocations=desk.shown["n2"])[0].take_back


def test_nobody_loses_more_than_what_is_above_its_fair_share() -> None:
    desk = YarnDesk()
    desk.claim(8)

    for node in desk.nodes:
        desk.beat(node, allocations=desk.shown[node])

    assert desk.operation("hog").held == cores(4, slots=4)


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        ({"preemption": PreemptionSwitch.OFF}, "preemption"),
        ({"preemption": PreemptionSwitch.OBSERVE}, "preemption"),
        ({"allow_preemption_from": False}, "allow_preemption_from"),
        ({"allow_normal_preemption": False}, "allow_normal_preemption"),
        ({}, "fair_share"),
    ],
)
def test_whoever_is_due_something_in_vain_is_told_by_which_rules_places_are_kept(
    options: dict[str, Any], rule: str
) -> None:
    desk = YarnDesk()
    pool = ShareItem(ElementKind.POOL, "p", ROOT_POOL, options=EffectiveOptions(**options))
    desk.tell([pool, a_claim("hog", 0.0 if options else 1.0, 0), a_claim("poor", 0.5, 2)])
    for node in desk.nodes:
        assert not desk.beat(node, allocations=desk.shown[node])[0].take_back

    told = desk.engine.on_question(ExplainWaiting(OperationId("poor")), desk.now).answer
    assert isinstance(told, WaitingExplained)
    assert [(kept.rule, kept.places) for kept in told.tries.kept] == [(rule, len(desk.operation("hog").allocations))]
    kinds = {cause.kind: cause for cause in told.causes}
    if rule == "preemption":
        assert (
            f"nothing is preempted in pools that do not allow it: p ({options['preemption'].value})"
            in kinds["places_kept"].words
        )
    else:
        assert kinds["places_protected"].figures["kept_by"] == rule
    rich = desk.engine.on_question(ExplainWaiting(OperationId("hog")), desk.now).answer
    assert isinstance(rich, WaitingExplained)
    assert rich.tries.kept == []


def test_places_that_may_be_had_are_not_kept() -> None:
    desk = YarnDesk()
    desk.tell([a_claim("hog", 0.0, 0), a_claim("poor", 0.5, 2)])

    told = desk.engine.on_question(ExplainWaiting(OperationId("poor")), desk.now).answer
    assert isinstance(told, WaitingExplained)
    assert told.tries.kept == []


def test_a_claim_is_seen_to_once_in_a_while() -> None:
    desk = YarnDesk()
    desk.claim(1)
    for node in desk.nodes:
        desk.beat(node, allocations=desk.shown[node])
    assert desk.operation("poor").times_seen_to == 1
    assert [item.times_seen_to for item in desk.cut_usage().items if item.operation == "poor"] == [1]

    desk.now_s += 28.0
    desk.claim(1)
    assert desk.operation("poor").times_seen_to == 1
    desk.now_s += 1.0
    desk.claim(1)
    assert desk.operation("poor").times_seen_to == 2


@pytest.mark.parametrize("policy", [PreemptionPolicy.YTSAURUS, PreemptionPolicy.YARN_LEGACY])
def test_another_policy_drops_what_was_not_ordered_yet(policy: PreemptionPolicy) -> None:
    desk = YarnDesk()
    desk.claim(2)
    desk.options = msgspec.structs.replace(desk.options, preemption_policy=policy)
    desk.claim(0)

    assert not desk.beat("n1", allocations=desk.shown["n1"])[0].take_back
    assert desk.engine.yarn.plans.counts == {"made": 2, "dropped": 2}


def test_claims_that_a_snapshot_repeats_count_once_the_policy_is_yarns() -> None:
    desk = YarnDesk()
    yarn, desk.options = (
        desk.options,
        msgspec.structs.replace(desk.options, preemption_policy=PreemptionPolicy.YTSAURUS),
    )
    assert desk.claim(2) == []
    items = {item.key: item for item in (a_claim("hog", 0.5, 0), a_claim("poor", 0.5, 2))}

    desk.engine.on_shares(ShareSnapshot(items, (), total=cores(8, slots=18), options=yarn), desk.now)

    assert [each.node for each in desk.refresh() if isinstance(each, NudgeNode)] == ["n1"]


def test_a_node_that_is_drained_meanwhile_loses_nothing_for_others() -> None:
    desk = YarnDesk()
    desk.claim(2)
    drained = {name: NodeRecord(name, drained=name == "n1") for name in desk.facts.nodes}
    desk.engine.on_nodes(drained, desk.now)

    orders, _ = desk.beat("n1", allocations=desk.shown["n1"])

    assert not [order for order in orders.take_back if order.reason is TakeBackReason.PREEMPTED]
    assert not orders.start


def test_a_victim_that_ended_by_itself_spares_the_others() -> None:
    desk = YarnDesk()
    desk.claim(1)
    (plan,) = desk.engine.yarn.plans
    left = [one for one in desk.shown["n1"] if one.id != plan.victims[0].id]

    orders, _ = desk.beat("n1", allocations=left)

    assert [start.operation for start in orders.start] == ["poor"]
    assert not orders.take_back


def test_room_that_is_there_by_now_spares_the_victim() -> None:
    desk = YarnDesk()
    desk.claim(1)
    (plan,) = desk.engine.yarn.plans
    others = [one for one in desk.shown["n1"] if one.id != plan.victims[0].id]
    left = [one for one in desk.shown["n1"] if one is not others[0]]

    orders, _ = desk.beat("n1", allocations=left)

    assert "poor" in [start.operation for start in orders.start]
    assert not orders.take_back


def test_where_the_victims_do_not_make_the_room_any_more_they_stay() -> None:
    desk = YarnDesk()
    desk.claim(1)
    held = desk.operation("hog").held
    desk.nodes["n1"] = cores(1, slots=9)

    orders, _ = desk.beat("n1", allocations=desk.shown["n1"])

    assert not [order for order in orders.take_back if order.preemption and order.preemption.beneficiary]
    assert not [start for start in orders.start if start.operation == "poor"]
    assert desk.operation("hog").held == held - Resources.sum(one.resources for one in held_by_repair(desk, orders))


def test_nobody_gets_the_room_of_victims_that_stay() -> None:
    desk = YarnDesk()
    victims = tuple([one for one in desk.node("n1").allocations.values() if one.operation == "hog"][:2])
    desk.engine.yarn.plans.add(Plan(desk.node("n1").record.node, victims, 200.0, OperationId("poor"), cores(3)))
    desk.claim(0)

    orders, _ = desk.beat("n1", allocations=desk.shown["n1"])

    assert (orders.take_back, orders.start) == ([], [])


def held_by_repair(desk: Desk, orders: Orders) -> list[Allocation]:
    """What goes since the node shrank, for nobody."""
    return [desk.node("n1").allocations[order.allocation] for order in orders.take_back]


def test_a_plan_counts_for_the_room_of_its_node_as_if_it_were_carried_out() -> None:
    desk = YarnDesk()
    node, plans = desk.node("n1"), Plans()
    victims = tuple([one for one in node.allocations.values() if one.operation == "hog"][:2])

    plans.add(Plan(node.record.node, victims, 200.0, OperationId("poor"), cores(1)))

    assert plans.room_on(node) == node.free + cores(2, slots=2) - cores(1)
    plans.drop(before_s=199.0)
    assert plans.taken(OperationId("hog")) == cores(2, slots=2)
    plans.drop(before_s=200.0)
    assert plans.room_on(node) == node.free
    assert plans.taken(OperationId("hog")) == Resources()


def test_the_older_engine_takes_the_newest_first_and_a_master_last() -> None:
    desk = YarnDesk()
    hog = desk.operation("hog")
    key, master = next((key, one) for key, one in hog.allocations.items() if 0 in one.slots)
    hog.allocations[key] = hog.allocations.pop(key)
    rounds = desk.engine.yarn.rounds

    assert next(rounds._to_go(hog)).id is master
    hog.spec = msgspec.structs.replace(hog.spec, first_job_is_master=True)
    *others, last = (each.id for each in rounds._to_go(hog))
    assert (last, len(others)) == (master, 6)


def test_while_preemption_is_paused_nothing_is_planned_or_ordered() -> None:
    desk = YarnDesk()
    desk.claim(1)
    desk.facts.preemption_paused = True
    assert not desk.beat("n1", allocations=desk.shown["n1"])[0].take_back
    desk.now_s += 60.0
    assert desk.claim(1) == []


def test_the_older_engine_warns_first() -> None:
    found = a_course({"preemption_policy": "yarn_legacy", "yarn/wait_before_kill": "15s", "yarn/legacy_interval": "5s"})

    assert found.losers
    assert all(15 < at_s - 4 <= 15 + 5 + 2 for at_s, _ in found.losers), "a round each 5 s, and shares each 2 s"
    (record,) = {order.preemption.reason for _, _, order in found.taken if order.preemption is not None}
    assert record is PreemptionReason.POOL_SHORTAGE


def test_seed_tenants_come_to_their_shares() -> None:
    """Tenants of weight 1, 2 and 1, of which the third comes later: 4, 8 and 0 of 12 cores become 3, 6 and 3."""
    pools = {"one": {}, "two": {"weight": 2}, "three": {}}
    comers = [Comer("t1", "one", 12), Comer("t2", "two", 12), Comer("t3", "three", 12, at_s=5)]
    for policy in ("ytsaurus", "yarn", "yarn_legacy"):
        held = course(pools, comers, {"preemption_policy": policy}, seconds=70).fleet.facts.operations
        assert [each.held.cpu // 100 for each in held.values()] == [3, 6, 3], policy


def a_course(options: dict[str, object]) -> Course:
    return course({"a": {}, "b": {}}, [Comer("x", "a", 12), Comer("z", "b", 12, at_s=4)], options, seconds=60)
