"""Nodes that joined by a token: what their agents offer beyond it counts for nothing, and is shown."""

from __future__ import annotations

import msgspec

from headrace.ids import NodeName
from headrace.resources import Resources
from headrace.wire.nodes import ListNodes, NodeRecord, NodeTerms, NodeView
from headrace_allocator.explain.answers import list_nodes
from tests.support.allocating import Desk, an_operation

OFFERED = Resources(user_slots=9, cpu=800, memory=2**36)


def a_desk(terms: NodeTerms | None) -> Desk:
    desk = Desk({"n": OFFERED})
    record = NodeRecord(NodeName("n"), tags=["gpu"], terms=terms, cut_tags=["fast"] if terms else [])
    desk.engine.on_nodes({record.node: record}, desk.now)
    desk.beat("n")
    return desk


def view_of(desk: Desk) -> NodeView:
    return list_nodes(desk.facts, ListNodes(), desk.now).nodes[0]


def test_a_node_has_no_more_than_its_token_gives() -> None:
    desk = a_desk(NodeTerms(cpu=300, memory=2**30))

    assert desk.facts.total == Resources(user_slots=9, cpu=300, memory=2**30)
    view = view_of(desk)
    assert (view.total, view.cut) == (desk.facts.total, Resources(cpu=500, memory=2**36 - 2**30))
    assert (view.tags, view.cut_tags) == (["gpu"], ["fast"])
    desk.start(an_operation("op", jobs=9))
    desk.share(op=9.0)
    assert len(desk.beat("n")[0].start) == 3


def test_a_node_that_offers_less_than_its_token_gives_has_what_it_offers() -> None:
    desk = a_desk(NodeTerms(cpu=10_000))

    assert (desk.facts.total, view_of(desk).cut) == (OFFERED, Resources())


def test_new_terms_hold_from_the_next_heartbeat_on() -> None:
    desk = a_desk(None)
    assert desk.facts.total == OFFERED
    record = desk.node("n").record
    desk.engine.on_nodes({record.node: msgspec.structs.replace(record, terms=NodeTerms(cpu=100))}, desk.now)
    desk.beat("n")

    assert (desk.facts.total.cpu, view_of(desk).cut.cpu) == (100, 700)
