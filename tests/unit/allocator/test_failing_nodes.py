"""Nodes on which jobs fail: few jobs fail there, the node is held back and shown, and operations that fail everywhere blame none."""

from __future__ import annotations

import math
from itertools import pairwise

import msgspec
import pytest

from headrace.ids import NodeName, OperationId, PoolName
from headrace.wire.heartbeat import JobResult
from headrace.wire.nodes import NodeRecord
from headrace_allocator.decision.nudging import nodes_to_nudge
from headrace_allocator.effects import SuspectNode
from headrace_allocator.facts.failing_nodes import ANYTHING
from headrace_allocator.facts.failure_runs import FIRST_PAUSE_S, FailureRun
from tests.support.allocating import an_operation, cores, with_task_sizes
from tests.support.failing_fleet import FailingFleet

pytestmark = pytest.mark.long

BAD = "bad"


def on_bad(host: str, _operation: OperationId) -> bool:
    return host == BAD


def slow_fleet(jobs: int = 200) -> FailingFleet:
    """Three operations with jobs for a long time, whose jobs do not end together."""
    fleet = FailingFleet(("good", BAD), on_bad, host_cores=3, step_s=1.0)
    for number in range(3):
        fleet.work(f"op{number}", jobs, 4.0 + number)
    return fleet


def suspected() -> FailingFleet:
    """The same, once the node is suspect."""
    fleet = slow_fleet()
    fleet.run_for(60)
    assert fleet.states()[BAD] == "suspect"
    return fleet


def figures(fleet: FailingFleet) -> dict[str, float]:
    return {figure.name: float(str(figure.value)) for figure in fleet.facts.failing.figures()}


@pytest.mark.parametrize("host_cores", [2, 8])
@pytest.mark.parametrize("operations", [1, 3, 60])
def test_few_of_sixty_jobs_fail_on_a_host_that_fails_at_once(operations: int, host_cores: int) -> None:
    fleet = FailingFleet(("good", BAD), on_bad, host_cores=host_cores)
    for number in range(operations):
        fleet.work(f"op{number}", 60 // operations, 0.5)

    took_s = fleet.run()

    assert not fleet.live
    assert fleet.ended["good", JobResult.COMPLETED] == 60
    assert fleet.failed(BAD) <= 3
    # As long as the good host needs for sixty jobs alone, and the retries of the failed jobs.
    assert took_s <= 60 * 0.5 / host_cores + 8


def test_most_jobs_fail_without_the_option() -> None:
    fleet = FailingFleet(("good", BAD), on_bad, hold_back_failing_nodes=False)
    fleet.work("op", 60, 0.5)
    fleet.run()
    assert fleet.failed(BAD) >= 30
    assert fleet.facts.failing.allowed(fleet.node(BAD)) is ANYTHING


def test_a_failed_job_waits_for_another_node_while_other_jobs_start_where_it_failed() -> None:
    """All of b is in use when a job fails on a, which has completed others."""
    fleet = FailingFleet(("a", "b"), lambda _host, _operation: False)
    fleet.engine.on_nodes({NodeName("b"): NodeRecord(NodeName("b"), tags=["ssd"])}, fleet.now)
    fleet.work("long", 2, 30.0, scheduling_tag_filter="ssd")
    fleet.run_for(2)
    fleet.work("op", 100, 1.0)
    fleet.run_for(4)
    fleet.fails = lambda host, _operation: host == "a" and not fleet.failed("a")
    fleet.run_for(10)
    tried = [hosts for (name, _), hosts in fleet.tried_on.items() if name == "op"]
    assert fleet.failed("a") == 1
    assert all(hosts == ["a"] for hosts in tried)
    assert len(tried) > 20
    assert fleet.operation("op").slots.is_ready(next(iter(retries(fleet, "op", "a"))))

    fleet.run()
    assert [hosts for hosts in fleet.tried_on.values() if len(hosts) > 1] == [["a", "b"]]


def retries(fleet: FailingFleet, operation: str, host: str) -> dict[int, None]:
    """The jobs of an operation that avoid a host."""
    outcomes = fleet.operation(operation).outcomes
    assert outcomes is not None
    return outcomes.failing_on[NodeName(host)].retries


def test_a_new_node_gets_one_job_at_a_time_however_short_the_jobs_are_elsewhere() -> None:
    fleet = FailingFleet(("good", BAD), on_bad)
    fleet.work("op", 250, 0.05)
    for _ in range(4):
        fleet.hear("good")
        fleet.pass_time(0.25)
    assert fleet.operation("op").mean_job_ms <= 250
    fleet.run_for(3)
    assert 1 <= fleet.failed(BAD) <= 3


def test_jobs_that_wait_in_allocations_on_a_node_that_is_held_back_are_given_back() -> None:
    """Allocations have a dozen jobs ahead each when the node breaks."""
    fleet = FailingFleet(("good", BAD), lambda _host, _operation: False, step_s=0.5)
    fleet.fails_after_s = 2.0
    fleet.work("op", 250, 0.2)
    fleet.run_for(1.5)
    assert min(len(one.slots) for one in fleet.node(BAD).allocations.values()) > 8

    fleet.fails = on_bad
    fleet.run_for(20)
    assert fleet.failed(BAD) <= 8


@pytest.mark.parametrize(("is_on", "is_known"), [(True, False), (False, True)])
def test_failed_jobs_say_nothing_about_the_length_of_jobs(is_on: bool, is_known: bool) -> None:
    fleet = FailingFleet(("a", "b"), lambda _host, _operation: True, hold_back_failing_nodes=is_on)
    fleet.work("op", 20, 1.0)
    fleet.run_for(2)
    assert fleet.failed("a")
    assert math.isfinite(fleet.operation("op").mean_job_ms) is is_known


def test_nothing_is_preempted_for_a_job_that_is_tried() -> None:
    fleet = suspected()
    due = {name: fleet.engine.answers._due(node, [], fleet.now) for name, node in fleet.facts.nodes.items()}
    assert not due[NodeName(BAD)].stages
    assert not due[NodeName(BAD)].preemptive_stages
    assert due[NodeName("good")].start


def test_a_failed_job_is_tried_again_on_the_only_node_that_could_run_it() -> None:
    fleet = FailingFleet(("a", "b"), lambda _host, _operation: False)
    record = NodeRecord(NodeName("a"), tags=["ssd"])
    fleet.engine.on_nodes({NodeName("a"): record}, fleet.now)
    fleet.fails = lambda _host, _operation: fleet.ended["a", JobResult.FAILED] < 4
    fleet.work("op", 4, 1.0, scheduling_tag_filter="ssd")
    fleet.run(60)
    assert not fleet.live
    assert {host for hosts in fleet.tried_on.values() for host in hosts} == {"a"}


def test_an_operation_that_fails_everywhere_fails_fast_and_blames_no_node() -> None:
    fleet = FailingFleet(("a", "b", "c"), lambda _host, operation: operation == "wrong")
    fleet.work("wrong", 100, 0.5)
    fleet.run_for(10)
    assert fleet.by_operation["wrong", JobResult.FAILED] >= 40
    assert set(fleet.states().values()) == {"online"}
    assert [fleet.words(host) for host in "abc"] == ["", "", ""]

    fleet.work("right", 60, 0.5)
    fleet.over("wrong")
    assert fleet.run() <= 60 * 0.5 / 6 + 3
    assert set(fleet.states().values()) == {"online"}


def test_several_operations_that_fail_everywhere_blame_no_node() -> None:
    fleet = FailingFleet(("a", "b", "c"), lambda _host, operation: operation.startswith("wrong"))
    for number in range(5):
        fleet.work(f"wrong{number}", 50, 0.5)
    for _ in range(40):
        fleet.step()
        assert set(fleet.states().values()) == {"online"}
    assert figures(fleet)["suspect_nodes_found"] == 0


@pytest.mark.parametrize("long_of", ["mallory", "anna"])
@pytest.mark.parametrize("completes_elsewhere", [True, False])
def test_one_person_takes_no_node_from_others_with_jobs_that_fail_there(
    long_of: str, completes_elsewhere: bool
) -> None:
    fleet = FailingFleet(("a", BAD), lambda _host, _operation: False, host_cores=4)
    fleet.work("long", 1, 10_000.0, user=long_of)
    fleet.fails = lambda host, name: name != "long" and (host == BAD or not completes_elsewhere)
    for number in range(4):
        fleet.work(f"m{number}", 1000, 5.0, user="mallory")
    held = []
    for _ in range(120):
        fleet.step()
        held.append(BAD in fleet.facts.failing.held)
    assert any(held) is (long_of == "mallory")


@pytest.mark.parametrize("operations", [1, 40])
@pytest.mark.parametrize("hosts", [("a",), ("a", "b")])
def test_one_person_keeps_no_starts_of_others_from_a_new_node_with_jobs_that_fail(
    hosts: tuple[str, ...], operations: int
) -> None:
    """Of the few jobs that start on a node that has completed nothing, all once were of the operation whose jobs fail at once."""
    fleet = FailingFleet(hosts, lambda _host, name: name.startswith("m"), host_cores=8, pools=("p", "q"))
    fleet.work("first", 1, 10_000.0)
    for number in range(operations):
        fleet.work(f"m{number}", 100, user="mallory", pool=PoolName("q"))
    fleet.run_for(5)
    fleet.work("second", 2, 10_000.0)
    fleet.run_for(5)
    running = [place.operation for places in fleet.places.values() for place in places.values() if place.job]
    assert sorted(each for each in running if not each.startswith("m")) == ["first", "second", "second"]


def test_failures_of_two_persons_hold_a_node_back_while_others_have_operations() -> None:
    fleet = FailingFleet(("good", BAD), on_bad, host_cores=3, step_s=1.0)
    for number, user in enumerate(("anna", "ben", "anna")):
        fleet.work(f"op{number}", 200, 4.0 + number, user=user)
    fleet.run_for(60)
    assert fleet.states()[BAD] == "suspect"
    fleet.work("later", 1, 10_000.0, user="carl", scheduling_tag_filter="nowhere")
    fleet.over("op1")
    fleet.run_for(2)
    assert fleet.states()[BAD] == "suspect"


def test_a_node_on_which_several_operations_fail_becomes_suspect_and_people_see_why() -> None:
    fleet = suspected()
    words = fleet.words(BAD)
    assert "jobs failed there, of 2 operations" in words or "jobs failed there, of 3 operations" in words
    assert "and jobs of these operations complete on other nodes" in words
    assert f"`headrace node undrain {BAD}` clears it" in words
    said = [reason for reason in fleet.reasons("op1") if reason.startswith(f"node {BAD} is suspect: the last ")]
    assert len(said) == 1
    assert "the next single job is tried there in " in said[0]
    assert figures(fleet)["suspect_nodes"] == 1
    assert figures(fleet)["held_back_nodes"] == 1
    assert fleet.states()["good"] == "online"
    assert fleet.node(BAD) not in nodes_to_nudge(fleet.operation("op1"), fleet.facts)


def test_single_jobs_are_tried_after_growing_pauses() -> None:
    fleet = slow_fleet()
    failed_s: list[float] = []
    began_s = fleet.now_s
    while fleet.now_s < began_s + 200:
        before = fleet.failed(BAD)
        fleet.step()
        failed_s += [fleet.now_s] * (fleet.failed(BAD) - before)
    pauses = [later - one for one, later in pairwise(failed_s) if later - one > 3]
    assert [round(pause / 30) for pause in pauses[:2]] == [1, 4]


def test_a_completed_trial_clears_the_node() -> None:
    fleet = suspected()
    fleet.fails = lambda _host, _operation: False
    fleet.run_for(150)
    assert fleet.states()[BAD] == "online"
    assert fleet.words(BAD) == ""
    assert fleet.ended[BAD, JobResult.COMPLETED] > 2
    (changed,) = [one for one in decisions_of_suspects(fleet) if not one[1]]
    assert changed == (BAD, False)


def decisions_of_suspects(fleet: FailingFleet) -> list[tuple[str, bool]]:
    """What subscribers hear of suspect nodes."""
    told: list[tuple[str, bool]] = []
    while (message := fleet.engine.answers.on_decisions_due(fleet.now).answer) is not None:
        told += [(one.node, one.is_suspect) for one in message.suspects]
    return told


def test_undraining_clears_a_suspect_node_at_once() -> None:
    fleet = suspected()
    assert decisions_of_suspects(fleet) == [(BAD, True)]
    record = msgspec.structs.replace(fleet.node(BAD).record, undrained=1)
    fleet.engine.on_nodes({NodeName(BAD): record}, fleet.now)
    effects = fleet.tick(fleet.now_s)
    assert [(one.node, one.is_suspect) for one in effects if isinstance(one, SuspectNode)] == [(BAD, False)]
    assert fleet.states()[BAD] == "online"
    assert decisions_of_suspects(fleet) == [(BAD, False)]
    fleet.fails = lambda _host, _operation: False
    fleet.run_for(10)
    assert fleet.ended[BAD, JobResult.COMPLETED] > 1


def test_an_operation_whose_only_node_is_suspect_is_tried_with_single_jobs() -> None:
    fleet = suspected()
    fleet.engine.on_nodes({NodeName(BAD): NodeRecord(NodeName(BAD), tags=["gpu"])}, fleet.now)
    for name in list(fleet.live):
        fleet.over(name)
    fleet.fails = lambda _host, _operation: False
    fleet.work("tagged", 8, 1.0, scheduling_tag_filter="gpu")
    fleet.run(2_000)
    assert not fleet.live


def test_a_tree_with_one_node_holds_nothing_back() -> None:
    fleet = FailingFleet(["only"], lambda _host, operation: operation == "wrong")
    fleet.work("wrong", 50, 0.5)
    fleet.work("also-wrong", 50, 0.5)
    fleet.run_for(5)
    assert fleet.failed("only") >= 10


def test_nodes_that_were_not_proven_begin_with_two_jobs_and_soon_have_all() -> None:
    fleet = FailingFleet(["a", "b"], lambda _host, _operation: False, host_cores=16, step_s=0.25)
    fleet.work("op", 100, 60.0)
    counts = []
    for _ in range(5):
        fleet.step()
        counts.append(len(fleet.node("a").allocations))
    assert counts[0] == 2
    assert counts[-1] == 16


def test_a_removed_node_is_forgotten() -> None:
    fleet = suspected()
    fleet.engine.on_nodes({NodeName(BAD): None}, fleet.now)
    fleet.hear(BAD)
    fleet.hear(BAD)
    fleet.now_s += 2_000
    for name in list(fleet.nodes):
        if name != BAD:
            fleet.hear(name)
    fleet.tick(fleet.now_s)
    fleet.refresh()
    assert NodeName(BAD) not in fleet.facts.nodes
    assert not fleet.facts.failing.held
    assert not fleet.facts.failing.suspect


def test_jobs_that_start_within_a_pause_let_it_not_grow_and_a_pause_ends_however_many_were_tried() -> None:
    run = FailureRun()
    for _ in range(5):
        run.fail(0.0)
    run.judge(5, 0.0)
    for _ in range(2_000):
        run.note_start(1.0)
    assert run.until_s == FIRST_PAUSE_S
    now_s = run.until_s
    for _ in range(2_000):
        run.note_start(now_s)
        assert now_s < run.until_s <= now_s + 3_600.0
        now_s = run.until_s


def test_a_failed_job_of_a_large_task_is_tried_again_where_only_it_fits_although_small_jobs_fit_elsewhere() -> None:
    fleet = FailingFleet(("a", "b"), lambda _host, _operation: False)
    fleet.nodes["b"] = cores(1, slots=2)
    fleet.run_for(1)
    fleet.fails = lambda _host, _operation: fleet.ended["a", JobResult.FAILED] < 1
    fleet.begin(with_task_sizes(an_operation("op"), (1, cores(2)), (2, cores(0.5))), 1.0)
    fleet.update_shares()
    fleet.run_for(10)

    assert not fleet.live
    assert fleet.tried_on["op", 0] == ["a", "a"]
