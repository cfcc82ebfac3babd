"""Links of pages: each leads to a file that is there, and to a heading that it has."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

_LINK: Final = re.compile(r"\]\((?!https?://)([^)#\s]*)(?:#([^)\s]+))?\)")
_HEADING: Final = re.compile(r"^#+ (.+)$", re.MULTILINE)
_CODE: Final = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)


def broken_links(pages: Iterable[Path]) -> list[str]:
    """Links that lead nowhere, each with its page."""
    broken = []
    for page in pages:
        for target, heading in _LINK.findall(_CODE.sub("", page.read_text())):
            to = (page.parent / target).resolve() if target else page
            if not to.exists() or (heading and heading not in _anchors(to)):
                broken.append(f"{page}: {target}{'#' if heading else ''}{heading}")
    return broken


def _anchors(page: Path) -> set[str]:
    """The names that a forge gives the headings of a page."""
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in _HEADING.findall(text)}
