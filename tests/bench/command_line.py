"""Commands that a person waits for: the processor time of each as a process of its own, its children and the wait for answers apart."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.bench.registry import REGISTRY, Figure
from tests.support.headrace_up import Up

_RUNS = 9
_PROGRAM = Path(sys.executable).with_name("headrace")


@REGISTRY.add("cli_start_ms", "of a processor, the slower of `headrace --help` and a Tab that asks for no names", 150)
def start() -> Figure:
    asked = (["--help"], ["complete", "zsh", "--", "po"], ["complete", "zsh", "--", "pool", "set", "research", ""])
    figures = [Figure.of(_cpu_ms(words, os.environ), "ms") for words in asked]
    return max(figures, key=lambda figure: figure.median)


@REGISTRY.add("cli_pool_list_ms", "of a processor, `headrace pool list` against `headrace up`", 250)
def pool_list() -> Figure:
    with Up() as up:
        return Figure.of(_cpu_ms(["pool", "list"], up.environment), "ms")


def _cpu_ms(words: list[str], environment: Mapping[str, str]) -> list[float]:
    # Without it every process would compile all that it imports.
    environment = {name: value for name, value in environment.items() if name != "PYTHONDONTWRITEBYTECODE"}
    spent = []
    for _ in range(_RUNS + 1):
        before = _of_children_ms()
        subprocess.run([_PROGRAM, *words], env=environment, stdout=subprocess.DEVNULL, check=True)
        spent.append(_of_children_ms() - before)
    return spent[1:]  # the first one reads the files from the disk


def _of_children_ms() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (usage.ru_utime + usage.ru_stime) * 1e3
