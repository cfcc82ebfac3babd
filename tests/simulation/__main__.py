"""`python -m tests.simulation [--seeds N | --seed S] [--first F]`: runs seeded worlds; a failing one prints how to see it again."""

from __future__ import annotations

import argparse
import io
import os
import sys
import time

from headrace.obs.logging import configure
from tests.simulation.programs import run_seed


def main() -> int:
    """Runs what is asked for; 1 if a world broke."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=20, help="how many seeds to run (20)")
    parser.add_argument("--first", type=int, default=1, help="the first seed (1)")
    parser.add_argument("--seed", type=int, help="one seed, with what happened in it")
    parser.add_argument("--logs", action="store_true", help="also print the logs of the services")
    arguments = parser.parse_args()
    if os.environ.get("PYTHONHASHSEED") != "0":
        # Sets of strings would be iterated in another order in every run.
        os.execve(
            sys.executable,
            [sys.executable, "-m", "tests.simulation", *sys.argv[1:]],
            {**os.environ, "PYTHONHASHSEED": "0"},
        )
    configure("simulation", *(("debug", sys.stdout) if arguments.logs else ("error", io.StringIO())))
    seeds = (
        [arguments.seed] if arguments.seed is not None else range(arguments.first, arguments.first + arguments.seeds)
    )
    began, failed = time.monotonic(), []
    for seed in seeds:
        outcome = run_seed(seed)
        if arguments.seed is not None:
            print("\n".join(outcome.log))
        if outcome.failure:
            failed.append(seed)
            print(f"seed {seed}: {outcome.failure}\n  again: python -m tests.simulation --seed {seed}", flush=True)
    print(f"{len(seeds) - len(failed)} passed, {len(failed)} failed in {time.monotonic() - began:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    # Frozen coroutines of killed processes are not worth waiting for.
    os._exit(code)
