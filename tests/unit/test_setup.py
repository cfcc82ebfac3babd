"""The Python that `make setup` takes."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

#: Says its version and how long its loop took, and whether it is new enough.
_INTERPRETER = """#!/bin/sh
case "$2" in
*loop_us*) echo {version} {loop_us} "{path}" ;;
*ensurepip*) exit 0 ;;
*) exit {too_old} ;;
esac
"""


def found(folder: Path, pythons: dict[str, tuple[str, int]], **environment: str) -> subprocess.CompletedProcess[str]:
    """What is found on a path with these names, each with a version and the microseconds of a loop."""
    folder.mkdir()
    for name, (version, loop_us) in pythons.items():
        path = folder / name
        too_old = int(int(version.split(".")[1]) < 11)
        path.write_text(_INTERPRETER.format(version=version, loop_us=loop_us, path=path, too_old=too_old), "utf-8")
        path.chmod(0o755)
    for tool in ("bash", "cat", "cksum", "dirname", "sh"):
        (folder / tool).symlink_to(next(Path(at) / tool for at in os.defpath.split(":") if (Path(at) / tool).exists()))
    command = [str(folder / "bash"), "-c", f"source {ROOT}/.ci/setup && find_python"]
    return subprocess.run(
        command, env={"PATH": str(folder), **environment}, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    ("pythons", "taken"),
    [
        ({"python3.13": ("3.13.1", 300), "python3.11": ("3.11.2", 200)}, "python3.11"),
        ({"python3.13": ("3.13.1", 300), "python3.11": ("3.11.2", 290)}, "python3.13"),
        ({"python3.11": ("3.11.2", 300), "python3": ("3.9.1", 100)}, "python3.11"),
    ],
)
def test_the_quickest_that_is_new_enough_is_taken_and_of_equals_the_first(
    pythons: dict[str, tuple[str, int]], taken: str, tmp_path: Path
) -> None:
    assert found(tmp_path / "bin", pythons).stdout == f"{tmp_path}/bin/{taken}\n"


def test_a_name_in_the_environment_is_not_compared(tmp_path: Path) -> None:
    pythons = {"python3.13": ("3.13.1", 300), "python3.11": ("3.11.2", 200)}
    assert found(tmp_path / "bin", pythons, PYTHON="python3.13").stdout == f"{tmp_path}/bin/python3.13\n"


def test_where_none_is_new_enough_each_is_named(tmp_path: Path) -> None:
    told = found(tmp_path / "bin", {"python3": ("3.9.1", 100)})

    assert told.returncode == 1
    assert f"Python 3.11 or newer is needed; {tmp_path}/bin/python3 is 3.9.1;" in told.stderr
    assert "PYTHON=python3.9 does not run" in found(tmp_path / "other", {}, PYTHON="python3.9").stderr
