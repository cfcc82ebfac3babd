"""`python -m tests.soak [--rounds N] [--first R] [--seed S]`: kills real processes at named places, round after round.

Status 0 if everything that was promised came true and each named place was hit.
"""

from __future__ import annotations

import argparse
import sys
import time

from tests.soak.rounds import Soak, Violation


def main() -> int:
    """Runs the rounds, telling of each."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--rounds", type=int, default=200, help="how many rounds (200)")
    parser.add_argument("--first", type=int, default=0, help="the number of the first round (0)")
    parser.add_argument("--seed", type=int, default=1, help="of all that is drawn (1)")
    arguments = parser.parse_args()
    began_s = time.monotonic()
    hits: dict[str, int] = {}
    jobs = again = 0
    with Soak(arguments.seed) as soak:
        for number in range(arguments.first, arguments.first + arguments.rounds):
            began_round_s = time.monotonic()
            try:
                hit = soak.round(number)
            except Violation as error:
                print(f"round {number}: {error}", flush=True)
                print(f"  again: python -m tests.soak --seed {arguments.seed} --first {number} --rounds 1", flush=True)
                print(soak.up.said()[-4000:], flush=True)
                return 1
            place = hit.words.partition(" (")[0]
            hits[place] = hits.get(place, 0) + hit.was_hit
            jobs, again = jobs + hit.jobs, again + hit.ran_again
            words = "" if hit.was_hit else ", not passed in time"
            print(f"round {number:3d}  {hit.words}{words}  {time.monotonic() - began_round_s:.1f} s", flush=True)
    missed = sorted(place for place, count in hits.items() if not count)
    print(f"{arguments.rounds} rounds, {jobs} jobs, {again} ran again, {time.monotonic() - began_s:.0f} s")
    if missed:
        print("never passed: " + ", ".join(missed))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
