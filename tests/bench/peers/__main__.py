"""`python -m tests.bench.peers`: HyperQueue, Dask and Ray beside Headrace, the same jobs in the same minutes.

Each peer is installed into an environment of its own below `build/peers`. One that cannot be installed or run is named with the reason.
With BUSY=1 one process for each core spins meanwhile.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import venv
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from tests.bench.busy import other_work

_ROOT: Final = Path(__file__).parents[3]
_ENVIRONMENTS: Final = _ROOT / "build" / "peers"
#: The package that each is installed from.
_PEERS: Final = {"hyperqueue": "hyperqueue", "dask": "distributed", "ray": "ray"}
_OWN: Final = "headrace"
_PATIENCE_S: Final = 600
_INSTALL_S: Final = 600


class Peer(NamedTuple):
    """A system that can be measured: its name, its interpreter, its program."""

    name: str
    python: str
    program: str


class Result(NamedTuple):
    """What one run of a peer's program came to."""

    jobs_per_second: float
    start_ms: float


class Failed(Exception):
    """A peer could not be installed, or its program did not end well."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.peers", description=__doc__)
    parser.add_argument("--jobs", type=int, default=5_000, help="processes that do nothing, given at once (5000)")
    parser.add_argument("--starts", type=int, default=100, help="single ones, one after the other (100)")
    parser.add_argument("--rounds", type=int, default=3, help="each system so often, by turns (3)")
    parser.add_argument("--only", default="", metavar="NAME,NAME", help=f"of {', '.join(_PEERS)}")
    wished = parser.parse_args()
    names = [name for name in wished.only.split(",") if name] or [*_PEERS]
    if unknown := [name for name in names if name not in _PEERS]:
        parser.error(f"there is no peer {unknown[0]}, there are: {', '.join(_PEERS)}")
    systems = [Peer(_OWN, sys.executable, "own"), *_installed(names)]
    results: dict[str, list[Result]] = {system.name: [] for system in systems}
    with other_work():
        for number in range(wished.rounds):
            for system in systems:
                print(f"round {number + 1} of {wished.rounds}: {system.name}", file=sys.stderr, flush=True)
                try:
                    results[system.name].append(_run(system, wished.jobs, wished.starts))
                except Failed as failure:
                    print(f"{system.name} was not measured: {failure}", file=sys.stderr)
    _print_table(results)
    return 0 if results[_OWN] else 1


def _installed(names: list[str]) -> list[Peer]:
    found = []
    for name in names:
        try:
            found.append(_install(name))
        except Failed as failure:
            print(f"{name} cannot be installed: {failure}", file=sys.stderr)
    return found


def _install(name: str) -> Peer:
    folder = _ENVIRONMENTS / name
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
    words = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", _PEERS[name]]
    try:
        subprocess.run(words, check=True, capture_output=True, text=True, timeout=_INSTALL_S)
    except subprocess.CalledProcessError as error:
        raise Failed(_last_line(error.stderr)) from None
    except subprocess.TimeoutExpired:
        raise Failed(f"it took longer than {_INSTALL_S} s") from None
    return Peer(name, str(python), f"of_{name}")


def _run(system: Peer, jobs: int, starts: int) -> Result:
    words = [system.python, "-m", f"tests.bench.peers.{system.program}", str(jobs), str(starts)]
    # A session of its own: what a peer leaves behind is ended with it.
    process = subprocess.Popen(
        words, cwd=_ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        out, err = process.communicate(timeout=_PATIENCE_S)
    except subprocess.TimeoutExpired:
        raise Failed(f"it took longer than {_PATIENCE_S} s") from None
    finally:
        with suppress(ProcessLookupError):  # nothing was left
            os.killpg(process.pid, signal.SIGKILL)
    if process.returncode:
        raise Failed(_last_line(err))
    told = json.loads(_last_line(out))
    return Result(told["jobs_per_second"], statistics.median(told["start_ms"]))


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "it said nothing"


def _print_table(results: dict[str, list[Result]]) -> None:
    print(
        f"{'system':12} {'runs':>4}  {'jobs/s':>8} {'smallest':>9} {'largest':>9} {'ours/its':>9}  {'start ms':>9} {'ours/its':>9}"
    )
    medians = {
        name: Result(*(statistics.median(figures) for figures in zip(*runs, strict=True)))
        for name, runs in results.items()
        if runs
    }
    own = medians.get(_OWN)
    for name, median in medians.items():
        rates = [run.jobs_per_second for run in results[name]]
        row = f"{name:12} {len(rates):4}  {median.jobs_per_second:8.1f} {min(rates):9.1f} {max(rates):9.1f}"
        rate_ratio = f"{own.jobs_per_second / median.jobs_per_second:9.2f}" if own else " " * 9
        start_ratio = f"{own.start_ms / median.start_ms:9.2f}" if own else ""
        print(f"{row} {rate_ratio}  {median.start_ms:9.2f} {start_ratio}")


if __name__ == "__main__":
    sys.exit(main())
