"""Replays of small days: what people did and how long jobs ran is taken from the log, the rest is decided anew."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from headrace.ids import NodeName, OperationId, PoolName
from headrace.pools import Tree
from headrace.resources import Resources
from headrace.wire.heartbeat import JobResult
from headrace.wire.log import OperationStateChanged, OperationSuspended, StateCause
from headrace.wire.operations import OperationState
from headrace.wire.pool_changes import PoolChange, Remove, Set, SetOptions
from headrace.wire.replay import ComparedPool, LiveRun, Replay, ReplayedPool, ReplayNode, ReplayRefused
from headrace_simulator.comparison import replayed
from tests.support.recorded_day import NOON_MS, Day, a_tree

ONE, TWO = "operation-one", "operation-two"


def pool_of(answer: Replay, name: str) -> ComparedPool:
    return next(each for each in answer.pools if each.pool == name)


def both(answer: Replay, name: str) -> tuple[ReplayedPool, ReplayedPool]:
    pool = pool_of(answer, name)
    assert pool.before is not None
    assert pool.after is not None
    return pool.before, pool.after


def replay(day: Day, tree: Tree, until_s: float, *changes: PoolChange, since_s: float = 0, **more: Any) -> Replay:
    answer = replayed(day.task(tree, since_s, until_s, changes=[*changes], **more), lambda _: None)
    assert isinstance(answer, Replay), answer
    return answer


def setting(name: str, **attributes: Any) -> Set:
    return Set(PoolName(name), msgspec.json.encode(attributes))


def a_shared_day() -> Day:
    """One operation has four cores, from its tenth second on it shares them with another: as the engines would have it."""
    day = Day()
    day.start(ONE, "adhoc", 12, 0)
    day.start(TWO, "research", 4, 5)
    for index in range(4):
        day.end(ONE, index, 0, 10)
    for index in range(4):
        began_s = 10 + 10 * (index // 2)
        day.end(ONE, 4 + index, began_s, began_s + 10)
        day.end(TWO, index, began_s, began_s + 10)
    for index in range(4):
        day.end(ONE, 8 + index, 30, 40)
    return day


def hours(core_seconds: float) -> float:
    return core_seconds / 3600


def test_the_replay_of_what_the_engines_decided_agrees_with_it() -> None:
    answer = replay(a_shared_day(), a_tree(adhoc=1, research=1), 60)

    assert (answer.operations, answer.job_runs) == (2, 16)
    assert answer.agreement.recorded_usage == pytest.approx(hours(160))
    assert answer.agreement.replayed_usage == pytest.approx(hours(160))
    assert answer.agreement.overlap > 0.9
    assert pool_of(answer, "research").recorded_usage == pytest.approx(hours(40))


def test_the_same_configuration_changes_nothing() -> None:
    tree = a_tree(adhoc=1, research=1)
    answer = replay(a_shared_day(), tree, 60, setting("research", weight=1))

    assert [each.pool for each in answer.pools] == ["<Root>", "adhoc", "research"]
    assert all(each.before == each.after for each in answer.pools)
    assert answer == replay(a_shared_day(), tree, 60)


@pytest.mark.long
def test_another_weight_moves_what_pools_are_owed_and_who_waits() -> None:
    day = Day()
    day.start(ONE, "adhoc", 400, 0)
    day.start(TWO, "research", 400, 0)
    for index in range(400):
        for name in (ONE, TWO):
            day.end(name, index, index / 2, index / 2 + 1)
    answer = replay(day, a_tree(adhoc=1, research=1), 60, setting("research", weight=3))

    for name, shares in (("adhoc", (2, 1)), ("research", (2, 3))):
        for side, cores in zip(both(answer, name), shares, strict=True):
            assert side.fair_share == pytest.approx(hours(60 * cores), rel=0.02)
            assert side.usage == pytest.approx(hours(60 * cores), rel=0.1)


@pytest.mark.long
def test_a_guarantee_takes_places_back_and_what_they_had_done_is_lost() -> None:
    day = Day()
    day.start(ONE, "adhoc", 4, 0)
    day.start(TWO, "research", 2, 10)
    for index in range(4):
        day.end(ONE, index, 0, 400)
    for index in range(2):
        day.end(TWO, index, 400, 410)
    answer = replay(day, a_tree(adhoc=1e6, research=1), 600, setting("adhoc", weight=1))
    before, after = both(answer, "adhoc")

    assert (before.preemptions, after.preemptions) == (0, 2)
    assert before.preempted_usage == 0
    assert hours(60) < after.preempted_usage < hours(120)
    assert both(answer, "research")[0].median_wait_ms >= 385_000
    assert both(answer, "research")[1].median_wait_ms < 60_000


def test_who_is_done_sooner_and_who_later_is_counted() -> None:
    day = Day()
    for name, pool in ((ONE, "adhoc"), (TWO, "research")):
        day.start(name, pool, 8, 0)
        for index in range(8):
            day.end(name, index, 10 * (index // 4), 10 * (index // 4) + 10)
    tree = a_tree(adhoc=1e6, research=1)
    answer = replay(day, tree, 60, setting("adhoc", weight=1), setting("research", weight=1e6))
    same = replay(day, tree, 60, setting("adhoc", weight=1e6))
    moved = {each.pool: (each.sooner, each.later) for each in answer.pools}

    assert moved == {"<Root>": (1, 1), "adhoc": (0, 1), "research": (1, 0)}
    assert all((each.sooner, each.later) == (0, 0) for each in same.pools)


@pytest.mark.long
def test_jobs_that_understand_the_signal_go_on_where_they_were() -> None:
    day = Day()
    day.start(ONE, "adhoc", 4, 0, interruptible=True)
    day.start(TWO, "research", 2, 10)
    for index in range(4):
        day.end(ONE, index, 0, 100)
    for index in range(2):
        day.end(TWO, index, 100, 110)
    answer = replay(day, a_tree(adhoc=1e6, research=1), 600, setting("adhoc", weight=1))
    _, after = both(answer, "adhoc")

    assert after.preemptions == 2
    assert after.preempted_usage == 0
    assert after.usage == pytest.approx(hours(400), rel=0.01)


def test_a_limit_on_running_operations_makes_them_wait() -> None:
    day = Day()
    for name, at_s in ((ONE, 0), (TWO, 1)):
        day.start(name, "research", 1, at_s)
        day.end(name, 0, at_s, at_s + 20)
    answer = replay(day, a_tree(research=1), 60, setting("research", max_running_operation_count=1))
    before, after = both(answer, "research")

    assert before.longest_wait_ms < 1_000
    assert after.longest_wait_ms == pytest.approx(19_000, abs=1_500)
    assert after.never_started == 0


def test_operations_that_would_be_refused_are_told_with_the_reason() -> None:
    day = Day()
    for name, at_s in ((ONE, 0), (TWO, 1)):
        day.start(name, "research", 1, at_s)
        day.end(name, 0, at_s, at_s + 20)
    limit = setting("research", max_operation_count=1, max_running_operation_count=1)
    answer = replay(day, a_tree(research=1), 60, limit)

    assert [each.refused for each in both(answer, "research")] == [0, 1]
    assert any(note.startswith("1 operation refused under the other") and TWO in note for note in answer.notes)


def test_jobs_that_ran_at_the_beginning_run_on_to_the_end_that_they_had() -> None:
    day = Day()
    day.start(ONE, "adhoc", 6, -100)
    for index in range(2):
        day.end(ONE, index, -100, -50)
    for index in range(2, 6):
        day.end(ONE, index, -50, 30)
    answer = replay(day, a_tree(adhoc=1), 60)
    before, _ = both(answer, "adhoc")

    assert before.usage == pytest.approx(hours(120), rel=0.01)
    assert before.operations == 0
    assert answer.agreement.overlap > 0.98
    assert answer.job_runs == 4


def test_a_job_that_runs_on_is_taken_to_run_to_the_end() -> None:
    day = Day()
    day.start(ONE, "adhoc", 1, 10)
    running = [LiveRun(OperationId(ONE), 0, 1, NodeName("alpha"), NOON_MS + 10_000)]
    answer = replay(day, a_tree(adhoc=1), 60, running=running)

    assert both(answer, "adhoc")[0].usage == pytest.approx(hours(50), rel=0.02)
    assert answer.agreement.recorded_usage == pytest.approx(hours(50), rel=0.01)
    assert any(note.startswith("1 job whose own end is not in the log") for note in answer.notes)


def test_a_failed_run_fails_again_and_the_next_one_is_as_it_was() -> None:
    day = Day()
    day.start(ONE, "adhoc", 1, 0)
    day.end(ONE, 0, 0, 5, JobResult.FAILED)
    day.end(ONE, 0, 5, 25, attempt=2)
    answer = replay(day, a_tree(adhoc=1), 60)

    assert both(answer, "adhoc")[0].usage == pytest.approx(hours(25), rel=0.02)


def test_people_abort_and_suspend_again_what_they_did() -> None:
    day = Day()
    day.start(ONE, "adhoc", 4, 0)
    day.start(TWO, "research", 1, 0)
    day.add(OperationSuspended(OperationId(TWO), suspended=True, at_ms=NOON_MS))
    aborted = OperationStateChanged(
        OperationId(ONE), OperationState.ABORTING, StateCause.ABORTED_BY_USER, "", NOON_MS + 20_000
    )
    day.add(aborted)
    for index in range(4):
        day.end(ONE, index, 0, 20, JobResult.ABORTED)
    day.add(OperationSuspended(OperationId(TWO), suspended=False, at_ms=NOON_MS + 30_000))
    day.end(TWO, 0, 30, 40)
    answer = replay(day, a_tree(adhoc=1, research=1), 60)

    assert both(answer, "adhoc")[0].usage == pytest.approx(hours(80), rel=0.02)
    assert both(answer, "research")[0].median_wait_ms == pytest.approx(30_000, abs=2_000)


def test_a_pool_may_be_gone_in_the_other_configuration() -> None:
    day = a_shared_day()
    answer = replay(day, a_tree(adhoc=1, research=1), 60, Remove(PoolName("research")))

    assert both(answer, "research")[1].operations == 1
    assert pool_of(answer, "research").path == "/research"


def test_what_the_log_has_forgotten_is_left_out_and_told() -> None:
    day = a_shared_day()
    day.entries = [entry for entry in day.entries if getattr(entry.events[0], "operation", "") != TWO][1:] + [
        entry for entry in day.entries if getattr(entry.events[0], "operation", "") == TWO
    ]
    answer = replay(day, a_tree(adhoc=1, research=1), 60)

    assert answer.operations == 1
    assert "1 operation left out, since the log no longer has the start" in answer.notes


def test_a_configuration_that_breaks_rules_is_refused() -> None:
    changes: list[PoolChange] = [setting("research", weight=-1), SetOptions(b'{"main_resource": "rivers"}')]
    task = a_shared_day().task(a_tree(adhoc=1, research=1), 0, 60, changes=changes)
    answer = replayed(task, lambda _: None)

    assert isinstance(answer, ReplayRefused)
    assert "weight" in answer.why


def test_progress_is_told_from_the_beginning_to_the_end() -> None:
    told: list[float] = []
    replayed(a_shared_day().task(a_tree(adhoc=1, research=1), 0, 60), told.append)

    assert told == sorted(told)
    assert told[-1] == 1.0


def test_jobs_with_gpus_and_in_images_run_where_nodes_have_devices_and_a_runtime() -> None:
    day = Day()
    day.start(ONE, "adhoc", 2, 0, resources=Resources(user_slots=1, cpu=100, gpu=1))
    day.start(TWO, "research", 1, 0, image="alpine:3")
    for index in range(2):
        day.end(ONE, index, 0, 10)
    day.end(TWO, 0, 0, 10)
    node = ReplayNode(NodeName("alpha"), Resources(user_slots=4, cpu=400, gpu=2, memory=2**32), ["container:podman"])
    task = msgspec.structs.replace(day.task(a_tree(adhoc=1, research=1), 0, 60), nodes=[node])
    answer = replayed(task, lambda _: None)
    assert isinstance(answer, Replay)

    assert pool_of(answer, "adhoc").before.usage == pytest.approx(hours(20), rel=0.05)  # type: ignore[union-attr]
    assert pool_of(answer, "research").before.usage == pytest.approx(hours(10), rel=0.05)  # type: ignore[union-attr]
