"""Simulates several configurations at the same time, each in a process of its own, as many as there are cores."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from multiprocessing import connection, get_context
from multiprocessing.context import ForkProcess
from multiprocessing.sharedctypes import RawArray
from typing import IO, Any, Final

from headrace.own_process import end_with_parent
from headrace.wire.simulation import SimulatedSetup
from headrace_simulator.simulated_node import BrokenReplay
from headrace_simulator.simulation import Prepared, simulated
from headrace_simulator.workload_files import JobLines, JobsFile

__all__ = ["simulated_side_by_side"]

#: Reports the name of a configuration, its simulated time in milliseconds, and the fraction of all configurations that is done.
Report = Callable[[str, int, float], None]
_REPORTED_EVERY_S: Final = 0.2


def simulated_side_by_side(of: Prepared, report: Report, jobs: JobsFile | None) -> list[SimulatedSetup]:
    """Simulate a workload under all configurations, and add their jobs to `jobs`.

    Raises `BrokenReplay` if an engine fails or a process is killed, and `OSError` if the jobs cannot be written.
    """
    count = len(of.trees)
    with ExitStack() as stack:
        files: list[IO[str]] = []
        if jobs is not None:
            folder = jobs.folder
            files = [
                stack.enter_context(tempfile.TemporaryFile("w+", encoding="utf-8", newline="", dir=folder))
                for _ in range(count)
            ]
        workers = min(count, len(os.sched_getaffinity(0))) if sys.platform == "linux" else 1
        course = _Course(of, files, report)
        results = course.run_in_processes(workers) if workers > 1 else course.run_in_turn()
        for file in files:
            file.seek(0)
            assert jobs is not None
            jobs.copy(file)
    return results


class _Course:
    """The configurations of one simulation, and how far each is."""

    def __init__(self, of: Prepared, files: Sequence[IO[str]], report: Report) -> None:
        self._of, self._files, self._report = of, files, report
        self._names = [setup.name for setup in of.task.setups]
        #: For each configuration, the simulated time in milliseconds and the fraction that is done. Processes share it.
        self._now_ms: Any = RawArray("q", len(self._names))
        self._done: Any = RawArray("d", len(self._names))

    def run_in_turn(self) -> list[SimulatedSetup]:
        """Simulate one configuration after the other in this process."""
        return [self._simulate(number, self._tell_all) for number in range(len(self._names))]

    def run_in_processes(self, workers: int) -> list[SimulatedSetup]:
        """Simulate `workers` configurations at a time, each in a process that has the workload because it was forked."""
        waiting = deque(range(len(self._names)))
        results: dict[int, SimulatedSetup] = {}
        running: dict[Any, tuple[int, ForkProcess]] = {}
        context = get_context("fork")
        try:
            while waiting or running:
                while waiting and len(running) < workers:
                    number, (ours, theirs) = waiting.popleft(), context.Pipe(duplex=False)
                    process = context.Process(target=self._work, args=(number, theirs), daemon=True)
                    process.start()
                    theirs.close()
                    running[ours] = number, process
                for ready in connection.wait(list(running), _REPORTED_EVERY_S):
                    number, process = running[ready]
                    results[number] = self._received(ready, number, process)
                    del running[ready]
                self._tell_all()
        finally:
            for _, process in running.values():
                process.kill()
                process.join()
        return [results[number] for number in range(len(self._names))]

    def _received(self, ours: Any, number: int, process: ForkProcess) -> SimulatedSetup:
        try:
            answer = ours.recv()
        except EOFError:
            process.join()
            words = f"the process of the configuration {self._names[number]!r} ended with status {process.exitcode}"
            raise BrokenReplay(words) from None
        process.join()
        if isinstance(answer, Exception):
            raise answer
        assert isinstance(answer, SimulatedSetup)
        return answer

    def _work(self, number: int, theirs: Any) -> None:
        """Simulate a configuration in a process of its own, and send the results or what failed."""
        end_with_parent()
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            answer: SimulatedSetup | Exception = self._simulate(number, lambda: None)
        except (BrokenReplay, OSError) as error:
            answer = error
        theirs.send(answer)

    def _simulate(self, number: int, told: Callable[[], None]) -> SimulatedSetup:
        def tell(now_ms: int, done: float) -> None:
            self._now_ms[number], self._done[number] = now_ms, done
            told()

        file = self._files[number] if self._files else None
        lines = JobLines(file, self._of.has_dates) if file is not None else None
        name = self._names[number]
        result = simulated(self._of, number, tell, lambda *ended: lines.add(name, *ended) if lines else None)
        if file is not None:
            file.flush()
        return result

    def _tell_all(self) -> None:
        """Report how far all configurations are, with the time of the one that is behind of those that have begun."""
        begun = [number for number, now_ms in enumerate(self._now_ms) if now_ms]
        if begun:
            behind = min(begun, key=lambda number: self._done[number])
            self._report(self._names[behind], self._now_ms[behind], sum(self._done) / len(self._names))
