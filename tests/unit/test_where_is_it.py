"""The page that leads from a rule to its function names functions that there are, and each service says its rules the same way."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "where-is-it.md"
DECISIONS = sorted((ROOT / "docs" / "decisions").glob("[0-9]*.md"))
_ROW = re.compile(r"^\| (?P<rule>[^|]+) \| `(?P<file>[^`|]+)` \| `(?P<name>[^`|]+)` \|$", re.MULTILINE)


def rows() -> list[tuple[str, str, str]]:
    """Rule, file and function of each row of the page."""
    return [(row["rule"], row["file"], row["name"]) for row in _ROW.finditer(PAGE.read_text(encoding="utf-8"))]


def names_in(path: Path) -> set[str]:
    """Functions and classes of a module, those of classes as `Class.function`."""
    found: set[str] = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            found |= {
                f"{node.name}.{each.name}"
                for each in node.body
                if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
            }
    return found


def test_the_page_has_forty_rules_of_all_services() -> None:
    assert len(rows()) >= 40
    assert len({rule for rule, _, _ in rows()}) == len(rows())
    services = {file.split("/")[1] for _, file, _ in rows() if file.startswith("services/")}
    assert services == {path.name for path in (ROOT / "services").iterdir() if (path / "__init__.py").exists()}


@pytest.mark.parametrize(("rule", "file", "name"), rows(), ids=lambda each: str(each)[:60])
def test_the_function_of_a_rule_is_there(rule: str, file: str, name: str) -> None:
    assert name in names_in(ROOT / file), f"{rule}: {file} has no {name}"


def named_functions(text: str) -> list[tuple[str, str]]:
    """Files and the functions or classes that a page names as `path/to/file.py: name`."""
    return re.findall(r"`((?:services|shared)/[\w/]+\.py): ([\w.]+)`", text)


def test_the_architecture_names_functions_and_files_that_are_there() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    assert len(named_functions(text)) >= 20
    for file, name in named_functions(text):
        assert name in names_in(ROOT / file), f"ARCHITECTURE.md: {file} has no {name}"


@pytest.mark.parametrize(
    "page", ["ARCHITECTURE.md", "CONTRIBUTING.md", *(f"docs/decisions/{path.name}" for path in DECISIONS)]
)
def test_every_path_that_a_page_for_contributors_names_is_there(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    named = re.findall(r"`((?:services|shared|tests|docs|compose|\.ci)/[\w./-]+)[`:]", text)
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_every_service_has_a_readme_of_one_screen_whose_files_are_there() -> None:
    for service in sorted(path for path in (ROOT / "services").iterdir() if (path / "__init__.py").exists()):
        readme = service / "README.md"
        assert readme.is_file(), f"{service.name} has no README.md"
        text = readme.read_text(encoding="utf-8")
        assert len(text.splitlines()) <= 70, f"{readme}: {len(text.splitlines())} lines are more than one screen"
        files = [path.relative_to(service).as_posix() for path in service.rglob("*.py")]
        for file in re.findall(r"`([\w/]+\.py)\b", text):
            assert any(f"/{each}".endswith(f"/{file}") for each in files), f"{readme}: there is no {file}"
        for file, names in re.findall(r"`([\w/]+\.py): ([\w., ]+)`", text):
            found = names_in(service / file)
            for name in re.split(r", *", names):
                there = name in found or any(each.endswith(f".{name}") for each in found)
                assert there, f"{readme}: {file} has no {name}"
