"""Processes that have the kernel show gigabytes as their environment, or that are very many: the runner and `up` go on."""

from __future__ import annotations

import os
import resource
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.files.proc import LARGEST_ENVIRONMENT_BYTES
from headrace.runtime.engine import NS_PER_MS, Moment
from headrace_agent.runner.files.job_log import job_name
from headrace_agent.runner.files.kept_jobs import JobRecord, Leftover
from headrace_agent.runner.host.files import LinuxFiles
from headrace_agent.runner.host.interface import Host
from headrace_agent.runner.host.linux_processes import LinuxProcesses, Reaped
from headrace_agent.runner.jobs.leftovers import end_leftovers
from headrace_agent.runner.protocol import MARKER
from headrace_cli.up.process_marks import UP_MARK, Found, find
from tests.unit.runner.builders import a_job, a_run
from tests.unit.runner.harness import ARunner, runner
from tests.unit.runner.test_processes import a_table, launch

__all__ = ["runner"]

#: Shows `sys.argv[1]` bytes of untouched memory as the environment of this process. Prints 0 if the kernel takes that.
LONG_ENVIRONMENT = """
import ctypes, struct, sys, time
libc, size = ctypes.CDLL(None), int(sys.argv[1])
libc.mmap.restype = libc.sbrk.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.prctl.argtypes = [ctypes.c_int] + [ctypes.c_ulong] * 4
memory = libc.mmap(None, size, 1, 0x4022, -1, 0)
fields = [0, 0, 0, *map(int, open("/proc/self/stat").read().rpartition(")")[2].split()[1:])]
code, end, stack = (fields[number - 1] for number in (26, 27, 28))
data, end_data, heap, words, end_words = (fields[number - 1] for number in (45, 46, 47, 48, 49))
described = ctypes.create_string_buffer(struct.pack(
    "12QIi", code, end, data, end_data, heap, libc.sbrk(0), stack, words, end_words, memory, memory + size, 0, 0, -1
))
print(libc.prctl(35, 14, ctypes.addressof(described), 104, 0), flush=True)
time.sleep(1000)
"""


@pytest.fixture
def long_environment() -> Iterator[int]:
    """Return the pid of a process whose environment seems to have a gigabyte."""
    heard, told = os.pipe()
    command = [sys.executable, "-c", LONG_ENVIRONMENT, str(2**30)]
    pid = os.posix_spawn(sys.executable, command, os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, told, 1)])
    os.close(told)
    try:
        with open(heard) as answer:
            assert answer.readline() == "0\n"
        yield pid
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


@pytest.fixture
def little_memory(long_environment: int) -> Iterator[None]:
    """Let this process take little more memory than it has. Without the bound a test would take all memory of the machine."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    with open("/proc/self/statm") as file:
        taken = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (taken + 2**28, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.mark.usefixtures("little_memory")
def test_little_is_read_of_a_process_that_shows_a_gigabyte_as_its_environment(long_environment: int) -> None:
    assert LinuxProcesses().marker(long_environment) == ""


@pytest.mark.usefixtures("little_memory")
def test_the_processes_of_a_state_folder_are_found_beside_it(tmp_path: Path, long_environment: int) -> None:
    environment = {"V": "x" * 100_000, UP_MARK: str(tmp_path)}
    pid = os.posix_spawnp("sleep", ["sleep", "1000"], environment)
    try:
        while not (found := find(tmp_path)):
            pass
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)

    assert found == [Found(pid, "other")]


def test_jobs_of_others_end_beside_a_daemon_that_shows_a_gigabyte_as_its_environment(runner: ARunner) -> None:
    agent = runner.start()
    daemon = (
        f"setsid {sys.executable} -c '{LONG_ENVIRONMENT}' {2**30} > shown & until [ -s shown ]; do sleep 0.05; done"
    )
    agent.say(a_run(0, "sh", "-c", f"( {daemon} ); echo > {runner.state}/shown; exec sleep 1000"))
    agent.run(1, "sh", "-c", f"until [ -e {runner.state}/shown ]; do sleep 0.05; done")

    assert agent.end_of(1).exit_code == 0
    assert agent.sh(2, "exit 3").exit_code == 3


def test_a_job_is_recognized_however_long_its_environment_is(tmp_path: Path) -> None:
    long = {f"V{number}": "x" * 100_000 for number in range(LARGEST_ENVIRONMENT_BYTES // 100_000 + 1)}
    processes = LinuxProcesses(str(tmp_path))
    table = a_table(tmp_path, processes)
    pid = launch(table, a_run(0, "sleep", "1000", environment={**long, MARKER: "other.0.1"}))
    while (marker := processes.marker(pid)) is None:
        pass
    table.signal(a_job(), signal.SIGKILL)

    assert marker == job_name(a_job())


class WithHiddenOrphans(LinuxProcesses):
    """Has very many orphans without a marker."""

    def __init__(self) -> None:
        super().__init__()
        self.orphans = list(range(2**22, 2**22 + 1_000))
        self.looked_at: list[int] = []

    def children(self) -> list[int]:
        return self.orphans

    def session(self, pid: int) -> int | None:
        return pid if pid in self.orphans else super().session(pid)

    def marker(self, pid: int) -> str | None:
        self.looked_at.append(pid)
        return ""

    def reap(self, pid: int) -> Reaped | None:
        return None if pid in self.orphans else super().reap(pid)


def test_orphans_without_a_marker_are_looked_at_again_in_turn_and_only_some_at_each_end_of_a_job(
    tmp_path: Path,
) -> None:
    processes = WithHiddenOrphans()
    table = a_table(tmp_path, processes)
    launch(table, a_run(9, "sleep", "1000"))
    for _ in range(21):
        table.tidy()
    table.signal(a_job(9), signal.SIGKILL)

    assert len(processes.looked_at) == 2_000
    assert set(processes.looked_at[1_000:]) == set(processes.orphans)


class WithAChain(WithHiddenOrphans):
    """One more orphan dies at each look, and leaves another one."""

    def children(self) -> list[int]:
        self.orphans.append(self.orphans[-1] + 1)
        return self.orphans

    def session(self, pid: int) -> int | None:
        self.looked_at.append(pid)
        return None if pid == self.orphans[-1] else super().session(pid)

    def marker(self, pid: int) -> str | None:
        return ""


def test_a_job_that_makes_processes_that_die_all_the_time_has_others_looked_at_once_at_each_end(tmp_path: Path) -> None:
    processes = WithAChain()
    table = a_table(tmp_path, processes)
    launch(table, a_run(9, "sleep", "1000"))
    table.tidy()
    table.signal(a_job(9), signal.SIGKILL)

    # The session of an orphan without a marker is asked twice.
    assert len(set(processes.looked_at)) == 1_020
    assert max(Counter(processes.looked_at).values()) == 2


class WithSlowStrangers(LinuxProcesses):
    """Each look at the host takes a second, and always finds another process that is ending."""

    def __init__(self) -> None:
        super().__init__()
        self.looks = 0

    def now(self) -> Moment:
        return Moment(self.looks * 1_000 * NS_PER_MS, 0)

    def pids(self) -> list[int]:
        self.looks += 1
        return [2**22 + self.looks]

    def marker(self, pid: int) -> str | None:
        return None

    def pause(self, length_ms: int) -> None:
        pass


def test_a_runner_starts_though_the_host_is_full_of_processes_that_end() -> None:
    processes = WithSlowStrangers()
    end_leftovers(
        Host(LinuxFiles(), processes), [Leftover(JobRecord(a_job(), "alloc-1", "this boot"), None)], "this boot"
    )

    assert processes.looks == 6
