"""Makes the command by which the host's container runtime runs a job in an image. Pure.

The container uses the host's network and IPC, and the account, limits and cgroup of the job. It sees the host folders that the job needs,
at the paths that they have on the host. All other files come from the image. With Podman the container also has process ids of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from posixpath import normpath
from typing import Final

import msgspec

from headrace.images import APPTAINER, RUNTIME_TAGS, apptainer_name, is_path, podman_name, runtimes_of
from headrace_agent.runner.protocol import HELPER_PREFIX, MARKER, RUNNER_MARKER, RunContainer

#: Shell code that removes Podman's records of earlier containers whose processes were killed together with Podman, so that Podman could not
#: remove the records itself.
_TIDY: Final = """
podman=$1
"$podman" ps --filter label=headrace.job --format '{{.ID}} {{.Pid}}' 2>/dev/null | while read -r id pid; do
    [ -d "/proc/$pid" ] || "$podman" rm --force --time 0 "$id" >/dev/null 2>&1
done
"""
#: Shell code that runs Podman if the agent is root. Podman then passes the signals that it gets on to the container.
_AS_ROOT: Final = _TIDY + 'exec "$@"\n'
#: Shell code that runs Podman if the agent is not root. Podman is then two processes: a parent, and its child in a user namespace. The
#: parent ends at the first signal; the child passes signals on to the container. So Podman runs in a session of its own, where signals to
#: the job's process group do not reach it. The shell catches these signals and sends them to the child alone.
_AS_ACCOUNT: Final = (
    _TIDY
    + """
exec 3<&0
setsid "$@" <&3 3<&- &
pid=$!
exec 3<&-
pass() {
    child=$(cat /proc/"$pid"/task/*/children)
    kill -s "$1" ${child:-"$pid"}
}
for name in TERM INT HUP QUIT USR1 USR2; do trap "pass $name" "$name"; done
while :; do
    wait "$pid"
    code=$?
    kill -0 "$pid" 2>/dev/null || exit "$code"
done
"""
)
#: Variables that would change what Podman itself does. They are not set for Podman; its command line sets them for the container, with
#: their values.
_OF_CLIENT: Final = ("HOME", "LOGNAME", "PATH", "TMPDIR", "USER")
_PREFIXES_OF_CLIENT: Final = (
    "BUILDAH_",
    "CONTAINER",
    "_CONTAINER",
    "DBUS_",
    "LC_",
    "LD_",
    "REGISTRY_",
    "STORAGE_",
    "XDG_",
)
_APPTAINER_ENVIRONMENT: Final = "APPTAINERENV_"
#: Exit code by which Podman says that it could not start the container.
_PODMAN_FAILED: Final = 125
#: Exit code by which Apptainer says that it could not start the container.
_APPTAINER_FAILED: Final = 255
#: Characters that the path of a folder for a container must not contain: the runtimes use them to separate paths and options.
_NOT_IN_PATHS: Final = ":,"


class ContainerRuntime(msgspec.Struct, frozen=True):
    """The container runtime that was found on the host, and what the host offers to containers."""

    #: `podman` or `apptainer`.
    name: str
    #: Absolute path of the program.
    program: str
    #: Path of crun, which leaves the processes of a container in the cgroup of their job. This field and the fields below apply to Podman
    #: only.
    oci_runtime: str = ""
    #: Path of a static init program, which runs as process 1 of the container and passes signals on to the job's command. Empty: the
    #: command is process 1, and must handle signals itself.
    init: str = ""
    #: Limits of each process in a container, such as `nofile=1024:4096` (soft and hard limit).
    ulimits: tuple[str, ...] = ()
    #: True if the host describes its NVIDIA devices for containers (CDI, Container Device Interface).
    has_cdi: bool = False
    #: Device files that every job with a GPU needs, besides the device files of its GPUs.
    gpu_files: tuple[str, ...] = ()
    #: True if the host has message queues (`/dev/mqueue`). Without them, Podman can give the host's IPC only to a container that runs as
    #: root. Any other container then gets only the shared memory of the host.
    has_queues: bool = True

    @property
    def tag(self) -> str:
        """Return the tag that a node with this runtime has, by which operations with an image choose the node."""
        return RUNTIME_TAGS[self.name]


class JobDevices(msgspec.Struct, frozen=True):
    """The GPU devices of one job."""

    #: Identifiers by which the library of the vendor knows the devices.
    ids: tuple[str, ...] = ()
    #: Paths of the device files.
    files: tuple[str, ...] = ()
    is_nvidia: bool = True


class JobInImage(msgspec.Struct, frozen=True):
    """A job that runs in an image."""

    image: str
    argv: Sequence[str]
    #: Variables of the job, without the variables of the host.
    environment: Mapping[str, str]
    #: Working directory; empty: the working directory of the image.
    folder: str = ""
    #: Folders of the host that are mounted in the container, at the same paths.
    folders: Sequence[str] = ()
    devices: JobDevices = JobDevices()
    #: True if the job runs as root.
    is_root: bool = False


class InContainer(msgspec.Struct, frozen=True):
    """The command that the runner starts in place of the job's own command, with its environment."""

    argv: list[str]
    #: Variables that the runtime is started with, in addition to the variables of the host.
    environment: dict[str, str]
    container: RunContainer


class CannotContain(Exception):
    """The host cannot run the job in its image. The text says why, without the name of the image, which only some people may see."""


def in_container(runtime: ContainerRuntime | None, job: JobInImage) -> InContainer:
    """Return the command that runs a job in its image. Raises `CannotContain`."""
    able = runtimes_of(job.image)
    if runtime is None or runtime.name not in able:
        raise CannotContain(f"no container runtime: the image needs {' or '.join(able)}")
    folders = [folder for folder in dict.fromkeys((job.folder, *job.folders)) if folder and normpath(folder).strip("/")]
    for folder in folders:
        if any(letter in folder for letter in _NOT_IN_PATHS):
            raise CannotContain(f"a container cannot have the folder {folder}: its path contains `:` or `,`")
    return (_by_apptainer if runtime.name == APPTAINER else _by_podman)(runtime, job, folders)


def _by_podman(runtime: ContainerRuntime, job: JobInImage, folders: Sequence[str]) -> InContainer:
    devices = job.devices
    by_value = [name for name in job.environment if _is_of_client(name)]
    by_name = [name for name in job.environment if not _is_of_client(name)]
    described = runtime.has_cdi and devices.is_nvidia
    gpus = [f"nvidia.com/gpu={each}" for each in devices.ids] if described else [*devices.files, *runtime.gpu_files]
    options = [
        *("--rm", "--interactive", "--log-driver=none", "--label=headrace.job"),
        *("--cgroups=disabled", "--network=host", "--security-opt=label=disable", "--entrypoint="),
        *(("--ipc=host",) if job.is_root or runtime.has_queues else ("--ipc=none", "--volume=/dev/shm:/dev/shm")),
        *(("--user=0:0",) if job.is_root else ("--userns=keep-id", "--group-add=keep-groups")),
        *(("--init", f"--init-path={runtime.init}") if runtime.init else ()),
        *(f"--ulimit={each}" for each in runtime.ulimits),
        *(f"--env={name}" for name in (*by_name, MARKER, RUNNER_MARKER)),
        *(f"--env={name}={job.environment[name]}" for name in by_value),
        *(f"--volume={folder}:{folder}" for folder in folders),
        *(f"--device={each}" for each in (gpus if devices.ids else ())),
        *((f"--workdir={job.folder}",) if job.folder else ()),
    ]
    # If the job changes files of the image, the changes are written to a layer of the container, which is removed with the container.
    image = ("--rootfs", f"{job.image}:O") if is_path(job.image) else (podman_name(job.image),)
    podman = [runtime.program, "--cgroup-manager=cgroupfs", f"--runtime={runtime.oci_runtime}", "run"]
    # The helper that Podman leaves beside a container must carry the markers of the job too, but Podman passes on hardly any variables
    # except those of the locale. So the runner sets each marker a second time, with the prefix of locale variables (`LC_`).
    return InContainer(
        ["/bin/sh", "-c", _AS_ROOT if job.is_root else _AS_ACCOUNT, "sh", *podman, *options, *image, *job.argv],
        {name: job.environment[name] for name in by_name},
        RunContainer(_PODMAN_FAILED, (HELPER_PREFIX,)),
    )


def _is_of_client(name: str) -> bool:
    # To Podman, `--env=NAME*` means all variables whose names begin with `NAME`. So a variable whose name ends with `*` is given with its
    # value.
    return name in _OF_CLIENT or name.startswith(_PREFIXES_OF_CLIENT) or name.endswith("*")


def _by_apptainer(runtime: ContainerRuntime, job: JobInImage, folders: Sequence[str]) -> InContainer:
    # There is no option for a process id namespace of the container's own. So all processes of the container stay in the job's process
    # group.
    options = [
        *("--cleanenv", "--no-home"),
        *(f"--bind={folder}" for folder in folders),
        *((f"--pwd={job.folder}",) if job.folder else ()),
        *((("--nv",) if job.devices.is_nvidia else ("--rocm",)) if job.devices.ids else ()),
    ]
    return InContainer(
        [runtime.program, "--silent", "exec", *options, apptainer_name(job.image), *job.argv],
        {_APPTAINER_ENVIRONMENT + name: value for name, value in job.environment.items()},
        RunContainer(_APPTAINER_FAILED, (_APPTAINER_ENVIRONMENT,)),
    )
