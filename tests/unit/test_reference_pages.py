"""Pages that come from code are those of today's code, and no page leads nowhere."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from docs.generate.messages_page import messages_page
from docs.generate.openapi import openapi_text
from docs.generate.settings_page import settings_page
from docs.generate.struct_fields import StructField, own_fields
from docs.generate.subjects_page import subjects_page
from docs.pictures.build import DOCS, ROOT_FOLDER, build_site, write_pages
from headrace_web.app import OPENAPI_FILE


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


def test_the_description_of_the_api_is_what_its_endpoints_say() -> None:
    assert OPENAPI_FILE.read_text(encoding="utf-8") == openapi_text(), "run: make docs-reference"


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


@pytest.fixture
def configuration(tmp_path: Path) -> Path:
    """A copy of the site's configuration, for pages that a test writes beside it."""
    path = tmp_path / "docs" / "zensical.toml"
    path.parent.mkdir()
    path.write_text((DOCS / "zensical.toml").read_text().replace("../shared", str(ROOT_FOLDER / "shared")))
    return path


@pytest.mark.long
def test_no_link_of_any_page_leads_nowhere_and_the_site_loads_nothing_from_elsewhere(configuration: Path) -> None:
    write_pages(configuration.parent / "build" / "pages")

    assert build_site(configuration) == ""

    site = configuration.parent / "build" / "site"
    pages = {str(page.relative_to(site)): page.read_text() for page in site.rglob("*.html")}
    loaded = r'<(?:script|img|link rel="(?:stylesheet|preload|preconnect)")[^>]*(?:src|href)="(?:https?:)?//'
    assert [name for name, text in pages.items() if re.search(loaded, text)] == []
    assert {"index.html", "docs/how-to/pools.html", "docs/why/fair-share.html", "SECURITY.html"} <= pages.keys()
    for name in ("headrace.connect", "headrace.client.Client.run", "headrace.client.Pools.create"):
        assert f'id="{name}"' in pages["docs/reference/python.html"]


@pytest.mark.parametrize("link", ["[a](no.md)", "[a](#no-heading)", "[a](other.md#no)"])
def test_a_link_that_leads_nowhere_is_named(configuration: Path, link: str) -> None:
    pages = configuration.parent / "build" / "pages"
    pages.mkdir(parents=True)
    configuration.write_text(re.sub(r"(?ms)^nav = .*?^\]$", "", configuration.read_text()))
    (pages / "other.md").write_text("# One, two\n[a](#one-two) `[b](c)`\n")
    (pages / "index.md").write_text(f"# A\n[good](other.md#one-two) {link}\n")

    wrong = build_site(configuration)

    assert "index.md:2" in wrong
    assert "1 issue" in wrong
