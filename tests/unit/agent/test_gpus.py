"""The GPU devices of a host: how they are found and offered, and what the books and the jobs of an agent know of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.errors import BadInput
from headrace.wire.heartbeat import MOST_GPUS, AllocationState
from headrace_agent.host.gpus import Gpu, HostGpus, find_gpus, offered_gpus
from headrace_agent.runner.protocol import Run
from tests.support.agent_desk import Desk, end_of, extend, fake_gpus, job, kept, start

ALL_HIDDEN = {"CUDA_VISIBLE_DEVICES": "", "ROCR_VISIBLE_DEVICES": "", "HEADRACE_GPUS": ""}
UUID = "GPU-5a1b2c3d-0000-1111-2222-333344445555"


def touch(root: Path, *paths: str) -> None:
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).touch()


def nvidia_driver(root: Path, bus: str, minor: int, uuid: str) -> None:
    path = root / "proc/driver/nvidia/gpus" / bus / "information"
    path.parent.mkdir(parents=True)
    path.write_text(f"Model: \t\t Tesla\nGPU UUID: \t {uuid}\nBus Location: \t {bus}\nDevice Minor: \t {minor}\n")


def kfd_node(root: Path, number: int, render_minor: int) -> None:
    path = root / "sys/class/kfd/kfd/topology/nodes" / str(number) / "properties"
    path.parent.mkdir(parents=True)
    path.write_text(f"cpu_cores_count 0\nsimd_count 304\ndrm_render_minor {render_minor}\n")


def test_a_host_without_a_driver_has_no_devices_and_its_jobs_no_variables(tmp_path: Path) -> None:
    # A render node alone is a graphics card of any vendor.
    touch(tmp_path, "dev/dri/renderD128", "dev/nvidiactl")

    assert find_gpus(tmp_path) == HostGpus()
    assert find_gpus(tmp_path).environment([]) == {}


def test_nvidia_devices_are_those_with_a_file_and_cuda_gets_the_uuids_that_the_driver_knows(tmp_path: Path) -> None:
    touch(tmp_path, "dev/nvidia10", "dev/nvidia0", "dev/nvidia2", "dev/nvidiactl", "dev/nvidia-uvm", "dev/kfd")
    nvidia_driver(tmp_path, "0000:1a:00.0", 0, UUID)
    nvidia_driver(tmp_path, "0000:1b:00.0", 2, "GPU-????????-????-????-????-????????????")
    nvidia_driver(tmp_path, "0000:1c:00.0", 3, UUID[:-1] + "6")

    found = find_gpus(tmp_path)

    assert found.known == (
        Gpu("0", UUID, "/dev/nvidia0"),
        Gpu("2", "1", "/dev/nvidia2"),
        Gpu("10", "2", "/dev/nvidia10"),
    )
    assert found.environment(["0", "10"]) == {
        "CUDA_VISIBLE_DEVICES": f"{UUID},2",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "HEADRACE_GPUS": "0,10",
    }
    assert found.environment([]) == ALL_HIDDEN
    assert found.files_of_others(["0", "10"]) == ["/dev/nvidia2"]


def test_amd_devices_are_numbered_by_the_nodes_of_their_driver_and_only_rocr_is_told(tmp_path: Path) -> None:
    touch(tmp_path, "dev/kfd", *(f"dev/dri/renderD{minor}" for minor in (128, 129, 130)))
    kfd_node(tmp_path, 0, 0)
    kfd_node(tmp_path, 2, 130)
    kfd_node(tmp_path, 10, 129)
    # This container has no file of the third device.
    kfd_node(tmp_path, 11, 131)

    found = find_gpus(tmp_path)

    assert [(gpu.name, gpu.file) for gpu in found.known] == [("0", "/dev/dri/renderD130"), ("1", "/dev/dri/renderD129")]
    assert found.environment(["1"]) == {"ROCR_VISIBLE_DEVICES": "1", "HEADRACE_GPUS": "1"}
    assert found.environment([]) == ALL_HIDDEN


def test_without_the_nodes_of_the_driver_every_render_node_counts(tmp_path: Path) -> None:
    touch(tmp_path, "dev/kfd", "dev/dri/renderD129", "dev/dri/renderD128", "dev/dri/card0")

    assert [gpu.file for gpu in find_gpus(tmp_path).known] == ["/dev/dri/renderD128", "/dev/dri/renderD129"]


def test_settings_choose_among_the_devices_and_the_others_stay_hidden(tmp_path: Path) -> None:
    touch(tmp_path, "dev/nvidia0", "dev/nvidia1", "dev/nvidia2")
    nvidia_driver(tmp_path, "0000:1a:00.0", 1, UUID)
    found = find_gpus(tmp_path)

    assert offered_gpus(found, [], None).offered == ("0", "1", "2")
    assert offered_gpus(found, [], 2).offered == ("0", "1")
    assert offered_gpus(found, [], 0).environment([]) == ALL_HIDDEN
    chosen = offered_gpus(found, ["2", UUID], None)
    assert chosen.offered == ("2", "1")
    assert chosen.files_of_others(["1"]) == ["/dev/nvidia0", "/dev/nvidia2"]
    # A part of a device is not found, and is named to CUDA as the settings name it.
    part = offered_gpus(found, ["MIG-1", "0"], None)
    assert part.environment(["MIG-1"])["CUDA_VISIBLE_DEVICES"] == "MIG-1"


def test_names_of_devices_that_are_not_found_are_told_to_both_libraries() -> None:
    assert fake_gpus().environment(["1", "3"]) == {
        "CUDA_VISIBLE_DEVICES": "1,3",
        "ROCR_VISIBLE_DEVICES": "1,3",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "HEADRACE_GPUS": "1,3",
    }


@pytest.mark.parametrize(
    ("names", "count", "words"),
    [
        (["0", "1"], 3, r"gpu: 3 cannot be used; expected at most 2, the number of known devices \(0, 1\)"),
        (
            [],
            1,
            "gpu: 1 cannot be used; expected at most 0, the number of known devices. If the agent does not find .* as 0,1",
        ),
        (["0", "1", "0"], None, "gpus: device 0 is named twice"),
        (["a b"], None, "gpus: 'a b' cannot be used"),
        (["x" * 65], None, "at most 64 letters"),
        (
            [str(number) for number in range(MOST_GPUS + 1)],
            None,
            f"129 devices are named; a node has at most {MOST_GPUS}",
        ),
    ],
)
def test_settings_that_no_host_can_keep_are_refused_at_the_start(
    names: list[str], count: int | None, words: str
) -> None:
    with pytest.raises(BadInput, match=words):
        offered_gpus(HostGpus(), names, count)


def gpus_of(desk: Desk) -> dict[int, str]:
    """HEADRACE_GPUS of each job that was handed to the runner."""
    return {run.job.index: run.environment["HEADRACE_GPUS"] for run in desk.told(Run)}


def test_each_allocation_has_devices_of_its_own_and_the_heartbeat_names_them() -> None:
    desk = Desk(gpus=fake_gpus())
    beat = desk.turn(start("a", [0], cpu=10, gpu=1), start("b", [1], cpu=10, gpu=2), start("c", [2], cpu=10))

    assert gpus_of(desk) == {0: "0", 1: "1,2", 2: ""}
    assert beat.gpus == {"0": "a", "1": "b", "2": "b", "3": ""}
    for index, name in enumerate("abc"):
        desk.started(job(index))
        desk.ended(end_of(job(index), name))
    assert desk.turn().gpus == dict.fromkeys("0123", "")


def test_a_job_is_closed_to_the_files_of_all_devices_but_its_own() -> None:
    known = tuple(Gpu(name, name, f"/dev/nvidia{name}") for name in "012")
    # Device 2 is not offered.
    desk = Desk(gpus=HostGpus(known, ("0", "1"), ("CUDA_VISIBLE_DEVICES",)))
    desk.turn(start("a", [0], cpu=10, gpu=1), start("b", [1], cpu=10, gpu=1), start("c", [2], cpu=10))

    assert [(run.gpus, run.closed_files) for run in desk.told(Run)] == [
        (("0",), ["/dev/nvidia1", "/dev/nvidia2"]),
        (("1",), ["/dev/nvidia0", "/dev/nvidia2"]),
        ((), ["/dev/nvidia0", "/dev/nvidia1", "/dev/nvidia2"]),
    ]


def test_an_allocation_keeps_its_devices_from_job_to_job_and_others_wait_for_them() -> None:
    desk = Desk(gpus=fake_gpus("0,1"))
    desk.turn(start("a", [0, 1], cpu=10, gpu=1), start("b", [2], cpu=10, gpu=2))
    desk.started(job(0))
    desk.ended(end_of(job(0)))
    assert gpus_of(desk) == {0: "0", 1: "0"}

    desk.started(job(1))
    desk.ended(end_of(job(1)))
    assert gpus_of(desk)[2] == "0,1"


def test_the_next_agent_knows_which_devices_jobs_have_even_if_its_settings_name_others() -> None:
    before = Desk(gpus=fake_gpus())
    before.turn(start("a", [0], cpu=10, gpu=2), start("b", [1], cpu=10, gpu=1))
    after = Desk(incarnation="life-2", picture=False, gpus=fake_gpus("2,1,9"))
    after.picture([kept(before, job(1)), kept(before, job(0))])
    after.enrolled()
    after.turn(extend("a", [5]), start("c", [2], cpu=10, gpu=2))
    # Device 9 is free, but the jobs of before take as many GPUs as the host offers now.
    assert after.beat.gpus == {"2": "b", "1": "a", "9": "", "0": "a"}

    after.ended(end_of(job(0)))
    assert gpus_of(after) == {5: "0,1"}
    after.started(job(5))
    after.ended(end_of(job(5)))
    assert gpus_of(after)[2] == "1,9"
    assert after.turn().gpus == {"2": "b", "1": "c", "9": "c"}


def test_an_allocation_that_asks_for_more_than_there_are_devices_is_given_back_with_the_reason() -> None:
    desk = Desk(gpus=fake_gpus("0,1"))
    # As if the books and the devices differed.
    desk.engine.held.gpus = ("0",)
    desk.turn(start("a", [0], cpu=10, gpu=2), start("b", [1], cpu=10, gpu=1))

    report = desk.report("a")
    assert report is not None
    assert report.state is AllocationState.ENDED
    assert report.given_back_for == "it needs 2 GPU devices, and 1 are free on this host"
    assert desk.runs == [job(1)]
