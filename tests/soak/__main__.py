"""`python -m tests.soak [--rounds N] [--first R] [--seed S]`: kills real processes at named places, round after round.

Status 0 if everything that was promised came true and each named place was hit.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter

from tests.soak.rounds import Hit, Soak


class Tally:
    """How often each place was aimed at, and how often it was hit."""

    def __init__(self) -> None:
        self._aimed: Counter[str] = Counter()
        self._hit: Counter[str] = Counter()
        self.jobs = 0
        self.ran_again = 0

    def add(self, hit: Hit) -> None:
        """Counts a round."""
        place = hit.words.partition(" (")[0]
        self._aimed[place] += 1
        self._hit[place] += hit.was_hit
        self.jobs += hit.jobs
        self.ran_again += hit.ran_again

    @property
    def missed(self) -> list[str]:
        """Places that were aimed at and never hit."""
        return sorted(place for place in self._aimed if not self._hit[place])

    def lines(self) -> list[str]:
        """One line for each place."""
        return [f"{self._hit[place]:4d} of {self._aimed[place]:3d}  {place}" for place in sorted(self._aimed)]


def main() -> int:
    """Runs the rounds, telling of each and in the end of each place."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--rounds", type=int, default=200, help="how many rounds (200)")
    parser.add_argument("--first", type=int, default=0, help="the number of the first round (0)")
    parser.add_argument("--seed", type=int, default=1, help="of all that is drawn (1)")
    arguments = parser.parse_args()
    began_s, tally = time.monotonic(), Tally()
    last = arguments.first + arguments.rounds - 1
    failed = False
    with Soak(arguments.seed) as soak:
        for number in range(arguments.first, last + 1):
            began_round_s = time.monotonic()
            try:
                hit = soak.round(number)
            except AssertionError as error:
                failed = True
                print(f"round {number}: {error}", flush=True)
                print(f"  again: python -m tests.soak --seed {arguments.seed} --first {number} --rounds 1", flush=True)
                print(soak.up.said()[-4000:], flush=True)
                break
            tally.add(hit)
            words = "" if hit.was_hit else ", not passed in time"
            took_s = time.monotonic() - began_round_s
            print(f"round {number:3d} of {last}  {hit.words}{words}  {took_s:.1f} s", flush=True)
    print("\n".join(["hit:", *tally.lines()]))
    print(f"{tally.jobs} jobs, {tally.ran_again} ran again, {time.monotonic() - began_s:.0f} s")
    if tally.missed:
        print("never passed: " + ", ".join(tally.missed))
    return 1 if failed or tally.missed else 0


if __name__ == "__main__":
    sys.exit(main())
