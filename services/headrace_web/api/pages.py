"""Pages of lists: the cursors that name where the next page begins, and pages of lists that come from a service as a whole. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Annotated, Final, TypeVar

import msgspec

from headrace.errors import BadInput

T = TypeVar("T")
#: Largest number of items on a page of pools, nodes, trees, groups or processes.
Limit = Annotated[int, msgspec.Meta(ge=1, le=1000)]
#: Upper bound of the digits in a cursor. No position and no time in milliseconds has more.
_MOST_DIGITS: Final = 18


def cursor_of(number: int, name: str) -> str:
    """Return the cursor of the page after the item `name`. `number` says where the list goes on if the item is gone by then."""
    return f"{number}.{name}"


def read_cursor(cursor: str) -> tuple[int, str]:
    """Return number and name of a cursor; 0 and an empty name for the first page. Raises `BadInput`."""
    if not cursor:
        return 0, ""
    number, _, name = cursor.partition(".")
    if not (name and number.isascii() and number.isdigit() and len(number) <= _MOST_DIGITS):
        raise BadInput("cursor", cursor, "`next` of the page before, or nothing for the first page")
    return int(number), name


def page_of(items: Iterable[T], key: Callable[[T], str], *, limit: int, cursor: str) -> tuple[list[T], str | None]:
    """Return the page of a whole list that begins after the key `cursor`, and the cursor of the next page; None on the last page.

    The page is sorted by the keys, which must differ. So no item is lost or repeated if items come and go between two pages.
    """
    rest = sorted((item for item in items if key(item) > cursor), key=key)
    page = rest[:limit]
    return page, key(page[-1]) if len(rest) > limit else None
