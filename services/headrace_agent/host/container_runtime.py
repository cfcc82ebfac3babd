"""Finds the container runtime of the host."""

from __future__ import annotations

import os
import resource
import shutil
from pathlib import Path
from typing import Final

from headrace.images import APPTAINER, PODMAN
from headrace_agent.container_command import ContainerRuntime

#: Value of the setting `containers` that accepts any runtime which the host has, and prefers Podman.
AUTO: Final = "auto"
_CRUN: Final = "crun"
#: Folders of system programs that the PATH of an ordinary account may lack.
_MORE_PATH: Final = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"
#: Paths at which distributions install static init programs. A dynamically linked init would not start in an image that lacks its
#: libraries.
_INITS: Final = (
    "/usr/libexec/podman/catatonit",
    "/usr/lib/podman/catatonit",
    "/usr/libexec/catatonit/catatonit",
    "/usr/bin/catatonit",
    "/usr/bin/tini-static",
)
_CDI: Final = ("etc/cdi", "var/run/cdi")
_NVIDIA: Final = "nvidia.com/gpu"
_GPU_FILES: Final = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset", "kfd")


def find_runtime(wanted: str, root: Path = Path("/")) -> tuple[ContainerRuntime | None, str]:
    """Return the runtime that the setting `containers` asks for, or None and the reason. The reason is empty if the setting asks for no
    runtime, or accepts any and the host has none.

    Podman is accepted only if the host has crun too: other OCI runtimes move a container out of the cgroup of its job.
    """
    path = f"{os.environ.get('PATH', '')}:{_MORE_PATH}"
    podman, crun, apptainer = (shutil.which(name, path=path) for name in (PODMAN, _CRUN, APPTAINER))
    if wanted in (AUTO, PODMAN) and podman and crun:
        init = next((each for each in _INITS if os.access(root / each.lstrip("/"), os.X_OK)), "")
        files = tuple(f"/dev/{name}" for name in _GPU_FILES if (root / "dev" / name).exists())
        queues = (root / "dev/mqueue").is_dir()
        return ContainerRuntime(PODMAN, podman, crun, init, _ulimits(root), _has_cdi(root), files, queues), ""
    if wanted in (AUTO, APPTAINER) and apptainer:
        return ContainerRuntime(APPTAINER, apptainer), ""
    if podman and not crun and wanted in (AUTO, PODMAN):
        return (
            None,
            "podman is installed, but crun is not; podman needs crun to keep a container in the cgroup of its job",
        )
    return None, f"there is no {wanted} in PATH" if wanted in (PODMAN, APPTAINER) else ""


def _ulimits(root: Path) -> tuple[str, ...]:
    """Return the values for Podman's option `--ulimit`: the limits of this process, which other jobs have too. Without the option
    Podman would set higher limits.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Podman sets its own limit of processes to the largest process id before it starts the container, so no higher value is asked for.
    most = _number(root / "proc/sys/kernel/pid_max", 32_768)
    limits = resource.getrlimit(resource.RLIMIT_NPROC)
    least, highest = (most if each == resource.RLIM_INFINITY else min(each, most) for each in limits)
    return f"nofile={soft}:{hard}", f"nproc={least}:{highest}"


def _number(path: Path, otherwise: int) -> int:
    try:
        return int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return otherwise


def _has_cdi(root: Path) -> bool:
    for folder in _CDI:
        for file in (root / folder).glob("*"):
            try:
                if _NVIDIA in file.read_text(encoding="utf-8", errors="replace"):
                    return True
            except OSError:
                continue
    return False
