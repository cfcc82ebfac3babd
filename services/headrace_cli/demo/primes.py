"""One job of the demo: count the primes in the job's own range of numbers. Stands alone and imports nothing of Headrace.

A number as argument is the least number of seconds for which it counts: it goes on with the ranges of the next jobs until then.
"""

import os
import sys
import time

_FIRST = 10_000_000
_STRETCH = 8_000


def count(first: int, stretch: int) -> int:
    """Return the number of primes from `first` to `first + stretch - 1`, by trial division."""
    found = 0
    for number in range(max(first, 2), first + stretch):
        divisor = 2
        while divisor * divisor <= number and number % divisor:
            divisor += 1
        found += divisor * divisor > number
    return found


if __name__ == "__main__":
    until_s = time.monotonic() + float(sys.argv[1] if len(sys.argv) > 1 else 0)
    first = _FIRST + int(os.environ["HEADRACE_JOB_INDEX"]) * _STRETCH
    found, end = count(first, _STRETCH), first + _STRETCH
    while time.monotonic() < until_s:
        found, end = found + count(end, _STRETCH), end + _STRETCH
    print(f"{found} primes from {first} to {end - 1}")
    sys.stderr.write(f"counted on {os.environ['HEADRACE_NODE']}\n")
