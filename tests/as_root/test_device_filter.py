"""The kernel refuses to open the devices that a cgroup is closed to, and no others."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from headrace_agent.runner.host.device_filter import close_devices, why_not_filtered

#: Character devices that every host has, and that a process in the group could open.
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/urandom")
_TRY = """
import os, sys
with open(sys.argv[1] + "/cgroup.procs", "w") as procs:
    procs.write("0")
for path in sys.argv[2:]:
    try:
        os.close(os.open(path, os.O_RDONLY))
        print(path)
    except PermissionError:
        pass
"""


@pytest.fixture
def cgroup() -> Iterator[Path]:
    mounts = [part.mountpoint for part in psutil.disk_partitions(all=True) if part.fstype == "cgroup2"]
    if not mounts:
        pytest.skip("this host has no cgroup v2")
    if os.strerror(errno.EPERM) in (why := why_not_filtered()):
        pytest.skip(f"root of a container: {why}")
    folder = Path(mounts[0]) / f"headrace-test-{os.getpid()}"
    try:
        folder.mkdir()
    except OSError as error:
        pytest.skip(f"root of a container: {error}")
    yield folder
    folder.rmdir()


def opened(cgroup: Path) -> list[str]:
    """The devices that a process in the group opens."""
    command = [sys.executable, "-c", _TRY, str(cgroup), *_DEVICES]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()


def test_a_process_in_the_group_opens_all_devices_but_those(cgroup: Path) -> None:
    assert why_not_filtered() == ""
    close_devices(str(cgroup), ["/dev/nvidia-of-another-host", "/etc/passwd"])
    assert opened(cgroup) == list(_DEVICES)

    close_devices(str(cgroup), ["/dev/zero", "/dev/full"])
    assert opened(cgroup) == ["/dev/null", "/dev/urandom"]
    # A second filter does not lift the first.
    close_devices(str(cgroup), ["/dev/null"])
    assert opened(cgroup) == ["/dev/urandom"]
    assert all(os.access(path, os.R_OK) for path in _DEVICES)


@pytest.mark.usefixtures("cgroup")
def test_a_folder_that_is_no_cgroup_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=str(tmp_path)):
        close_devices(str(tmp_path), ["/dev/zero"])
