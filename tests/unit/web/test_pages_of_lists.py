"""Pages of the HTTP API's lists: cursors, and pages of lists that come as a whole."""

from __future__ import annotations

import pytest

from headrace.errors import BadInput
from headrace_web.api.pages import cursor_of, page_of, read_cursor


@pytest.mark.parametrize("name", ["a", "a.b", "0", "ü/x y", "1.2.3"])
def test_a_cursor_is_read_as_it_was_made(name: str) -> None:
    assert read_cursor(cursor_of(17, name)) == (17, name)
    assert read_cursor("") == (0, "")


@pytest.mark.parametrize("cursor", ["x", "12", "12.", ".a", "-1.a", "1e3.a", "²2.a", f"{'9' * 5000}.a"])
def test_another_text_is_no_cursor(cursor: str) -> None:
    with pytest.raises(BadInput, match=r"cursor: .* cannot be used; expected `next` of the page before"):
        read_cursor(cursor)


def test_pages_of_a_whole_list_follow_each_other_while_items_come_and_go() -> None:
    page, cursor = page_of(["d", "b", "c", "a"], str, limit=2, cursor="")
    assert (page, cursor) == (["a", "b"], "b")
    # The last item of the page and an item of the next page are gone, and others came.
    page, cursor = page_of(["aa", "d", "e", "bb"], str, limit=2, cursor=cursor or "")
    assert (page, cursor) == (["bb", "d"], "d")
    assert page_of(["e"], str, limit=1, cursor="d") == (["e"], None)
    assert page_of([], str, limit=1, cursor="d") == ([], None)
