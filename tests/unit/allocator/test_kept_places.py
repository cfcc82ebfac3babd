"""Whoever starves in vain is told by which rules the places of others are kept, and what would free them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from headrace.ids import OperationId
from headrace.resources import Resources
from headrace.wire.explanations import Cause, ExplainWaiting, ProtectedAllocations, WaitingExplained
from headrace.wire.operation_spec import PreemptionMode
from headrace_allocator.explain import protected
from headrace_allocator.explain.reasons import KeptBy
from headrace_allocator.preemption import stages
from tests.support.allocating import an_operation, cores
from tests.support.taken_back import on_a_full_node
from tests.unit.allocator.test_preemption import FOUR, Host, a_share


def explained(host: Host, operation: str = "poor") -> WaitingExplained:
    answer = host.engine.on_question(ExplainWaiting(OperationId(operation)), host.now).answer
    assert isinstance(answer, WaitingExplained)
    return answer


def causes_of_protection(told: WaitingExplained) -> list[Cause]:
    return [one for one in told.causes if one.kind == "places_protected"]


NO_NORMAL = {"allow_normal_preemption": False}
NO_AGGRESSIVE = {"allow_aggressive_preemption": False}
ONE_KEPT = {"non_preemptible_resource_usage_threshold": {"user_slots": 3}}
NO_GANGS = {"allow_aggressive_preemption_for_gang_operations": False}
LEGACY = {"victim_rules": "legacy"}


@pytest.mark.parametrize(
    ("rule", "given", "cure"),
    [
        (
            "allow_normal_preemption",
            {"pool": NO_NORMAL},
            "`headrace pool set p allow_normal_preemption=true`, or override ",
        ),
        (
            "allow_aggressive_preemption",
            {"pool": NO_AGGRESSIVE, "owed": 4, "aggressive": True},
            "`headrace pool set p allow_aggressive_preemption=true`",
        ),
        ("fair_share", {"owed": 3.5, "poor": {"resources": cores(2)}}, "give pool p more weight or a guarantee"),
        ("owed_everything", {"owed": 4}, "let pool p starve aggressively with `headrace pool set p enable_ag"),
        (
            "part_of_fair_share",
            {"owed": 4, "aggressive": True, "poor": {"resources": cores(3)}},
            "give pool p more weight or a gua",
        ),
        (
            "graceful",
            {"preemption_mode": PreemptionMode.GRACEFUL, "owed": 4},
            "wait until their jobs end, or start such",
        ),
        ("starving", {"both_starve": True}, "wait until they no longer starve, or `headrace tree set allow_preem"),
        (
            "legacy_rules",
            {"options": LEGACY, "both_starve": True},
            "wait until jobs that end elsewhere give them more, or `headrace tree",
        ),
        ("gang", {"options": NO_GANGS, "owed": 4, "aggressive": True, "is_gang": True}, "`headrace tree set allow_ag"),
        (
            "non_preemptible_resource_usage_threshold",
            {"options": ONE_KEPT, "poor": {"resources": cores(2)}},
            "lower non_preemptible_resource_usage_threshold of the tree, of pool p or of the operations there",
        ),
    ],
)
def test_each_rule_that_keeps_places_is_a_reason_with_its_cure(rule: str, given: Mapping[str, Any], cure: str) -> None:
    host = on_a_full_node(**given)
    orders = host.next_beat()
    assert orders.start == []

    told = explained(host)

    by_rule = {one.figures["kept_by"]: one for one in causes_of_protection(told)}
    assert rule in by_rule
    assert by_rule[rule].cure.startswith(cure)
    (nearest,) = told.tries.nearest
    assert {one.rule: one.places for one in nearest.kept} == {
        name: one.figures["places"] for name, one in by_rule.items()
    }
    assert sum(one.places for one in nearest.kept) + nearest.candidates == 4, "all that `rich` has"


def test_the_reason_says_how_many_places_of_which_pool_are_kept_beside_that_there_is_no_room() -> None:
    host = on_a_full_node(pool=NO_NORMAL)
    host.next_beat()

    told = explained(host)

    assert [one.kind for one in told.causes[:2]] == ["no_room_on_any_node", "places_protected"]
    assert told.causes[1].words == (
        "it starves, and 4 allocations on 1 node examined for it are protected (4 in pool p): "
        "allow_normal_preemption is false there"
    )
    assert told.causes[1].figures == {
        "kept_by": "allow_normal_preemption",
        "places": 4,
        "nodes": 1,
        "pools": (("p", 4),),
    }
    kept = ProtectedAllocations("allow_normal_preemption", "allow_normal_preemption is false there", 4)
    assert told.tries.nearest[0].kept == [kept]
    assert causes_of_protection(explained(host, "rich")) == [], "it does not starve"


@pytest.mark.parametrize(
    ("rule", "given"),
    [
        ("preemption", {"pool": {"preemption": "off"}}),
        ("preemption_exempt_time", {"options": {"preemption_exempt_time": "1h"}}),
    ],
)
def test_what_has_a_reason_of_its_own_is_told_once_and_counted_on_its_node(rule: str, given: Mapping[str, Any]) -> None:
    host = on_a_full_node(**given)
    host.next_beat()

    told = explained(host)

    assert rule not in [one.figures["kept_by"] for one in causes_of_protection(told)]
    assert rule in [one.rule for one in told.tries.nearest[0].kept]


def test_a_place_that_ends_already_is_told_as_such_to_the_next_that_starves() -> None:
    host = Host(an_operation("poor", 1), an_operation("late", size=cores(2)))
    host.next_beat()
    host.tell([a_share("rich", 2), a_share("poor", 1, starves=True)], total=FOUR)
    host.next_beat()
    host.tell([a_share("rich", 2), a_share("poor", 1), a_share("late", 1, starves=True)], total=FOUR)

    kept = protected.kept_on(host.facts, host.engine.ranking.order, host.node("n"), host.operation("late"))

    assert kept[protected.ProtectingRule(KeptBy.ENDING, host.operation("rich").spec.pool)] == 1


def test_where_the_rules_changed_since_the_node_was_looked_at_it_is_what_they_say_now() -> None:
    host = on_a_full_node(poor={"resources": Resources(user_slots=1, cpu=300)})
    host.next_beat()
    before = {one.figures["kept_by"] for one in causes_of_protection(explained(host))}
    host.tell([a_share("rich", 2, starves=True), a_share("poor", 2, starves=True)], total=FOUR)

    assert before == {"fair_share"}
    assert [one.figures["kept_by"] for one in causes_of_protection(explained(host))] == ["fair_share", "starving"]


def test_nothing_of_it_is_looked_for_on_heartbeats(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protected, "protecting_rule", None)
    host = on_a_full_node(pool=NO_NORMAL)

    assert host.next_beat().start == []
    assert not hasattr(stages, "protecting_rule")


def test_no_more_than_a_thousand_places_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protected, "_MOST_LOOKED_AT", 1)
    host = on_a_full_node(pool=NO_NORMAL)
    host.next_beat()
    node, order = host.node("n"), host.engine.ranking.order

    (told,) = protected.places_protected(host.facts, order, [node, node], host.operation("poor"))

    assert (told.places, msgspec.structs.astuple(told)[2]) == (4, 1)
