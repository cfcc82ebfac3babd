"""Indexes of jobs as people write them."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import BadInput
from headrace.job_indexes import indexes_text, parse_indexes


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("7", [7]),
        ("0-3", [0, 1, 2, 3]),
        ("1-9:4,200", [1, 5, 9, 200]),
        ("1-8:4, 3", [1, 5, 3]),
        ("5-5", [5]),
    ],
)
def test_numbers_and_ranges_with_steps_in_the_order_in_which_they_stand(text: str, expected: list[int]) -> None:
    found = parse_indexes(text)
    assert [found.of_job(number) for number in range(len(found))] == expected
    assert found.highest() == max(expected)


@pytest.mark.parametrize(
    "text", ["", "a", "3-1", "1,,2", "1-3:0", "-1", "1,1", "1-5,3", "0-1000001", "1000000001", "1-", "1:2", "1-3:"]
)
def test_anything_else_is_refused_with_what_is_accepted(text: str) -> None:
    with pytest.raises(BadInput, match="indexes"):
        parse_indexes(text)


@given(st.lists(st.builds(range, st.integers(0, 30), st.integers(31, 60), st.integers(1, 12)), min_size=1, max_size=4))
def test_ranges_may_lie_within_one_another_but_share_no_index(ranges: list[range]) -> None:
    text = ",".join(f"{each.start}-{each.stop - 1}:{each.step}" for each in ranges)
    indexes = [index for each in ranges for index in each]
    if len(set(indexes)) == len(indexes):
        assert len(parse_indexes(text)) == len(indexes)
    else:
        with pytest.raises(BadInput, match="each index once"):
            parse_indexes(text)


def test_a_short_text_takes_little_work_however_many_indexes_it_has() -> None:
    tracemalloc.start()
    try:
        assert len(parse_indexes("0-999996:2,1-999999:2")) == 999_999
        with pytest.raises(BadInput, match="at most 10000 pairs"):
            parse_indexes(",".join(f"{first}-{990_000 + first}:9999" for first in range(1_000)))
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()


@given(st.sets(st.integers(0, 300)).filter(bool))
def test_written_indexes_are_read_back(indexes: set[int]) -> None:
    found = parse_indexes(indexes_text(sorted(indexes)))
    assert [found.of_job(number) for number in range(len(found))] == sorted(indexes)


RANGES = st.builds(lambda first, more, step: range(first, first + more + 1, step), *(st.integers(1, 30),) * 3)


@given(st.lists(RANGES, min_size=2, max_size=4))
def test_an_index_in_two_ranges_is_refused(ranges: list[range]) -> None:
    text = ",".join(f"{each.start}-{each.stop - 1}:{each.step}" for each in ranges)
    indexes = [index for each in ranges for index in each]
    if len(set(indexes)) < len(indexes):
        with pytest.raises(BadInput, match="each index once"):
            parse_indexes(text)
    else:
        assert len(parse_indexes(text)) == len(indexes)
