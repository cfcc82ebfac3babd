"""The order of tests on several workers: each begins with its part of the long ones and ends with short ones.

A worker that is done takes over the last tests of another one, so these had better be short. Tests that wait for processes and
servers run beside tests that compute; modules of the former stay together, as they share a stack.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import groupby
from typing import Final, TypeVar

__all__ = ["dealt"]

T = TypeVar("T")

WAITING: Final = ("acceptance", "contract", "integration", "security")


def dealt(items: Iterable[T], workers: int, place_of: Callable[[T], tuple[str, str]]) -> list[T]:
    """Orders tests for workers that get equal runs of them; `place_of` tells a test's folder and module."""
    kinds: dict[str, list[T]] = {"waiting": [], "properties": [], "short": []}
    for item in items:
        folder = place_of(item)[0]
        kinds["waiting" if folder in WAITING else folder if folder in kinds else "short"].append(item)
    waiting: list[list[T]] = [[] for _ in range(workers)]
    for _, module in groupby(kinds["waiting"], place_of):
        min(waiting, key=len).extend(module)
    ordered: list[T] = []
    left, short = sum(map(len, kinds.values())), iter(kinds["short"])
    for worker, own in enumerate(waiting):
        computing = kinds["properties"][worker::workers]
        long = own + computing if worker % 2 else computing + own
        run = left // (workers - worker)
        left -= run
        ordered += long
        ordered += [item for _, item in zip(range(run - len(long)), short, strict=False)]
    return [*ordered, *short]
