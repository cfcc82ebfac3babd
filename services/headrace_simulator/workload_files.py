"""The files of a simulation: read a workload and its nodes, and write a line for each job."""

from __future__ import annotations

import csv
import gzip
import io
import os
import shutil
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import IO, Final

from headrace.errors import BadInput
from headrace.files.durable import keep_names, open_new
from headrace.wire.simulation import SimulationTask
from headrace_simulator.simulation import NO_DATE_MS
from headrace_simulator.submissions import Submission
from headrace_simulator.workloads.columns import LONGEST_LINE
from headrace_simulator.workloads.formats import read_workload
from headrace_simulator.workloads.openb import read_openb_nodes
from headrace_simulator.workloads.workload import Workload

_GZIP: Final = b"\x1f\x8b"
_COLUMNS: Final = ("configuration", "job", "pool", "user", "submitted", "started", "ended")


def read_files(task: SimulationTask) -> Workload:
    """Return the workload of a task, with the nodes of its file of nodes.

    Raises `BadInput` if a file cannot be read. If the task is strict, a damaged line raises `BadInput` too.
    """
    with _lines(task.file) as lines:
        workload = read_workload(task.file, lines, task.format)
    if task.strict and workload.damaged_count:
        line, why = workload.damaged[0]
        words = f"{why}. {workload.damaged_count} lines cannot be read. Without --strict they are left out"
        raise BadInput.because(f"{task.file}, line {line}", words)
    if task.nodes_file:
        with _lines(task.nodes_file) as lines:
            try:
                workload.nodes = read_openb_nodes(lines)
            except BadInput as error:
                raise error.at(f"{task.nodes_file} ({error.place})") from None
    return workload


@contextmanager
def _lines(name: str) -> Iterator[Iterator[str]]:
    """Open a file, plain or compressed by gzip, as lines of text, and pieces of lines that are too long.

    Raises `BadInput`, also for a file that is damaged further on.
    """
    try:
        with open(name, "rb") as file:
            is_gzip = file.peek(len(_GZIP)).startswith(_GZIP)
            binary = gzip.GzipFile(fileobj=file) if is_gzip else file
            text = io.TextIOWrapper(binary, encoding="utf-8", errors="replace")
            yield iter(partial(text.readline, LONGEST_LINE), "")
    except (OSError, EOFError, zlib.error) as error:
        raise _unusable(name, error) from None


def _unusable(name: str, error: Exception) -> BadInput:
    why = (error.strerror if isinstance(error, OSError) else None) or str(error)
    return BadInput.because(name, f"the file cannot be used: {why}")


class JobLines:
    """Writes a line for each job of a configuration to an open file."""

    def __init__(self, file: IO[str], has_dates: bool) -> None:
        """`has_dates`: times are seconds since 1970, else seconds since the beginning of the workload."""
        self._writer = csv.writer(file, lineterminator="\n")
        self._zero_ms = 0 if has_dates else NO_DATE_MS

    def add(self, configuration: str, one: Submission, first_ms: int, end_ms: int) -> None:
        """Add the line of a job. `first_ms` is 0 if the job never started."""
        times = (self._seconds(ms) if ms else "" for ms in (one.at_ms, first_ms, end_ms))
        self._writer.writerow((configuration, one.name, one.pool, one.user, *times))

    def _seconds(self, ms: int) -> str:
        return f"{(ms - self._zero_ms) / 1000:.3f}".rstrip("0").rstrip(".")


class JobsFile:
    """A file with a line for each job and configuration. It appears under its name when it is complete, or not at all."""

    def __init__(self, path: Path) -> None:
        """Open the file under a temporary name. Raises `BadInput`."""
        self._path = path
        self._new = Path(f"{path}.new")
        try:
            if path.is_dir():
                raise IsADirectoryError(None, "it is a directory")
            self._file = open(open_new(self._new), "w", encoding="utf-8", newline="")  # noqa: SIM115
        except OSError as error:
            raise _unusable(str(path), error) from None
        csv.writer(self._file, lineterminator="\n").writerow(_COLUMNS)

    @property
    def folder(self) -> Path:
        """The folder of the file."""
        return self._path.parent

    def __enter__(self) -> JobsFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Put the file in its place. After an exception, remove it. Raises `BadInput` if the file cannot be written."""
        try:
            if isinstance(value, OSError):
                raise value
            with self._file:
                if kind is None:
                    self._file.flush()
                    os.fsync(self._file.fileno())
            if kind is None:
                self._new.replace(self._path)
                keep_names(self._path.parent)
        except OSError as error:
            raise _unusable(str(self._path), error) from None
        finally:
            self._new.unlink(missing_ok=True)

    def copy(self, lines: IO[str]) -> None:
        """Add the lines that `JobLines` has written to another file."""
        shutil.copyfileobj(lines, self._file)
