"""The command that runs a job in an image."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import msgspec
import pytest

from headrace.errors import BadInput
from headrace_agent.container_command import CannotContain, ContainerRuntime, JobDevices, JobInImage, in_container
from headrace_agent.host.container_runtime import find_runtime
from headrace_agent.runner.host.linux_processes import LinuxProcesses
from headrace_agent.settings import AgentSettings

PODMAN = ContainerRuntime("podman", "/usr/bin/podman", "/usr/bin/crun", "/usr/bin/catatonit", ("nofile=1:2",))
APPTAINER = ContainerRuntime("apptainer", "/usr/bin/apptainer")
ENVIRONMENT = {"HEADRACE_NODE": "n", "TOKEN": "secret", "PATH": "/opt", "LD_PRELOAD": "x.so", "ALL*": "1"}
JOB = JobInImage(
    "ubuntu:24.04", ["work", "--pull=never", "a b"], ENVIRONMENT, "/srv/a b", ("/srv/files", "", "/srv/a b")
)
GPUS = JobDevices(("GPU-1",), ("/dev/nvidia1",))


def podman(job: JobInImage = JOB, runtime: ContainerRuntime = PODMAN) -> list[str]:
    shell, option, _script, name, *words = in_container(runtime, job).argv
    assert (shell, option, name) == ("/bin/sh", "-c", "sh")
    return words


def test_podman_gets_the_folders_the_variables_and_the_command_as_single_words() -> None:
    words = podman()

    assert words[:4] == ["/usr/bin/podman", "--cgroup-manager=cgroupfs", "--runtime=/usr/bin/crun", "run"]
    assert words[-4:] == ["ubuntu:24.04", "work", "--pull=never", "a b"]
    options = words[4:-4]
    assert all(each.startswith("--") for each in options)
    assert {"--rm", "--cgroups=disabled", "--network=host", "--userns=keep-id", "--ulimit=nofile=1:2"} <= set(options)
    assert [each for each in options if each.startswith("--volume")] == [
        "--volume=/srv/a b:/srv/a b",
        "--volume=/srv/files:/srv/files",
    ]
    assert "--workdir=/srv/a b" in options
    assert {"--init", "--init-path=/usr/bin/catatonit"} <= set(options)


def test_podman_reads_values_from_its_environment_except_those_that_would_change_podman_itself() -> None:
    found = in_container(PODMAN, JOB)

    assert found.environment == {"HEADRACE_NODE": "n", "TOKEN": "secret"}
    given = [each.removeprefix("--env=") for each in found.argv if each.startswith("--env=")]
    own = ["HEADRACE_NODE", "TOKEN", "HEADRACE_JOB", "HEADRACE_RUNNER"]
    assert given == [*own, "PATH=/opt", "LD_PRELOAD=x.so", "ALL*=1"]
    assert found.container.marker_prefixes == ("LC_",)


def test_an_account_shares_the_ipc_of_the_host_if_the_host_has_message_queues() -> None:
    without = msgspec.structs.replace(PODMAN, has_queues=False)
    as_root = msgspec.structs.replace(JOB, is_root=True)
    assert "--ipc=host" in podman()
    assert {"--ipc=none", "--volume=/dev/shm:/dev/shm"} <= set(podman(JOB, without))
    assert "--ipc=host" in podman(as_root, without)


@pytest.mark.parametrize(
    ("change", "there", "missing"),
    [
        ({"is_root": True}, ["--user=0:0"], ["--userns=keep-id", "--group-add=keep-groups"]),
        ({"folder": "", "folders": ("",)}, [], ["--workdir=/srv/a b", "--volume=/srv/a b:/srv/a b"]),
        ({"folder": "/"}, ["--workdir=/"], ["--volume=/:/"]),
        ({"folder": "/etc/.."}, ["--workdir=/etc/.."], ["--volume=/etc/..:/etc/.."]),
        ({"image": "/srv/root"}, ["--rootfs", "/srv/root:O"], ["ubuntu:24.04"]),
        ({"image": "docker://a"}, ["docker.io/library/a"], ["docker://a"]),
        ({"devices": GPUS}, ["--device=/dev/nvidia1"], ["--device=nvidia.com/gpu=GPU-1"]),
    ],
)
def test_podman_gets_what_the_job_needs(change: dict[str, object], there: list[str], missing: list[str]) -> None:
    words = podman(msgspec.structs.replace(JOB, **change))

    assert set(there) <= set(words)
    assert not set(missing) & set(words)


def test_the_devices_of_a_job_are_those_that_the_host_describes_or_their_files_with_those_of_the_driver() -> None:
    def devices(runtime: ContainerRuntime, of: JobDevices) -> list[str]:
        words = podman(msgspec.structs.replace(JOB, devices=of), runtime)
        return [each.removeprefix("--device=") for each in words if each.startswith("--device=")]

    with_files = msgspec.structs.replace(PODMAN, gpu_files=("/dev/nvidiactl",))
    described = msgspec.structs.replace(with_files, has_cdi=True)
    amd = JobDevices(("0",), ("/dev/dri/renderD128",), is_nvidia=False)
    assert devices(with_files, GPUS) == ["/dev/nvidia1", "/dev/nvidiactl"]
    assert devices(described, GPUS) == ["nvidia.com/gpu=GPU-1"]
    assert devices(described, amd) == ["/dev/dri/renderD128", "/dev/nvidiactl"]
    assert devices(with_files, JobDevices()) == devices(described, JobDevices()) == []


def test_apptainer_gets_the_same_in_its_own_words() -> None:
    found = in_container(APPTAINER, msgspec.structs.replace(JOB, devices=GPUS))

    options = ["--cleanenv", "--no-home", "--bind=/srv/a b", "--bind=/srv/files", "--pwd=/srv/a b", "--nv"]
    program = ["/usr/bin/apptainer", "--silent", "exec"]
    assert found.argv == [*program, *options, "docker://ubuntu:24.04", "work", "--pull=never", "a b"]
    assert found.environment == {f"APPTAINERENV_{name}": value for name, value in ENVIRONMENT.items()}
    assert found.container.marker_prefixes == ("APPTAINERENV_",)
    assert "--rocm" in in_container(APPTAINER, msgspec.structs.replace(JOB, devices=JobDevices(("0",), (), False))).argv


@pytest.mark.parametrize(
    ("runtime", "change", "why"),
    [
        (None, {}, "no container runtime: the image needs podman or apptainer"),
        (PODMAN, {"image": "/a.sif"}, "no container runtime: the image needs apptainer"),
        (PODMAN, {"folder": "/a:b"}, "a container cannot have the folder /a:b"),
        (APPTAINER, {"folders": ("/a,b",)}, "a container cannot have the folder /a,b"),
    ],
)
def test_what_cannot_run_in_an_image_says_why(
    runtime: ContainerRuntime | None, change: dict[str, object], why: str
) -> None:
    with pytest.raises(CannotContain, match=why):
        in_container(runtime, msgspec.structs.replace(JOB, **change))


def test_the_runtime_of_a_host_is_what_it_has_and_the_setting_allows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def has(*names: str) -> None:
        for name in ("podman", "crun", "apptainer"):
            (tmp_path / name).unlink(missing_ok=True)
        for name in names:
            (tmp_path / name).write_text("#!/bin/sh\n")
            (tmp_path / name).chmod(0o755)

    def found(wanted: str) -> str:
        runtime, why = find_runtime(wanted, tmp_path)
        return runtime.name if runtime is not None else why

    monkeypatch.setattr("headrace_agent.host.container_runtime._MORE_PATH", "")
    monkeypatch.setenv("PATH", str(tmp_path))
    has("podman", "crun", "apptainer")
    assert [found(each) for each in ("auto", "podman", "apptainer", "off")] == ["podman", "podman", "apptainer", ""]
    has("podman")
    assert (
        found("auto")
        == "podman is installed, but crun is not; podman needs crun to keep a container in the cgroup of its job"
    )
    has("podman", "apptainer")
    assert found("auto") == "apptainer"
    has()
    assert (found("auto"), found("apptainer")) == ("", "there is no apptainer in PATH")


def test_the_facts_that_podman_needs_are_read_from_the_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for path in ("bin/podman", "bin/crun", "usr/bin/catatonit"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("")
        (tmp_path / path).chmod(0o755)
    for path, text in (("etc/cdi/gpu.yaml", "kind: nvidia.com/gpu"), ("dev/kfd", ""), ("proc/sys/kernel/pid_max", "7")):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin")

    runtime, _ = find_runtime("podman", tmp_path)

    assert runtime is not None
    assert (runtime.program, runtime.oci_runtime) == (f"{tmp_path}/bin/podman", f"{tmp_path}/bin/crun")
    assert (runtime.init, runtime.has_cdi, runtime.gpu_files) == ("/usr/bin/catatonit", True, ("/dev/kfd",))
    assert not runtime.has_queues
    assert runtime.ulimits[1] == "nproc=7:7"
    assert os.path.isabs(runtime.program)


def test_the_tag_of_the_runtime_is_the_agents_to_give() -> None:
    assert AgentSettings(tags="ssd").tag_list(PODMAN) == ["container:podman", "ssd"]
    assert AgentSettings(tags="ssd").tag_list(None) == ["ssd"]
    with pytest.raises(BadInput, match="container:podman"):
        AgentSettings(tags="container:podman").tag_list(None)


def test_the_helper_of_a_container_is_found_by_its_marker() -> None:
    marks = {"LC_HEADRACE_JOB": "one.0.1", "LC_HEADRACE_RUNNER": "/state", "HOME": "/"}
    with subprocess.Popen(["sleep", "60"], env=marks) as helper:
        try:
            while (marker := LinuxProcesses("/state").marker(helper.pid)) is None:  # the process is still in exec
                time.sleep(0.001)
            assert marker == "one.0.1"
            assert LinuxProcesses("/other").marker(helper.pid) == ""
        finally:
            helper.kill()
