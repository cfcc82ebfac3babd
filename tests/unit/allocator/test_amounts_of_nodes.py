"""Amounts that a node says it has: what no machine has is refused, and no sum makes a message that its reader refuses."""

from __future__ import annotations

import msgspec
import pytest

from headrace.ids import AllocationId, Incarnation, NodeName, OperationId, TreeName
from headrace.resources import LARGEST_SUM, MOST_OF_A_NODE, RESOURCE_NAMES, ZERO, Resources
from headrace.wire.codec import BadMessage, decode, encode
from headrace.wire.heartbeat import AllocationReport, AllocationState, Heartbeat, HeartbeatReason, JobSlot, Start
from headrace.wire.nodes import ListNodes, NodeList, NodeRecord, NodeTerms
from headrace.wire.snapshots import UsageFrame, UsageItem
from headrace_allocator.effects import Alarm
from headrace_allocator.facts.nodes import refused_incarnation
from tests.support.allocating import Desk, an_operation
from tests.support.clocks import at

PLAIN = Heartbeat(
    NodeName("n1"), TreeName("default"), Incarnation("1"), 1, 0, 0, HeartbeatReason.PERIOD, MOST_OF_A_NODE
)


def bytes_with(total: Resources, reported: Resources = ZERO) -> bytes:
    """A heartbeat whose amounts no checked message could have."""
    report = AllocationReport(AllocationId("4-1"), OperationId("op"), AllocationState.RUNNING, ZERO)
    told = msgspec.to_builtins(PLAIN) | {"total": list(total.as_tuple())}
    row = msgspec.to_builtins(report)
    row[3] = list(reported.as_tuple())
    return msgspec.msgpack.encode(told | {"allocations": [row]})


@pytest.mark.parametrize("name", RESOURCE_NAMES)
def test_a_node_that_says_it_has_more_than_any_machine_is_refused_by_the_name_of_the_field(name: str) -> None:
    most = getattr(MOST_OF_A_NODE, name)
    beyond = msgspec.structs.replace(ZERO, **{name: most + 1})

    assert decode(bytes_with(MOST_OF_A_NODE, MOST_OF_A_NODE), Heartbeat).total == MOST_OF_A_NODE
    with pytest.raises(BadMessage, match=f"total.{name} is {most + 1}; at most {most} is accepted from a node"):
        decode(bytes_with(beyond), Heartbeat)
    with pytest.raises(BadMessage, match=f"resources.{name} is {most + 1}; at most {most} is accepted from a node"):
        decode(bytes_with(ZERO, beyond), Heartbeat)


@pytest.mark.parametrize("name", RESOURCE_NAMES)
def test_an_order_to_start_what_the_agent_could_not_report_is_refused(name: str) -> None:
    """An agent that obeyed such an order could send no heartbeat any more."""
    most = getattr(MOST_OF_A_NODE, name)
    start = Start(AllocationId("4-1"), OperationId("op"), ZERO, [JobSlot(0)])
    beyond = msgspec.structs.replace(ZERO, **{name: most + 1})
    told = msgspec.to_builtins(start) | {"resources": list(beyond.as_tuple())}

    with pytest.raises(BadMessage, match=f"resources.{name} is {most + 1}; at most {most} is accepted from a node"):
        decode(msgspec.msgpack.encode(told), Start)


def test_a_machine_of_a_pebibyte_is_accepted_and_a_hundred_thousand_ordinary_ones_fit_a_message() -> None:
    assert MOST_OF_A_NODE.memory >= 2**50
    ordinary = Resources(user_slots=1_000, cpu=51_200, gpu=16, memory=2**44, network=10**11)
    assert encode(UsageFrame(total=ordinary * 100_000))
    assert (ordinary * 100_000).within_wire() == ordinary * 100_000


def test_nodes_that_together_say_they_have_more_than_a_message_carries_are_published_as_the_most_that_it_carries() -> (
    None
):
    desk = Desk({f"n{number}": MOST_OF_A_NODE for number in range(4_097)})
    for name in desk.nodes:
        desk.engine.on_heartbeat(msgspec.structs.replace(PLAIN, node=NodeName(name)), desk.now)
    assert desk.engine.check() == []
    cut = desk.cut_usage()

    assert cut.frame.total.memory == LARGEST_SUM
    assert decode(encode(cut.frame), UsageFrame) == cut.frame
    assert [decode(encode(item), UsageItem) for item in cut.items] == cut.items
    alarms = [effect for second in (101.0, 102.0) for effect in desk.tick(second) if isinstance(effect, Alarm)]
    assert alarms == [Alarm("the nodes together report more than a message can carry", {"resource": "memory"})]
    assert "all nodes together report more memory" in desk.engine.watchdog.trouble


def test_whatever_a_node_shows_of_allocations_the_books_hold_and_messages_about_it_can_be_read() -> None:
    desk = Desk({"n1": MOST_OF_A_NODE})
    desk.start(an_operation("op", jobs=1))
    claims = [
        AllocationReport(AllocationId(f"9-{number}"), OperationId("gone"), AllocationState.RUNNING, MOST_OF_A_NODE)
        for number in range(900)
    ]

    for _ in range(2):
        # `beat` checks that what is used is the sum over the nodes.
        desk.beat("n1", allocations=claims, total=ZERO)

    nodes = desk.engine.on_question(ListNodes(), desk.now).answer
    assert isinstance(nodes, NodeList)
    assert decode(encode(nodes), NodeList) == nodes


@pytest.mark.parametrize("name", RESOURCE_NAMES)
def test_a_token_caps_every_resource(name: str) -> None:
    desk = Desk({"n1": MOST_OF_A_NODE})
    record = NodeRecord(NodeName("n1"), terms=msgspec.structs.replace(NodeTerms(), **{name: 7}))
    desk.engine.on_nodes({record.node: record}, desk.now)

    desk.beat("n1")

    assert desk.facts.total == msgspec.structs.replace(MOST_OF_A_NODE, **{name: 7})


@pytest.mark.parametrize(
    ("incarnation", "expected"),
    [
        ("zzz", "16 digits"),
        ("", "16 digits"),
        ("z" * 100_000, "16 digits"),
        ("9999999999999999-abcdef01", "ten years ahead"),
        (f"{at(100.0).wall_ms + 400 * 86_400_000:016}-abcdef01", None),
        ("0000000000000001-abcdef01", None),
    ],
)
def test_a_life_that_no_agent_has_is_refused(incarnation: str, expected: str | None) -> None:
    """Else no later life of the honest agent would be heard."""
    refusal = refused_incarnation(Incarnation(incarnation), at(100.0))

    if expected is None:
        assert refusal is None
    else:
        assert refusal is not None
        assert expected in refusal.text()
        assert len(refusal.text()) < 300


def test_a_host_that_joins_by_a_new_token_is_heard_whatever_life_the_one_before_claimed() -> None:
    desk = Desk({"n1": ZERO})
    record = NodeRecord(NodeName("n1"), key="U1")
    desk.engine.on_nodes({record.node: record}, desk.now)
    desk.beat("n1", incarnation=Incarnation("9"))
    assert not desk.node("n1").is_newest(msgspec.structs.replace(PLAIN, incarnation=Incarnation("5")))

    desk.engine.on_nodes({record.node: msgspec.structs.replace(record, key="U2")}, desk.now)

    assert desk.beat("n1", incarnation=Incarnation("5"))[0].enrolled


def test_the_agent_of_a_node_is_heard_again_a_lease_after_a_life_that_somebody_made_up() -> None:
    """One heartbeat with a number years ahead shut the honest agent out until somebody removed the node."""
    desk = Desk({"n1": ZERO})
    desk.engine.on_nodes({NodeName("n1"): NodeRecord(NodeName("n1"))}, desk.now)
    desk.beat("n1", incarnation=Incarnation("9"))
    honest = msgspec.structs.replace(PLAIN, incarnation=Incarnation("5"))
    lease_s, heard_s = desk.facts.longest_lease_s, desk.now.steady_s

    during = desk.engine.on_heartbeat(honest, at(heard_s + lease_s))
    repeated = desk.engine.on_heartbeat(
        msgspec.structs.replace(honest, incarnation=Incarnation("9")), at(heard_s + lease_s + 1)
    )
    afterwards = desk.engine.on_heartbeat(honest, at(heard_s + lease_s + 1))

    assert during.answer is None
    assert repeated.answer is None
    assert afterwards.answer is not None
    assert afterwards.answer.incarnation == "5"


END = {"operation": "op", "index": 0, "attempt": 1, "allocation": "4-1", "result": "completed"}


@pytest.mark.parametrize(
    "changed",
    [
        {"operation": "o" * 65},
        {"allocation": "a" * 65},
        {"node": "n" * 64},
        {"exit_code": 2**31},
        {"signal": -(2**31) - 1},
        {"max_rss_bytes": 2**62 + 1},
        {"started_at_ms": 2**53 + 1},
        {"attempt": 2**31},
    ],
)
def test_an_end_with_texts_or_numbers_beyond_all_bounds_is_refused(changed: dict[str, object]) -> None:
    """The log keeps what an end says, and every service reads it again."""
    plain = msgspec.to_builtins(PLAIN)

    assert decode(msgspec.msgpack.encode(plain | {"ends": [END]}), Heartbeat).ends[0].attempt == 1
    with pytest.raises(BadMessage, match=next(iter(changed))):
        decode(msgspec.msgpack.encode(plain | {"ends": [END | changed]}), Heartbeat)
