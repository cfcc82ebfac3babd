"""The explanation of an operation that waits: all reasons with their cures, and what the last preemptive stages found."""

from __future__ import annotations

from functools import partial

import msgspec
import pytest

from headrace.ids import ROOT_POOL, AllocationId, NodeName, OperationId, PoolName
from headrace.pools import TreeOptions
from headrace.pools.amounts import PartialResources
from headrace.resources import Resources
from headrace.wire.explanations import Ahead, Cause, ExplainWaiting, NodesFit, PoolRoom, WaitingExplained
from headrace.wire.heartbeat import AllocationReport, AllocationState
from headrace.wire.nodes import NodeRecord
from headrace.wire.refusals import NotFound
from headrace.wire.snapshots import ElementKind, PreemptionPriority
from headrace_allocator.explain import reasons as why
from headrace_allocator.explain import words
from headrace_allocator.facts.allocations import Allocation
from headrace_allocator.facts.nodes import PreemptiveTry
from tests.support.allocating import Desk, an_operation, cores
from tests.support.taken_back import on_a_full_node
from tests.support.work import lines_run
from tests.unit.allocator.test_limits import Tree, a_pool, in_pool
from tests.unit.allocator.test_preemption import FOUR, Host, a_share


def explained(desk: Desk, operation: str) -> WaitingExplained:
    answer = desk.engine.on_question(ExplainWaiting(OperationId(operation)), desk.now).answer
    assert isinstance(answer, WaitingExplained)
    return answer


def poor(cpu: float) -> Host:
    """Half of a full host is owed to `poor`, which starves, with jobs of so many cores. The stages have looked at the host."""
    host = Host(an_operation("poor", size=cores(cpu)))
    host.next_beat()
    host.tell([a_share("rich", 2), a_share("poor", 2, starves=True)], total=FOUR)
    host.next_beat()
    host.now_s += 2
    return host


def test_a_job_for_which_too_little_could_be_taken_says_on_which_node_and_what_was_short() -> None:
    tries = explained(poor(3), "poor").tries

    assert (tries.priority, tries.nodes, tries.short, tries.started) == (PreemptionPriority.NORMAL, 1, 1, 0)
    (nearest,) = tries.nearest
    assert (nearest.node, nearest.age_ms, nearest.candidates) == ("n", 2_000, 2)
    assert (nearest.room, nearest.short) == (Resources(user_slots=2, cpu=200), Resources(cpu=100))


def test_a_job_that_was_started_by_a_stage_is_counted_as_its_own_and_for_others_as_theirs() -> None:
    host = poor(1)

    assert explained(host, "poor").tries.started == 1
    host.start(an_operation("late"))
    host.tell([a_share("rich", 2), a_share("poor", 1), a_share("late", 1, starves=True)], total=FOUR)
    late = explained(host, "late").tries
    assert (late.nodes, late.started, late.started_others) == (1, 0, 1)


def test_a_stage_in_which_nobody_starved_tells_nothing_to_whoever_starves_later() -> None:
    host = Host(an_operation("poor"), an_operation("late"))
    host.next_beat()
    host.tell([a_share("rich", 2), a_share("poor", 1, starves=True)], total=FOUR)
    orders = host.next_beat()
    host.starts = [*host.starts[:3], *orders.start]
    host.tell([a_share("rich", 2), a_share("poor", 1)], total=FOUR)
    host.next_beat(allocations=host.picture())
    (stage,) = host.engine.answers.decided.stages

    host.tell([a_share("rich", 2), a_share("poor", 1), a_share("late", 1, starves=True)], total=FOUR)

    tries = explained(host, "late").tries
    assert (stage.candidates, tries.held_back, tries.started_others) == (0, 0, 1)


def test_nodes_are_counted_by_what_of_a_job_fits() -> None:
    tagged = an_operation("tagged", size=cores(3))
    spec = msgspec.structs.replace(tagged.spec, scheduling_tag_filter="fast")
    desk = Desk({"a": cores(4), "b": cores(2), "c": cores(8)})
    tags = {"a": ["fast"], "b": ["fast"], "c": []}
    desk.engine.on_nodes({NodeName(name): NodeRecord(NodeName(name), tags=tags[name]) for name in tags}, desk.now)
    for node in tags:
        desk.beat(node)
    desk.start(msgspec.structs.replace(tagged, spec=spec), an_operation("plain", size=cores(5)))

    assert explained(desk, "tagged").nodes == NodesFit(3, 3, 2, 1, 1)
    assert explained(desk, "plain").nodes == NodesFit(3, 3, 3, 1, 1)


def test_a_node_that_could_run_a_job_and_accepts_none_is_named() -> None:
    tagged = an_operation("tagged", size=cores(4))
    tagged = msgspec.structs.replace(tagged, spec=msgspec.structs.replace(tagged.spec, scheduling_tag_filter="fast"))
    desk = Desk({name: cores(size) for name, size in {"a": 2, "b": 8, "c": 8, "d": 3}.items()})
    tags = {"a": ["fast"], "b": ["fast"], "c": [], "d": ["fast"]}
    records = {name: NodeRecord(NodeName(name), tags=tags[name], drained=name != "a") for name in tags}
    desk.engine.on_nodes({NodeName(name): record for name, record in records.items()}, desk.now)
    for node in tags:
        desk.beat(node)
    desk.start(tagged, an_operation("huge", size=cores(9)), an_operation("plain", size=cores(3)))

    def why_larger(operation: str) -> Cause:
        return next(one for one in explained(desk, operation).causes if one.kind == "larger_than_every_node")

    assert why_larger("tagged").words == (
        "each job is larger than every node that takes jobs: it asks for cpu 4 (the most any node has is 2); "
        "the largest node, a, has cpu 2; 1 larger node takes no jobs now: b is drained"
    )
    assert "or make b take jobs again" in why_larger("tagged").cure
    assert "3 larger nodes take no jobs now: b is drained" in why_larger("plain").words
    assert why_larger("huge").words.startswith("each job is larger than every node: it asks for cpu 9")
    assert "again" not in why_larger("huge").cure


@pytest.mark.parametrize(
    ("image", "filter_", "words", "counts"),
    [
        (
            "/a.sif",
            "",
            "no container runtime: no node that takes jobs and matches the other filters has apptainer",
            (0, 2),
        ),
        (
            "ubuntu",
            "ssd",
            "no container runtime: no node that takes jobs and matches the other filters has podman or",
            (0, 1),
        ),
        (
            "ubuntu",
            "nope",
            "no node matches nope and container:podman | container:apptainer: 2 nodes that take",
            (0, 0),
        ),
        ("ubuntu", "", "", (1, 1)),
    ],
)
def test_nodes_without_a_container_runtime_are_passed_over_for_images(
    image: str, filter_: str, words: str, counts: tuple[int, int]
) -> None:
    desk = Desk({name: cores(4) for name in ("plain", "podman")})
    records = [
        NodeRecord(NodeName("plain"), tags=["ssd"]),
        NodeRecord(NodeName("podman"), tags=["container:podman"]),
    ]
    desk.engine.on_nodes({record.node: record for record in records}, desk.now)
    for name in ("plain", "podman"):
        desk.beat(name)
    desk.start(in_pool(an_operation("imaged"), "p", image=image, scheduling_tag_filter=filter_))

    found = explained(desk, "imaged")
    told = [one.words for one in found.causes if one.kind == "no_node_matches"]
    assert [each.startswith(words) for each in told] == ([True] if words else [])
    # Everybody can ask why an operation waits.
    assert not any(image in each for each in told)
    assert (found.nodes.matching, found.nodes.without_runtime) == counts


@pytest.mark.parametrize(
    ("drained", "words", "cure"),
    [
        (["gg"], "1 node matches frac, and it is drained: gg", "or make gg take jobs again: `headrace node list`"),
        (["frac", "gg"], "2 nodes match frac, and none takes jobs: frac is drained", "or make frac take jobs again"),
        ([], "no node matches frac: 1 node that takes jobs has other tags", "another scheduling_tag_filter"),
    ],
)
def test_nodes_that_match_and_take_no_jobs_are_told_apart_from_nodes_with_other_tags(
    drained: list[str], words: str, cure: str
) -> None:
    """Also where a node is named as the tag."""
    tagged = in_pool(an_operation("tagged"), "p", scheduling_tag_filter="frac")
    desk = Desk({name: cores(4) for name in ("plain", *drained)})
    records = [
        NodeRecord(NodeName("plain")),
        *(NodeRecord(NodeName(name), tags=["frac"], drained=True) for name in drained),
    ]
    desk.engine.on_nodes({record.node: record for record in records}, desk.now)
    for record in records:
        desk.beat(record.node)
    desk.start(tagged)

    (cause,) = [one for one in explained(desk, "tagged").causes if one.kind == "no_node_matches"]
    assert cause.words == words
    assert cause.cure.endswith(cure) or cure in cause.cure
    assert "is the name of a node" not in cause.words


def test_a_job_that_is_larger_than_a_limit_is_told_apart_from_a_limit_that_is_reached() -> None:
    own = {"resource_limits": PartialResources(cpu=200)}
    tree = Tree([a_pool("p", cpu=0.2)], in_pool(an_operation("a", size=cores(3)), "p", **own), an_operation("b"))
    tree.beat("n")

    words = {one.kind: one.words for one in explained(tree, "a").causes}
    assert words["pool_limit_reached"] == (
        "each job is larger than resource_limits of pool p: it asks for cpu 3, and at most cpu 2 may be used; "
        "the operation fails if that lasts for minutes (enable_limiting_ancestor_check)"
    )
    assert words["operation_limit_reached"].startswith(
        "each job is larger than the operation's own resource_limits: it asks for cpu 3"
    )
    tree.options = msgspec.structs.replace(tree.options, enable_limiting_ancestor_check=False)
    tree.tell([a_pool("p", cpu=0.2)])
    (unchecked,) = [one.words for one in explained(tree, "a").causes if one.kind == "pool_limit_reached"]
    assert unchecked.endswith("at most cpu 2 may be used")
    reached = {one.kind: one.words for one in explained(tree, "b").causes}
    assert reached["pool_limit_reached"] == ("resource_limits of pool p allow no further job: 2 of 2 cpu in use")


def test_each_pool_at_its_limit_is_a_reason_of_its_own() -> None:
    tree = Tree([a_pool("p", cpu=0.25), a_pool("q", "p", cpu=0.25)], in_pool(an_operation("a"), "q"))
    tree.beat("n")

    causes = [one for one in explained(tree, "a").causes if one.kind == "pool_limit_reached"]
    assert [one.figures["pool"] for one in causes] == ["q", "p"]
    assert ["pool set q" in causes[0].cure, "pool set p" in causes[1].cure] == [True, True]


def test_of_a_suspended_operation_it_is_told_what_it_would_wait_for_once_resumed() -> None:
    small = an_operation("small", size=cores(2))
    spec = msgspec.structs.replace(small.spec, resource_limits=PartialResources(cpu=100))
    small = msgspec.structs.replace(small, spec=spec, suspended=True)
    desk = Desk({"n": cores(4)})
    desk.beat("n")
    desk.start(small)

    kinds = [one.kind for one in explained(desk, "small").causes]
    assert (kinds[0], "operation_limit_reached" in kinds) == ("operation_suspended", True)


def test_every_limit_above_is_told_with_the_one_that_holds() -> None:
    tree = Tree([a_pool("p", cpu=0.5), a_pool("q", "p", cpu=0.3)], in_pool(an_operation("a"), "q"))
    tree.beat("n")

    told = explained(tree, "a")

    assert told.limits == [
        PoolRoom(PoolName("q"), "cpu", 300, 300, True),
        PoolRoom(PoolName("p"), "cpu", 300, 500, False),
    ]
    (limit,) = [cause for cause in told.causes if cause.kind == "pool_limit_reached"]
    assert limit.cure == "wait until a job below pool q ends, or raise the limit with `headrace pool set q`"
    assert limit.figures == {
        "pool": "q",
        "exceeded": ({"resource": "cpu", "used": 300, "limit": 300, "needed": 100},),
        "is_limiting": False,
    }


def test_a_limit_below_the_size_of_a_job_is_cured_by_a_higher_one_alone() -> None:
    tree = Tree([a_pool("p", cpu=0.05)], in_pool(an_operation("a"), "p"))

    (cause,) = [cause for cause in explained(tree, "a").causes if cause.kind == "pool_limit_reached"]

    assert cause.cure.startswith("raise the limit, since a single job needs more than all of it: `headrace pool set p ")


def test_one_that_starves_while_preemption_is_paused_is_told_so() -> None:
    host = poor(3)
    assert "preemption_paused" not in [cause.kind for cause in explained(host, "poor").causes]

    host.engine.on_options(TreeOptions(pause_preemption=True), host.now)

    (paused,) = [cause for cause in explained(host, "poor").causes if cause.kind == "preemption_paused"]
    assert paused.cure == "`headrace resume preemption`"


@pytest.mark.parametrize("switch", ["observe", "off"])
def test_one_that_starves_is_told_from_which_pools_nothing_may_be_taken(switch: str) -> None:
    host = on_a_full_node(pool={"preemption": switch})

    (cause,) = [cause for cause in explained(host, "poor").causes if cause.kind == "places_kept"]
    assert cause.words == f"it starves, and nothing is preempted in pools that do not allow it: p ({switch})"
    assert "places_kept" not in [cause.kind for cause in explained(host, "rich").causes]
    taking = on_a_full_node({"preemption": switch}, pool={"preemption": "on"})
    assert "places_kept" not in [cause.kind for cause in explained(taking, "poor").causes]


def test_a_node_on_which_a_start_waits_for_another_job_to_go_says_so() -> None:
    host = Host(an_operation("poor"), an_operation("late"))
    host.next_beat()
    host.tell([a_share("rich", 2), a_share("poor", 2, starves=True)], total=FOUR)
    (start,) = host.next_beat().start
    host.tell([a_share("rich", 2), a_share("poor", 1), a_share("late", 1)], total=FOUR)
    state = AllocationState.WAITING
    waits = AllocationReport(start.allocation, start.operation, state, start.resources, None, list(start.slots))
    # One job more is gone, so that there is room.
    host.next_beat(allocations=[*host.picture(closing=list(host.records))[1:], waits])

    assert [cause.kind for cause in explained(host, "late").causes] == ["room_being_made"]


def test_an_operation_has_its_own_limit_among_them() -> None:
    limits = PartialResources(cpu=100)
    tree = Tree([a_pool("p")], in_pool(an_operation("a"), "p", resource_limits=limits))
    tree.beat("n")

    assert explained(tree, "a").limits == [PoolRoom(PoolName(""), "cpu", 100, 100, True)]


def test_those_who_come_first_are_counted_on_each_level_from_the_root_down() -> None:
    tree = Tree(
        [a_pool("p"), a_pool("q")],
        in_pool(an_operation("first"), "p"),
        *(in_pool(an_operation(f"other-{number}", jobs=1), "q") for number in range(5)),
        in_pool(an_operation("last"), "q"),
    )

    root, own = explained(tree, "last").levels

    assert (root.pool, root.own.kind, root.own.name) == (ROOT_POOL, ElementKind.POOL, "q")
    assert (own.pool, own.own, own.ahead) == ("q", Ahead(ElementKind.OPERATION, "last", 0.0, "cpu", 0, 500), 5)
    assert [one.name for one in own.first] == ["other-0", "other-1", "other-2"]


def test_an_operation_whose_jobs_fit_no_node_waits_for_nothing_but_a_larger_one() -> None:
    desk = Desk({"n": cores(4)})
    desk.start(an_operation("large", size=cores(5)))
    desk.beat("n")
    desk.tell([a_share("large", 0)], total=FOUR)

    assert [cause.kind for cause in explained(desk, "large").causes] == ["larger_than_every_node"]


def test_a_gang_that_is_owed_nothing_is_told_how_much_it_would_have_to_be() -> None:
    desk = Desk({"n": FOUR + FOUR})
    gang = an_operation("gang", 8)
    desk.start(msgspec.structs.replace(gang, spec=msgspec.structs.replace(gang.spec, is_gang=True)))
    desk.beat("n")
    desk.tell([a_share("gang", 0)])

    (cause,) = [cause for cause in explained(desk, "gang").causes if cause.kind == "no_share"]

    assert cause.words == "it is a gang that is owed all of cpu 8 or nothing, and less than that is left for it"
    assert cause.cure.endswith("`headrace pool explain p`")


def test_every_reason_has_a_cure() -> None:
    # The cure for a task is that of the reason for which the task waits.
    assert words._CURES.keys() == set(why.Reason.__args__) - {why.TaskWaits}


def test_an_operation_that_this_tree_does_not_know_is_not_found() -> None:
    desk = Desk({"n": cores(1)})

    assert desk.engine.on_question(ExplainWaiting(OperationId("x")), desk.now).answer == NotFound("operation", "x")


def test_an_explanation_costs_no_more_for_a_large_cluster_than_for_some_hundred_nodes() -> None:
    few, many = (lines_run(partial(explained, looked_at(count), "poor")) for count in (1_000, 2_000))

    assert many < 1.1 * few


def looked_at(count: int) -> Desk:
    """So many full nodes, each of which a preemptive stage looked at for an operation that starves."""
    desk = Desk({f"n{number}": cores(1) for number in range(count)})
    desk.engine.check = list  # type: ignore[method-assign]
    desk.engine.on_operations([an_operation("rich", count), an_operation("poor")], desk.now)
    for number, name in enumerate(desk.nodes):
        node = desk.node(name)
        desk.beat(name)
        desk.facts.add(Allocation(AllocationId(f"a{number}"), OperationId("rich"), NodeName(name), cores(1)))
        node.tries[PreemptionPriority.NORMAL] = PreemptiveTry(desk.now_s, 1, cores(0.5), OperationId(""))
    desk.tell([a_share("poor", 1, starves=True)], total=cores(count, slots=count))
    return desk


def test_a_node_in_trouble_is_named_with_what_it_says() -> None:
    desk = Desk({"n1": cores(4), "n2": cores(4)})
    desk.start(an_operation("op"))
    desk.beat("n1", trouble="the logs folder /logs cannot be used: No space left on device" + " !" * 1_000)

    told = desk.reasons("op")[0]

    assert told.startswith(
        "no node takes jobs (n1 online, n2 unheard); n1 starts nothing: the logs folder /logs cannot be used: No space"
    )
    assert len(told) < 700
