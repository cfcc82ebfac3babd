"""One number for each job by index, such as its newest attempt. Most of these numbers are 0.

Numbers are stored as one byte each, in pages; only numbers of 255 or more are stored singly. A checkpoint copies whole pages,
so copying a hundred thousand numbers takes no longer than copying a few.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

_INDEXES_OF_A_PAGE: Final = 4096
#: Bytes of memory of a number that is stored singly.
_NUMBER_BYTES: Final = 100
#: Value in a page for a number that is stored singly.
_LARGE: Final = 255
_THERE: Final = re.compile(rb"[^\0]")


class IndexedNumbers:
    """Numbers other than 0, by index."""

    def __init__(self, pages: Mapping[int, bytes] | None = None, numbers: Mapping[int, int] | None = None) -> None:
        """Load copies of `pages`, then the numbers that a record stores singly (`numbers`). Older records store all numbers singly."""
        self._pages = {number: bytearray(page) for number, page in (pages or {}).items()}
        self.large: dict[int, int] = {}
        for index, value in (numbers or {}).items():
            self[index] = value

    @property
    def size_bytes(self) -> int:
        """Bytes that the pages and the single numbers take in memory."""
        return _INDEXES_OF_A_PAGE * len(self._pages) + _NUMBER_BYTES * len(self.large)

    @property
    def pages(self) -> dict[int, bytes]:
        """Return a copy of the stored pages, by page number."""
        return {number: bytes(page) for number, page in self._pages.items()}

    def __getitem__(self, index: int) -> int:
        page = self._pages.get(index // _INDEXES_OF_A_PAGE)
        value = page[index % _INDEXES_OF_A_PAGE] if page is not None else 0
        return self.large[index] if value == _LARGE else value

    def __setitem__(self, index: int, value: int) -> None:
        number, place = divmod(index, _INDEXES_OF_A_PAGE)
        if value and number not in self._pages:
            self._pages[number] = bytearray(_INDEXES_OF_A_PAGE)
        is_large = not 0 <= value < _LARGE
        if is_large:
            self.large[index] = value
        else:
            self.large.pop(index, None)
        if number in self._pages:
            self._pages[number][place] = _LARGE if is_large else value

    def items(self, first: int = 0) -> Iterator[tuple[int, int]]:
        """Yield the indexes from `first` on whose number is not 0, in order, each with its number."""
        for number in sorted(self._pages):
            begin, page = number * _INDEXES_OF_A_PAGE, self._pages[number]
            for there in _THERE.finditer(page, max(0, first - begin)):
                value, index = page[there.start()], begin + there.start()
                yield index, self.large[index] if value == _LARGE else value
