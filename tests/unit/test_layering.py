"""The layers that import-linter holds cover every service there is, and each service has the same four files."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
SERVICES = sorted(init.parent.name for init in (ROOT / "services").glob("*/__init__.py"))
LINTER: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]


def test_a_new_service_is_put_under_the_contracts() -> None:
    independent, shared = LINTER["contracts"][:2]

    assert sorted(["headrace", *SERVICES]) == sorted(LINTER["root_packages"])
    assert sorted(independent["modules"]) == SERVICES
    assert sorted(shared["forbidden_modules"]) == SERVICES


#: Programs of one person, without a role.
PROGRAMS = ("headrace_cli", "headrace_simulator", "headrace_web")


@pytest.mark.parametrize("service", [name for name in SERVICES if name not in PROGRAMS])
def test_who_knows_one_service_knows_all(service: str) -> None:
    for name in ("engine.py", "service.py", "settings.py", "__main__.py"):
        assert (ROOT / "services" / service / name).is_file(), f"{service} lacks {name}"
