"""Headrace in simulated worlds: nothing is lost and nothing runs twice, whatever breaks; and what is broken on purpose is found.

Each batch is a process of its own, so that a seed takes the same course in every run. `make sim` runs any number of them.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.simulation.planted import PLANTED
from tests.support.effort import LONG, few_or_many

SEEDS_OF_A_BATCH = 20
ROUNDS = 20


def simulate(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.simulation", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONHASHSEED": "0"})


@pytest.mark.both
@pytest.mark.parametrize("batch", range(few_or_many(10, 50)))
def test_nothing_is_lost_and_nothing_runs_twice_whatever_breaks(batch: int) -> None:
    first = batch * SEEDS_OF_A_BATCH + 1

    length = [] if LONG else ["--brief"]
    ran = simulate("--seeds", str(SEEDS_OF_A_BATCH), "--first", str(first), *length)

    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.parametrize("seed", [26])
def test_a_seed_takes_the_same_course_whatever_ran_before_it(seed: int) -> None:
    alone = simulate("--seed", str(seed)).stdout
    after = simulate("--seed", str(seed), "--after", str(seed + 1)).stdout

    assert alone.splitlines()[:-1] == after.splitlines()[:-1]


@pytest.mark.long
@pytest.mark.parametrize("fault", sorted(PLANTED))
def test_a_fault_that_is_planted_is_found(fault: str) -> None:
    ran = simulate("--plant", fault, "--seeds", str(ROUNDS), "--until-failure")

    assert ran.returncode == 1, f"{fault} is not found within {ROUNDS} seeds: {ran.stdout}{ran.stderr}"
    assert "again: python -m tests.simulation" in ran.stdout
