"""A `headrace up` for a test: real processes, a state folder of its own, a free port; whatever the test does, nothing of it stays."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from types import TracebackType
from typing import IO

import msgspec
import psutil

from headrace.bus.nats.bus import NatsBus
from headrace.client import find_place
from headrace.client.connecting import open_bus
from headrace_cli.exit_statuses import Exit
from headrace_cli.up import process_marks
from tests.support.forked_commands import Forked, begin_forked, run_forked

__all__ = ["HEADRACE", "Up"]

HEADRACE = [sys.executable, "-m", "headrace_cli"]
#: No command of a test takes longer; it only keeps a broken one from hanging.
_LIMIT_S = 45.0


class Up:
    """Started by `with`, and again by `start`. Folders are short: paths of unix sockets must be."""

    def __init__(
        self, *options: str, nodes: tuple[str, ...] = ("alpha:cpu=2,memory=2G",), state: Path | None = None
    ) -> None:
        self.options = options
        self.nodes = nodes
        self._own = state is None
        self.state = state or Path(tempfile.mkdtemp(prefix="hr-"))
        self.process: Forked | None = None
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith("HEADRACE_")}
        self.environment |= {"HEADRACE_STATE": str(self.state), "COLUMNS": "120"}
        # Otherwise the tags of its nodes would depend on what this machine has installed.
        self.environment["HEADRACE_AGENT_CONTAINERS"] = "off"

    def __enter__(self) -> Up:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self.process is not None and self.process.poll() is None:
                self.process.kill()
                self.process.wait(_LIMIT_S)
            if self.process is not None and self.process.stdout is not None:
                self.process.stdout.close()
        finally:
            process_marks.kill(self.state)  # an orderly end would only take longer
            process_marks.end_leftovers(self.state, leave_jobs=False, agents_time_s=0.0)
            if self._own:
                shutil.rmtree(self.state, ignore_errors=True)

    def start(self, *more: str, ready: bool = True) -> None:
        """Starts it and waits until it says that it is ready."""
        nodes = [word for node in self.nodes for word in ("--node", node)]
        words = ("up", "--port", "0", *nodes, *self.options, *more)
        with open(self.state / "up.stderr", "ab") as stderr:
            self.process = begin_forked(words, environment=self.environment, cwd=Path.cwd(), stderr=stderr)
        if ready:
            self.wait_ready()

    def wait_ready(self) -> None:
        """Until it says so."""
        for line in self._stdout():
            if "headrace is ready" in line:
                return
        raise AssertionError(f"not ready: {self.said()}")

    def said(self) -> str:
        """All that it wrote to stderr so far."""
        return (self.state / "up.stderr").read_text()

    def wait_said(self, pattern: str) -> None:
        """Until its stderr has this; reads the file as `tail -f` does, so that the reader waits, not a clock."""
        with subprocess.Popen(
            ["tail", "-n", "+1", "-F", str(self.state / "up.stderr")],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        ) as tail:
            assert tail.stdout is not None
            for line in tail.stdout:
                if re.search(pattern, line):
                    tail.kill()
                    return

    def send(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def wait(self) -> int:
        """Its exit status."""
        assert self.process is not None
        self._stdout().read()
        self._stdout().close()
        return self.process.wait(_LIMIT_S)

    def stop(self, number: int = signal.SIGINT) -> int:
        """Asks it to stop and waits; its exit status."""
        self.send(number)
        return self.wait()

    def run(self, *words: str, expect: int | None = 0, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        """One command of `headrace` to its end; its exit status is checked unless `expect` is None."""
        done = run_forked(words, environment=self.environment, cwd=cwd or self.state, timeout_s=_LIMIT_S)
        if expect is not None:
            assert done.returncode == expect, f"{words}: status {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    def run_until_answered(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a command again while the service that it asks is down, as after a kill. The exit status must be 0 then."""
        deadline_s = time.monotonic() + _LIMIT_S
        while (done := self.run(*words, expect=None)).returncode == Exit.NOT_RUNNING:
            assert time.monotonic() < deadline_s, done.stderr
        assert done.returncode == 0, f"{words}: status {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    def run_until_over(self, operation: str) -> None:
        """Wait for the end of an operation, however it ends and whatever is down meanwhile."""
        done = self.run("op", "wait", operation, expect=None)
        assert done.returncode in (Exit.DONE, Exit.FAILED), done.stderr

    def begin(self, *words: str) -> Forked:
        """A command that goes on; it is the test's to end."""
        return begin_forked(words, environment=self.environment, cwd=self.state)

    def bus(self, credential_file: Path, inbox_prefix: str) -> AbstractAsyncContextManager[NatsBus]:
        """A connection with one of its credentials, or with a wrong one."""
        place = msgspec.structs.replace(find_place(state=self.state), credential_file=str(credential_file))
        return open_bus(place, "test", inbox_prefix)

    def start_operation(self, *words: str) -> str:
        """`headrace run` without waiting; the operation's id."""
        return self.run("run", *words).stdout.strip()

    def wait_line(self, operation: str, text: str, times: int = 1) -> None:
        """Until jobs of the operation have written this so many times."""
        with self.begin("op", "logs", operation, "--follow") as follower:
            assert follower.stdout is not None
            for line in follower.stdout:
                times -= text in line
                if not times:
                    break
            follower.kill()

    def processes(self) -> list[process_marks.Found]:
        """What of it runs, except `up` itself."""
        return process_marks.find(self.state)

    def cpu_s(self) -> float:
        """Seconds of processor time that its processes have used so far, jobs excepted."""
        assert self.process is not None
        itself = psutil.Process(self.process.pid)
        pids = {itself.pid, *(child.pid for child in itself.children(recursive=True))}
        pids |= {process.pid for process in self.processes() if process.role != "job"}
        return sum(sum(psutil.Process(pid).cpu_times()[:2]) for pid in pids)

    def roles(self) -> list[str]:
        return sorted(process.role for process in self.processes())

    def _stdout(self) -> IO[str]:
        assert self.process is not None
        assert self.process.stdout is not None
        return self.process.stdout
