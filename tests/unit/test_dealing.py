"""The order of tests on several workers."""

from __future__ import annotations

import pytest

from tests.support.dealing import dealt

Test = tuple[str, str, int]
TESTS: list[Test] = [
    *(("acceptance", f"module {number % 7}", number) for number in sorted(range(40), key=lambda number: number % 7)),
    *(("properties", "seeds", number) for number in range(10)),
    *(("unit", "many", number) for number in range(200)),
]


@pytest.mark.parametrize("workers", [2, 3, 4])
def test_each_worker_has_its_part_of_the_long_tests_and_short_ones_last(workers: int) -> None:
    order = dealt(TESTS, workers, lambda test: test[:2])

    assert sorted(order) == sorted(TESTS)
    left, runs = list(order), []
    for worker in range(workers):
        size = len(left) // (workers - worker)
        runs.append(left[:size])
        left = left[size:]
    for run in runs:
        folders = [folder for folder, _, _ in run]
        assert folders[-1] == "unit"
        assert folders.count("properties") >= 10 // workers
        assert "acceptance" in folders
    owners = {
        module: {number for number, run in enumerate(runs) for _, each, _ in run if each == module}
        for _, module, _ in TESTS
    }
    assert all(len(owner) == 1 for module, owner in owners.items() if module.startswith("module"))
