"""`python -m headrace_simulator [simulate]`: read a task as msgpack from standard input, and print the answer as JSON.

Without an argument, the task is a `ReplayTask` of `headrace.wire.replay`. With `simulate`, it is a `SimulationTask` of
`headrace.wire.simulation`.
"""

from __future__ import annotations

import gc
import sys
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from headrace.durations import format_duration
from headrace.errors import BadInput
from headrace.own_process import end_with_parent
from headrace.wire.replay import ReplayRefused, ReplayTask
from headrace.wire.simulation import Simulation, SimulationRefused, SimulationTask
from headrace_simulator.comparison import replayed
from headrace_simulator.side_by_side import simulated_side_by_side
from headrace_simulator.simulated_node import BrokenReplay
from headrace_simulator.simulation import NO_DATE_MS, prepared, simulation_of
from headrace_simulator.workload_files import JobsFile, read_files

_BROKEN = 1
_USAGE = 2
_INTERRUPTED = 130


def main() -> int:
    """Run the process. Status 0 comes with an answer, 2 with a refusal, 1 with a fault, which stderr describes, 130 after Ctrl-C."""
    is_simulation = sys.argv[1:] == ["simulate"]
    if sys.platform == "linux":
        # Nobody would read the answer.
        end_with_parent()
    try:
        data = sys.stdin.buffer.read()
        answer = _simulated(data) if is_simulation else _replayed(data)
    except BrokenReplay as error:
        sys.stderr.write(f"a fault in Headrace; please report it: {error}\n")
        return _BROKEN
    except KeyboardInterrupt:
        return _INTERRUPTED
    sys.stdout.buffer.write(msgspec.json.encode(answer))
    return _USAGE if isinstance(answer, SimulationRefused | ReplayRefused) else 0


def _replayed(data: bytes) -> msgspec.Struct:
    task = msgspec.msgpack.decode(data, type=ReplayTask)
    # The garbage collector need not look at the task, which is large and stays in memory until the end.
    gc.freeze()
    progress = _Progress()
    return replayed(task, lambda done: progress.tell(done, ""))


def _simulated(data: bytes) -> Simulation | SimulationRefused:
    task = msgspec.msgpack.decode(data, type=SimulationTask)
    progress = _Progress()
    try:
        of = prepared(read_files(task), task)
        gc.freeze()

        def tell(name: str, now_ms: int, done: float) -> None:
            date = f"{datetime.fromtimestamp(now_ms / 1000, UTC):%Y-%m-%dT%H:%M}"
            progress.tell(done, f" {date if of.has_dates else format_duration(now_ms - NO_DATE_MS)} {name}")

        with ExitStack() as stack:
            jobs = stack.enter_context(JobsFile(Path(task.jobs_file))) if task.jobs_file else None
            return simulation_of(of, simulated_side_by_side(of, tell, jobs))
    except BadInput as error:
        return SimulationRefused(str(error))


class _Progress:
    """Writes a line to stderr for each further percent."""

    def __init__(self) -> None:
        self._told = 0

    def tell(self, done: float, words: str) -> None:
        """Report the fraction that is done, with further words."""
        if int(done * 100) > self._told:
            self._told = int(done * 100)
            sys.stderr.write(f"{self._told}{words}\n")
            sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
