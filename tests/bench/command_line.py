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
_FEW_RUNS = 3
#: Commands that change nothing, of which each loads something that others do not.
_READING = (
    *("op list", "op get of-research", "op get of-research --jobs", "op explain of-research", "op history of-research"),
    *("op logs of-research", "pool list", "pool tree", "pool get research", "pool explain research", "pool starving"),
    *("pool volume research", "pool export", "tree list", "tree get default", "node list", "node get alpha"),
    *("service list", "service figures", "top --once", "whoami", "trace of-research"),
    *(
        "plan --live --create guests",
        "tree set default max_operation_count=99 --dry-run",
        "run --dry-run --pool research -- true",
    ),
)
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


@REGISTRY.add("cli_read_ms", "of a processor, the slowest command that only reads, against `headrace up`", 250)
def read() -> Figure:
    """Each is told on stderr, the slowest first."""
    with Up() as up:
        up.run("run", "--pool", "research", "--jobs", "3", "--id", "of-research", "--", "sleep", "600")
        figures = {words: Figure.of(_cpu_ms(words.split(), up.environment, _FEW_RUNS), "ms") for words in _READING}
    worst = sorted(figures, key=lambda words: -figures[words].median)
    for words in worst:
        print(f"  headrace {words}: {figures[words].median:.0f} ms", file=sys.stderr)
    return figures[worst[0]]


def _cpu_ms(words: list[str], environment: Mapping[str, str], runs: int = _RUNS) -> list[float]:
    # Without it every process would compile all that it imports.
    environment = {name: value for name, value in environment.items() if name != "PYTHONDONTWRITEBYTECODE"}
    spent = []
    for _ in range(runs + 1):
        before = _of_children_ms()
        subprocess.run([_PROGRAM, *words], env=environment, stdout=subprocess.DEVNULL, check=True)
        spent.append(_of_children_ms() - before)
    return spent[1:]  # the first one reads the files from the disk


def _of_children_ms() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (usage.ru_utime + usage.ru_stime) * 1e3
