"""The GPU devices that nodes report: which job has which, and what an operation that asks for too many is told."""

from __future__ import annotations

import msgspec

from headrace.ids import NodeName
from headrace.resources import Resources
from headrace.wire.codec import LARGEST_MESSAGE_BYTES, encode
from headrace.wire.heartbeat import LONGEST_GPU_NAME, MOST_GPUS, AllocationReport, AllocationState, RunningJob
from headrace.wire.nodes import JobPlace, ListNodes, NodeGpu, NodeList, OperationPlaces, WhereRequest
from headrace.wire.snapshots import DetailedShare
from tests.support.allocating import Desk, a_share, an_operation

OWED = DetailedShare(weight_proportional=(1.0, 1.0, 1.0, 0.0, 0.0), total=(1.0, 1.0, 1.0, 0.0, 0.0))
SIZE = Resources(user_slots=1, cpu=100, gpu=1)


def test_people_see_which_job_has_which_device() -> None:
    desk = Desk({"n": Resources(user_slots=4, cpu=400, gpu=2)})
    desk.start(an_operation("op", jobs=1, size=SIZE))
    desk.tell([msgspec.structs.replace(a_share("op", 1.0), fair_share=OWED, demand_share=OWED.total)])
    (start,) = desk.beat("n")[0].start
    report = AllocationReport(start.allocation, start.operation, AllocationState.RUNNING, SIZE, RunningJob(0, 1, 5, 5))
    desk.beat("n", allocations=[report], gpus={"0": "", "1": start.allocation})

    nodes = desk.engine.on_question(ListNodes(), desk.now).answer
    assert isinstance(nodes, NodeList)
    assert nodes.nodes[0].gpus == [NodeGpu("0"), NodeGpu("1", "op", 0)]
    places = desk.engine.on_question(WhereRequest("op"), desk.now).answer
    assert isinstance(places, OperationPlaces)
    assert [(place.node, place.gpus) for place in places.running] == [(NodeName("n"), ["1"])]
    assert JobPlace(0, 1, NodeName("n"), "a", 5).gpus == []


def test_a_device_whose_allocation_is_not_known_counts_as_free() -> None:
    desk = Desk({"n": Resources(user_slots=4, cpu=400, gpu=1)})
    desk.beat("n", gpus={"0": "5-unknown"})

    nodes = desk.engine.on_question(ListNodes(), desk.now).answer
    assert isinstance(nodes, NodeList)
    assert nodes.nodes[0].gpus == [NodeGpu("0")]


def test_an_operation_that_asks_for_more_gpus_than_any_node_has_waits_and_is_told_why() -> None:
    desk = Desk({"n": Resources(user_slots=4, cpu=400, gpu=2)})
    desk.start(an_operation("op", jobs=1, size=Resources(user_slots=1, cpu=100, gpu=3)))

    assert desk.beat("n")[0].start == []
    assert "it asks for gpu 3 (the most any node has is 2)" in desk.reasons("op")[0]


def test_an_answer_about_jobs_with_very_many_devices_names_as_many_jobs_as_a_message_holds() -> None:
    names = [f"n{number}" for number in range(150)]
    desk = Desk(dict.fromkeys(names, Resources(user_slots=1, cpu=100, gpu=1)))
    desk.start(an_operation("op", jobs=len(names), size=SIZE))
    desk.tell([msgspec.structs.replace(a_share("op", 1.0), fair_share=OWED, demand_share=OWED.total)])
    for name in names:
        (start,) = desk.beat(name)[0].start
        job = RunningJob(start.slots[0].index, 1, 5, 5)
        report = AllocationReport(start.allocation, start.operation, AllocationState.RUNNING, SIZE, job)
        gpus = {f"{number:0{LONGEST_GPU_NAME}}": start.allocation for number in range(MOST_GPUS)}
        desk.beat(name, allocations=[report], gpus=gpus)

    places = desk.engine.on_question(WhereRequest("op"), desk.now).answer

    assert isinstance(places, OperationPlaces)
    assert len(encode(places)) < LARGEST_MESSAGE_BYTES
    assert 10 < len(places.running) < places.running_jobs == len(names)
