"""Which finished operation is forgotten next, compared with a search through all of them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

from hypothesis import given
from hypothesis import strategies as st

from headrace.ids import OperationId
from headrace_admission.state.finished_operations import FinishedOperations
from headrace_admission.state.operation import Operation

MOST, MOST_BYTES = 4, 100
#: A user, and the bytes of the operation that the user ends, or of the next operation that changes its size.
ENDS = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 150), st.booleans()), max_size=60)


def searched(operations: list[Operation]) -> OperationId | None:
    """The choice by the rule as it is written."""
    by_user: dict[str, list[Operation]] = {}
    for each in operations:
        by_user.setdefault(each.user, []).append(each)
    total = sum(each.counted_bytes for each in operations)
    if len(operations) <= MOST and (total <= MOST_BYTES or len(operations) <= 1):
        return None

    def order(user: str) -> tuple[float, str]:
        own = by_user[user]
        return -max(len(own) / MOST, sum(each.counted_bytes for each in own) / MOST_BYTES), user

    firsts = [by_user[user][0] for user in sorted(by_user, key=order)]
    return next(each.id for each in firsts if each is not operations[-1])


@given(ENDS)
def test_the_operation_that_is_forgotten_is_the_oldest_of_the_user_with_the_largest_share(
    ends: list[tuple[str, int, bool]],
) -> None:
    finished, known = FinishedOperations(MOST, MOST_BYTES), list[Operation]()
    for number, (user, size, is_change) in enumerate(ends):
        mine = [each for each in known if each.user == user]
        if is_change and mine:
            operation = mine[0]
            operation.counted_bytes = size
        else:
            made = SimpleNamespace(id=OperationId(f"o{number}"), user=user, counted_bytes=size)
            operation = cast("Operation", made)
            known.append(operation)
        finished.note(operation)
        finished.note(operation)  # An entry of the log that leaves its size as it is.
        while (name := searched(known)) is not None:
            assert finished.next_to_forget() == name
            gone = next(each for each in known if each.id == name)
            known.remove(gone)
            finished.drop(gone)
        assert finished.next_to_forget() is None
        assert sorted(finished) == sorted(each.id for each in known)
