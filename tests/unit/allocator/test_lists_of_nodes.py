"""Lists of nodes: filters, and pages that follow each other while nodes come and go."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from headrace.ids import NodeName
from headrace.wire.nodes import ListNodes, NodeRecord
from headrace.wire.refusals import BadRequest
from headrace_allocator.explain.answers import list_nodes
from tests.support.allocating import Desk, cores

TAGS = {"cpu-1": ["ssd"], "cpu-2": [], "gpu-1": ["ssd", "gpu"], "gpu-2": ["gpu"]}


@pytest.fixture
def desk() -> Desk:
    """Four nodes, two of which have sent a heartbeat."""
    made = Desk({name: cores(4) for name in TAGS})
    enrol(made, *TAGS)
    made.beat("cpu-1")
    made.beat("gpu-2")
    return made


def enrol(desk: Desk, *names: str) -> None:
    records = {NodeName(name): NodeRecord(NodeName(name), tags=TAGS.get(name, [])) for name in names}
    desk.engine.on_nodes(records, desk.now)


def listed(desk: Desk, **wanted: Any) -> tuple[Sequence[str], bool]:
    answer = list_nodes(desk.facts, ListNodes(**wanted), desk.now)
    return [each.node for each in answer.nodes], answer.more


def test_filters_choose_by_the_beginning_of_the_name_by_state_and_by_tag(desk: Desk) -> None:
    assert listed(desk) == (["cpu-1", "cpu-2", "gpu-1", "gpu-2"], False)
    assert listed(desk, name_prefix="gpu") == (["gpu-1", "gpu-2"], False)
    assert listed(desk, state="online") == (["cpu-1", "gpu-2"], False)
    assert listed(desk, tag="ssd") == (["cpu-1", "gpu-1"], False)
    assert listed(desk, tag="ssd", state="online", name_prefix="gpu") == ([], False)
    assert listed(desk, tag="s") == ([], False)


def test_an_unknown_state_is_refused_with_the_states_there_are(desk: Desk) -> None:
    answer = desk.engine.on_question(ListNodes(state="onlin"), desk.now).answer
    assert isinstance(answer, BadRequest)
    assert (answer.place, answer.value) == ("state", "onlin")
    assert {"online", "offline", "suspect"} <= set(answer.expected.removeprefix("one of ").split(", "))


def test_a_page_begins_after_a_name_whatever_came_and_went(desk: Desk) -> None:
    assert listed(desk, limit=2) == (["cpu-1", "cpu-2"], True)
    enrol(desk, "cpu-0", "cpu-1", "gpu-1", "gpu-2")

    assert listed(desk, limit=2, after="cpu-2") == (["gpu-1", "gpu-2"], False)
    assert listed(desk, limit=1, after="cpu-2", tag="gpu") == (["gpu-1"], True)
    assert listed(desk, limit=1, after="cpu-2", first=1) == (["gpu-2"], False)
