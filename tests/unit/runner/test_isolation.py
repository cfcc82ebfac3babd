"""The three ways, cgroup v2 against a folder that looks like one."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest

from headrace_agent.runner.host.files import LinuxFiles
from headrace_agent.runner.host.interface import Host
from headrace_agent.runner.host.linux_processes import LinuxProcesses
from headrace_agent.runner.jobs import isolation
from headrace_agent.runner.jobs.isolation import Cgroup2, RlimitIsolation, choose_isolation
from headrace_agent.runner.settings import IsolationChoice
from tests.unit.runner.builders import OPERATION, a_job, a_run

JOB_FILES = ("memory.max", "memory.oom.group", "memory.swap.max", "cpu.max", "pids.max", "cgroup.procs", "cgroup.kill")


class FakeCgroups(LinuxFiles):
    """Plays the kernel: control files are there as soon as a group is, and writing to one replaces what it says."""

    def __init__(self, folder: Path, controllers: str = "cpuset cpu io memory pids") -> None:
        super().__init__()
        self.folder = folder
        self.make_folder(str(folder))
        (folder / "cgroup.controllers").write_text(controllers + "\n")
        (folder / "cgroup.procs").write_text("10\n11\n")
        #: pids whose move is refused since they are gone.
        self.gone: set[str] = set()
        self.moved: list[tuple[str, str]] = []

    def make_folder(self, path: str) -> None:
        super().make_folder(path)
        for name in (*JOB_FILES, "cgroup.subtree_control"):
            (Path(path) / name).touch()

    def write(self, fd: int, data: bytes | memoryview) -> int:
        path = Path(f"/proc/self/fd/{fd}").readlink()
        if path.name == "cgroup.procs":
            if bytes(data).decode() in self.gone:
                raise ProcessLookupError(3, "No such process")
            self.moved.append((path.parent.name, bytes(data).decode()))
        return super().write(fd, data)

    def remove_folder(self, path: str) -> None:
        for file in Path(path).iterdir():
            file.unlink()
        super().remove_folder(path)


@pytest.fixture
def kernel(tmp_path: Path) -> FakeCgroups:
    return FakeCgroups(tmp_path / "headrace.slice")


def group(kernel: FakeCgroups) -> Path:
    return kernel.folder / "jobs" / f"{OPERATION}.0.1"


def test_the_delegated_folder_is_prepared_for_groups_with_limits(kernel: FakeCgroups) -> None:
    Cgroup2(kernel, str(kernel.folder))

    assert kernel.moved == [("supervisor", "10"), ("supervisor", "11")]
    assert (kernel.folder / "cgroup.subtree_control").read_text() == "+cpu +memory +pids"
    assert (kernel.folder / "jobs" / "cgroup.subtree_control").read_text() == "+cpu +memory +pids"


def test_a_job_gets_a_group_with_its_limits_and_its_process_in_it(kernel: FakeCgroups) -> None:
    isolation = Cgroup2(kernel, str(kernel.folder), most_processes=4_096)
    run = a_run(cpu=150, memory_bytes=512 << 20)
    isolation.prepare(run)
    isolation.confine(run, 4711)

    said = {name: (group(kernel) / name).read_text() for name in JOB_FILES}
    assert said == {
        "memory.max": str(512 << 20),
        "memory.oom.group": "1",
        "memory.swap.max": "0",
        "cpu.max": "150000 100000",
        "pids.max": "4096",
        "cgroup.procs": "4711",
        "cgroup.kill": "",
    }
    isolation.kill(a_job())
    assert (group(kernel) / "cgroup.kill").read_text() == "1"
    assert isolation.remove(a_job())
    assert not group(kernel).exists()
    assert isolation.remove(a_job())


def test_a_job_of_any_account_reads_its_own_limits(kernel: FakeCgroups) -> None:
    """A runtime that cannot takes the host's memory for its own, and is killed for it."""
    before = os.umask(0o077)  # as in the unit of systemd
    try:
        Cgroup2(kernel, str(kernel.folder)).prepare(a_run())
    finally:
        os.umask(before)

    assert [path.stat().st_mode & 0o777 for path in (group(kernel), group(kernel).parent)] == [0o755, 0o755]


def test_no_amount_is_no_limit(kernel: FakeCgroups) -> None:
    isolation = Cgroup2(kernel, str(kernel.folder))
    isolation.prepare(a_run(cpu=0, memory_bytes=0))

    assert (group(kernel) / "memory.max").read_text() == ""
    assert (group(kernel) / "cpu.max").read_text() == ""
    assert (group(kernel) / "pids.max").read_text() == ""


def test_without_the_controller_of_processes_the_rest_is_limited_and_that_is_said(tmp_path: Path) -> None:
    kernel = FakeCgroups(tmp_path / "group", controllers="cpu memory")
    isolation = choose_isolation(Host(kernel, LinuxProcesses()), "auto", str(kernel.folder), 0, 4_096)
    isolation.prepare(a_run(cpu=150))

    assert isolation.name == "cgroup2"
    assert f"the processes of a job are not counted: {kernel.folder} offers no controller for pids" in isolation.detail
    assert (kernel.folder / "jobs" / "cgroup.subtree_control").read_text() == "+cpu +memory"
    said = {name: (kernel.folder / "jobs" / f"{OPERATION}.0.1" / name).read_text() for name in ("cpu.max", "pids.max")}
    assert said == {"cpu.max": "150000 100000", "pids.max": ""}


def test_a_process_that_is_gone_already_is_no_error(kernel: FakeCgroups) -> None:
    isolation = Cgroup2(kernel, str(kernel.folder))
    isolation.prepare(a_run())
    kernel.gone.add("4711")

    isolation.confine(a_run(), 4711)


def test_a_job_that_memory_ended_is_told_its_limit(kernel: FakeCgroups) -> None:
    isolation = Cgroup2(kernel, str(kernel.folder))
    run = a_run(memory_bytes=512 << 20)
    isolation.prepare(run)
    assert isolation.usage(run).out_of_memory == ""
    (group(kernel) / "memory.events").write_text("low 0\nhigh 0\nmax 12\noom 1\noom_kill 1\noom_group_kill 1\n")
    (group(kernel) / "cpu.stat").write_text("usage_usec 1234567\nuser_usec 1000000\n")
    (group(kernel) / "memory.peak").write_text("536870912\n")

    assert isolation.usage(run) == ("out of memory: limit 512 MiB", 1234, 512 << 20)


def test_a_group_that_is_still_in_use_is_removed_later(kernel: FakeCgroups, monkeypatch: pytest.MonkeyPatch) -> None:
    isolation = Cgroup2(kernel, str(kernel.folder))
    isolation.prepare(a_run())

    def busy(path: str) -> None:
        raise OSError(16, "Device or resource busy", path)

    with monkeypatch.context() as patch:
        patch.setattr(kernel, "remove_folder", busy)
        assert not isolation.remove(a_job())
    assert isolation.remove(a_job())


@pytest.mark.parametrize(
    ("wanted", "cgroup", "name", "words"),
    [
        ("auto", True, "cgroup2", "in /"),
        ("cgroup2", True, "cgroup2", "in /"),
        (
            "auto",
            False,
            "rlimit",
            "the number of processes are not; no cgroup2: no delegated cgroup v2 folder is given",
        ),
        ("rlimit", True, "rlimit", "no cgroup2: the settings ask for rlimit only"),
        ("none", True, "none", "switched off by the settings"),
    ],
)
def test_the_strongest_that_is_wanted_and_works_is_taken(
    kernel: FakeCgroups, wanted: IsolationChoice, cgroup: bool, name: str, words: str
) -> None:
    isolation = choose_isolation(Host(kernel, LinuxProcesses()), wanted, str(kernel.folder) if cgroup else "", 0)

    assert isolation.name == name
    assert words in isolation.detail


def test_a_folder_without_the_controllers_says_which_are_missing(tmp_path: Path) -> None:
    kernel = FakeCgroups(tmp_path / "group", controllers="cpuset io pids")
    isolation = choose_isolation(Host(kernel, LinuxProcesses()), "auto", str(kernel.folder), 0)

    assert isolation.name == "rlimit"
    assert f"no cgroup2: {kernel.folder} offers no controller for cpu and memory" in isolation.detail


def test_a_folder_that_is_not_there_is_said(tmp_path: Path) -> None:
    isolation = choose_isolation(Host(LinuxFiles(), LinuxProcesses()), "auto", f"{tmp_path}/none", 0)

    assert f"{tmp_path}/none/cgroup.controllers: No such file" in isolation.detail


class NoPrlimit(LinuxProcesses):
    def limit(self, pid: int, which: int, soft: int, hard: int) -> None:
        raise PermissionError(1, "Operation not permitted")


def test_where_even_prlimit_is_refused_nothing_holds_and_both_reasons_are_said() -> None:
    isolation = choose_isolation(Host(LinuxFiles(), NoPrlimit()), "auto", "", 0)

    assert isolation.name == "none"
    assert isolation.detail == (
        "no cgroup2: no delegated cgroup v2 folder is given; no rlimit: prlimit is refused: Operation not permitted"
    )


def test_memory_is_limited_with_headroom_and_only_where_the_job_has_a_limit() -> None:
    isolation = RlimitIsolation(LinuxProcesses(), 1000, "")

    assert isolation.limits(a_run(memory_bytes=0)) == {}
    assert isolation.limits(a_run(memory_bytes=5000)) == {resource.RLIMIT_DATA: (6000, 6000)}


def test_the_group_of_a_job_is_closed_to_the_devices_of_other_jobs_where_the_runner_may_do_that(
    kernel: FakeCgroups, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[tuple[str, list[str]]] = []
    monkeypatch.setattr(isolation, "close_devices", lambda *given: closed.append(given))
    run = a_run(closed_files=["/dev/nvidia1"])

    monkeypatch.setattr(isolation, "why_not_filtered", lambda: "a device filter cannot be loaded: not here")
    weak = Cgroup2(kernel, str(kernel.folder))
    weak.prepare(run)
    assert "a job can open the GPU devices of other jobs: a device filter cannot be loaded: not here" in weak.detail
    assert closed == []

    monkeypatch.setattr(isolation, "why_not_filtered", lambda: "")
    strong = Cgroup2(kernel, str(kernel.folder))
    strong.prepare(a_run(1))
    strong.prepare(run)
    assert strong.detail == f"in {kernel.folder}"
    assert closed == [(str(group(kernel)), ["/dev/nvidia1"])]
