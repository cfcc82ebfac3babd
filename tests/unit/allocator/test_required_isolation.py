"""The tree's option `require_isolation`: which nodes get jobs, and who is told why others do not."""

from __future__ import annotations

from headrace.ids import NodeName
from headrace.pools import TreeOptions
from headrace.wire.nodes import ListNodes, NodeRecord, NodeView
from headrace_allocator.explain.answers import list_nodes
from tests.support.allocating import Desk, an_operation, cores

NODES = {"open": cores(4, slots=10), "closed": cores(8, slots=10)}
WHY = "jobs run as root"
#: An agent of an older release says nothing of it.
UNSAID = NodeRecord(NodeName("open"))
OPEN = NodeRecord(NodeName("open"), isolation_detail=WHY)
CLOSED = NodeRecord(NodeName("closed"), isolated=True, isolation_detail="jobs run as others")


class Guarded(Desk):
    """Two nodes, of which one is isolated from its jobs, and an operation of many jobs of one core."""

    def __init__(self) -> None:
        super().__init__(NODES)
        self.enrol(OPEN, CLOSED)
        self.start(an_operation("a", 100))
        self.share(a=1.0)

    def enrol(self, *records: NodeRecord) -> None:
        self.engine.on_nodes({record.node: record for record in records}, self.now)

    def require(self, *, isolation: bool = True) -> None:
        self.engine.on_options(TreeOptions(require_isolation=isolation), self.now)

    def started(self, node: str) -> int:
        return len(self.beat(node)[0].start)

    def view(self, node: str) -> NodeView:
        return list_nodes(self.facts, ListNodes(name_prefix=node), self.now).nodes[0]


def test_unless_it_is_required_every_node_gets_jobs_and_says_what_it_has() -> None:
    tree = Guarded()

    assert (tree.started("open"), tree.started("closed")) == (4, 8)
    assert (tree.view("open").isolation, tree.view("open").isolation_detail, tree.view("open").left_out) == (
        "none",
        WHY,
        "",
    )
    assert (tree.view("closed").isolation, tree.view("closed").limits) == ("full", "")


def test_where_it_is_required_a_node_without_gets_nothing_is_no_part_of_the_total_and_is_told_why() -> None:
    tree = Guarded()
    tree.require()

    orders, _ = tree.beat("open")
    assert (orders.start, tree.started("closed"), tree.facts.total.cpu) == ([], 8, 800)
    assert orders.left_out == f"the tree requires isolation (require_isolation), and the node has none: {WHY}"
    assert (tree.view("open").state, tree.view("open").left_out) == ("unisolated", orders.left_out)
    assert tree.beat("closed")[0].left_out == ""


def test_an_agent_that_says_nothing_of_it_has_none() -> None:
    tree = Guarded()
    tree.enrol(UNSAID)
    tree.require()

    assert tree.beat("open")[0].left_out.endswith("none: its agent does not say who can reach its key")
    assert tree.view("open").isolation == "none"


def test_what_an_agent_says_anew_and_an_option_that_changes_count_at_once_and_what_runs_stays() -> None:
    tree = Guarded()
    assert tree.started("open") == 4
    tree.require()
    without, held = tree.facts.total.cpu, len(tree.node("open").allocations)
    assert tree.beat("open")[0].take_back == []
    tree.enrol(NodeRecord(NodeName("open"), isolated=True))
    closed = tree.facts.total.cpu
    tree.enrol(OPEN)
    tree.require(isolation=False)

    assert (without, held, closed, tree.facts.total.cpu) == (0, 4, 400, 400)


def test_why_an_operation_waits_says_which_node_lacks_it_and_why() -> None:
    tree = Guarded()
    tree.enrol(NodeRecord(NodeName("closed"), drained=True, isolated=True))
    tree.beat("open")
    tree.beat("closed")
    tree.require()

    words = "no node takes jobs (open unisolated, closed drained); the tree requires isolation, and open has none: "
    assert tree.reasons("a")[0] == words + WHY
