"""Numbers by index, in pages."""

from __future__ import annotations

from random import Random

from headrace_admission.state.indexed_numbers import IndexedNumbers


def test_always_the_numbers_of_a_plain_dict_also_when_taken_from_a_record() -> None:
    random = Random(3)
    numbers, plain = IndexedNumbers(), dict[int, int]()
    for _ in range(2_000):
        index, value = random.randrange(20_000), random.choice([0, 0, 1, 2, 254, 255, 256, 2**31 - 1, -9])
        numbers[index] = value
        plain[index] = value
        if random.random() < 0.01:
            numbers = IndexedNumbers(numbers.pages, dict(numbers.large))
    there = sorted((index, value) for index, value in plain.items() if value)

    assert list(numbers.items()) == there
    assert list(numbers.items(7_000)) == [(index, value) for index, value in there if index >= 7_000]
    assert {index: numbers[index] for index in range(20_000)} == {index: plain.get(index, 0) for index in range(20_000)}


def test_an_older_record_that_has_every_number_by_itself_is_taken() -> None:
    assert list(IndexedNumbers({}, {5: 2, 4096: 300}).items()) == [(5, 2), (4096, 300)]
