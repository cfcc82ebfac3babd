"""The extras of the package `headrace`, and the error of a command or process that lacks a package of an extra.

The base package has everything that a client, the command line and an agent need. An extra adds the packages that only
some commands or services need. Together the extras are three times as large as the base.
"""

from __future__ import annotations

import sys
from typing import Final, Literal

from headrace.errors import HeadraceError

Extra = Literal[
    "analysis",
    "dask",
    "executor",
    "export",
    "import",
    "joblib",
    "metrics",
    "parquet",
    "plots",
    "server",
    "snakemake",
    "tracing",
    "up",
    "web",
]
#: The modules that must be installed for each extra. The program nats-server, which `server` and `up` need too, is missing here:
#: it is no module, and is found by its path. `server` also installs prometheus_client, but only a process with a metrics port
#: needs that module, and such a process checks for the extra `metrics`.
MODULES: Final[dict[Extra, tuple[str, ...]]] = {
    "analysis": ("numpy",),
    "dask": ("distributed",),
    "executor": ("cloudpickle",),
    "export": ("requests",),
    "import": ("defusedxml",),
    "joblib": ("cloudpickle", "joblib"),
    "metrics": ("prometheus_client",),
    "parquet": ("pyarrow",),
    "plots": ("matplotlib",),
    "server": ("numpy",),
    "snakemake": ("snakemake",),
    "tracing": ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http"),
    "up": ("numpy",),
    "web": ("starlette", "uvicorn"),
}


class MissingExtra(HeadraceError):
    """A command or process needs an extra of the package that is not installed."""

    def __init__(self, extra: Extra, needed_by: str, missing: str) -> None:
        self.extra = extra
        super().__init__(
            f"{needed_by} needs {missing}, which is not installed. Install the extra «{extra}»: "
            f"pip install 'headrace[{extra}]' in the environment of headrace; "
            f"in a clone: uv tool install '.[{extra}]', or pipx install --force '.[{extra}]'"
        )


def require(extra: Extra, needed_by: str) -> None:
    """Check that the modules of an extra are installed, without importing them. Raises `MissingExtra`."""
    for module in MODULES[extra]:
        if not _is_installed(module):
            raise MissingExtra(extra, needed_by, module)


def require_in_process(extra: Extra, program: str) -> None:
    """If an extra that a program needs is missing, print one line and end the process with status 2, which means bad settings."""
    try:
        require(extra, program)
    except MissingExtra as error:
        print(error, file=sys.stderr)
        sys.exit(2)


def _is_installed(module: str) -> bool:
    import importlib.util

    try:
        return importlib.util.find_spec(module) is not None
    # `find_spec` raises if the package that contains the module is missing, or if `sys.modules` has None for the module, which
    # forbids its import.
    except (ImportError, ValueError):
        return False
