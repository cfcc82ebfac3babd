"""One person's flood is refused to that person alone, and no list grows with the words of others."""

from __future__ import annotations

from headrace.ids import PoolName
from headrace.resources import Resources
from headrace.wire.codec import encode
from headrace.wire.operations import ListOperations, OperationList, OperationSpec, StartAnswer, StartOperation
from headrace_admission.queries import list_operations
from headrace_admission.shares_of_users import SharesOfUsers
from tests.support.clocks import NOW
from tests.unit.admission.desk import Desk, oid


def test_who_has_used_up_a_share_waits_and_others_do_not() -> None:
    shares = SharesOfUsers(most_requests=3, most_bytes=100)

    assert [shares.take("flood", 40) for _ in range(4)] == [True, True, False, False]
    assert shares.take("anna", 40)
    assert shares.refusal("flood").waiting == 2

    shares.give_back("flood", 40)
    assert shares.take("flood", 60)
    assert [shares.take("many", 1) for _ in range(4)] == [True, True, True, False]
    assert shares.figures()[0].value == 3


def test_one_request_above_the_share_passes_alone() -> None:
    shares = SharesOfUsers(most_requests=3, most_bytes=100)

    assert shares.take("anna", 500)
    assert not shares.take("anna", 1)
    shares.give_back("anna", 500)
    assert shares.take("anna", 500)


def test_a_list_is_cut_by_bytes_whatever_the_commands_are() -> None:
    """Six operations with a first word of 120 kB once broke the list for everybody."""
    desk = Desk({"research": {"max_operation_count": 10_000}}, max_operation_count=10_000)
    for number in range(1_200):
        argv = ["x" * (120_000 if number < 6 else 600)]
        spec = OperationSpec(PoolName("research"), argv, 1, Resources(user_slots=1, cpu=100), title="t" * 256)
        started = desk.engine.on_start(StartOperation(oid(f"{number:04}"), spec), "mallory", NOW).answer
        assert isinstance(started, StartAnswer)

    seen: list[str] = []
    request = ListOperations(limit=1_000)
    while True:
        page = list_operations(desk.state, request)
        assert isinstance(page, OperationList)
        assert len(encode(page)) < 300 * 1024
        seen += [view.operation for view in page.operations]
        if not page.more:
            break
        request = ListOperations(limit=1_000, after=page.operations[-1].operation)

    assert len(seen) == len(set(seen)) == 1_200
