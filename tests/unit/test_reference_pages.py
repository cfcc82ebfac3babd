"""Pages that come from code are those of today's code, and no page leads nowhere."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from docs.generate.links import broken_links
from docs.generate.messages_page import messages_page
from docs.generate.settings_page import settings_page
from docs.generate.struct_fields import StructField, own_fields
from docs.generate.subjects_page import subjects_page
from docs.pictures.build import DOCS, ROOT_FOLDER, kept_pages


class Sample(msgspec.Struct):
    """A Struct."""

    #: First line,
    #: and second.
    one: int
    two: str | None = "a"  # not told
    # Not told either.
    three: list[int] = []


@pytest.mark.parametrize(("name", "page"), [("settings", settings_page), ("subjects", subjects_page)])
def test_a_page_of_the_reference_is_what_the_code_says(name: str, page: Callable[[], str]) -> None:
    assert (DOCS / "reference" / f"{name}.md").read_text() == page(), "run: make docs-reference"


def test_fields_are_told_with_what_stands_above_them() -> None:
    assert list(own_fields(Sample)) == [
        StructField("one", "int", "", "First line, and second."),
        StructField("two", "str | None", "'a'", ""),
        StructField("three", "list[int]", "[]", ""),
    ]


def test_every_message_has_its_place_on_the_page_of_messages() -> None:
    page = messages_page()
    assert "## heartbeat\n" in page
    assert "### `Heartbeat`" in page
    assert "| `memory` | " in page


def test_no_link_of_any_page_leads_nowhere() -> None:
    services = ROOT_FOLDER.glob("services/*/README.md")
    assert broken_links([ROOT_FOLDER / "README.md", ROOT_FOLDER / "SECURITY.md", *services, *kept_pages()]) == []


@pytest.mark.parametrize("link", ["[a](no.md)", "[a](#no-heading)", "[a](other.md#no)", "![a](no.svg)"])
def test_a_link_that_leads_nowhere_is_named(tmp_path: Path, link: str) -> None:
    (tmp_path / "other.md").write_text("# One, two\n[a](#one-two) `[b](c)`\n")
    page = tmp_path / "page.md"
    page.write_text(f"# A\n[good](other.md#one-two) {link}\n")
    assert len(broken_links(tmp_path.rglob("*.md"))) == 1
