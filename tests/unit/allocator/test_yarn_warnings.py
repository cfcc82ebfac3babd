"""The containers that YARN's older engine has warned, and what is remembered of them."""

from __future__ import annotations

from headrace.resources import ZERO, Resources
from headrace.yarn_comparison import QueuePolicy
from headrace_allocator.preemption.yarn.queue_victims import Branch, Round, Size, WarnedContainers

ONE = Resources(1, 100, 0, 1_000)
TOTAL = ONE * 10


def a_round(left: Resources, *containers: str) -> tuple[Round[str], Branch[str]]:
    """Of one queue that has two of these and is owed nothing."""
    root = Branch[str]("root", ONE * 2, policy=QueuePolicy.FAIR)
    queue = Branch[str]("queue", ONE * 2, policy=QueuePolicy.FAIR, above=root)
    operation = Branch[str]("op", ONE * 2, containers=(Size(one, ONE) for one in containers), above=queue)
    root.below.append(queue)
    queue.below.append(operation)
    return Round(left, root, TOTAL), operation


def test_one_that_is_needed_no_more_is_forgotten_and_warned_anew() -> None:
    warned: WarnedContainers[str] = WarnedContainers()

    def taken(left: Resources, now_ms: int, *containers: str, there: tuple[str, ...] = ("a", "b")) -> list[str]:
        part, operation = a_round(left, *containers)
        went = warned.take(part, lambda one: (operation, ONE) if one in there else None, now_ms, 15)
        return [one for one in went if one is not None]

    assert taken(ONE, 0, "a", "b") == []
    assert warned.listed == {"a": 0}
    assert taken(ZERO, 10, "a", "b") == []
    assert warned.listed == {}
    assert taken(ONE, 7_200, "a", "b") == []
    assert taken(ONE, 7_215, "b") == []
    assert taken(ONE, 7_216, "b") == ["a"]
    assert taken(ONE, 7_220, "b", there=("b",)) == []
    assert warned.listed == {"b": 7_220}
