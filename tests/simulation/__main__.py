"""`python -m tests.simulation [--seeds N] [--first F] [--seed S]`: runs seeded worlds; a failing one says how to see it again."""

from __future__ import annotations

import argparse
import functools
import gc
import importlib
import io
import os
import pkgutil
import sys
import time

import headrace
import headrace_admission
import headrace_agent
import headrace_allocator
import headrace_fair_share
import headrace_integral
from headrace.obs.logging import configure
from tests.simulation.forks import courses_of
from tests.simulation.length import BRIEF, LONG
from tests.simulation.planted import PLANTED, planted
from tests.simulation.programs import run_seed


def main() -> int:
    """Runs what is asked for; 1 if a world broke."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=20, help="how many seeds to run (20)")
    parser.add_argument("--first", type=int, default=1, help="the first seed (1)")
    parser.add_argument("--processes", type=int, default=1, help="how many run at a time (1); 0: one on each core")
    parser.add_argument("--seed", type=int, help="one seed, with what happened in it")
    parser.add_argument("--brief", action="store_true", help="shorter courses, as in make test")
    parser.add_argument("--logs", action="store_true", help="also print the logs of the services")
    parser.add_argument("--plant", choices=sorted(PLANTED), help="put a fault into the product, to see it found")
    parser.add_argument("--until-failure", action="store_true", help="stop at the first seed that breaks")
    arguments = parser.parse_args()
    if os.environ.get("PYTHONHASHSEED") != "0":
        # Sets of strings would be iterated in another order in every run.
        os.execve(
            sys.executable,
            [sys.executable, "-m", "tests.simulation", *sys.argv[1:]],
            {**os.environ, "PYTHONHASHSEED": "0"},
        )
    _prepare(with_logs=arguments.logs)
    if arguments.seed is not None:
        arguments.first, arguments.seeds = arguments.seed, 1
    began_s, failed, done, preempted = time.monotonic(), 0, 0, 0
    run = functools.partial(run_seed, length=BRIEF if arguments.brief else LONG)
    again = (" --brief" if arguments.brief else "") + (f" --plant {arguments.plant}" if arguments.plant else "")
    seeds = range(arguments.first, arguments.first + arguments.seeds)
    with planted(arguments.plant):
        for course in courses_of(seeds, run, arguments.processes or os.cpu_count() or 1):
            done += 1
            preempted += course.preempted
            if arguments.seed is not None:
                print("\n".join(course.log))
            if course.failure:
                failed += 1
                print(
                    f"seed {course.seed}: {course.failure}\n  again: python -m tests.simulation --seed {course.seed}{again}"
                )
                if arguments.until_failure:
                    break
            if done % 100 == 0:
                print(f"{done} of {arguments.seeds} seeds, {time.monotonic() - began_s:.0f} s, {failed} failed")
            sys.stdout.flush()
    print(f"{preempted} jobs were preempted")
    print(f"{done - failed} passed, {failed} failed in {time.monotonic() - began_s:.0f} s")
    return 1 if failed else 0


def _prepare(*, with_logs: bool = False) -> None:
    # A module that is imported in the middle of a world would change its course, and only in the first world.
    for package in (
        headrace,
        headrace_admission,
        headrace_agent,
        headrace_allocator,
        headrace_fair_share,
        headrace_integral,
    ):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.endswith("__main__"):
                importlib.import_module(module.name)
    if with_logs:
        configure("simulation", "debug")
    else:
        configure("simulation", "error", io.StringIO())
    # Objects of a killed process are closed when its world is over, and complain that there is no loop any more.
    sys.unraisablehook = lambda _unraisable: None
    # Objects that are made at their first use are made once, not in each world: decoders, and many objects of libraries.
    run_seed(0, length=BRIEF)
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    sys.exit(main())
