"""The locked requirements: files for uv and pip, complete, hashed, and silent about where packages come from."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
LOCK = "".join((ROOT / name).read_text() for name in ("requirements.lock", "requirements-browser.lock"))
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())

WANTED = [
    *PROJECT["project"]["dependencies"],
    *sorted(
        {
            each
            for extra in PROJECT["project"]["optional-dependencies"].values()
            for each in extra
            if not each.startswith("headrace[")
        }
    ),
    *PROJECT["dependency-groups"]["dev"],
    *PROJECT["dependency-groups"]["build"],
    *PROJECT["dependency-groups"]["browser"],
]


def pinned() -> dict[str, str]:
    """Version by name of each requirement in the lock."""
    return dict(re.findall(r"^([a-z0-9-]+)==(\S+)", LOCK, re.MULTILINE))


@pytest.mark.parametrize("wanted", WANTED)
def test_what_pyproject_asks_for_is_what_the_lock_pins(wanted: str) -> None:
    requirement = Requirement(wanted)

    version = pinned().get(canonicalize_name(requirement.name))

    assert version is not None, f"{wanted}: run `make lock`"
    assert requirement.specifier.contains(version), f"{wanted}, but {version} is pinned: run `make lock`"


def test_every_pinned_requirement_has_hashes() -> None:
    entries = re.split(r"^(?=\S)", LOCK, flags=re.MULTILINE)[1:]

    assert pinned().keys() == {entry.partition("==")[0] for entry in entries}
    assert [entry.split()[0] for entry in entries if "--hash=sha256:" not in entry] == []


def test_the_lock_names_no_place() -> None:
    assert re.findall(r"://|--(?:extra-)?index|--find-links|@", LOCK) == []
