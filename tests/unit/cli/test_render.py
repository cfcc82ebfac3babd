"""Tables and sentences, on wide and narrow screens."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Callable

import msgspec
import pytest
from rich.console import Console
from rich.table import Table
from rich.text import Text

from headrace.ids import AllocationId, NodeName, OperationId, PoolName, TreeName
from headrace.job_tasks import with_tasks
from headrace.pools import PoolConfig
from headrace.resources import Resources
from headrace.wire.happenings import OperationStep
from headrace.wire.heartbeat import JobEnd, JobResult, JobSlot
from headrace.wire.log import StateCause
from headrace.wire.nodes import JobPlace, NodeGpu, NodeJob, NodeView, OperationPlaces, TaskPlaces
from headrace.wire.operations import JobRow, OperationSpec, OperationState, OperationView, TaskEnds
from headrace.wire.plain_values import plain
from headrace.wire.pools import PoolList, PoolView
from headrace.wire.snapshots import ElementKind, ShareFrame, ShareItem
from headrace.wire.tasks import Task
from headrace.wire.version import Version
from headrace_cli.commands.node_tables import node_facts, node_jobs, node_state, node_table
from headrace_cli.commands.operations.event_lines import happening_words
from headrace_cli.commands.operations.job_output import file_words
from headrace_cli.commands.operations.tables import (
    failure_lines,
    job_table,
    operation_facts,
    operation_table,
    task_table,
)
from headrace_cli.commands.pools.tables import pool_table, tree_table
from headrace_cli.up.readiness import closed_nodes

OPERATION = OperationId("69201a4f-0c1d2e3f4a5b")
#: Branches, bars and dashes that only a wide list has.
_SIGNS = {"├─", "└─", "│", "–"}


def shown(table: Table | Text | str, width: int) -> list[str]:
    stream = io.StringIO()
    Console(file=stream, width=width, color_system=None).print(table)
    return [line.rstrip() for line in stream.getvalue().splitlines()]


def a_view(state: OperationState = OperationState.RUNNING) -> OperationView:
    return OperationView(
        operation=OPERATION,
        user="ada",
        spec=OperationSpec(
            pool=PoolName("research"),
            argv=["python", "work.py"],
            job_count=50,
            resources=Resources(user_slots=1, cpu=150, memory=512 * 1024**2),
            title="a title in [brackets]",
        ),
        state=state,
        suspended=False,
        ephemeral_pool=True,
        started_at_ms=1_000,
        ended_at_ms=0,
        completed_jobs=7,
        failed_jobs=2,
        aborted_jobs=0,
        lost_jobs=0,
        open_jobs=43,
    )


def a_pool(name: str, parent: str, *, ephemeral: bool = False) -> PoolView:
    nothing = Resources()
    return PoolView(
        name=PoolName(name),
        parent=PoolName(parent),
        path=f"/{name}",
        ephemeral=ephemeral,
        settings=PoolConfig(),
        share=ShareItem(kind=ElementKind.POOL, name=name, parent=PoolName(parent)),
        fair_resources=Resources(cpu=150),
        usage=nothing,
        demand=nothing,
        operation_count=1,
        running_operation_count=1,
    )


def a_long_operation() -> OperationView:
    title = "training of the large picture model with augmented data, third attempt"
    view = msgspec.structs.replace(a_view(), operation=OperationId("named-by-its-starter-1"))
    return msgspec.structs.replace(view, spec=msgspec.structs.replace(view.spec, title=title))


def a_deep_tree() -> PoolList:
    names = ["<Root>", *(f"{'very-' * depth}long-name-{depth}" for depth in range(5))]
    pools = [a_pool(name, above) for name, above in zip(names, ["", *names], strict=False)]
    return PoolList(TreeName("default"), [*pools, a_pool("last", "<Root>", ephemeral=True)], ShareFrame(), Version(), 1)


def two_nodes() -> Table:
    views = [
        NodeView(node=NodeName("n" * 45), state="online", tags=[]),
        NodeView(NodeName("alpha"), "online", [], trouble="no log folder"),
    ]
    return node_table(views)


@pytest.mark.parametrize("width", [60, 80, 100])
@pytest.mark.parametrize(
    "made",
    [
        lambda width: job_table([JobRow(JobSlot(4), JobResult.FAILED, NodeName("n" * 45), account="a" * 30)] * 2, None),
        lambda width: tree_table(a_deep_tree(), width, bars=True),
    ],
)
def test_a_narrow_list_loses_and_tears_no_word(made: Callable[[int], Table], width: int) -> None:
    lines = shown(made(width), width)

    assert max(map(len, lines)) <= width
    cells = [line.split() for line in shown(made(10_000), 10_000)[1:]]
    assert not Counter(word for words in cells for word in words if word not in _SIGNS) - Counter(
        " ".join(lines).split()
    )


@pytest.mark.parametrize("width", [60, 80, 100])
@pytest.mark.parametrize(
    ("made", "rows"),
    [
        (lambda: operation_table([a_view(), a_long_operation()], 61_000), 2),
        (lambda: pool_table(a_deep_tree()), 7),
        (two_nodes, 2),
    ],
)
def test_a_list_of_operations_pools_or_nodes_has_one_line_a_row(
    made: Callable[[], Table], rows: int, width: int
) -> None:
    lines = shown(made(), width)

    assert len(lines) == 1 + rows
    assert max(map(len, lines)) <= width
    assert "…" not in "".join(shown(made(), 10_000))


def test_branches_go_on_beside_what_stands_below_a_pool() -> None:
    lines = shown(tree_table(a_deep_tree(), 60, bars=False), 46)

    beside = {line.partition(" of cpu")[0].rstrip() for line in lines if " of cpu" in line}
    assert beside == {"│", "│  │", "│     │", "│        │", "│           │", ""}
    assert "└─ last" in lines


def test_whoever_may_not_see_the_command_is_told_so() -> None:
    view = msgspec.structs.replace(a_view(), is_withheld=True)

    told = "python work.py …  (only the owner, and managers of the pool, can see the rest)"
    assert ["command", told] in [line.split(maxsplit=1) for line in shown(operation_facts(view, None, 61_000), 120)]


def test_an_operation_is_told_with_its_jobs_and_the_first_reason_why_they_wait() -> None:
    places = OperationPlaces(
        OPERATION, [], 3, 40, 0, ["each job is larger than every node", "the pool is at its limit"]
    )

    lines = shown(operation_facts(a_view(), places, 61_000), 120)

    assert "jobs           7 of 50 done, 3 running, 40 pending, 2 runs failed" in lines
    assert lines[-2] == "waits because  each job is larger than every node"
    assert lines[-1].strip() == f"1 more, and what would end the waiting: headrace op explain {OPERATION}"
    assert "each job       cpu 1.5, memory 512 MiB" in lines
    assert "title          a title in [brackets]" in lines


def test_an_operation_that_is_over_waits_for_nothing() -> None:
    places = OperationPlaces(OPERATION, [], 0, 0, 0, ["stale"])

    assert not any("stale" in line for line in shown(operation_facts(a_view(OperationState.COMPLETED), places, 0), 80))


def test_a_failed_job_is_told_with_attempt_node_exit_code_and_tail() -> None:
    end = JobEnd(
        operation=OPERATION,
        index=4,
        attempt=2,
        allocation=AllocationId("a"),
        result=JobResult.FAILED,
        exit_code=3,
        stderr_tail="no [such] file\n",
        node="alpha",
    )

    assert failure_lines(end) == [
        "job 4, attempt 2 failed on node alpha: exit code 3",
        "the end of its stderr:",
        "  no [such] file",
    ]


def test_a_reason_that_was_told_before_is_not_told_again() -> None:
    end = JobEnd(OPERATION, 4, 1, AllocationId("a"), JobResult.FAILED, exit_code=127, reason="no such command")

    assert failure_lines(end, "all failed: no such command") == ["job 4 failed: exit code 127, reason above"]
    assert failure_lines(end, "all failed") == ["job 4 failed: exit code 127, no such command"]


def test_pools_are_drawn_as_a_tree() -> None:
    pools = [
        a_pool("<Root>", ""),
        a_pool("research", "<Root>"),
        a_pool("vision", "research"),
        a_pool("speech", "research"),
        a_pool("ada", "<Root>", ephemeral=True),
    ]
    answer = PoolList(TreeName("default"), pools, ShareFrame(total=Resources(cpu=600)), Version(1, 1), 1)

    names = [line[:18].rstrip() for line in shown(pool_table(answer), 120)[1:]]

    assert names == ["<Root>", "├─ research", "│  ├─ vision", "│  └─ speech", "└─ ada (ephemeral)"]


def test_a_node_that_is_in_trouble_says_so() -> None:
    node = NodeView(NodeName("alpha"), "online", [], total=Resources(cpu=200), trouble="no log folder")

    line = shown(node_table([node]), 120)[1]

    assert "online: no log folder" in line
    assert "0 of 2" in line


def test_what_an_agent_says_beyond_its_token_is_shown_as_cut() -> None:
    node = NodeView(NodeName("alpha"), "online", ["gpu"], total=Resources(cpu=200))
    facts = shown(node_facts(node), 120)
    assert not any(line.startswith("cut") for line in facts)

    more = msgspec.structs.replace(node, cut=Resources(cpu=150), cut_tags=["fast"])
    assert shown(node_facts(more), 120)[-1].startswith("cut        cpu 1.5; tags fast: claimed by its agent")


def test_a_node_tells_for_which_operation_it_is_reserved() -> None:
    node = NodeView(NodeName("alpha"), "online", [])
    assert not any(line.startswith("reserved") for line in shown(node_facts(node), 120))

    reserved = msgspec.structs.replace(node, reserved="for train-1, whose job is expected to fit in 5 s")
    facts = [" ".join(line.split()) for line in shown(node_facts(reserved), 120)]
    assert "reserved for train-1, whose job is expected to fit in 5 s" in facts


def test_the_jobs_of_a_node_are_listed_with_what_is_left_to_them() -> None:
    jobs = [NodeJob(OPERATION, 3, 2, 60_000, 3_600_000, "a title"), NodeJob(OPERATION, 4, 1, 1_000)]
    lines = [line.split() for line in shown(node_jobs(jobs), 120)]
    assert lines[0] == ["operation", "title", "pool", "job", "attempt", "ran", "left"]
    assert lines[1] == [OPERATION, "a", "title", "–", "3", "2", "1m", "1h"]
    assert lines[2] == [OPERATION, "–", "4", "1", "1s", "–"]
    assert "title" not in shown(node_jobs(jobs[1:]), 120)[0]


def test_a_column_names_the_accounts_of_jobs_only_if_there_are_several() -> None:
    rows = [
        JobRow(JobSlot(index), JobResult.COMPLETED, NodeName("n"), account=name) for index, name in enumerate("aab")
    ]

    assert "as" not in shown(job_table(rows[:2], None), 120)[0].split()
    assert [line.split()[4] for line in shown(job_table(rows, None), 120)] == ["as", "a", "a", "b"]


def test_the_end_of_an_operation_is_told_without_the_release_of_its_slot() -> None:
    step = OperationStep(0, OPERATION, OperationState.FAILED, StateCause.RELEASED, "wrong input")

    assert happening_words(step).endswith(f"{OPERATION}  failed: wrong input")


def test_files_that_have_the_output_are_told() -> None:
    spec = msgspec.structs.replace(a_view().spec, output="out/%i.txt")

    assert file_words(a_view().spec) == ""
    assert file_words(spec) == "the jobs wrote stdout in out/%i.txt, in their folder on their nodes"


def test_a_node_tells_which_job_has_which_gpu_device_and_a_job_its_devices() -> None:
    gpus = [NodeGpu("0", OPERATION, 3), NodeGpu("1")]
    facts = [
        " ".join(line.split()) for line in shown(node_facts(NodeView(NodeName("alpha"), "online", [], gpus=gpus)), 120)
    ]
    assert f"gpu 0 job 3 of {OPERATION}" in facts
    assert "gpu 1 free" in facts

    rows = [JobRow(JobSlot(index), None, "") for index in (3, 4)]
    place = JobPlace(3, 1, NodeName("alpha"), "a", 5, limits="rlimit")
    without = job_table(rows, OperationPlaces(OPERATION, [place], 1, 1, 0, []))
    assert "gpus" not in shown(without, 120)[0]
    with_gpus = msgspec.structs.replace(place, gpus=["0", "2"])
    lines = shown(job_table(rows, OperationPlaces(OPERATION, [with_gpus], 1, 1, 0, [])), 120)
    assert lines[0].split()[3:6] == ["node", "gpus", "limits"]
    assert "0,2" in lines[1]
    assert "pending" in lines[2]


def test_a_node_tells_its_isolation_its_limits_and_what_leaves_it_out() -> None:
    node = NodeView(
        NodeName("alpha"), "unisolated", [], isolation="none", isolation_detail="jobs run as root", limits="rlimit"
    )
    left_out = msgspec.structs.replace(node, left_out="the tree requires isolation")

    facts = [" ".join(line.split()) for line in shown(node_facts(left_out), 120)]

    assert "gets no jobs the tree requires isolation" in facts
    assert "isolation none: jobs run as root" in facts
    assert any(line.startswith("limits rlimit: the memory of each single process") for line in facts)
    assert "memory, loosely" in shown(node_table([node]), 120)[1]
    kept = msgspec.structs.replace(node, limits="cgroup2")
    assert "limits" not in shown(node_table([kept]), 120)[0]
    assert "memory, cpu" in shown(node_table([kept, node]), 120)[1]
    assert "unisolated: the tree requires isolation" in shown(node_table([left_out]), 120)[1]
    assert not any("gets no jobs" in line for line in shown(node_facts(node), 120))


def test_json_has_cores_bytes_and_names() -> None:
    answer = plain(a_view())

    assert isinstance(answer, dict)
    assert answer["state"] == "running"
    assert msgspec.json.decode(msgspec.json.encode(answer))["spec"]["resources"] == {
        "user_slots": 1,
        "cpu": 1.5,
        "gpu": 0,
        "memory": 536870912,
        "network": 0,
    }
    share = plain(ShareItem(kind=ElementKind.POOL, name="x", parent=PoolName("y")))
    assert isinstance(share, dict)
    assert share["usage_share"] == {"user_slots": 0.0, "cpu": 0.0, "gpu": 0.0, "memory": 0.0, "network": 0.0}


def test_a_node_that_is_held_back_says_why_in_the_list_and_by_itself() -> None:
    words = "the last 4 jobs failed there, of 2 operations; the next single job is tried there in 2m"
    node = NodeView(NodeName("alpha"), "suspect", [], held_back=words)
    assert node_state(node).plain == f"suspect: {words}"
    lines = [" ".join(line.split()) for line in shown(node_facts(node), 160)]
    assert f"gets single jobs {words}" in lines
    assert closed_nodes([node, NodeView(NodeName("beta"), "online", [])]) == [f"node alpha gets single jobs: {words}"]


def test_an_operation_with_tasks_has_a_line_for_each_and_its_jobs_name_theirs() -> None:
    tasks = [Task("server", ["serve", "a b"], 1, Resources(1, 200)), Task("worker", ["work"], 3)]
    view = msgspec.structs.replace(
        a_view(),
        spec=with_tasks(a_view().spec, tasks),
        task_ends={1: TaskEnds({JobResult.COMPLETED: 1, JobResult.FAILED: 2, JobResult.TIMED_OUT: 1})},
    )
    places = OperationPlaces("op", [], 2, 1, 0, [], tasks=[TaskPlaces(1, 0), TaskPlaces(1, 1)])
    rows = [JobRow(JobSlot(index), None, "") for index in (0, 3)]

    lines = [line.split() for line in shown(task_table(view, places), 100)]
    assert lines[1] == ["server", "1", "1", "0", "0", "0", "cpu", "2", "serve", "'a", "b'"]
    assert lines[2] == ["worker", "3", "1", "1", "1", "3", "cpu", "1", "work"]
    jobs = [line.split()[:3] for line in shown(job_table(rows, None, spec=view.spec), 100)[1:]]
    assert jobs == [["0", "server", "1"], ["3", "worker", "1"]]
    facts = " ".join(shown(operation_facts(view, None, 0), 100))
    assert "2 tasks" in facts
    assert "(several tasks)" not in facts
