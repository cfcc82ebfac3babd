"""Simulates the workloads of docs/why/real-workloads.md, and writes their figures into the page.

    python -m docs.generate.real_workloads TRACES [NAME ...]

TRACES is the folder of the traces. The commands are those of the page. Each takes some minutes; with names, such as nasa, only these are
run. The records from which the pictures are drawn are written to docs/pictures/real-workloads/. Without TRACES, only the tables of the
page are written from the records that are there.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from docs.pictures.real_workloads import PAGE, PICTURES, RECORDS, record, recorded
from headrace.wire.simulation import Simulation
from headrace_cli.simulate.tables import cluster_rows, facts, notes, pool_rows

__all__ = ["commands_of", "main", "with_figures"]

_COMMAND: Final = re.compile(r"^headrace (simulate .+)$", re.MULTILINE)
_SCRIPT: Final = re.compile(r"^```sh\n(echo .*?)^```$", re.MULTILINE | re.DOTALL)
_PLACE: Final = re.compile(r"<!-- figures: (\w+) -->\n.*?<!-- end of figures -->\n", re.DOTALL)


def commands_of(page: str) -> dict[str, list[str]]:
    """The arguments of the page's commands, by the name of the picture, in the order of the page."""
    found = [shlex.split(command) for command in _COMMAND.findall(page)]
    return dict(zip(PICTURES, found, strict=True))


def with_figures(page: str) -> str:
    """The page with the figures of the records."""
    return _PLACE.sub(
        lambda place: f"{place[0].splitlines()[0]}\n{_figures(record(place[1]))}<!-- end of figures -->\n", page
    )


def _figures(answer: Simulation) -> str:
    lines = [f"{line}.\n" for line in facts(answer)]
    lines += ["", *_table(cluster_rows(answer)), ""]
    for setup in answer.setups:
        lines += [f"Pools under `{setup.name}`, those with the most usage:", "", *_table(pool_rows(answer, setup)), ""]
    lines += [f"* {note}" for note in notes(answer)]
    return "\n".join(line.rstrip("\n") for line in lines) + "\n\n"


def _table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    for number, row in enumerate(rows):
        cells = (" ".join(cell.replace("-\n", "").split()).replace("<Root>", "all") for cell in row)
        yield f"| {' | '.join(cells)} |"
        if not number:
            yield f"|{'---|' * len(row)}"


def main() -> None:
    """Simulate, and write the page and the records."""
    if len(sys.argv) > 1:
        traces, *names = sys.argv[1:]
        _simulate(PAGE.read_text(), Path(traces), names or PICTURES)
    # The simulations take long, and the page may have been edited meanwhile.
    PAGE.write_text(with_figures(PAGE.read_text()))


def _simulate(page: str, traces: Path, names: Sequence[str]) -> None:
    """Type the page's commands beside the traces, and keep their answers."""
    program = Path(sys.executable).parent / "headrace"
    with tempfile.TemporaryDirectory() as folder:
        for trace in traces.iterdir():
            (Path(folder) / trace.name).symlink_to(trace.resolve())
        for script in _SCRIPT.findall(page):
            subprocess.run(["bash", "-euc", script], cwd=folder, check=True)
        for name, words in commands_of(page).items():
            if name in names:
                done = subprocess.run([program, *words, "--json"], cwd=folder, stdout=subprocess.PIPE, check=True)
                answer = recorded(msgspec.json.decode(done.stdout, type=Simulation))
                RECORDS.mkdir(exist_ok=True)
                (RECORDS / f"{name}.json").write_bytes(msgspec.json.encode(answer) + b"\n")


if __name__ == "__main__":
    main()
