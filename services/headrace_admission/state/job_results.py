"""The result and the node of every job, three bytes each, in pages.

A page whose jobs have all finished does not change any more, so it is compressed at once. If neighbouring jobs ran on the same node, each
job then takes a fraction of a byte in memory and in every checkpoint. The end of a job compresses at most one page.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Collection, Iterable, Iterator
from typing import Final

import msgspec

_JOBS_OF_A_PAGE: Final = 4096
_BYTES_OF_A_JOB: Final = 3


class ResultPage(msgspec.Struct, array_like=True):
    """A page of consecutive jobs."""

    #: Code of the result and number of the node of each job; compressed once all jobs of the page have finished.
    data: bytearray
    #: Number of unfinished jobs in the page.
    left: int


class JobResults:
    """The pages of one operation's jobs."""

    def __init__(self, job_count: int, pages: Iterable[ResultPage] = ()) -> None:
        self._job_count = job_count
        self.pages = [msgspec.structs.replace(page, data=bytearray(page.data)) for page in pages]
        #: Bytes of all pages.
        self.size_bytes = sum(len(page.data) for page in self.pages)

    def extend(self, below: int) -> None:
        """Add pages for the jobs below an index."""
        while len(self.pages) * _JOBS_OF_A_PAGE < below:
            jobs = min(_JOBS_OF_A_PAGE, self._job_count - len(self.pages) * _JOBS_OF_A_PAGE)
            self.pages.append(ResultPage(bytearray(jobs * _BYTES_OF_A_JOB), jobs))
            self.size_bytes += jobs * _BYTES_OF_A_JOB

    def record(self, index: int, code: int, node: int, *, is_over: bool) -> None:
        """Record the end of an attempt. `is_over` is True if no other attempt of the job follows."""
        number, job = divmod(index, _JOBS_OF_A_PAGE)
        page, at = self.pages[number], job * _BYTES_OF_A_JOB
        assert page.left, "a job ended in a page whose jobs are all over"
        page.data[at : at + _BYTES_OF_A_JOB] = (code, *node.to_bytes(2))
        page.left -= is_over
        if not page.left:
            self.size_bytes -= len(page.data)
            page.data = bytearray(zlib.compress(page.data, 1))
            self.size_bytes += len(page.data)

    def find(self, first: int, codes: Collection[int]) -> Iterator[tuple[int, int, int]]:
        """Yield index, code and node of each job from `first` on that has one of these codes, in order."""
        wanted = re.compile(b"[" + re.escape(bytes(codes)) + b"]")
        for number in range(first // _JOBS_OF_A_PAGE, len(self.pages)):
            page, begin = self.pages[number], number * _JOBS_OF_A_PAGE
            data = page.data if page.left else zlib.decompress(page.data)
            # The search runs over the bytes of the codes alone: a loop over a million jobs would take a hundred times as long.
            for found in wanted.finditer(bytes(data[::_BYTES_OF_A_JOB]), max(0, first - begin)):
                at = found.start() * _BYTES_OF_A_JOB
                yield begin + found.start(), data[at], int.from_bytes(data[at + 1 : at + _BYTES_OF_A_JOB])

    def read(self, first: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield code and node of each job from `first` up to `end`, as far as there are pages.

        Both are 0 for a job of which no attempt has ended.
        """
        for number in range(first // _JOBS_OF_A_PAGE, len(self.pages)):
            page, begin = self.pages[number], number * _JOBS_OF_A_PAGE
            data = page.data if page.left else zlib.decompress(page.data)
            for at in range(max(0, first - begin) * _BYTES_OF_A_JOB, len(data), _BYTES_OF_A_JOB):
                if begin + at // _BYTES_OF_A_JOB >= end:
                    return
                yield data[at], int.from_bytes(data[at + 1 : at + _BYTES_OF_A_JOB])
