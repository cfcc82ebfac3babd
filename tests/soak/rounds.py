"""Rounds of a soak: operations of witnesses run, one process is hit at a named place, and everything must end as was promised."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import msgspec

from tests.soak.kill_points import KILL_POINTS, KillPoint
from tests.support.headrace_up import Up

__all__ = ["Hit", "Soak", "Violation"]

_WITNESS: Final = str(Path(__file__).with_name("witness.py"))
#: A place that nothing passes within this time is left for another round.
_HIT_WITHIN_S: Final = 20.0
#: An operation ends within this time of a fault, or never.
_ENDED_WITHIN_S: Final = 120.0
_FROZEN_S: Final = 3.0
#: Rounds that hit no named place: the server, several at once, or `up` with everything.
SERVER, SEVERAL, EVERYTHING = "nats-server killed", "three processes killed", "up killed"
_SERVICES: Final = ("admission", "allocator", "fair_share", "integral")
#: Checkpoints are written often, so that their places are passed.
_ENVIRONMENT: Final = {"HEADRACE_ADMISSION_CHECKPOINT_EVENTS": "25"}


class Violation(AssertionError):
    """Something that was promised did not come true."""


class Hit(msgspec.Struct, frozen=True):
    """The fault of one round, and whether its place was passed in time."""

    words: str
    was_hit: bool
    operations: int
    jobs: int
    #: Jobs that ran again after their process had ended well: its end was lost with the one that knew it.
    ran_again: int


class Soak:
    """A `headrace up` whose processes obey armed kill points, and a folder where its jobs write what they saw."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self.up = Up(nodes=("alpha:cpu=2,memory=2G", "beta:cpu=2,memory=2G"))
        self._told = self.up.state / "witnesses"
        self._injected = self.up.state / "injected"
        self._watching = ThreadPoolExecutor(1)

    def __enter__(self) -> Soak:
        self._told.mkdir()
        for name in ("armed", "hit"):
            (self._injected / name).mkdir(parents=True)
        shutil.copy(Path(__file__).parent / "injected" / "sitecustomize.py", self._injected)
        lines = [f"{each.key} {each.when} {each.module} {each.function}\n" for each in KILL_POINTS]
        (self._injected / "points").write_text("".join(lines))
        path = os.pathsep.join(filter(None, (str(self._injected), os.environ.get("PYTHONPATH"))))
        self.up.environment |= {**_ENVIRONMENT, "PYTHONPATH": path}
        self.up.start()
        self._ask("pool", "create", "saving", "--integral", "burst", "--flow", "cpu=1", "--burst", "cpu=2")
        self._ask("pool", "create", "research")
        return self

    def __exit__(self, *exception: Any) -> None:
        self.up.__exit__(*exception)

    def round(self, number: int) -> Hit:
        """One round. Raises `Violation` with the words for what went wrong."""
        draw = random.Random(f"{self._seed}.{number}")
        faults: list[KillPoint | str] = [*KILL_POINTS, SERVER, SEVERAL, EVERYTHING]
        fault = faults[number % len(faults)]
        # The first time round all are killed; later some freeze, and of those some are stopped before they thaw.
        kind = "kill" if number < len(faults) else draw.choice(("kill", "freeze", "freeze and stop"))
        watch: Future[bool] | None = None
        if isinstance(fault, KillPoint):
            self._arm(fault, kind)
            # Beside what follows: people wait for an answer of the process that is frozen.
            watch = self._watching.submit(self._await_hit, fault, kind)
        operations = dict(self._start_operations(draw, number))
        if isinstance(fault, KillPoint) and fault.most_jobs > 8:
            operations |= {self._start(f"{number}-large", "research", fault.most_jobs, 0.0): fault.most_jobs}
        aborted = self._start_and_abort(number)
        # A place in the configuration is passed only while somebody changes it.
        self._ask("pool", "set", "research", f"--weight={number % 7 + 1}")
        if isinstance(fault, KillPoint) and fault.at_start:
            self._kill([each.pid for each in self.up.processes() if each.role == fault.role][:1])
        was_hit = watch.result() if watch is not None else self._befall(str(fault), draw)
        for name in (*operations, aborted):
            self._wait(name, f"round {number}, {fault}")
        state = self._view(aborted)["state"]
        if state != "aborted":
            raise Violation(f"round {number}, {fault}: {aborted} was aborted and is {state}")
        again = sum(self._judge(name, jobs, f"round {number}, {fault}, {kind}") for name, jobs in operations.items())
        words = f"{fault.role}: {fault.name} ({kind})" if isinstance(fault, KillPoint) else fault
        return Hit(words, was_hit, len(operations), sum(operations.values()), again)

    # --- faults ---------------------------------------------------------------------------------------------------

    def _arm(self, point: KillPoint, kind: str) -> None:
        armed = self._injected / "armed" / point.key
        new = self._injected / point.key
        new.write_text(str(int(signal.SIGKILL if kind == "kill" else signal.SIGSTOP)))
        new.rename(armed)

    def _befall(self, fault: str, draw: random.Random) -> bool:
        time.sleep(draw.uniform(0.0, 1.0))
        if fault == EVERYTHING:
            self.up.send(signal.SIGKILL)
            self.up.wait()
            self.up.start()
            return True
        processes = [each for each in self.up.processes() if each.role != "job"]
        if fault == SEVERAL:
            return self._kill([each.pid for each in draw.sample(processes, 3)])
        return self._kill([each.pid for each in processes if each.role == "nats-server"])

    def _kill(self, pids: list[int]) -> bool:
        for pid in pids:
            _signal(pid, signal.SIGKILL)
        return bool(pids)

    def _await_hit(self, point: KillPoint, kind: str) -> bool:
        hits = self._injected / "hit"
        deadline_s = time.monotonic() + _HIT_WITHIN_S
        while time.monotonic() < deadline_s:
            taken = list(hits.glob(f"{point.key}.*"))
            if taken:
                taken[0].unlink()
                if kind != "kill":
                    self._thaw(int(taken[0].name.rpartition(".")[2]), kind)
                return True
            time.sleep(0.02)
        (self._injected / "armed" / point.key).unlink(missing_ok=True)
        for late in hits.glob(f"{point.key}.*"):
            self._thaw(int(late.name.rpartition(".")[2]), kind)
            late.unlink()
        return False

    def _thaw(self, pid: int, kind: str) -> None:
        time.sleep(_FROZEN_S)
        if kind == "freeze and stop":
            _signal(pid, signal.SIGTERM)
        _signal(pid, signal.SIGCONT)

    # --- people ---------------------------------------------------------------------------------------------------

    def _start_operations(self, draw: random.Random, number: int) -> Iterator[tuple[str, int]]:
        """Starts operations in several pools, each asked for until it is answered."""
        for pool in ("research", "saving", "passing"):
            jobs = draw.randint(3, 8)
            yield self._start(f"{number}-{pool}", pool, jobs, draw.choice((0.05, 0.3, 0.8))), jobs

    def _start_and_abort(self, number: int) -> str:
        """An operation that would run for ever, and is aborted while it does."""
        name = self._start(f"{number}-aborted", "passing", 2, 1000.0)
        self._ask("op", "abort", name)
        return name

    def _start(self, name: str, pool: str, jobs: int, seconds: float) -> str:
        """Starts an operation of witnesses and returns its id."""
        operation = f"soak-{self._seed}-{name}"
        command = [sys.executable, "-SE", _WITNESS, str(self._told), str(seconds)]
        self._ask("run", "--id", operation, "--pool", pool, "--jobs", str(jobs), "--memory", "10M", "--", *command)
        return operation

    def _ask(self, *words: str) -> str:
        """A command, given again while the service that it needs is away."""
        deadline_s = time.monotonic() + _ENDED_WITHIN_S
        while True:
            done = self.up.run(*words, expect=None)
            if done.returncode == 0:
                return done.stdout
            if time.monotonic() > deadline_s:
                raise Violation(f"{' '.join(words)}: status {done.returncode}: {done.stderr}")
            time.sleep(0.2)

    def _wait(self, name: str, where: str) -> None:
        deadline_s = time.monotonic() + _ENDED_WITHIN_S
        state = ""
        while state not in ("completed", "failed", "aborted"):
            state = self._view(name)["state"]
            if time.monotonic() > deadline_s:
                raise Violation(f"{where}: {name} is {state} after {_ENDED_WITHIN_S:.0f} s")
            time.sleep(0.1)

    def _view(self, name: str) -> dict[str, Any]:
        operation: dict[str, Any] = msgspec.json.decode(self._ask("op", "get", name, "--json"))["operation"]
        return operation

    # --- the truth ------------------------------------------------------------------------------------------------

    def _judge(self, name: str, jobs: int, where: str) -> int:
        """Compares what is told of an operation with what its jobs saw. Returns how many ran again in vain."""
        if (self._told / "twice").exists():
            raise Violation(f"{where}: ran in two processes at once: {(self._told / 'twice').read_text()}")
        view = self._view(name)
        if (view["state"], view["completed_jobs"], view["failed_jobs"]) != ("completed", jobs, 0):
            raise Violation(f"{where}: {name} of {jobs} jobs is told as {view}")
        again = 0
        for index in range(jobs):
            story = self._told / f"{name}.{index}"
            ends = story.read_text().count("ended") if story.exists() else 0
            if not ends:
                raise Violation(f"{where}: job {index} of {name} is told as completed and never came to its end")
            again += ends - 1
        return again


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
