"""Headrace in simulated worlds: nothing is lost and nothing runs twice, whatever breaks; and what is broken on purpose is found.

Each seed is a process of its own, so that it takes the same course in every run. `make sim` runs any number of them.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Final

import anyio
import psutil
import pytest

from tests.simulation.faults import (
    Fault,
    freeze_an_agent,
    kill_a_runner,
    lose_a_host,
    lose_an_agent,
    lose_the_leader,
)
from tests.simulation.hosts import Host
from tests.simulation.loop import VirtualLoop, run_virtually
from tests.simulation.planted import PLANTED
from tests.simulation.world import World
from tests.support.effort import LONG, few_or_many

#: Every batch imports everything once.
SEEDS_OF_A_BATCH = few_or_many(10, 20)
#: The first seed that finds it ends the search. Seeds are aimed in turn, so that each aim is tried more than four times: which seed
#: finds a fault changes with the order in which services do things.
ROUNDS = 40
#: As the simulation sets it for itself otherwise, which starts it twice.
ENVIRONMENT: Final = {**os.environ, "PYTHONHASHSEED": "0"}


def simulation(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "tests.simulation", *arguments]


def simulate(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(simulation(*arguments), capture_output=True, text=True, env=ENVIRONMENT)


@pytest.mark.both
@pytest.mark.timeout(600)
@pytest.mark.parametrize("batch", range(2))
def test_nothing_is_lost_and_nothing_runs_twice_whatever_breaks(batch: int) -> None:
    first = batch * SEEDS_OF_A_BATCH + 1

    length = [] if LONG else ["--brief"]
    ran = simulate("--seeds", str(SEEDS_OF_A_BATCH), "--first", str(first), *length)

    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.long
@pytest.mark.parametrize("seed", [9, pytest.param(26, marks=pytest.mark.long)])
def test_a_seed_takes_the_same_course_in_every_run(seed: int) -> None:
    first, second = (simulate("--brief", "--seed", str(seed)).stdout.splitlines() for _ in range(2))

    assert len(first) > 10
    assert first[:-1] == second[:-1]


@pytest.mark.long
def test_a_seed_whose_process_dies_is_told_and_the_others_go_on() -> None:
    command = simulation("--brief", "--seeds", "2")
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT) as batch:
        first: list[psutil.Process] = []
        while not first:
            first = psutil.Process(batch.pid).children()
        first[0].kill()
        assert batch.stdout is not None
        said = batch.stdout.read()

    assert "seed 1: its process ended with -9 and told nothing" in said
    assert "1 passed, 1 failed" in said
    assert batch.returncode == 1


def test_of_one_process_there_is_never_a_second_one_beside_it() -> None:
    running: list[str] = []

    async def program(process: str) -> None:
        running.append(process)
        await anyio.sleep_forever()

    async def course(loop: VirtualLoop) -> list[str]:
        world = World(loop)
        world.hosts["n0"] = Host("n0", 1, loop, world.truth)
        for name in ("admission.a", "agent.n0"):
            world.start(name, program)
        await anyio.sleep(1)
        # A second kill, and a loss of power, before the supervisor starts anything again.
        for name in ("admission.a", "admission.a", "agent.n0"):
            world.kill(name)
        world.switch_off("n0")
        await anyio.sleep(1)
        without_power = list(running)
        # Two faults that end.
        world.switch_on("n0")
        world.switch_on("n0")
        await anyio.sleep(1)
        return without_power

    without_power = run_virtually(1, course)

    assert without_power == ["admission.a#1", "agent.n0#1", "admission.a#2"]
    assert running == [*without_power, "agent.n0#2"]


@pytest.mark.parametrize("fate", ["lost", "frozen", "there"])
def test_a_runner_dies_only_where_an_agent_can_start_another(fate: str) -> None:
    async def course(loop: VirtualLoop) -> bool:
        world = World(loop)
        host = world.hosts["n0"] = Host("n0", 1, loop, world.truth)
        host.start_runner()
        world.start("agent.n0", lambda _: anyio.sleep_forever())
        await anyio.sleep(1)
        if fate == "frozen":
            world.freeze("agent.n0")
        elif fate == "lost":
            world.given_up.add("agent.n0")
            world.kill("agent.n0")
        await kill_a_runner(world)
        return host.runner is None

    assert run_virtually(1, course) == (fate == "there")


@pytest.mark.parametrize("fault", [lose_an_agent, freeze_an_agent])
def test_an_agent_does_not_go_away_while_a_runner_must_be_started(fault: Fault) -> None:
    async def course(loop: VirtualLoop) -> list[str]:
        world = World(loop)
        world.hosts["n0"] = Host("n0", 1, loop, world.truth)
        world.start("agent.n0", lambda _: anyio.sleep_forever())
        await fault(world)
        return world.log

    assert run_virtually(1, course) == []


def test_streams_answer_again_when_the_loss_of_their_leader_is_over() -> None:
    """A world was called healed in which nothing could start for nine seconds more."""

    async def course(loop: VirtualLoop) -> bool:
        world = World(loop)
        await lose_the_leader(world)
        return world.server.has_leader

    assert run_virtually(1, course)


@pytest.mark.parametrize("is_gone", [False, True])
def test_power_comes_back_to_a_machine_unless_it_was_given_up_meanwhile(is_gone: bool) -> None:
    async def course(loop: VirtualLoop) -> bool:
        world = World(loop)
        host = world.hosts["n0"] = Host("n0", 1, loop, world.truth)
        world.start("agent.n0", lambda _: anyio.sleep_forever())
        if is_gone:
            world.gone["n0"] = "n0"
        await lose_a_host(world)
        return host.is_on

    assert run_virtually(1, course) != is_gone


@pytest.mark.long
@pytest.mark.parametrize("fault", sorted(PLANTED))
def test_a_fault_that_is_planted_is_found(fault: str) -> None:
    # Brief worlds draw another tree's jobs sooner (at seed 7) than full ones (at 23).
    length = ["--brief"] if fault == "jobs-of-other-trees-drawn" else []
    ran = simulate(*length, "--plant", fault, "--seeds", str(ROUNDS), "--until-failure")

    assert ran.returncode == 1, f"{fault} is not found within {ROUNDS} seeds: {ran.stdout}{ran.stderr}"
    assert "again: python -m tests.simulation" in ran.stdout
