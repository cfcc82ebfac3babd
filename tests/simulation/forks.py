"""Each seed in a process of its own, forked from one that has imported and used everything: no seed can make a difference to another.

A seed whose process dies has failed as one whose world breaks.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import multiprocessing
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkProcess
from typing import Any, Final

from tests.simulation.programs import Course

__all__ = ["courses_of"]

_FORK: Final = multiprocessing.get_context("fork")


def courses_of(seeds: Iterable[int], run: Callable[[int], Course], at_once: int) -> Iterator[Course]:
    """Yields one course for each seed, as they end; so many run at once."""
    waiting = iter(seeds)
    running: dict[Any, tuple[int, ForkProcess]] = {}
    try:
        while True:
            for seed in itertools.islice(waiting, at_once - len(running)):
                pipe, process = _begin(run, seed)
                running[pipe] = (seed, process)
            if not running:
                return
            for pipe in wait(list(running)):
                seed, process = running.pop(pipe)
                yield _end_of(seed, pipe, process)
    finally:
        for _, process in running.values():
            process.kill()


def _begin(run: Callable[[int], Course], seed: int) -> tuple[Any, ForkProcess]:
    ours, theirs = _FORK.Pipe(duplex=False)
    process = _FORK.Process(target=_report, args=(theirs, run, seed))
    process.start()
    theirs.close()
    return ours, process


def _end_of(seed: int, pipe: Any, process: ForkProcess) -> Course:
    course: Course | None = None
    with pipe, contextlib.suppress(EOFError):
        course = pipe.recv()
    process.join()
    return course or Course(seed, f"its process ended with {process.exitcode} and told nothing", [])


def _report(there: Connection, run: Callable[[int], Course], seed: int) -> None:
    # A collection in the middle of a course would change the course, as it closes generators; and all is gone with the process.
    gc.disable()
    there.send(run(seed))
