"""Images that jobs run in: how they are named, and the nodes that can run them. Pure."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from headrace.errors import BadInput, shortened

#: Container runtimes: the programs of a node that run a command in an image.
PODMAN: Final = "podman"
APPTAINER: Final = "apptainer"
#: Tag by which an agent reports each container runtime. A node may report these tags even if the token with which it joined
#: does not name them.
RUNTIME_TAGS: Final = {PODMAN: "container:podman", APPTAINER: "container:apptainer"}

_REGISTRY: Final = "docker://"
_SIF: Final = ".sif"
_LONGEST: Final = 1024
_PART: Final = "[a-z0-9]+(?:(?:[.]|_{1,2}|-+)[a-z0-9]+)*"
_HOST: Final = "[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?(?::[0-9]{1,5})?"
_NAME: Final = re.compile(
    rf"(?:{_HOST}/)?{_PART}(?:/{_PART})*(?::[A-Za-z0-9_][A-Za-z0-9_.-]{{0,127}})?(?:@sha256:[0-9a-f]{{64}})?"
)
#: Absolute paths without `:` and `,`, because container runtimes separate a path from its options by these characters.
_PATH: Final = re.compile(r"/[^:,\x00-\x1f\x7f]*")
_EXPECTED: Final = (
    "a name in a registry such as ubuntu:24.04 or docker://ghcr.io/team/tool:1, or an absolute path of the nodes "
    "without `:` and `,`: a .sif file, or a folder with a root file system"
)


def parse_image(text: str, *, place: str) -> str:
    """Return the name of an image. Raises `BadInput`, which names `place`.

    >>> parse_image("docker://ghcr.io/team/tool:1", place="--image")
    'docker://ghcr.io/team/tool:1'
    """
    is_name = _NAME.fullmatch(text.removeprefix(_REGISTRY)) is not None and not text.endswith(_SIF)
    is_path = _PATH.fullmatch(text) is not None and text.strip("/") != ""
    if len(text) > _LONGEST or not (is_name or is_path):
        raise BadInput(place, shortened(text), f"{_EXPECTED}; at most {_LONGEST} characters")
    return text


def is_path(image: str) -> bool:
    """True if an image is a file or a folder of the node, and not a name in a registry."""
    return image.startswith("/")


def runtimes_of(image: str) -> tuple[str, ...]:
    """Return the runtimes that can run an image, the preferred one first. Only Apptainer reads .sif files."""
    return (APPTAINER,) if image.endswith(_SIF) else (PODMAN, APPTAINER)


@lru_cache(maxsize=256)
def nodes_for(image: str) -> str:
    """Return the formula over tags that selects the nodes that can run an image; empty if there is no image."""
    return " | ".join(RUNTIME_TAGS[each] for each in runtimes_of(image)) if image else ""


def podman_name(image: str) -> str:
    """Return the name of an image in a registry as Podman takes it. A name that begins with `docker://` is in Docker Hub unless
    it names another registry.
    """
    if not image.startswith(_REGISTRY):
        return image
    name = image.removeprefix(_REGISTRY)
    host, slash, _ = name.partition("/")
    if slash and ("." in host or ":" in host or host == "localhost"):
        return name
    return f"docker.io/{name}" if slash else f"docker.io/library/{name}"


def apptainer_name(image: str) -> str:
    """Return the name of an image as Apptainer takes it."""
    return image if is_path(image) or image.startswith(_REGISTRY) else _REGISTRY + image
