"""Enrolment of nodes whose record changes at the same time."""

from __future__ import annotations

import msgspec

from headrace.ids import NodeName
from headrace.wire.nodes import Enrol, GivenUpNode, NodeRecord, NodeTerms
from headrace.wire.refusals import WrongState
from headrace_admission.nodes.enrolment import enrol
from tests.support.clocks import HandClock
from tests.support.moody_bucket import MoodyBucket

NODE = NodeName("n1")


async def given_up(record: NodeRecord, to_machine: str) -> GivenUpNode:
    return GivenUpNode(record.node, 0)


async def test_a_node_that_is_removed_while_it_enrols_is_not_enrolled_without_its_terms() -> None:
    nodes = MoodyBucket()
    joined = NodeRecord(NODE, key="U" * 56, terms=NodeTerms(gpu=0))
    await nodes.put(NODE, msgspec.json.encode(joined))
    nodes.meddle = nodes.kept.clear

    answer = await enrol(nodes, Enrol(NODE, tags=["fast"], machine="m"), HandClock().now(), given_up)

    assert isinstance(answer, WrongState)
    assert await nodes.entries() == {}
