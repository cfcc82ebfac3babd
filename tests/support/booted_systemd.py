"""A host of its own for a test: a real systemd in namespaces, on a copy of this machine's files that vanishes with it.

It needs root and systemd. It has no network but the loopback interface, and no units but those of Headrace.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import psutil

SYSTEMD: Final = Path("/lib/systemd/systemd")
PATIENCE_S: Final = 60
#: Where the programs are that are tested, and their Python. An account of the host must reach them.
_PROGRAMS: Final = (
    Path(sys.executable).parent,
    Path(sys.executable).resolve().parent,
    Path(__file__).resolve().parents[2],
)
#: Enters COUNT cgroups and runs the command after them: the host's systemd then makes its own cgroups inside of these.
_ENTER: Final = """
count=$1
shift
while [ "$count" -gt 0 ]; do
    echo $$ >"$1/cgroup.procs"
    shift
    count=$((count - 1))
done
exec "$@"
"""
#: Makes the host's files and becomes its systemd: FOLDER NAME, then the folders that everybody may enter.
_BOOT: Final = """
set -eu
folder=$1 name=$2
shift 2
mount --make-rprivate /
mkdir "$folder/changes" "$folder/root"
mount -t tmpfs tmpfs "$folder/changes"
mkdir "$folder/changes/upper" "$folder/changes/work"
mount -t overlay overlay -o "lowerdir=/,upperdir=$folder/changes/upper,workdir=$folder/changes/work" "$folder/root"
cd "$folder/root"
mount -t tmpfs tmpfs run
# The settings and the devices of this machine's kernel are out of reach.
mount -t proc proc proc
mount --bind proc/sys proc/sys
mount -o remount,bind,ro proc/sys
mount -t sysfs -o ro sysfs sys
mount -t tmpfs -o mode=755 tmpfs dev
mkdir dev/pts dev/shm
mount -t devpts -o newinstance,ptmxmode=0666 devpts dev/pts
mount -t tmpfs tmpfs dev/shm
ln -s /proc/self/fd dev/fd
ln -s pts/ptmx dev/ptmx
for node in full null random tty urandom zero; do
    touch "dev/$node"
    mount --bind "/dev/$node" "dev/$node"
done
mount -t tmpfs tmpfs sys/fs/cgroup
mkdir sys/fs/cgroup/systemd
mount -t cgroup -o none,name=systemd cgroup sys/fs/cgroup/systemd
find etc/systemd/system -path '*.wants/*' -delete
chroot . chmod a+rx "$@"
printf '127.0.0.1 localhost %s\\n' "$name" >etc/hosts
# The tested programs may be below /tmp, which the units would not see.
mkdir -p etc/systemd/system/headrace-.service.d
ln -sf /dev/null etc/systemd/system/tmp.mount
ln -sf /dev/null etc/tmpfiles.d/tmp.conf
case " $* " in *' /tmp '*) printf '[Service]\\nPrivateTmp=no\\n' >etc/systemd/system/headrace-.service.d/test.conf ;; esac
ip link set lo up
exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin container=test chroot . /lib/systemd/systemd --unit=basic.target
"""


class BootedSystemd:
    """A host that this machine runs. Its console is a file in the folder."""

    def __init__(self, folder: Path, name: str) -> None:
        folders = {str(above) for program in _PROGRAMS for above in (program, *program.parents)}
        self._cgroups = [path / f"headrace-test-{os.getpid()}" for path in _own_cgroups()]
        for cgroup in self._cgroups:
            cgroup.mkdir()
        enter = ["sh", "-c", _ENTER, "enter", str(len(self._cgroups)), *map(str, self._cgroups)]
        unshare = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--uts", "--cgroup", "--net"]
        boot = ["sh", "-c", _BOOT, "boot", str(folder), name, *sorted(folders)]
        self._console = folder / "console"
        with self._console.open("wb") as console:
            self._process = subprocess.Popen(
                [*enter, *unshare, *boot], stdin=subprocess.DEVNULL, stdout=console, stderr=console
            )

    def until_up(self) -> None:
        """Waits until all that starts with the host has started."""
        self.until(lambda: self.run("systemctl is-system-running", status=None).strip() in ("running", "degraded"))

    def run(self, command: str, *, typed: str = "", status: int | None = 0) -> str:
        """What a command says that root types there, on both streams."""
        first = self._first_processes()
        if not first:
            return ""
        enter = ["nsenter", f"--target={first[0]}", "--mount", "--pid", "--uts", "--cgroup", "--net", "--root", "--wd"]
        path = f"{Path(sys.executable).parent}:/usr/sbin:/usr/bin:/sbin:/bin"
        done = subprocess.run(
            [*enter, "sh", "-c", command],
            input=typed,
            env={"PATH": path, "HOME": "/root"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert status in (None, done.returncode), f"{command}: {done.returncode}: {done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    def until(self, is_so: Callable[[], object]) -> None:
        """Looks again and again at what happens there."""
        deadline = time.monotonic() + PATIENCE_S
        while not is_so():
            assert self._process.poll() is None, self.console()
            assert time.monotonic() < deadline, self.console()
            time.sleep(0.2)

    def console(self) -> str:
        """The last that was written there."""
        return self._console.read_text(errors="replace")[-4000:]

    def main_pid(self, unit: str) -> str:
        """The process of a unit, 0 where there is none."""
        return self.run(f"systemctl show --property=MainPID --value {unit}").strip()

    def end(self) -> None:
        """Ends the host, and with it all its processes, mounts and files."""
        for pid in self._first_processes():
            os.kill(pid, signal.SIGKILL)
        self._process.kill()
        self._process.wait()
        for cgroup in self._cgroups:
            _remove_cgroup(cgroup)

    def _first_processes(self) -> list[int]:
        """The process with the pid 1 there, as this machine sees it; none before it has begun and after its end."""
        if self._process.poll() is not None:
            return []
        return [child.pid for child in psutil.Process(self._process.pid).children()]


def _own_cgroups() -> Iterator[Path]:
    """The cgroup of this process in each hierarchy that can be used. A new cpuset accepts no process before it is set up."""
    root = Path("/sys/fs/cgroup")
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        name = controllers.removeprefix("name=") or ("unified" if (root / "unified").exists() else ".")
        folder = root / name / path.lstrip("/")
        if name != "cpuset" and (folder / "cgroup.procs").exists():
            yield folder


def _remove_cgroup(cgroup: Path) -> None:
    """Removes a cgroup with all below it, as soon as its last process has ended."""
    deadline = time.monotonic() + PATIENCE_S
    while cgroup.exists() and time.monotonic() < deadline:
        for folder, _, _ in os.walk(cgroup, topdown=False):
            with contextlib.suppress(OSError):
                os.rmdir(folder)
        time.sleep(0.05)
