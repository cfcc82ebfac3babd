"""The GPU devices of the host: how they are found, which of them jobs may get, and how a job finds its own devices.

Devices are found by their files. CUDA may number NVIDIA devices in another order than the numbers of their files, so an NVIDIA device is
named to CUDA by its UUID if the driver shows the UUID. AMD devices are numbered in the order in which their driver (KFD) lists them. Which
job gets which device: `headrace_agent.allocations.node_allocations`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from headrace.errors import BadInput
from headrace.wire.heartbeat import GPU_NAME_PATTERN, LONGEST_GPU_NAME, MOST_GPUS
from headrace_agent.container_command import JobDevices

_CUDA: Final = "CUDA_VISIBLE_DEVICES"
# HIP_VISIBLE_DEVICES is not set, because its numbers count, from 0, only the devices that ROCR_VISIBLE_DEVICES leaves. With 2,3 in both
# variables, HIP would look for devices 2 and 3 among the two devices 0 and 1, and a job would find no device. HIP treats
# CUDA_VISIBLE_DEVICES like HIP_VISIBLE_DEVICES, so that variable is not set for AMD devices either.
_ROCR: Final = "ROCR_VISIBLE_DEVICES"
_OWN: Final = "HEADRACE_GPUS"
_NVIDIA_FILE = re.compile(r"nvidia([0-9]+)\Z")
_RENDER_FILE = re.compile(r"renderD([0-9]+)\Z")
_UUID = re.compile(r"^GPU UUID:\s*(GPU-[0-9a-f-]+)\s*$", re.MULTILINE)
_MINOR = re.compile(r"^Device Minor:\s*([0-9]+)\s*$", re.MULTILINE)
_RENDER_MINOR = re.compile(r"^drm_render_minor ([0-9]+)$", re.MULTILINE)
_NAME = re.compile(GPU_NAME_PATTERN)


class Gpu(msgspec.Struct, frozen=True):
    """One GPU device of the host."""

    #: Name of the device for people and in records, such as 0 for /dev/nvidia0. It does not change while the driver is loaded.
    name: str
    #: Identifier by which the library of the vendor knows the device: a UUID or a number.
    id: str
    #: Path of the device file; empty: not known.
    file: str = ""


class HostGpus(msgspec.Struct, frozen=True):
    """The GPU devices of the host."""

    known: tuple[Gpu, ...] = ()
    #: Names of the devices that jobs may get.
    offered: tuple[str, ...] = ()
    #: Environment variables from which the library of the vendor learns which devices a job has.
    variables: tuple[str, ...] = (_CUDA, _ROCR)

    def environment(self, names: Sequence[str]) -> dict[str, str]:
        """Return the variables that make a job find its own devices and no others. Empty if no device of the host is known."""
        if not self.known:
            return {}
        if not names:
            return {_CUDA: "", _ROCR: "", _OWN: ""}
        ids = {gpu.name: gpu.id for gpu in self.known}
        listed = ",".join(ids.get(name, name) for name in names)
        # By default CUDA numbers the fastest device first. With this variable it numbers the devices in the order of the PCI bus.
        order = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"} if _CUDA in self.variables else {}
        return {**dict.fromkeys(self.variables, listed), **order, _OWN: ",".join(names)}

    def devices(self, names: Sequence[str]) -> JobDevices:
        """Return the devices with these names, for a container."""
        by_name = {gpu.name: gpu for gpu in self.known}
        own = [by_name.get(name, Gpu(name, name)) for name in names]
        files = tuple(gpu.file for gpu in own if gpu.file)
        return JobDevices(tuple(gpu.id for gpu in own), files, _CUDA in self.variables)

    def files_of_others(self, names: Sequence[str]) -> list[str]:
        """Return the device files that a job with these devices must not open."""
        return [gpu.file for gpu in self.known if gpu.file and gpu.name not in names]


def find_gpus(root: Path = Path("/")) -> HostGpus:
    """Return the NVIDIA devices of the host, or its AMD devices if it has no NVIDIA device. All of them are offered to jobs."""
    nvidia = _nvidia_gpus(root)
    if nvidia:
        return _all_offered(nvidia, (_CUDA,))
    amd = _amd_gpus(root)
    return _all_offered(amd, (_ROCR,)) if amd else HostGpus()


def offered_gpus(found: HostGpus, names: Iterable[str], count: int | None) -> HostGpus:
    """Choose the devices that jobs may get, by the settings `gpus` and `gpu`. Return all devices, with the chosen ones as `offered`.

    `names` is the setting `gpus`; without names, all devices that were found are chosen. `count` is the setting `gpu`: jobs get
    only the first `count` chosen devices; None: all of them.

    A name is the name or the UUID of a device that was found. Any other name stands for a device that was not found, and is given
    to the library of the vendor unchanged. Raises `BadInput`.
    """
    wanted = list(names)
    aliases = {gpu.id: gpu.name for gpu in found.known} | {gpu.name: gpu.name for gpu in found.known}
    chosen = tuple(aliases.get(name, name) for name in wanted) or found.offered
    for name in chosen:
        if not _NAME.match(name) or len(name) > LONGEST_GPU_NAME:
            raise BadInput("gpus", name, f"a name of at most {LONGEST_GPU_NAME} letters, digits and . _ : / -")
        if chosen.count(name) > 1:
            raise BadInput.because("gpus", f"device {name} is named twice")
    if len(chosen) > MOST_GPUS:
        raise BadInput.because("gpus", f"{len(chosen)} devices are named; a node has at most {MOST_GPUS}")
    if count is not None and count > len(chosen):
        known = f"at most {len(chosen)}, the number of known devices" + (f" ({', '.join(chosen)})" if chosen else "")
        raise BadInput(
            "gpu", count, f"{known}. If the agent does not find a device, name it in the setting `gpus`, such as 0,1"
        )
    listed = {gpu.name for gpu in found.known}
    more = tuple(Gpu(name, name) for name in chosen if name not in listed)
    return msgspec.structs.replace(found, known=found.known + more, offered=chosen[:count])


def _all_offered(gpus: list[Gpu], variables: tuple[str, ...]) -> HostGpus:
    return HostGpus(tuple(gpus), tuple(gpu.name for gpu in gpus[:MOST_GPUS]), variables)


def _nvidia_gpus(root: Path) -> list[Gpu]:
    """Return the devices with a file /dev/nvidia<N>, in the order of N. If the agent runs in a container, only the devices that the
    container may use have such a file.
    """
    uuids: dict[int, str] = {}
    for path in _files(root / "proc/driver/nvidia/gpus"):
        text = _text(path / "information")
        minor, uuid = _MINOR.search(text), _UUID.search(text)
        # Until a device is used for the first time, the driver writes ? in place of the digits of its UUID.
        if minor and uuid:
            uuids[int(minor[1])] = uuid[1]
    minors = sorted(int(match[1]) for path in _files(root / "dev") if (match := _NVIDIA_FILE.match(path.name)))
    return [Gpu(str(minor), uuids.get(minor, str(place)), f"/dev/nvidia{minor}") for place, minor in enumerate(minors)]


def _amd_gpus(root: Path) -> list[Gpu]:
    """Return the devices with a render node, in the order in which ROCm numbers them."""
    if not (root / "dev/kfd").exists():
        return []
    found = {int(match[1]) for path in _files(root / "dev/dri") if (match := _RENDER_FILE.match(path.name))}
    nodes = sorted(_files(root / "sys/class/kfd/kfd/topology/nodes"), key=lambda path: (len(path.name), path.name))
    # The driver lists CPUs too, with 0 as the number of their render device. They are left out below, because no device file has the number
    # 0. The driver does not list GPUs of other vendors.
    listed = [int(match[1]) for node in nodes if (match := _RENDER_MINOR.search(_text(node / "properties")))]
    minors = [minor for minor in listed if minor in found] if listed else sorted(found)
    return [Gpu(str(place), str(place), f"/dev/dri/renderD{minor}") for place, minor in enumerate(minors)]


def _files(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
