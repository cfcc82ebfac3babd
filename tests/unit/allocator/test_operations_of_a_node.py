"""Which operations have a job on a node, as an answer about one node says."""

from __future__ import annotations

import msgspec

from headrace.resources import Resources
from headrace.wire.heartbeat import AllocationReport, AllocationState, RunningJob
from headrace.wire.nodes import ListNodes, NodeList
from headrace.wire.refusals import NotFound
from headrace.wire.snapshots import DetailedShare
from tests.support.allocating import Desk, a_share, an_operation

OWED = DetailedShare(weight_proportional=(1.0, 1.0, 0.0, 0.0, 0.0), total=(1.0, 1.0, 0.0, 0.0, 0.0))
SIZE = Resources(user_slots=1, cpu=100)


def test_an_answer_about_one_node_has_its_operations_and_no_other_answer_has_them() -> None:
    desk = Desk(dict.fromkeys(("full", "free"), Resources(user_slots=4, cpu=400)))
    reports: list[AllocationReport] = []
    for name in ("one", "two"):
        live = an_operation(name, jobs=2, size=SIZE)
        spec = msgspec.structs.replace(live.spec, title=f"{name}'s", time_limit_ms=60_000)
        desk.start(msgspec.structs.replace(live, spec=spec))
        desk.tell([msgspec.structs.replace(a_share(name, 1.0), fair_share=OWED, demand_share=OWED.total)])
        starts = desk.beat("full", allocations=reports)[0].start
        reports += [
            AllocationReport(
                start.allocation,
                start.operation,
                AllocationState.RUNNING,
                SIZE,
                RunningJob(start.slots[0].index, 1, 5, 5),
            )
            for start in starts
        ]
    assert [report.operation for report in reports] == ["one", "one", "two", "two"]
    desk.beat("full", allocations=reports)
    desk.beat("free")
    # The allocator was told that only the second operation still lives.
    assert [*desk.facts.operations] == ["two"]

    def operations(node: str) -> list[tuple[str, list[str]]]:
        answer = desk.engine.on_question(ListNodes(operations_of=node), desk.now).answer
        assert isinstance(answer, NodeList)
        return [(each.node, [*map(str, each.operations)]) for each in answer.nodes]

    answer = desk.engine.on_question(ListNodes(operations_of="full"), desk.now).answer
    assert isinstance(answer, NodeList)
    # A job of an operation that is over is listed too, without what only the operation says.
    found = {(job.operation, job.index, job.left_ms is None, job.title) for job in answer.nodes[0].jobs}
    assert found == {("one", 0, True, ""), ("one", 1, True, ""), ("two", 0, False, "two's"), ("two", 1, False, "two's")}
    assert all(job.ran_ms + job.left_ms == 60_000 for job in answer.nodes[0].jobs if job.left_ms is not None)
    assert [job.ran_ms for job in answer.nodes[0].jobs] == sorted(
        (j.ran_ms for j in answer.nodes[0].jobs), reverse=True
    )

    assert operations("full") == [("full", ["two", "one"])]
    assert operations("free") == [("free", [])]
    assert operations("") == [("free", []), ("full", [])]
    unknown = desk.engine.on_question(ListNodes(operations_of="ful"), desk.now).answer
    assert unknown == NotFound("node", "ful", near=["full"])
