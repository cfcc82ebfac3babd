"""Jobs in images, by the real Podman of this machine, as root and as an account."""

from __future__ import annotations

import ctypes
import json
import os
import pwd
import shutil
import subprocess
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from headrace.client import login_user
from tests.support.headrace_up import HEADRACE, Up

_BUSYBOX = Path("/bin/busybox")
_UNIFIED = Path("/sys/fs/cgroup/unified")
_CLONE_NEWNS = 0x20000
IMAGE = "localhost/headrace-test:1"
ACCOUNT = f"headrace-image-{os.getpid()}"
STUBBORN = 'trap "" TERM; (sleep 6160 &); echo ready; while true; do sleep 0.1; done'

pytestmark = pytest.mark.skipif(
    not (os.geteuid() == 0 and shutil.which("podman") and shutil.which("crun") and _BUSYBOX.exists()),
    reason="needs root, podman, crun and busybox-static",
)


@pytest.fixture(scope="module")
def plain_cgroups() -> None:
    """crun refuses a host that has cgroups of both versions. From now on this process and its children see those of version 1 only."""
    if _UNIFIED.is_mount():
        if ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWNS) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        subprocess.run(["mount", "--make-rprivate", "/"], check=True)
        subprocess.run(["umount", str(_UNIFIED)], check=True)


@pytest.fixture(scope="module", params=["root", "account"])
def account(request: pytest.FixtureRequest, plain_cgroups: None) -> Iterator[pwd.struct_passwd]:
    if request.param == "root":
        yield pwd.getpwnam("root")
        return
    subprocess.run(["useradd", "--create-home", "--shell", "/bin/sh", ACCOUNT], check=True)
    try:
        yield (made := pwd.getpwnam(ACCOUNT))
    finally:
        # Podman leaves a process that keeps the user namespace of the account.
        all_uids = [(each, each.info["uids"]) for each in psutil.process_iter(["uids"])]
        of_account = [each for each, uids in all_uids if uids is not None and uids.real == made.pw_uid]
        for process in of_account:
            process.kill()
        psutil.wait_procs(of_account, timeout=10)
        shutil.rmtree(f"/tmp/podman-run-{made.pw_uid}", ignore_errors=True)
        subprocess.run(["userdel", "--remove", ACCOUNT], check=True, stderr=subprocess.DEVNULL)


@pytest.fixture(scope="module")
def folder(account: pwd.struct_passwd, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A working folder of the account, whose storage has the image, and which every account reaches."""
    place = Path(account.pw_dir if account.pw_uid else tmp_path_factory.mktemp("work"))
    root = tmp_path_factory.mktemp("image")
    # It becomes the root folder of the image, which every account must reach.
    root.chmod(0o755)
    for name in ("bin", "dev", "etc", "proc", "run", "sys", "tmp"):
        (root / name).mkdir()
    shutil.copy(_BUSYBOX, root / "bin" / "busybox")
    for name in ("cat", "id", "sh", "sleep"):
        (root / "bin" / name).symlink_to("busybox")
    with tarfile.open(place / "image.tar", "w") as archive:
        archive.add(root, arcname=".")
    (place / "in.txt").write_text("from stdin\n")
    os.chmod(place / "image.tar", 0o644)
    podman(account, "import", "--quiet", str(place / "image.tar"), IMAGE)
    yield place
    podman(account, "rmi", "--force", IMAGE)


def podman(account: pwd.struct_passwd, *words: str) -> str:
    become = ["setpriv", f"--reuid={account.pw_uid}", f"--regid={account.pw_gid}", "--init-groups"]
    environment = {"HOME": account.pw_dir, "USER": account.pw_name, "PATH": os.environ["PATH"]}
    return subprocess.run(
        [*become, "podman", *words], cwd="/", env=environment, check=True, capture_output=True, text=True
    ).stdout


@pytest.fixture(scope="module")
def up(account: pwd.struct_passwd, folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    running = Up(nodes=("with:cpu=2,memory=2G", "without:cpu=2,memory=2G,containers=off"))
    del running.environment["HEADRACE_AGENT_CONTAINERS"]
    reachable = Path(f"/tmp/hr-images-{os.getpid()}-{account.pw_uid}")
    reachable.mkdir(mode=0o711)
    if account.pw_uid:
        running.environment["HEADRACE_AGENT_USERS"] = f"{login_user()}={account.pw_name}"
        running.environment["HEADRACE_AGENT_FILES_FOLDER"] = f"{reachable}/files"
    with running:
        yield running
    shutil.rmtree(reachable)


def run(up: Up, folder: Path, *words: str, image: str = IMAGE) -> str:
    """Start a job in an image and return the operation."""
    return up.start_operation("--tries", "1", "--cwd", str(folder), "--image", image, *words)


def over(up: Up, operation: str) -> Any:
    """The row of its job, when it is over."""
    up.run("op", "wait", operation, expect=None)
    return json.loads(up.run("op", "get", operation, "--jobs", "--json").stdout)


def until_ready(up: Up, operation: str) -> None:
    until = time.monotonic() + 40
    while "ready" not in up.run("op", "logs", operation, expect=None).stdout:
        assert time.monotonic() < until
        time.sleep(0.1)


def processes_of(operation: str) -> list[int]:
    """The processes with a marker of its jobs, inside of containers and beside them."""
    found = []
    for process in psutil.process_iter():
        try:
            marks = [process.environ().get(name, "") for name in ("HEADRACE_JOB", "LC_HEADRACE_JOB")]
        except psutil.Error:
            continue
        if any(mark.startswith(f"{operation}.") for mark in marks):
            found.append(process.pid)
    return found


def test_a_job_has_the_files_of_the_image_and_its_own_folder_account_and_variables(
    up: Up, folder: Path, account: pwd.struct_passwd
) -> None:
    script = 'id -u; pwd; echo "$TOKEN $HEADRACE_NODE $PATH"; ls / 2>&1; cat; echo told >&2; exit 7'
    files = ("--output", "out/%i", "--stdin", "in.txt")
    operation = run(up, folder, *files, "--env", "TOKEN=x y", "--env", "PATH=/bin", "--", "sh", "-c", script)
    over(up, operation)

    told = up.run("op", "get", operation, "--jobs").stdout
    assert "exit code 7" in told, told
    lines = (folder / "out" / "0").read_text().splitlines()
    assert lines[:3] == [str(account.pw_uid), str(folder), "x y with /bin"]
    assert lines[-1] == "from stdin"
    assert "usr" not in lines
    assert (folder / "out" / "0").stat().st_uid == account.pw_uid
    assert "told" in told
    assert IMAGE in told


def test_a_command_beside_a_job_runs_in_its_container_and_ends_with_it(
    up: Up, folder: Path, account: pwd.struct_passwd
) -> None:
    operation = run(up, folder, "--env", "TOKEN=x y", "--", "sh", "-c", "echo $$; echo ready; exec sleep 6161")
    until_ready(up, operation)

    script = 'id -u; echo "$TOKEN $HEADRACE_JOB_INDEX"; ls / | cat; cat; exit 7'
    words = [*HEADRACE, "op", "exec", operation, "0", "--"]
    done = subprocess.run(
        [*words, "sh", "-c", script], input="from stdin\n", env=up.environment, capture_output=True, text=True
    )
    assert done.returncode == 7, done.stderr
    lines = done.stdout.splitlines()
    assert (lines[0], lines[1], lines[-1]) == (str(account.pw_uid), "x y 0", "from stdin")
    assert "usr" not in lines
    missing = up.run("op", "exec", operation, "0", "--", "no-such-program", expect=127)
    assert "no-such-program" in missing.stderr

    beside = subprocess.Popen([*words, "sleep", "6162"], env=up.environment, stdin=subprocess.DEVNULL)
    until = time.monotonic() + 40
    while not any(_runs(each, ["sleep", "6162"]) for each in processes_of(operation)):
        assert time.monotonic() < until
        time.sleep(0.1)
    up.run("op", "abort", operation)
    over(up, operation)
    beside.wait(40)
    assert processes_of(operation) == []


def _runs(pid: int, words: list[str]) -> bool:
    try:
        return psutil.Process(pid).cmdline() == words
    except psutil.Error:
        return False


def test_a_folder_with_a_root_file_system_is_an_image_that_jobs_do_not_change(
    up: Up, folder: Path, account: pwd.struct_passwd
) -> None:
    root = folder / "rootfs"
    (root / "bin").mkdir(parents=True)
    shutil.copy(_BUSYBOX, root / "bin" / "sh")
    (root / "open").mkdir()
    os.chown(root / "open", account.pw_uid, account.pw_gid)
    operation = run(up, folder, "--", "sh", "-c", "echo new > /open/new && echo done", image=str(root))
    over(up, operation)

    assert up.run("op", "logs", operation).stdout == "done\n", up.run("op", "get", operation, "--jobs").stdout
    assert list((root / "open").iterdir()) == []


def test_an_image_that_cannot_be_pulled_fails_the_job_with_the_words_of_podman(up: Up, folder: Path) -> None:
    operation = run(up, folder, "--", "true", image="localhost:1/none:1")
    over(up, operation)

    told = up.run("op", "get", operation, "--jobs").stdout
    assert "the container could not be started (exit code 125)" in told
    assert "Error:" in told


def test_a_job_gets_its_signal_and_can_save_before_the_deadline(up: Up, folder: Path) -> None:
    script = (
        'trap "cat \\$HEADRACE_DEADLINE; echo; echo saved; exit 0" USR1; echo ready; while true; do sleep 0.1; done'
    )
    signals = ("--interruptible", "--interrupt-signal", "USR1", "--interruption-timeout", "20s")
    operation = run(up, folder, *signals, "--", "sh", "-c", script)
    until_ready(up, operation)
    up.run("op", "abort", operation)
    over(up, operation)

    ready, deadline, *_, saved = up.run("op", "logs", operation).stdout.splitlines()
    assert (ready, saved) == ("ready", "saved")
    assert float(deadline) > 0


def test_a_job_that_stays_is_killed_with_its_whole_container_and_podman_forgets_it(
    up: Up, folder: Path, account: pwd.struct_passwd
) -> None:
    operation = run(up, folder, "--interruption-timeout", "1s", "--", "sh", "-c", STUBBORN)
    until_ready(up, operation)
    assert len(processes_of(operation)) >= 4
    up.run("op", "abort", operation)
    over(up, operation)

    assert processes_of(operation) == []
    over(up, run(up, folder, "--", "sh", "-c", "true"))
    assert podman(account, "ps", "--all", "--quiet") == ""


def test_the_end_of_a_killed_runner_leaves_no_container(up: Up, folder: Path) -> None:
    operation = run(up, folder, "--", "sh", "-c", STUBBORN)
    until_ready(up, operation)
    before = processes_of(operation)
    runners = [each for each in psutil.process_iter(["cmdline"]) if _is_runner(each, up.state / "agents" / "with")]
    assert len(runners) == 1
    runners[0].kill()
    until = time.monotonic() + 40
    while set(before) & set(processes_of(operation)):
        assert time.monotonic() < until
        time.sleep(0.1)
    up.run("op", "abort", operation)


def _is_runner(process: psutil.Process, state: Path) -> bool:
    words = process.info["cmdline"] or []
    return "headrace_agent.runner" in words and str(state) in words


def test_nodes_without_a_runtime_are_passed_over_and_told(up: Up, folder: Path) -> None:
    many = run(up, folder, "--jobs", "6", "--cpu", "0.1", "--", "sh", "-c", "true")
    up.run("op", "wait", many)
    told = up.run("op", "get", many, "--jobs").stdout
    waits = run(up, folder, "--", "true", image="/srv/none.sif")

    assert told.count(" with ") == 6
    assert " without " not in told
    explained = up.run("op", "explain", waits).stdout
    assert "no container runtime: no node that takes jobs and matches the other filters has apptainer" in " ".join(
        explained.split()
    )
    assert "no container runtime on 2 nodes" in explained
    assert "no container runtime on 1 node" in up.run("run", "--dry-run", "--image", IMAGE, "--", "true").stdout
    up.run("op", "abort", waits)
