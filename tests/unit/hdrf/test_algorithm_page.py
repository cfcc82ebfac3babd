"""The modules of the algorithm and docs/reference/fair-share-algorithm.md lead to each other."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
HDRF = ROOT / "services" / "headrace_fair_share" / "hdrf"
PAGE = ROOT / "docs" / "reference" / "fair-share-algorithm.md"
TEXT = PAGE.read_text()
HEADS = re.findall(r"^## (.+)$", TEXT, re.MULTILINE)
#: Anchors as forges make them.
ANCHORS = {re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in HEADS}
MODULES = sorted(path for path in HDRF.rglob("*.py") if path.name != "__init__.py")
NAMED = re.findall(r"`([\w/]+\.py): ([\w.]+)`", TEXT)


def definitions(module: Path) -> set[str]:
    """Public functions and classes of a module, and methods by their dotted names."""
    body = ast.parse(module.read_text()).body
    kinds = (ast.FunctionDef, ast.ClassDef)
    methods = {
        f"{each.name}.{method.name}"
        for each in body
        if isinstance(each, ast.ClassDef)
        for method in each.body
        if isinstance(method, ast.FunctionDef)
    }
    return {each.name for each in body if isinstance(each, kinds)} | methods


@pytest.mark.parametrize("module", MODULES, ids=lambda path: path.stem)
def test_a_module_links_the_sections_that_it_implements(module: Path) -> None:
    links = re.findall(r"docs/reference/([\w-]+\.md)#([\w-]+)", ast.get_docstring(ast.parse(module.read_text())) or "")

    assert links
    assert {page for page, _ in links} == {PAGE.name}
    assert {anchor for _, anchor in links} <= ANCHORS


@pytest.mark.parametrize(("module", "name"), NAMED)
def test_a_function_that_the_page_names_is_there(module: str, name: str) -> None:
    # Anything outside of the algorithm is named by its whole path.
    folder = ROOT if module.startswith("services/") else HDRF

    assert name in definitions(folder / module)


def test_sections_are_numbered_and_each_but_the_last_names_a_function() -> None:
    sections = re.split(r"^## ", TEXT, flags=re.MULTILINE)[1:]

    assert [int(head.split(".")[0]) for head in HEADS] == list(range(1, len(HEADS) + 1))
    assert [each.splitlines()[0] for each in sections if not re.search(r"`[\w/]+\.py: ", each)] == []


def test_links_within_the_page_lead_somewhere() -> None:
    assert set(re.findall(r"\]\(#([^)]+)\)", TEXT)) <= ANCHORS
    for target in re.findall(r"\]\((?!http|#)([^)#]+)", TEXT):
        assert (PAGE.parent / target).exists(), target
