"""Plans from figures by hand: shares, what binds each element, complaints, and that nothing in a file can break it."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.resources import Resources
from headrace.tree_file.problems import FileProblem, UnusableFile
from headrace.wire.plan import Bound, BoundKind, Plan, PlanElement, PlanRefused, Scaled
from headrace_fair_share.plan.__main__ import plan_of
from headrace_fair_share.plan.compute import computed
from headrace_fair_share.plan.description import described

EXAMPLE = Path(__file__).parents[3] / "docs" / "examples" / "plan.yaml"


def planned(text: str) -> Plan:
    return computed(described(text.encode()), "f")


def elements(text: str) -> dict[str, PlanElement]:
    return {element.path: element for element in planned(text).elements}


def test_two_pools_share_by_weight_what_guarantees_leave() -> None:
    found = elements(
        """
total: {cpu: 100}
pools: {a: {weight: 3, strong_guarantee_resources: {cpu: 20}}, b: {}}
operations:
  x: {pool: a, resource_demand: {cpu: 200}}
  y: {pool: b, resource_demand: {cpu: 200}}
"""
    )

    assert (found["/a"].fair_resources.cpu, found["/b"].fair_resources.cpu) == (8000, 2000)
    assert found["/a"].guarantee == Resources(cpu=2000)
    parts = found["/a"].share.fair_share
    assert (parts.strong_guarantee[1], parts.integral_guarantee[1]) == (0.2, 0.0)
    assert parts.weight_proportional[1] == pytest.approx(0.6)
    assert [element.line for element in found.values()] == [0, 3, 5, 3, 6]


def test_what_binds_each_element_is_named() -> None:
    found = elements(
        """
total: {cpu: 100, memory: 100G}
options: {enable_step_function_for_gang_operations: true}
pools:
  idle: {}
  capped: {resource_limits: {cpu: 10}}
  line: {mode: fifo, strong_guarantee_resources: {cpu: 40}}
  rest: {}
operations:
  tight: {pool: capped, resource_demand: {cpu: 50}}
  first: {pool: line, resource_demand: {cpu: 40}}
  second: {pool: line, resource_demand: {cpu: 60}}
  small: {pool: rest, resource_demand: {cpu: 1}}
  own: {pool: rest, resource_demand: {cpu: 9}, resource_limits: {cpu: 2}}
  gpus: {pool: rest, resource_demand: {gpu: 1}}
  huge: {pool: rest, is_gang: true, resource_demand: {cpu: 90}}
  large: {pool: rest, resource_demand: {cpu: 90}}
"""
    )

    assert {path: element.bound for path, element in found.items()} == {
        "/": Bound(BoundKind.FULL, "cpu"),
        "/idle": Bound(BoundKind.IDLE),
        "/capped": Bound(BoundKind.LIMIT, "cpu"),
        "/capped/tight": Bound(BoundKind.LIMIT, "cpu", "capped"),
        "/line": Bound(BoundKind.FULL, "cpu"),
        "/line/first": Bound(BoundKind.MET),
        "/line/second": Bound(BoundKind.FIFO, pool="line"),
        "/rest": Bound(BoundKind.FULL, "cpu"),
        "/rest/small": Bound(BoundKind.MET),
        "/rest/own": Bound(BoundKind.LIMIT, "cpu"),
        "/rest/gpus": Bound(BoundKind.ABSENT, "gpu"),
        "/rest/huge": Bound(BoundKind.GANG, "cpu"),
        "/rest/large": Bound(BoundKind.FULL, "cpu"),
    }


def test_a_cluster_that_is_too_small_is_told_with_what_was_scaled_to_what() -> None:
    plan = planned(
        """
total: {cpu: 100}
pools:
  strong: {strong_guarantee_resources: {cpu: 90}}
  bursts:
    integral_guarantees: {guarantee_type: burst, resource_flow: {cpu: 10}, burst_guarantee_resources: {cpu: 30}}
"""
    )

    (complaint,) = plan.complaints
    assert complaint.kind == "overcommit_burst"
    assert "120 of cpu where there are 100 (20 too much)" in complaint.text
    assert complaint.pools == ["strong", "bursts"]
    scaled = {element.name: element.scaled for element in plan.elements if element.scaled}
    assert scaled == {
        "strong": [Scaled("strong_guarantee_resources", "cpu", 9000, 7500)],
        "bursts": [Scaled("burst_guarantee_resources", "cpu", 3000, 2500)],
    }


def test_an_integral_pool_has_its_flow_unless_the_file_names_its_savings() -> None:
    text = """
total: {cpu: 100}
pools:
  busy: {strong_guarantee_resources: {cpu: 50}}
  bursts:
    integral_guarantees: {guarantee_type: burst, resource_flow: {cpu: 10}, burst_guarantee_resources: {cpu: 40}}
    SAVED
operations: {a: {pool: busy, resource_demand: {cpu: 100}}, b: {pool: bursts, resource_demand: {cpu: 100}}}
"""

    def part(saved: str) -> tuple[float, float | None]:
        bursts = elements(text.replace("SAVED", saved))["/bursts"]
        return bursts.share.fair_share.integral_guarantee[1], bursts.accumulated_resource_ratio_volume

    assert part("") == pytest.approx((0.1, 6.0))
    assert part("accumulated_resource_ratio_volume: 600") == pytest.approx((0.4, 600.0))
    assert part("accumulated_resource_volume: {cpu: 1200}") == pytest.approx((0.2, 12.0))
    assert part("accumulated_resource_ratio_volume: 0") == (0.0, 0.0)


def test_what_a_running_service_would_refuse_is_computed_with_a_warning() -> None:
    plan = planned(
        "total: {cpu: 9}\npools: {a: {strong_guarantee_resources: {cpu: 1}, "
        "pools: {b: {strong_guarantee_resources: {cpu: 2}}}}}"
    )

    assert len(plan.warnings) == 1
    assert "the children of /a have 2 together" in plan.warnings[0]
    assert plan.warnings[0].startswith("Headrace would refuse this: ")


def test_a_filter_over_tags_of_nodes_which_a_plan_does_not_know_is_warned_of() -> None:
    plan = planned("total: {cpu: 9}\npools: {a: {scheduling_tag_filter: ssd}, b: {}}")

    assert plan.warnings == ["pool a: a plan has no nodes with tags, so its scheduling_tag_filter has no effect here"]


def test_satisfaction_is_usage_over_fair_share_and_a_pools_is_the_least_below() -> None:
    found = elements(
        """
total: {cpu: 100}
pools: {a: {}}
operations:
  x: {pool: a, resource_demand: {cpu: 100}, resource_usage: {cpu: 25}}
  y: {pool: a, resource_demand: {cpu: 100}, resource_usage: {cpu: 75}}
"""
    )

    assert found["/a/x"].share.satisfaction_ratio == pytest.approx(0.5)
    assert found["/a"].share.satisfaction_ratio == pytest.approx(0.5)
    assert found["/a"].share.local_satisfaction_ratio == pytest.approx(1.0)


def test_the_example_in_the_documentation_can_be_used() -> None:
    plan = plan_of(str(EXAMPLE))

    assert isinstance(plan, Plan)
    assert (plan.complaints, plan.warnings) == ([], [])
    kinds = {element.bound.kind for element in plan.elements}
    assert {BoundKind.MET, BoundKind.FULL, BoundKind.FIFO} <= kinds


def test_a_file_that_is_missing_is_refused_as_a_whole() -> None:
    assert isinstance(plan_of("/nowhere/at/all"), PlanRefused)


@given(st.integers(0, 2**32), st.integers(1, 6))
def test_never_does_a_damaged_file_break_it(seed: int, changes: int) -> None:
    draw = random.Random(seed)
    pieces = [
        "-1",
        "0",
        ".nan",
        "{}",
        "[]",
        "~",
        "'",
        ":",
        "\t",
        "pools",
        "a",
        "1e9",
        "&x ",
        "*x",
        "fifo",
        "burst",
        "99T",
    ]
    text = EXAMPLE.read_text()
    for _ in range(changes):
        at = draw.randrange(len(text))
        text = text[:at] + draw.choice(pieces) + text[at + draw.randrange(8) :]

    problems: list[FileProblem] = []
    try:
        plan = computed(described(text.encode()), "f")
    except UnusableFile as unusable:
        problems = unusable.problems
    else:
        assert all(0.0 <= part <= 1.0 + 1e-9 for each in plan.elements for part in each.share.fair_share.total)
    assert all(problem.expected and (problem.line > 0 or not problem.key) for problem in problems)
