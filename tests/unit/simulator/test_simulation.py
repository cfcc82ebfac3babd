"""Simulations of small workloads: every job ends, sums agree, queues keep their order, and pools get what they are owed."""

from __future__ import annotations

import gzip
import heapq
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import BadInput
from headrace.ids import ROOT_POOL, PoolName, TreeName
from headrace.pools import Pool, PoolConfig, PreemptionPolicy, Tree, TreeOptions
from headrace.resources import Resources
from headrace.wire.simulation import NodesOf, PoolOf, Setup, SimulatedPool, Simulation, SimulationTask
from headrace_fair_share.update.updater import Updater
from headrace_simulator.results import Stretches
from headrace_simulator.simulation import prepared, simulated, simulation_of
from headrace_simulator.submissions import planned
from headrace_simulator.workloads.swf import read_swf
from headrace_simulator.workloads.workload import Workload, WorkloadJob, WorkloadNode

_TRACES = Path(__file__).parents[3].parent / "shared" / "traces"
_GIB = 2**30


def a_job(number: int, at_s: float, runs_s: float, cores: int = 1, **more: Any) -> WorkloadJob:
    size = Resources(user_slots=1, cpu=100 * cores)
    return WorkloadJob(str(number), round(at_s * 1_000), round(runs_s * 1_000), more.pop("count", 1), size, **more)


def setup(name: str = "native", *pools: Pool, **more: Any) -> Setup:
    return Setup(name, Tree(TreeName("default"), list(pools)), **more)


def nodes(count: int, cores: int) -> NodesOf:
    return NodesOf(count, Resources(user_slots=1_000, cpu=100 * cores, memory=4 * _GIB * cores))


def simulate(
    jobs: Sequence[WorkloadJob], of: NodesOf, *setups: Setup, **more: Any
) -> tuple[Simulation, dict[str, float]]:
    """The results, and the second in which each job of the last configuration began, by its name."""
    begun: dict[str, float] = {}
    workload = Workload("table", list(jobs))
    task = SimulationTask("jobs.csv", list(setups) or [setup()], nodes=[of], **more)
    ready = prepared(workload, task)
    results = [
        simulated(ready, number, lambda *_: None, lambda one, first_ms, _: begun.update({one.name: first_ms}))
        for number in range(len(task.setups))
    ]
    answer = simulation_of(ready, results)
    since_ms = answer.since_ms - min(job.submitted_ms for job in jobs)
    return answer, {name: (first_ms - since_ms) / 1_000 for name, first_ms in begun.items()}


def pool(answer: Simulation, name: str, place: int = 0) -> SimulatedPool:
    return next(each for each in answer.setups[place].pools if each.pool == name)


def a_random_workload(seed: int, count: int = 40) -> list[WorkloadJob]:
    draw = Random(seed)
    at_s, jobs = 0, []
    for number in range(count):
        at_s += draw.choice([0, 5, 30, 120])
        together = draw.random() < 0.3
        jobs.append(
            a_job(
                number, at_s, draw.randint(1, 400), draw.choice([1, 2] if together else [1, 2, 4]),
                count=draw.choice([2, 3]) if together else 1,
                together=together, account=draw.choice(["a", "b"]), user=draw.choice(["anna", "ben"]),
                failed=draw.random() < 0.1,
            )
        )  # fmt: skip
    return jobs


@pytest.mark.parametrize("policy", ["native", "fifo"])
def test_every_job_ends_and_sums_agree(policy: str) -> None:
    jobs = a_random_workload(1)
    answer, begun = simulate(jobs, nodes(2, 6), setup(policy, is_fifo=policy == "fifo"))
    (one,) = answer.setups
    cluster = one.cluster

    assert set(begun) == {job.name for job in jobs}
    assert cluster.completed == sum(not job.failed for job in jobs)
    assert cluster.failed == sum(job.failed for job in jobs)
    assert (cluster.never_started, cluster.refused) == (0, 0)
    assert cluster.peak <= 1
    used = sum(job.runs_ms * job.count * job.size.cpu / 100 for job in jobs) / 3_600_000
    lost = pool(answer, "<Root>").lost_usage
    assert pool(answer, "<Root>").usage == pytest.approx(used + lost, rel=0.001)
    assert sum(each.usage for each in one.persons) == pytest.approx(pool(answer, "<Root>").usage, rel=1e-6)
    assert sum(each.operations for each in one.persons) == len(jobs)
    hours = cluster.makespan_ms / 3_600_000
    assert cluster.utilisation == pytest.approx((used + lost) / (12 * hours), rel=0.001)
    series = pool(answer, "<Root>").usage_series
    assert sum(series) * one.stretch_ms == pytest.approx((used + lost) * 3_600_000, rel=0.05)


@pytest.mark.long
def test_the_same_workload_gives_the_same_results() -> None:
    jobs = a_random_workload(2)
    assert simulate(jobs, nodes(2, 6)) == simulate(jobs, nodes(2, 6))


def first_come_first_served(jobs: Sequence[WorkloadJob], cores: int) -> dict[str, float]:
    """When a list scheduler starts each job on one large host: at each time, whatever fits starts, in the order of submission."""
    coming, queue, begun, free, now_s = list(jobs), [jobs[0]] * 0, dict[str, float](), cores, 0.0
    running: list[tuple[float, int]] = []
    while coming or queue:
        times_s = [coming[0].submitted_ms / 1_000] if coming else []
        now_s = min([*times_s, *(each[0] for each in running[:1])])
        while running and running[0][0] <= now_s:
            free += heapq.heappop(running)[1]
        while coming and coming[0].submitted_ms / 1_000 <= now_s:
            queue.append(coming.pop(0))
        for job in list(queue):
            need = job.count * job.size.cpu // 100
            if need <= free:
                queue.remove(job)
                free -= need
                begun[job.name] = now_s
                heapq.heappush(running, (now_s + job.runs_ms / 1_000, need))
    return begun


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3))
def test_a_queue_starts_jobs_as_a_list_scheduler_does(seed: int) -> None:
    draw = Random(seed)
    jobs, at_s = [], 0
    for number in range(40):
        at_s += draw.choice([1, 20, 60])
        jobs.append(a_job(number, at_s, draw.randint(20, 300), draw.choice([1, 2, 4, 8])))
    _, begun = simulate(jobs, nodes(1, 8), setup("fifo", is_fifo=True))

    assert begun == pytest.approx(first_come_first_served(jobs, 8), abs=1.0)


@pytest.mark.long
@pytest.mark.parametrize(
    "trace", sorted(_TRACES.glob("NASA*.swf.gz")) or [None], ids=lambda path: path.name if path else "absent"
)
def test_the_queue_of_the_ipsc_of_1993_is_that_of_a_list_scheduler(trace: Path | None) -> None:
    if trace is None:
        return
    with gzip.open(trace, "rt") as lines:
        jobs = read_swf(lines).jobs[:1_000]
    jobs = sorted(jobs, key=lambda job: job.submitted_ms)
    _, begun = simulate(jobs, nodes(1, 128), setup("fifo", is_fifo=True))

    assert begun == pytest.approx(first_come_first_served(jobs, 128), abs=1.0)


@pytest.mark.long
@pytest.mark.parametrize("policy", [PreemptionPolicy.YTSAURUS, PreemptionPolicy.YARN])
def test_pools_get_what_they_are_owed_while_the_cluster_is_full(policy: PreemptionPolicy) -> None:
    jobs = [a_job(number, 0, 50 + number, account="ab"[number % 2], count=60) for number in range(8)]
    jobs.append(a_job(8, 0, 600, account="small"))
    weights = (
        Pool(PoolName("a"), ROOT_POOL, PoolConfig(weight=3)),
        Pool(PoolName("b"), ROOT_POOL, PoolConfig(weight=1)),
        # YARN's fair share of this pool is far above its demand.
        Pool(PoolName("small"), ROOT_POOL, PoolConfig(weight=20)),
    )
    tree = Tree(TreeName("default"), list(weights), TreeOptions(preemption_policy=policy))
    answer, _ = simulate(jobs, nodes(4, 4), Setup("weights", tree))
    cluster = answer.setups[0].cluster

    assert cluster.saturated_ms > 600_000
    assert cluster.share_error < 0.05
    assert cluster.idle_fraction < 0.05
    if policy is PreemptionPolicy.YARN:
        return  # it divides by shares that are fixed for the pools that have anything to do
    third = pool(answer, "a").usage_series[: len(pool(answer, "a").usage_series) // 3]
    assert sum(third) / len(third) == pytest.approx(15 * 3 / 4, rel=0.05)


def test_what_preemption_loses_is_counted_and_a_part_of_it_can_be_kept() -> None:
    first = [a_job(number, 0, 2_000, account="a") for number in range(4)]
    later = [a_job(10 + number, 600, 100, account="b") for number in range(2)]
    lost, kept = (simulate([*first, *later], nodes(1, 4), kept_fraction=part)[0] for part in (0.0, 0.75))

    assert pool(lost, "a").preemptions == pool(kept, "a").preemptions == 2
    assert pool(lost, "a").lost_usage == pytest.approx(4 * pool(kept, "a").lost_usage, rel=0.01)
    assert lost.setups[0].cluster.makespan_ms > kept.setups[0].cluster.makespan_ms + 400_000
    assert 0 < pool(lost, "b").starving_ms < 20_000
    assert pool(lost, "b").waits.longest_ms < 120_000


@pytest.mark.parametrize("kept", [0.0, 0.9])
def test_jobs_on_a_failed_node_run_again_when_its_silence_is_noticed_or_it_is_back(kept: float) -> None:
    jobs = [a_job(number, 0, 4_000, account="a") for number in range(8)]
    more = {"failures_ms": 4_000_000, "repair_ms": 900_000, "kept_fraction": kept}
    answer, _ = simulate(jobs, nodes(2, 4), seed=4, **more)
    cluster, one = answer.setups[0].cluster, pool(answer, "a")

    assert (cluster.completed, cluster.failed, cluster.never_started) == (8, 0, 0)
    assert cluster.job_runs > 8
    assert one.usage - one.lost_usage == pytest.approx(8 * 4_000 / 3_600, rel=0.01)
    assert one.lost_usage > 0
    assert one.preemptions == 0
    assert answer == simulate(jobs, nodes(2, 4), seed=4, **more)[0]
    assert answer != simulate(jobs, nodes(2, 4), seed=5, **more)[0]


def test_a_gang_that_loses_a_node_starts_again_as_a_whole() -> None:
    answer, _ = simulate(
        [a_job(1, 0, 4_000, 4, count=2, together=True)], nodes(2, 4), seed=4, failures_ms=4_000_000, repair_ms=60_000
    )
    cluster, one = answer.setups[0].cluster, pool(answer, "<Root>")

    assert cluster.completed == 1
    assert one.usage - one.lost_usage == pytest.approx(8 * 4_000 / 3_600, rel=0.01)
    assert one.lost_usage > 0


def test_jobs_that_outlast_every_node_are_named_as_never_ended() -> None:
    answer, _ = simulate([a_job(1, 0, 10**6)], nodes(1, 4), failures_ms=20_000_000, repair_ms=60_000)

    assert (answer.setups[0].cluster.completed, answer.setups[0].cluster.never_started) == (0, 1)


def test_a_longer_step_updates_shares_less_often_and_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    random = Random(1)
    jobs = [
        a_job(number, 4 * number, random.randint(10, 400), random.choice([1, 2, 4]), account=random.choice("abc"))
        for number in range(300)
    ]
    updates = Counter[str]()
    compute = Updater.compute

    def counted(self: Updater, *given: Any, **how: Any) -> Any:
        updates["all"] += 1
        return compute(self, *given, **how)

    monkeypatch.setattr(Updater, "compute", counted)
    counts, answers = [], []
    for step_ms in (1_000, 60_000):
        updates.clear()
        answers.append(simulate(jobs, nodes(4, 16), step_ms=step_ms)[0].setups[0].cluster)
        counts.append(updates["all"])

    assert 0 < counts[1] < counts[0] / 3
    assert [each.completed for each in answers] == [300, 300]
    assert answers[1].makespan_ms == pytest.approx(answers[0].makespan_ms, rel=0.05)
    assert answers[1].share_error < answers[0].share_error + 0.05


def test_an_idle_cluster_starts_jobs_at_once_whatever_the_step_is() -> None:
    jobs = [a_job(number, 1_000 * number, 100, account="abc"[number % 3]) for number in range(20)]
    _, begun = simulate(jobs, nodes(4, 16), step_ms=600_000)

    assert max(begun[job.name] - job.submitted_ms / 1_000 for job in jobs) <= 1


def test_users_who_wait_submit_after_the_simulated_end_of_their_job() -> None:
    jobs = [
        a_job(1, 0, 100, user="anna", waited_ms=0),
        a_job(2, 110, 100, user="anna", waited_ms=0),
        a_job(3, 120, 50, user="ben", waited_ms=0),
        a_job(4, 4_000, 10, user="anna", waited_ms=0),
        a_job(5, 0, 300, user="zoe", waited_ms=0),
    ]
    more = {"pool_by": "user", "is_fifo": True}
    fifo = setup("fifo", is_fifo=more.pop("is_fifo"))
    _, apart = simulate(jobs, nodes(1, 1), fifo, **more)
    answer, begun = simulate(jobs, nodes(1, 1), fifo, feedback=True, **more)

    # 1 runs to 100, 5 to 400, and 3 to 450 because 2 is submitted at 110 only without feedback.
    assert apart == pytest.approx({"1": 0, "5": 100, "2": 400, "3": 500, "4": 4_000}, abs=1)
    assert begun == pytest.approx({"1": 0, "5": 100, "2": 400, "3": 500, "4": 4_000}, abs=1)
    assert answer.notes.count("1 jobs follow the end of an earlier job of their user") == 1


def test_a_job_ends_at_its_time_limit() -> None:
    answer, _ = simulate([a_job(1, 0, 500, limit_ms=60_000), a_job(2, 0, 50, limit_ms=60_000)], nodes(1, 4))

    assert (answer.setups[0].cluster.completed, answer.setups[0].cluster.failed) == (1, 1)
    assert 60_000 <= answer.setups[0].cluster.makespan_ms < 75_000


def test_jobs_that_fit_nowhere_are_left_out_and_counted() -> None:
    jobs = [a_job(1, 0, 10, 9), a_job(2, 0, 10, 8), a_job(3, 0, 10, count=17, together=True)]
    answer, begun = simulate(jobs, nodes(2, 8))

    assert answer.left_out == {"larger than the cluster": 2}
    assert set(begun) == {"2"}
    with pytest.raises(BadInput, match="2 larger than the cluster"):
        simulate([jobs[0], jobs[2]], nodes(2, 8))


@pytest.mark.parametrize(
    ("count", "expected"), [(4, (1, 400)), (12, (2, 600)), (13, (13, 100)), (16, (2, 800)), (9, (3, 300))]
)
def test_processors_that_belong_together_become_jobs_as_wide_as_a_node(count: int, expected: tuple[int, int]) -> None:
    workload = Workload("swf", [a_job(1, 0, 10, count=count, together=True)])
    (one,) = planned(workload, SimulationTask("x", [setup()], nodes=[nodes(2, 8)])).submissions

    assert (one.count, one.size.cpu) == expected
    assert one.size.memory == one.size.cpu // 100 * 4 * _GIB


def test_a_workload_without_a_readable_line_is_refused_with_the_first_reason() -> None:
    workload = Workload("swf", [], damaged=[(3, "4 values"), (4, "1 value")], damaged_count=7)
    task = SimulationTask("x", [setup()], nodes=[nodes(1, 4)])
    with pytest.raises(BadInput, match="7 lines cannot be read, the first is line 3: 4 values"):
        planned(workload, task)


def test_nodes_of_the_workload_are_taken_and_named_unless_the_user_gives_some() -> None:
    workload = Workload("swf", [a_job(1, 0, 10)], [WorkloadNode(3, Resources(user_slots=1, cpu=100))])
    own, given_ones = (planned(workload, SimulationTask("x", [setup()], nodes=of)) for of in ([], [nodes(2, 8)]))

    assert (len(own.nodes), len(given_ones.nodes)) == (3, 2)
    said = "the nodes are those of the workload"
    assert (said in own.notes, said in given_ones.notes) == (True, False)


def test_rules_choose_the_pool_and_then_the_property_of_the_job() -> None:
    jobs = [
        a_job(1, 0, 10, user="Anna B.", account="bio-1", queue="long"),
        a_job(2, 0, 10, user="ben", account="phys"),
        a_job(3, 0, 10, user="ben"),
    ]
    rules = [PoolOf(PoolName("life"), account="bio*", queue="long")]
    task = SimulationTask("x", [setup()], nodes=[nodes(1, 8)], rules=rules)
    plan = planned(Workload("table", jobs), task)

    assert [(each.pool, each.user) for each in plan.submissions] == [
        ("life", "anna-b"),
        ("phys", "ben"),
        ("default", "ben"),
    ]


def test_a_configuration_that_breaks_rules_is_refused_with_the_rule() -> None:
    broken = Pool(PoolName("a"), ROOT_POOL, PoolConfig(strong_guarantee_resources=_cores(100)))
    child = Pool(PoolName("b"), PoolName("a"), PoolConfig(strong_guarantee_resources=_cores(200)))
    with pytest.raises(BadInput, match="--pools"):
        simulate([a_job(1, 0, 10)], nodes(1, 8), setup("native", broken, child))


def _cores(count: int) -> Any:
    from headrace.pools.amounts import PartialResources

    return PartialResources(cpu=100 * count)


def test_what_a_pool_is_owed_beside_its_child_pools_is_its_own_part() -> None:
    pools = (Pool(PoolName("a"), ROOT_POOL), Pool(PoolName("b"), PoolName("a")))
    jobs = [a_job(number, 0, 60, account="ab"[number % 2], count=40) for number in range(4)]
    cluster = simulate(jobs, nodes(2, 4), setup("native", *pools))[0].setups[0].cluster

    assert cluster.share_error < 0.05


def test_jobs_with_gpus_run_on_nodes_that_have_them() -> None:
    jobs = [WorkloadJob(str(number), 0, 60_000, 1, Resources(user_slots=1, cpu=100, gpu=1)) for number in range(4)]
    of = NodesOf(1, Resources(user_slots=1_000, cpu=800, gpu=2, memory=2**35))
    answer, begun = simulate(jobs, of, resource="gpu")

    assert sorted(begun.values()) == pytest.approx([0, 0, 60, 60], abs=1)
    assert answer.setups[0].cluster.utilisation == pytest.approx(1, rel=0.02)


@given(st.lists(st.tuples(st.integers(0, 10**8), st.integers(1, 10**7), st.integers(0, 9)), min_size=1, max_size=30))
def test_stretches_of_an_open_period_lose_nothing_when_they_grow(spans: list[tuple[int, int, int]]) -> None:
    stretches = Stretches(0)
    one, other = stretches.zeros(), stretches.zeros()
    for place, (begin_ms, length_ms, amount) in enumerate(spans):
        stretches.add(one if place % 2 else other, begin_ms, begin_ms + length_ms, amount)
    end_ms = max(begin_ms + length_ms for begin_ms, length_ms, _ in spans)
    stretches.close(end_ms)

    assert sum(one) + sum(other) == pytest.approx(sum(length * amount for _, length, amount in spans))
    assert len(one) == len(other) == stretches.count <= 288
    means = [a + b for a, b in zip(stretches.means(one), stretches.means(other), strict=True)]
    assert max(means) <= sum(amount for _, _, amount in spans) + 1e-6
