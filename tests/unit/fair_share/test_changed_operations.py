"""What of the operations changed between two updates."""

from __future__ import annotations

from headrace.ids import OperationId
from headrace_fair_share.facts.changed_operations import News

A, B, C = (OperationId(name) for name in "abc")


def test_at_first_anything_may_be_new() -> None:
    news = News()
    news.changed([A])

    assert news.take() is None
    assert news.take() == {}


def test_those_that_came_stand_in_the_order_in_which_they_last_came() -> None:
    news = News()
    news.take()
    news.changed([A, C])
    news.came(B)
    news.came(A)
    news.changed([B])

    assert list((news.take() or {}).items()) == [(C, False), (B, True), (A, True)]


def test_many_are_not_named_and_what_follows_is() -> None:
    news = News()
    news.take()
    for number in range(1_000):
        news.came(OperationId(f"operation-{number}"))
    news.changed([A])

    assert news.take() is None
    news.changed([B])
    assert news.take() == {B: False}
