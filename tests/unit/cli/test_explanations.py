"""The page of `op explain`: what each part of an answer looks like."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from headrace.ids import ROOT_POOL, NodeName, OperationId, PoolName, TreeName
from headrace.pools import PreemptionPolicy
from headrace.resources import Resources
from headrace.satisfaction import INFINITE_SATISFACTION
from headrace.wire.explanations import (
    Ahead,
    Cause,
    Level,
    NodesFit,
    PoolRoom,
    ProtectedAllocations,
    Tries,
    Try,
    WaitingExplained,
)
from headrace.wire.operations import OperationExplanation, OperationState
from headrace.wire.placements import PoolLevel
from headrace.wire.pools import StarvationOutlook
from headrace.wire.snapshots import (
    DetailedShare,
    ElementKind,
    PreemptionPriority,
    SchedulingStatus,
    ShareFrame,
    ShareItem,
    StarvationReason,
    StarvationStatus,
)
from headrace_cli.commands.operations.explain_page import ExplainedInTree, explanation
from tests.unit.cli.test_render import OPERATION, a_view, shown

HALF = (0.5, 0.5, 0.0, 0.0, 0.0)
SHARE = ShareItem(
    ElementKind.OPERATION,
    OPERATION,
    PoolName("research"),
    fair_share=DetailedShare(total=HALF),
    usage_share=(0.25,) * 5,
    demand_share=(1.0,) * 5,
    local_satisfaction_ratio=0.5,
    scheduling_status=SchedulingStatus.BELOW_FAIR_SHARE,
)
FRAME = ShareFrame(total=Resources(user_slots=8, cpu=800))
NO_TRIES = Tries(PreemptionPriority.NONE)


def waiting(**changes: Any) -> WaitingExplained:
    fields: dict[str, Any] = {
        "running_jobs": 1,
        "pending_jobs": 6,
        "in_doubt_jobs": 0,
        "needed": Resources(user_slots=1, cpu=200),
        "causes": [],
        "nodes": NodesFit(4, 3, 2, 2, 0),
        "limits": [],
        "levels": [],
        "tries": NO_TRIES,
    }
    return WaitingExplained(TreeName("default"), OPERATION, **{**fields, **changes})


def page(told: WaitingExplained | None, share: ShareItem | None = SHARE, **view: Any) -> list[str]:
    answer = OperationExplanation(msgspec.structs.replace(a_view(), **view), [])
    trees = {TreeName("default"): ExplainedInTree(told, share, FRAME)}
    return [line.rstrip() for part in explanation(answer, trees, 61_000) for line in shown(part, 160)]


def test_every_reason_stands_above_what_would_end_it() -> None:
    causes = [Cause("a", "no room", "ends of jobs", {}), Cause("b", "a limit", "a higher one", {})]

    lines = page(waiting(causes=causes))

    first = next(number for number, line in enumerate(lines) if line.startswith("waits because"))
    assert [line.strip() for line in lines[first + 1 : first + 4]] == ["→ ends of jobs", "a limit", "→ a higher one"]
    assert lines[first].endswith("no room")


def test_shares_nodes_and_limits_are_told_in_figures() -> None:
    limits = [PoolRoom(PoolName("lab"), "cpu", 300, 300, True), PoolRoom(PoolName(""), "memory", 0, 2**30, False)]
    text = "\n".join(page(waiting(causes=[Cause("a", "x", "y", {})], limits=limits)))

    assert "1 running, 6 pending; each needs cpu 2" in text
    assert "cpu 2 (25%) of 4 (50%) that it is owed: satisfaction 0.50; it wants 8 (100%)" in text
    assert (
        "4 enrolled, 3 take jobs, 2 match its tags, 2 could run its job if they were empty, 0 have free resources for it now"
        in text
    )
    assert "lab: 3 of 3 cpu in use, which blocks it" in text
    assert "its own: 0 B of 1 GiB memory in use" in text
    assert "neither it nor a pool above it starves yet" in text


@pytest.mark.parametrize(
    ("claims", "said"),
    [
        (True, "the next preemption pass serves it"),
        (False, "the last preemption pass served it, and a later pass will serve it again"),
    ],
)
def test_under_a_yarn_policy_it_is_told_what_is_due_to_an_operation(*, claims: bool, said: str) -> None:
    due = {"due_to_fair_share": Resources(cpu=200, memory=2**30), "due_to_min_share": Resources(cpu=100)}
    share = msgspec.structs.replace(SHARE, **due, claims=claims)

    tries = Tries(
        PreemptionPriority.NONE, PreemptionPolicy.YARN, kept=[ProtectedAllocations("preemption", "it is off there", 12)]
    )
    text = "\n".join(page(waiting(causes=[Cause("a", "x", "y", {})], tries=tries), share))

    assert f"under the tree's YARN policy it is due cpu 3, memory 1 GiB: {said}" in text
    assert "protected: 12 (it is off there)" in text
    assert "may not preempt" not in text


def test_the_start_of_the_last_job_is_foretold_from_the_ends_of_others_alone() -> None:
    causes = [Cause("a", "x", "y", {})]
    text = "\n".join(page(waiting(causes=causes, running_jobs=2, pending_jobs=6, mean_job_ms=5_000)))

    assert "at this pace   its last job starts in about 15s: 2 jobs at a time, lately for 5s each" in text
    assert "at this pace" not in "\n".join(page(waiting(causes=causes, running_jobs=2)))
    assert "at this pace" not in "\n".join(page(waiting(causes=causes, running_jobs=0, mean_job_ms=5_000)))


def test_an_operation_whose_jobs_lose_their_places_says_how_often() -> None:
    text = "\n".join(page(waiting(causes=[Cause("a", "x", "y", {})], preempted=5, preempted_most=3)))

    assert "its jobs were preempted 5 times within the last hour, 3 times the same job" in text


def test_under_yarn_legacy_pools_are_named_and_no_stages() -> None:
    tries = Tries(PreemptionPriority.NONE, PreemptionPolicy.YARN_LEGACY)

    text = "\n".join(page(waiting(causes=[Cause("a", "x", "y", {})], tries=tries)))

    assert "allocations are preempted for starving pools: headrace pool starving" in text
    assert "may not preempt" not in text


def test_those_who_come_first_are_told_with_what_each_has() -> None:
    others = [Ahead(ElementKind.POOL, name, 0.25, "cpu", 50, 200) for name in ("a", "b", "c")]
    levels = [
        Level(ROOT_POOL, Ahead(ElementKind.POOL, "lab", 0.5), 5, others),
        Level(PoolName("lab"), Ahead(ElementKind.OPERATION, OPERATION, 0.5), 0, []),
    ]

    text = " ".join(" ".join(page(waiting(causes=[Cause("a", "x", "y", {})], levels=levels))).split())

    share = "0.25 of its fair share, cpu 0.5 of 2"
    first = f"a ({share}), b ({share}), c ({share}) and 2 more"
    assert f"in the tree: {first}; its pool lab has 0.50 of its fair share" in text
    assert "in lab" not in text


@pytest.mark.parametrize(("used", "words"), [(0, "nothing, and is owed nothing"), (50, "more than it is owed")])
def test_what_has_nothing_of_nothing_has_not_more_than_it_is_owed(used: int, words: str) -> None:
    infinite = INFINITE_SATISFACTION
    closed = Ahead(ElementKind.POOL, "closed", infinite, "cpu", used, 0)
    own = Ahead(ElementKind.OPERATION, OPERATION, infinite, "cpu", used, 0)

    text = " ".join(page(waiting(causes=[Cause("a", "x", "y", {})], levels=[Level(ROOT_POOL, own, 1, [closed])])))

    assert f"in the tree: closed ({words}); it has {words}" in " ".join(text.split())


@pytest.mark.parametrize(
    ("nearest", "words"),
    [
        (Try(NodeName("n"), 2_000, 1, Resources(cpu=300), Resources(cpu=100)), "cpu 3; short of cpu 1"),
        (
            Try(NodeName("n"), 2_000, 1, Resources(cpu=300), started=OperationId("other-one")),
            "; other-one started there",
        ),
        (
            Try(NodeName("n"), 2_000, 1, Resources(cpu=300), Resources(cpu=100), exempt=2, exempt_ms=40_000),
            "cpu 3, and 2 more allocations can be preempted once preemption_exempt_time is over, the first in 40s; short of cpu 1",
        ),
        (
            Try(
                NodeName("n"),
                2_000,
                1,
                Resources(cpu=300),
                Resources(cpu=100),
                kept=[
                    ProtectedAllocations("fair_share", "within a share", 3),
                    ProtectedAllocations("starving", "they starve", 1),
                ],
            ),
            "the free resources are cpu 3; protected: 3 (within a share), 1 (they starve); short of cpu 1",
        ),
    ],
)
def test_the_last_tries_say_which_node_came_nearest(nearest: Try, words: str) -> None:
    tries = Tries(PreemptionPriority.NORMAL, nodes=3, short=2, unmatched=1, nearest=[nearest])

    text = " ".join(" ".join(page(waiting(causes=[Cause("a", "x", "y", {})], tries=tries))).split())

    assert "3 nodes were checked: 2 had too little to preempt, 1 had other tags" in text
    assert "n, 2s ago: with 1 allocation preempted, the free resources are" in text
    assert words in text


def test_while_starts_are_paused_nobody_is_told_to_have_all_that_is_owed() -> None:
    text = "\n".join(page(waiting(causes=[Cause("starts_paused", "starts are paused", "a resume", {})])))

    assert "time does not count for starvation while starts are paused" in text
    assert "it may not preempt" not in text


def test_a_pending_one_is_told_which_pools_are_full_and_nothing_of_shares() -> None:
    level = PoolLevel(
        tree=TreeName("default"),
        pool=PoolName("lab"),
        parent=ROOT_POOL,
        running_operation_count=2,
        lightweight_running_operation_count=0,
        max_running_operation_count=2,
        operation_count=3,
        max_operation_count=9,
        full=True,
    )
    answer = OperationExplanation(msgspec.structs.replace(a_view(), state=OperationState.PENDING), [level])

    parts = explanation(answer, {TreeName("default"): ExplainedInTree(waiting(), SHARE, FRAME)}, 61_000)
    text = "\n".join(line for part in parts for line in shown(part, 160))

    assert "waits because  lab runs as many operations as its limit allows: 2 of 2" in text
    assert "`headrace pool set lab max_running_operation_count=…`" in text
    assert "that it is owed" not in text


def test_it_is_told_when_it_and_the_pools_above_it_will_starve() -> None:
    pool = StarvationOutlook(
        ElementKind.POOL,
        "research",
        StarvationStatus.NON_STARVING,
        StarvationReason.NONE,
        below_fair_share_since_ms=1_000,
        starves_for_fair_share_at_ms=31_001,
    )
    here = ExplainedInTree(waiting(), SHARE, msgspec.structs.replace(FRAME, at_ms=5_000), [pool])

    parts = explanation(OperationExplanation(a_view(), []), {TreeName("default"): here}, 61_000)

    lines = [line for part in parts for line in shown(part, 160)]
    assert any(line.startswith("pool research  below its fair share for 4s; it starves in 26s, at ") for line in lines)


def test_one_of_which_nothing_waits_says_so_and_no_more() -> None:
    lines = page(waiting(pending_jobs=0))

    assert lines[-1].endswith("none of its jobs waits")


def test_one_whose_allocator_is_silent_says_that() -> None:
    assert any(
        "the allocator of this tree is silent, or has not heard of the operation yet" in line
        for line in page(None, None)
    )


def test_one_that_is_over_names_its_history() -> None:
    lines = page(None, state=OperationState.COMPLETED, ended_at_ms=60_000)

    assert lines[-1] == f"7 of 50 jobs done, over for 1s; what happened: headrace op history {OPERATION}"
