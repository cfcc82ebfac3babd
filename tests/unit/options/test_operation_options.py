"""Every option of an operation reaches what it is for: set on a small operation, it changes the figure or the decision that is named."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from headrace.ids import AllocationId, NodeName, OperationId, PoolName, TreeName
from headrace.pools import PartialResources
from headrace.resources import Resources
from headrace.wire import ledger
from headrace.wire.files import Archive
from headrace.wire.heartbeat import JobEnd, JobResult
from headrace.wire.operation_spec import PreemptionMode, Upstream
from headrace.wire.operations import GetOperation, OnLostNode, OperationSpec, PerTree
from headrace.wire.preemption import InterruptSignal
from headrace.wire.snapshots import StarvationStatus
from headrace.wire.tasks import Task
from headrace_admission.queries import get_operation
from headrace_allocator.facts.operations import Operation as AllocatorOperation
from tests.support.clocks import at
from tests.support.offered import first_starts, offered
from tests.support.small_trees import GIB, TREE, Work, clocks, shares
from tests.support.taken_back import groups_on_a_full_node, on_a_full_node, taken_back
from tests.support.tree_services import live
from tests.support.yarn_course import Comer, course
from tests.unit.admission.desk import Desk, oid

Options = dict[str, Any]
OTHER = TreeName("other")
#: By option: a value that is not the default, and the figure that follows from the options of an operation.
CASES: dict[str, tuple[Any, Callable[[Options], object]]] = {}


def case(name: str, value: Any) -> Callable[[Callable[[Options], object]], Callable[[Options], object]]:
    """The function after it is the figure for an option, with this value or without."""

    def added(figure: Callable[[Options], object]) -> Callable[[Options], object]:
        CASES[name] = (value, figure)
        return figure

    return added


def options_of(schema: type[msgspec.Struct]) -> list[str]:
    return [field.name for field in msgspec.structs.fields(schema)]


def test_a_figure_is_named_for_every_option() -> None:
    assert set(CASES) == set(options_of(OperationSpec))


@pytest.mark.parametrize("name", options_of(OperationSpec))
def test_an_option_of_an_operation_changes_the_figure_that_it_is_for(name: str) -> None:
    value, figure = CASES[name]

    assert figure({name: value}) != figure({})


def test_what_an_operation_has_by_tree_is_what_it_has_there() -> None:
    assert options_of(PerTree) == ["pool", "weight"]


# --- what a job gets ------------------------------------------------------------------------------------------------------


def job(options: Options) -> object:
    """All that a node is told of a job."""
    spec = msgspec.structs.replace(OperationSpec(PoolName("a"), ["true"]), **options)
    return msgspec.to_builtins(spec.job_spec(OperationId("one"), "anna", 0))


case("argv", ["false"])(job)
case("environment", {"A": "b"})(job)
case("tasks", [Task("a", ["false"])])(job)
case("working_directory", "/srv")(job)
case("interruption_timeout_ms", 1)(job)
case("interruptible", True)(job)
case("interrupt_signal", InterruptSignal.SIGUSR1)(job)
case("log_cap_bytes", 10)(job)
case("job_count", 2)(job)
case("trace", f"00-{'a' * 32}-{'b' * 16}-01")(job)
case("time_limit_ms", 7)(job)
case("terminal", True)(job)
case("files", Archive("a" * 64, size_bytes=1))(job)
case("indexes", "7")(job)
case("lines", ["a line"])(job)
case("output", "out/%i")(job)
case("error", "err/%i")(job)
case("stdin", "in")(job)
case("image", "ubuntu")(job)


@case("rerun_of", "older")
def told_of_the_operation(options: Options) -> str:
    desk = Desk({"a": {}})
    desk.started("one", pool="a", **options)
    return desk.state.operations[oid("one")].spec.rerun_of


@case("scheduling_tag_filter", "gpu")
def starts_on_a_node_without_tags(options: Options) -> list[str]:
    return offered({"a": {}}, [Work("x", "a", 80)], **options)


@case("first_job_is_master", True)
def taken_of_a_fifo_pool(options: Options) -> list[tuple[int, str]]:
    """The second operation of a fifo pool is owed nothing, and its only job began last."""
    pools = {"a": {"mode": "fifo"}, "b": {}}
    comers = [Comer("y", "a", 8, spec=options), Comer("x", "a", 1, at_s=3, spec=options), Comer("z", "b", 1, at_s=6)]
    return course(pools, comers, seconds=20, cores=9).losers


# --- shares ---------------------------------------------------------------------------------------------------------------


def part(**changes: Any) -> float:
    work = Work("x", "a", 200)
    return shares({"a": {}}, [msgspec.structs.replace(work, **changes), Work("y", "a", 200)])["x"].fair_share.total[1]


@case("weight", 3.0)
def part_by_weight(options: Options) -> float:
    return part(**options)


@case("resource_limits", PartialResources(cpu=1_000))
def part_by_limits(options: Options) -> float:
    return part(limits=options.get("resource_limits", PartialResources()))


@case("is_gang", True)
def part_of_a_gang(options: Options) -> float:
    steps = {"enable_step_function_for_gang_operations": True}
    work = [Work("x", "a", 80, gang=options.get("is_gang", False)), Work("y", "b", 200)]
    return shares({"a": {}, "b": {}}, work, steps)["x"].fair_share.total[1]


@case("resources", Resources(user_slots=1, cpu=100, memory=2 * GIB))
def demand(options: Options) -> float:
    memory = options["resources"].memory if options else 0
    return shares({"a": {}}, [Work("x", "a", 10, memory=memory)])["x"].demand_share[3]


# --- starvation -----------------------------------------------------------------------------------------------------------


def starvation(options: Options, running: int, after_s: float) -> StarvationStatus:
    work = [Work("x", "a", 100, running=running, wishes=options), Work("y", "a", 100)]
    return clocks("x", {"a": {}}, work, {}, after_s)


@case("fair_share_starvation_tolerance", 0.2)
def starvation_with_half_of_its_share(options: Options) -> StarvationStatus:
    return starvation(options, 25, 40)


@case("fair_share_starvation_timeout_ms", 60_000)
def starvation_after_a_while(options: Options) -> StarvationStatus:
    return starvation(options, 0, 40)


# --- admission ------------------------------------------------------------------------------------------------------------


def told(options: Options, **rules: Any) -> object:
    """What becomes of an operation with these options, and where it is."""
    desk = Desk({"a": {}, "b": {}}, **rules)
    desk.configure({"a": {"max_operation_count": 0}, "b": {}}, OTHER)
    answer = desk.start("one", **{"pool": "a"} | options)
    known = desk.state.operations.get(oid("one"))
    places = [(each.tree, each.pool) for each in known.placements.values()] if known is not None else []
    return type(answer).__name__, places


BOTH = [TREE, OTHER]
case("pool", "b")(told)
case("tree", OTHER)(told)
case("pool_trees", BOTH)(told)


@case("tentative_pool_trees", [OTHER])
def with_a_tentative_tree(options: Options) -> object:
    return told({"pool": "b", "pool_trees": [TREE]} | options)


@case("ignore_missing_tentative_trees", True)
def with_a_missing_tentative_tree(options: Options) -> object:
    return told({"pool_trees": [TREE], "tentative_pool_trees": [TreeName("nowhere")]} | options)


@case("scheduling_options_per_pool_tree", {OTHER: PerTree(pool=PoolName("b"))})
def with_a_pool_by_tree(options: Options) -> object:
    return told({"pool_trees": BOTH} | options)


@case("erase_trees_with_pool_limit_violations", True)
def with_a_full_pool_in_one_tree(options: Options) -> object:
    return told({"pool_trees": BOTH} | options)


@case("require_specified_pools_existence", True)
def in_a_pool_that_nobody_made(options: Options) -> object:
    return told({"pool": "new"} | options)


@case("type", "map")
def beside_another_in_a_pool_for_lightweight_operations(options: Options) -> list[str]:
    desk = Desk({"a": {"mode": "fifo", "max_running_operation_count": 1, "enable_lightweight_operations": True}})
    desk.started("one", "two", pool="a", **options)
    return desk.running()


@case("waiting_for_resources_on_node_timeout_ms", 7)
def waits_on_the_node_for_ms(options: Options) -> int | None:
    return first_starts({"a": {}}, [Work("x", "a", 1)], **options)[0].waiting_timeout_ms


@case("allocation_preemption_timeout_ms", 7)
def gets_to_make_room_ms(options: Options) -> int | None:
    return taken_back(**options)[0].timeout_ms


@case("allocation_graceful_preemption_timeout_ms", 7)
def gets_to_make_room_gracefully_ms(options: Options) -> int | None:
    return taken_back(preemption_mode=PreemptionMode.GRACEFUL, **options)[0].timeout_ms


@case("preemption_mode", PreemptionMode.GRACEFUL)
def gives_up(options: Options) -> list[str]:
    return [one.detail for one in taken_back(**options)]


@case("resource_limits_overcommit_tolerance", PartialResources(cpu=50))
def starts_beyond_its_limit_in_a_preemptive_stage(options: Options) -> list[str]:
    poor = {"resource_limits": PartialResources(cpu=50)} | options
    return [start.operation for start in on_a_full_node(poor=poor).next_beat().start]


@case("max_failed_job_count", 1)
def after_a_failure(options: Options) -> str:
    desk = Desk({"a": {}})
    desk.started("one", pool="a", **options)
    end = JobEnd(oid("one"), 0, 1, AllocationId("1-1"), JobResult.FAILED, exit_code=1)
    report = ledger.ReportEnds(TREE, 1, [ledger.ReportedEnd(NodeName("n1"), end)])
    desk.record(desk.engine.on_report(report, at(1.0)).effects)
    return desk.state_of("one")


case("tries", 1)(after_a_failure)


@case("keep_going", True)
def after_one_of_two_jobs_is_given_up(options: Options) -> object:
    return after_a_failure({"tries": 1, "job_count": 2} | options)


case("retry_on", "75")(after_a_failure)
case("no_retry_on", "1")(after_a_failure)


@case("memory_on_oom", "x2")
def raised_after_out_of_memory(options: Options) -> int:
    desk = Desk({"a": {}})
    desk.started("one", pool="a", tries=3, resources=Resources(1, 100, memory=2**20), **options)
    desk.end_run("one", JobResult.FAILED, signal=9, out_of_memory=True)
    return desk.state.operations[oid("one")].ledger.memory_steps[0]


@case("suspend_on_failure", True)
def suspended_by_a_failure(options: Options) -> bool:
    desk = Desk({"a": {}})
    desk.started("one", pool="a", **options)
    desk.end_run("one", JobResult.FAILED, exit_code=1)
    return desk.state.operations[oid("one")].suspended


def failed_twice(options: Options) -> list[int]:
    """How long its job waits after the first failure, and after the second."""
    desk, pauses = Desk({"a": {}}), []
    desk.started("one", pool="a", **options)
    for attempt in (1, 2):
        end = JobEnd(oid("one"), 0, attempt, AllocationId("1-1"), JobResult.FAILED, exit_code=1)
        report = ledger.ReportEnds(TREE, 1, [ledger.ReportedEnd(NodeName("n1"), end)])
        desk.record(desk.engine.on_report(report, at(0)).effects)
        pauses.append(desk.state.operations[oid("one")].ledger.next_retry_at_ms)
        desk.record(desk.engine.on_retries_due(at(pauses[-1])).effects)
    return pauses


case("retry_backoff_ms", 20)(failed_twice)


def waits_for_another(options: Options) -> list[object]:
    desk = Desk({"a": {}})
    desk.started("zero", pool="a")
    desk.started("one", pool="a", **options)
    operation = desk.state.operations[oid("one")]
    return [operation.state, operation.awaiting_jobs]


case("after", [Upstream(oid("zero"))])(waits_for_another)
case("after_each", oid("zero"))(waits_for_another)


@case("longest_retry_backoff_ms", 30)
def paused_at_most(options: Options) -> list[int]:
    return failed_twice({"retry_backoff_ms": 20} | options)


@case("max_unpreemptible_allocation_count", 1)
def told_of_the_older_option(options: Options) -> object:
    return told({"pool": "b"} | options)


@case("operation_time_limit_ms", 7)
def ends_after_a_second(options: Options) -> str:
    desk = Desk({"a": {}})
    desk.started("one", pool="a", **options)
    desk.record(desk.engine.on_time_limits_due(at(1.0)).effects)
    return desk.state_of("one")


@case("title", "my work")
def seen_by_people(options: Options) -> str:
    desk = Desk({"a": {}})
    desk.started("one", pool="a", **options)
    return get_operation(desk.state, GetOperation(oid("one"))).spec.title  # type: ignore[union-attr]


# --- nodes that are lost --------------------------------------------------------------------------------------------------


@case("on_lost_node", OnLostNode.WAIT)
def waits_for_a_lost_node(options: Options) -> bool:
    known = live("x", "a", 10)
    spec = msgspec.structs.replace(known.spec, **options)
    return AllocatorOperation(msgspec.structs.replace(known, spec=spec), 1, 1).waits_for_lost_nodes


@case("non_preemptible_resource_usage_threshold", PartialResources(user_slots=3))
def groups(options: Options) -> list[int]:
    return groups_on_a_full_node({}, **options)
