"""Gangs and preemption with the real allocator and the real fair share, in trees as Headrace makes them."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import msgspec
import pytest

from headrace.ids import ROOT_POOL, NodeName, OperationId, PoolName
from headrace.pools import Pool, PoolConfig
from headrace.pools.amounts import PartialResources
from headrace.pools.new_tree import NEW_TREE_OPTIONS
from headrace.resources import Resources
from headrace.wire.nodes import NodeRecord
from headrace.wire.operation_spec import PreemptionMode
from headrace.wire.preemption import PreemptionReason
from headrace.wire.snapshots import PreemptionPriority
from headrace_allocator.decision.view import Overlay, View
from headrace_allocator.explain.protected import protecting_rule
from headrace_allocator.facts.preemption_groups import Group
from headrace_allocator.preemption.gang_victims import is_owed_room_of
from headrace_allocator.preemption.victims import candidates
from tests.support.allocating import cores
from tests.support.effort import seeds
from tests.support.gang_fleet import THREE_HOSTS, GangFleet, gangs_that_take_turns, new_tree

pytestmark = pytest.mark.long

_EIGHT = PartialResources(cpu=800)


def a_pool(name: str, **settings: object) -> Pool:
    return Pool(PoolName(name), ROOT_POOL, PoolConfig(**settings))  # type: ignore[arg-type]


def a_fleet(*pools: Pool, **options: object) -> GangFleet:
    return GangFleet(Random(1), THREE_HOSTS, pools, new_tree(**options))


def drained(host: str) -> NodeRecord:
    return NodeRecord(NodeName(host), drained=True)


def pass_seconds(fleet: GangFleet, seconds: int) -> None:
    for _ in range(seconds):
        fleet.second()


def test_two_gangs_that_do_not_fit_together_take_turns_by_completion() -> None:
    fleet = gangs_that_take_turns(NEW_TREE_OPTIONS, seconds=35)

    assert fleet.is_done("left-gang")
    assert fleet.is_done("right-gang")
    assert fleet.taken == {}


def test_a_gang_that_is_owed_less_than_it_needs_is_told_so() -> None:
    fleet = gangs_that_take_turns(NEW_TREE_OPTIONS, seconds=10)

    assert any(
        "a gang of 8 jobs that is owed resources for 6: nothing is preempted for it" in words
        for words in fleet.reasons("right-gang")
    )


def others_first(guarantee: int, gang: Sequence[tuple[int, Resources]] = (), **settings: object) -> GangFleet:
    """Twelve jobs of others have all places when a gang of eight comes, whose pool is guaranteed so many cores."""
    strong = PartialResources(cpu=guarantee * 100)
    fleet = a_fleet(a_pool("others"), a_pool("gangs", weight=0.001, strong_guarantee_resources=strong), **settings)
    fleet.run("many", "others", 12, 600.0, cores(1))
    pass_seconds(fleet, 4)
    assert fleet.running("many") == 12
    if gang:
        fleet.run_gang_of_tasks("gang", "gangs", 600.0, *gang)
    else:
        fleet.run_gang("gang", "gangs", 8, 600.0, cores(1))
    return fleet


def test_a_gang_that_is_owed_all_it_wants_takes_that_and_no_more_and_starts() -> None:
    fleet = others_first(guarantee=8)
    pass_seconds(fleet, 25)

    assert fleet.running("gang") == 8
    assert len(fleet.taken) == 8
    assert {operation for operation, _ in fleet.taken.values()} == {"many"}
    assert {record.beneficiary for _, record in fleet.taken.values()} == {"gang"}
    # All at once: none goes before it is known that there is enough for all.
    assert len({record.decided_at_ms for _, record in fleet.taken.values()}) == 1


def test_a_gang_of_two_sizes_that_is_owed_all_it_wants_takes_that_and_no_more_and_starts() -> None:
    fleet = others_first(guarantee=8, gang=[(4, cores(1)), (1, cores(4))])
    pass_seconds(fleet, 25)

    assert fleet.running("gang") == 5
    assert len(fleet.taken) == 8
    assert {record.beneficiary for _, record in fleet.taken.values()} == {"gang"}
    assert len({record.decided_at_ms for _, record in fleet.taken.values()}) == 1


def test_the_largest_job_leaves_the_large_host_to_jobs_that_fit_there_only_though_that_costs_more_victims() -> None:
    """On the host of six cores one job would have to go for the job of four cores, on the host of four cores four jobs."""
    hosts = {"n4": cores(4, slots=100), "n6": cores(6, slots=100)}
    gangs = a_pool("gangs", weight=0.001, strong_guarantee_resources=PartialResources(cpu=1_000))
    fleet = GangFleet(Random(1), hosts, (a_pool("others"), gangs), new_tree())
    fleet.run("wide", "others", 1, 600.0, cores(6))
    pass_seconds(fleet, 4)
    fleet.run("many", "others", 4, 600.0, cores(1))
    pass_seconds(fleet, 4)
    assert (fleet.running("wide"), fleet.running("many")) == (1, 4)
    fleet.run_gang_of_tasks("gang", "gangs", 600.0, (1, cores(4)), (2, cores(3)))
    pass_seconds(fleet, 25)

    assert fleet.running("gang") == 3


def test_nothing_is_preempted_for_a_gang_whose_sizes_do_not_all_fit_on_the_hosts() -> None:
    """Each host has four cores, so three jobs of three leave no two cores on any host."""
    fleet = others_first(guarantee=11, gang=[(3, cores(3)), (1, cores(2))])
    pass_seconds(fleet, 25)

    assert fleet.taken == {}
    assert fleet.running("gang") == 0


def test_nothing_is_preempted_for_a_gang_of_two_sizes_that_is_owed_less_than_it_needs() -> None:
    fleet = others_first(guarantee=7, gang=[(4, cores(1)), (1, cores(4))])
    pass_seconds(fleet, 25)

    assert fleet.taken == {}
    assert any("a gang of 5 jobs that is owed resources for 4" in words for words in fleet.reasons("gang"))


def test_a_gang_starts_though_the_answers_that_make_room_for_it_are_lost() -> None:
    fleet = others_first(guarantee=8)
    fleet.loses = 1.0
    pass_seconds(fleet, 8)
    assert len(fleet.taken) == 8
    assert fleet.running("many") == 12
    fleet.loses = 0.0
    pass_seconds(fleet, 20)

    assert fleet.running("gang") == 8
    assert len(fleet.taken) == 8
    assert fleet.engine.answers.preemptions.undone == 0


def test_nothing_is_preempted_for_a_gang_that_is_owed_less_than_it_needs() -> None:
    fleet = others_first(guarantee=7)
    pass_seconds(fleet, 25)

    assert fleet.taken == {}


def test_nothing_is_preempted_for_a_gang_where_it_would_not_be_enough() -> None:
    """Of two hosts it may not have anything, so that four places are all that it could get."""
    fleet = others_first(guarantee=8)
    for host in ("n0", "n1"):
        fleet.engine.on_nodes({NodeName(host): drained(host)}, fleet.now)
    pass_seconds(fleet, 25)

    assert fleet.taken == {}


def a_gang_first(guarantee: int, wanted: int = 12) -> GangFleet:
    """A gang of eight in twelve places runs when `production` comes, which is guaranteed so many cores."""
    strong = PartialResources(cpu=guarantee * 100)
    fleet = a_fleet(a_pool("gangs"), a_pool("production", weight=0.001, strong_guarantee_resources=strong))
    fleet.run_gang("gang", "gangs", 8, 600.0, cores(1))
    pass_seconds(fleet, 4)
    assert fleet.running("gang") == 8
    fleet.run("urgent", "production", wanted, 600.0, cores(1))
    return fleet


def test_a_graceful_gang_is_not_asked_for_what_it_has_above_its_share() -> None:
    fleet = a_fleet(a_pool("gangs"), a_pool("others"))
    fleet.run_gang("gang", "gangs", 8, 600.0, cores(1), preemption_mode=PreemptionMode.GRACEFUL)
    pass_seconds(fleet, 6)  # new hosts start few jobs at first
    assert fleet.running("gang") == 8
    fleet.run("many", "others", 12, 600.0, cores(1))
    pass_seconds(fleet, 15)

    assert fleet.taken == {}


def test_a_gang_goes_as_a_whole_for_what_is_owed_all_of_its_room() -> None:
    fleet = a_gang_first(guarantee=12)
    pass_seconds(fleet, 25)

    assert fleet.running("gang") == 0
    assert fleet.running("urgent") == 12
    assert {operation for operation, _ in fleet.taken.values()} == {"gang"}


@pytest.mark.parametrize("guarantee", [6, 11])
def test_a_gang_goes_on_where_nothing_is_short_of_all_of_its_room(guarantee: int) -> None:
    """Four cores are free, so eleven are short of seven."""
    fleet = a_gang_first(guarantee)
    pass_seconds(fleet, 25)

    assert fleet.taken == {}
    assert fleet.running("gang") == 8
    assert fleet.running("urgent") == 4


@pytest.mark.parametrize(("jobs", "goes"), [(12, True), (11, False)])
def test_a_gang_goes_for_another_that_is_short_of_all_of_its_room(jobs: int, goes: bool) -> None:
    """Four cores are free: eleven jobs lack seven of the eight that would become free."""
    strong = PartialResources(cpu=1_200)
    fleet = a_fleet(a_pool("gangs", weight=0.001), a_pool("production", strong_guarantee_resources=strong))
    fleet.run_gang("gang", "gangs", 8, 600.0, cores(1))
    pass_seconds(fleet, 4)
    fleet.run_gang("urgent", "production", jobs, 600.0, cores(1))
    pass_seconds(fleet, 25)

    assert fleet.running("urgent") == (12 if goes else 0)
    assert fleet.running("gang") == (0 if goes else 8)
    assert {(operation, record.beneficiary) for operation, record in fleet.taken.values()} == (
        {("gang", "urgent")} if goes else set()
    )


def test_a_gang_that_found_too_little_has_its_turn_once_another_has_ended() -> None:
    """Though its pause would be longer by then."""
    fleet = a_fleet(a_pool("left"), a_pool("right"))
    fleet.facts.timing = msgspec.structs.replace(fleet.facts.timing, gang_hold_s=2.0)
    fleet.run_gang("left-gang", "left", 8, 40.0, cores(1))
    pass_seconds(fleet, 4)
    fleet.run_gang("right-gang", "right", 8, 40.0, cores(1))
    pass_seconds(fleet, 50)

    assert fleet.is_done("left-gang")
    assert fleet.running("right-gang") == 8


def a_gang_and_older_jobs() -> GangFleet:
    """In twelve places run four jobs that are older than the gang of eight beside them. Each host has jobs of both kinds."""
    fleet = a_fleet(a_pool("mixed"), a_pool("production", weight=0.001, strong_guarantee_resources=_EIGHT))
    fleet.facts.timing = msgspec.structs.replace(fleet.facts.timing, gang_hold_s=2.0)
    fleet.run("first", "mixed", 2, 20.0, cores(3))
    fleet.run("second", "mixed", 1, 20.0, cores(2))
    pass_seconds(fleet, 5)
    fleet.run_beside("mixed", "mixed", 600.0, (8, cores(1)), (4, cores(1)))
    pass_seconds(fleet, 40)
    assert (fleet.in_gang("mixed"), fleet.running("mixed")) == (8, 12)
    assert fleet.taken == {}
    for there in fleet.places.values():
        assert {one.job.index < 8 for one in there.values() if one.job is not None} == {True, False}
    fleet.facts.timing = msgspec.structs.replace(fleet.facts.timing, gang_hold_s=30.0)
    return fleet


@pytest.mark.parametrize("is_gang", [True, False])
def test_a_gang_goes_as_a_whole_and_the_jobs_beside_it_stay(is_gang: bool) -> None:
    fleet = a_gang_and_older_jobs()
    before = fleet.indexes("mixed")
    (fleet.run_gang if is_gang else fleet.run)("urgent", "production", 8, 600.0, cores(1))
    pass_seconds(fleet, 25)

    assert fleet.running("urgent") == 8
    assert fleet.indexes("mixed") == before[8:]
    assert {operation for operation, _ in fleet.taken.values()} == {"mixed"}
    attempts = [fleet.facts.operations[OperationId("mixed")].slots.attempt(index) for index in range(12)]
    assert attempts == [2] * 8 + [1] * 4


def test_a_gang_stays_if_the_jobs_beside_it_keep_what_the_other_gang_needs() -> None:
    """Each job of the other gang needs a whole host."""
    fleet = a_gang_and_older_jobs()
    fleet.run_gang("urgent", "production", 2, 600.0, cores(4))
    pass_seconds(fleet, 25)

    assert fleet.taken == {}
    assert fleet.in_gang("mixed") == 8


def test_jobs_beside_a_gang_are_preempted_one_by_one_and_the_gang_goes_on() -> None:
    fleet = a_fleet(a_pool("mixed"), a_pool("production", weight=0.001, strong_guarantee_resources=_EIGHT))
    fleet.run_beside("mixed", "mixed", 600.0, (4, cores(1)), (8, cores(1)))
    pass_seconds(fleet, 6)
    assert (fleet.in_gang("mixed"), fleet.running("mixed")) == (4, 12)
    fleet.run("urgent", "production", 4, 600.0, cores(1))
    pass_seconds(fleet, 25)

    assert (fleet.running("urgent"), fleet.in_gang("mixed"), fleet.running("mixed")) == (4, 4, 8)
    assert len(fleet.taken) == 4
    slots = fleet.facts.operations[OperationId("mixed")].slots
    assert [slots.attempt(index) for index in range(4)] == [1] * 4


def beside_many(guarantee: int, many: int, gang: int, others: int) -> GangFleet:
    """Jobs of another pool run in twelve places when an operation with a gang and other jobs comes."""
    strong = PartialResources(cpu=guarantee * 100)
    fleet = a_fleet(a_pool("others"), a_pool("mixed", weight=0.001, strong_guarantee_resources=strong))
    fleet.facts.timing = msgspec.structs.replace(fleet.facts.timing, gang_hold_s=2.0)
    fleet.run("many", "others", many, 600.0, cores(1))
    pass_seconds(fleet, 4)
    assert fleet.running("many") == many
    fleet.run_beside("mixed", "mixed", 600.0, (gang, cores(1)), (others, cores(1)))
    return fleet


def test_others_are_preempted_for_jobs_beside_a_gang_that_is_owed_too_little() -> None:
    """The gang of eight could never have more than the four places that its operation is owed."""
    fleet = beside_many(guarantee=4, many=12, gang=8, others=4)
    pass_seconds(fleet, 25)

    assert (fleet.in_gang("mixed"), fleet.running("mixed")) == (0, 4)
    assert len(fleet.taken) == 4


def test_others_are_preempted_at_once_for_a_gang_and_one_by_one_for_the_jobs_beside_it() -> None:
    fleet = beside_many(guarantee=12, many=12, gang=8, others=4)
    pass_seconds(fleet, 30)

    assert (fleet.in_gang("mixed"), fleet.running("mixed"), len(fleet.taken)) == (8, 12, 12)


def test_what_jobs_beside_a_gang_hold_is_not_owed_to_the_gang_again() -> None:
    fleet = beside_many(guarantee=8, many=8, gang=8, others=4)
    pass_seconds(fleet, 25)

    assert (fleet.in_gang("mixed"), fleet.running("mixed")) == (0, 4)
    assert fleet.taken == {}
    told = "a gang of 8 jobs (task task-0) that is owed resources for 4: nothing is preempted for it"
    assert any(told in words for words in fleet.reasons("mixed")), fleet.reasons("mixed")


class RandomGangs(GangFleet):
    """Gangs and others of three or four pools come one after another. Some answers are lost."""

    def __init__(self, seed: int, *, with_tasks: bool = False, beside: bool = False) -> None:
        draw = Random(seed)
        self._with_tasks, self._beside = with_tasks, beside
        hosts = {f"n{number}": cores(draw.choice([2, 4, 6]), slots=100) for number in range(draw.randint(2, 4))}
        self.names = [f"p{number}" for number in range(draw.randint(3, 4))]
        pools = [_any_pool(draw, name, self.names[: self.names.index(name)]) for name in self.names]
        options = new_tree(
            fair_share_starvation_timeout=draw.choice([1_000, 3_000]),
            preemptive_scheduling_backoff=draw.choice([0, 1_000, 5_000]),
            enable_aggressive_starvation=draw.random() < 0.5,
            fair_share_aggressive_starvation_timeout=6_000,
            consider_allocation_on_fair_share_bound_preemptible=draw.random() < 0.3,
        )
        super().__init__(draw, hosts, pools, options)
        self.loses = 0.05
        #: Since when places were taken for a gang that does not run yet.
        self.taken_for_s: dict[OperationId, float] = {}
        self.apart_s: dict[OperationId, float] = {}
        #: Preemptions for gangs, and gangs that went.
        self.for_gangs = self.gangs_gone = 0
        #: Preemptions for gangs with tasks.
        self.for_tasks = 0
        #: Preemptions of operations that have other jobs beside a gang.
        self.of_mixed = 0

    def step(self) -> None:
        draw = self.random
        if len(self.live) < 14 and draw.random() < 0.15:
            name, pool, seconds = f"o{len(self.live)}", draw.choice(self.names), draw.choice([5.0, 30.0, 300.0])
            size, jobs = cores(draw.choice([0.5, 1, 1, 2])), draw.randint(2, 9)
            if self._with_tasks and draw.random() < 0.5:
                tasks = [(draw.randint(1, 4), cores(draw.choice([0.5, 1, 2, 3, 4]))) for _ in range(draw.randint(1, 3))]
                if self._beside:
                    self.run_beside(name, pool, seconds, *tasks)
                else:
                    self.run_gang_of_tasks(name, pool, seconds, *tasks)
            else:
                (self.run_gang if draw.random() < 0.6 else self.run)(name, pool, jobs, seconds, size)
        before = set(self.taken)
        self.second()
        for name in self.taken.keys() - before:
            operation, record = self.taken[name]
            assert record.reason in (PreemptionReason.PREEMPTION, PreemptionReason.AGGRESSIVE_PREEMPTION)
            if self.live[record.beneficiary].spec.is_gang:
                self.for_gangs += 1
                self.for_tasks += bool(self.live[record.beneficiary].spec.tasks)
                self.taken_for_s.setdefault(record.beneficiary, self.now_s)
            self.gangs_gone += self.live[operation].spec.is_gang
            self.of_mixed += self.live[operation].spec.gang_tasks is not None
        assert self.engine.check() == []
        self.look()
        for host in self.nodes:
            self.look_again_at_kept_places(host)

    def look(self) -> None:
        """A gang for which places were taken starts soon, and one of which a job went has none left soon."""
        for name, live in self.live.items():
            if live.spec.gang_job_count < 2:
                continue
            running = self.in_gang(name)
            is_whole = running + self.completed_in_gang.get(name, 0) >= live.spec.gang_job_count
            if running and is_whole:
                self.taken_for_s.pop(name, None)
            if not running or is_whole:
                self.apart_s.pop(name, None)
            else:
                assert self.now_s - self.apart_s.setdefault(name, self.now_s) < 40, f"{name} runs {running} jobs"
        # A gang may keep its turn until the jobs that were preempted for it have had their time to end.
        for name, since_s in self.taken_for_s.items():
            assert self.now_s - since_s < 60, f"work was lost for {name}, which does not start"

    def look_again_at_kept_places(self, host: str) -> None:
        """The rule that is named for a gang's allocation is the rule that the stage goes by."""
        view = View.of(self.facts, self.node(host), self.engine.ranking.order, pace_ms=0, stirring=())
        for starving in self.facts.operations.values():
            if starving.preemption_priority is PreemptionPriority.NORMAL:
                overlay = Overlay(view)
                found = candidates(overlay, Group.PREEMPTIBLE)
                for gang, places in found.gangs.items():
                    goes = is_owed_room_of(gang, starving, self.facts.pools, starving.held)
                    for one in places:
                        assert (protecting_rule(overlay, one, starving) is None) is (goes or gang is starving)


def _any_pool(draw: Random, name: str, above: list[str]) -> Pool:
    strong = PartialResources(cpu=draw.choice([200, 400, 800])) if draw.random() < 0.6 else PartialResources()
    config = PoolConfig(weight=draw.choice([0.01, 1.0, 3.0]), strong_guarantee_resources=strong)
    return Pool(PoolName(name), PoolName(draw.choice([ROOT_POOL, ROOT_POOL, *above])), config)


#: By seed, the preemptions for gangs and those of gangs.
SEEN: dict[int, tuple[int, int]] = {}
#: By seed, the preemptions for gangs with tasks.
SEEN_WITH_TASKS: dict[int, int] = {}
#: By seed, the preemptions of operations that have other jobs beside a gang.
SEEN_BESIDE: dict[int, int] = {}
FEW = 4


@pytest.mark.parametrize("seed", seeds(FEW, 1_000))
def test_never_is_work_lost_for_a_gang_that_does_not_start_nor_a_gang_cut_in_part(seed: int) -> None:
    # The first few of these see both.
    fleet = RandomGangs(seed + FEW)
    for _ in range(80):
        fleet.step()
    SEEN[seed] = fleet.for_gangs, fleet.gangs_gone


@pytest.mark.parametrize("seed", seeds(FEW, 1_000))
def test_the_same_holds_for_gangs_whose_jobs_have_several_sizes(seed: int) -> None:
    # The first few of these preempt for such gangs.
    fleet = RandomGangs(seed + 15, with_tasks=True)
    for _ in range(80):
        fleet.step()
    SEEN_WITH_TASKS[seed] = fleet.for_tasks


@pytest.mark.parametrize("seed", seeds(FEW, 1_000))
def test_the_same_holds_for_gangs_beside_other_jobs_of_their_operations(seed: int) -> None:
    fleet = RandomGangs(seed + 15, with_tasks=True, beside=True)
    for _ in range(80):
        fleet.step()
    SEEN_BESIDE[seed] = fleet.of_mixed


def test_the_random_fleets_preempt_jobs_of_operations_with_gangs_beside_other_jobs() -> None:
    if len(SEEN_BESIDE) >= FEW:
        assert sum(SEEN_BESIDE.values())


def test_the_random_fleets_preempt_for_gangs_whose_jobs_have_several_sizes() -> None:
    if len(SEEN_WITH_TASKS) >= FEW:
        assert sum(SEEN_WITH_TASKS.values())


def test_the_random_fleets_preempt_for_gangs_and_preempt_gangs() -> None:
    if len(SEEN) >= FEW:
        assert all(sum(counts) for counts in zip(*SEEN.values(), strict=True))
