"""How images are named, and which nodes can run them."""

from __future__ import annotations

import pytest

from headrace.errors import BadInput
from headrace.images import apptainer_name, nodes_for, parse_image, podman_name


@pytest.mark.parametrize(
    "name",
    [
        "ubuntu",
        "ubuntu:24.04",
        "team/tool",
        "ghcr.io/team/tool:1.2-rc",
        "docker://localhost:5000/a/b_c",
        f"Registry.Example.org/a@sha256:{'0' * 64}",
        "/srv/images/tool.sif",
        "/srv/root file system",
    ],
)
def test_names_of_registries_and_paths_are_images(name: str) -> None:
    assert parse_image(name, place="image") == name


@pytest.mark.parametrize(
    "name",
    [
        *(
            "",
            "-v",
            "--privileged",
            "docker://",
            "docker://-v",
            "docker:///etc",
            "oci://x",
            "a b",
            "$(id)",
            "a;b",
            "a\n",
        ),
        *("Ubuntu", "ubuntu:", "ubuntu:-v", "a//b", "../a", "a/../b", "tool.sif", "ubuntu@sha256:0"),
        *("/", "//", "/a:b", "/a,b", "/a\nb", "/a\0b", "/" + "a" * 1024),
    ],
)
def test_anything_else_is_refused_with_its_place(name: str) -> None:
    with pytest.raises(BadInput) as refused:
        parse_image(name, place="--image")
    assert refused.value.place == "--image"


def test_only_apptainer_reads_sif_files_and_each_runtime_gets_the_name_in_its_own_form() -> None:
    assert nodes_for("") == ""
    assert nodes_for("ubuntu") == nodes_for("/srv/root") == "container:podman | container:apptainer"
    assert nodes_for("/srv/a.sif") == "container:apptainer"
    assert podman_name("docker://ubuntu:1") == "docker.io/library/ubuntu:1"
    assert podman_name("docker://team/tool") == "docker.io/team/tool"
    assert podman_name("docker://ghcr.io/tool") == "ghcr.io/tool"
    assert podman_name("ubuntu") == "ubuntu"
    assert [apptainer_name(name) for name in ("ubuntu", "docker://a", "/a.sif")] == [
        "docker://ubuntu",
        "docker://a",
        "/a.sif",
    ]
