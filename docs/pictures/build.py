"""Builds docs/build: the pages of docs/ with all their pictures. A forge shows the pages as they are committed, with two small ones.

    python docs/pictures/build.py [--committed]

A page marks the place of a picture that only the built page has by a comment, which a forge does not show:

    <!-- picture: fair-share/demand.svg
    What the picture shows, for those who cannot see it
    *A caption, if there is one.*
    -->

`--committed` draws the committed pictures again, in place.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT_FOLDER: Final = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT_FOLDER), str(ROOT_FOLDER / "shared"), str(ROOT_FOLDER / "services")]

from docs.generate.links import broken_links  # noqa: E402
from docs.generate.messages_page import messages_page  # noqa: E402
from docs.pictures import fair_share, integral_guarantees, policies, preemption, replay  # noqa: E402

__all__ = ["BUILD", "COMMITTED", "DOCS", "built", "committed_pictures", "main", "pictures_of"]

DOCS: Final = ROOT_FOLDER / "docs"
BUILD: Final = DOCS / "build"
#: Pictures without which a page would be hard to follow. They stay small: a reader of changes has to look at them.
COMMITTED: Final = ("pool", "suggestion")
_MARK: Final = re.compile(r"<!-- picture: (\S+)\n([^\n]+)\n(.*?)-->\n", re.DOTALL)
_SHOWN: Final = re.compile(r"!\[[^\]]+\]\(([^)]+\.svg)\)")


def built(text: str) -> str:
    """A page with its pictures in place of their comments."""
    return _MARK.sub(lambda mark: f"![{mark[2]}]({mark[1]})\n" + (f"\n{mark[3]}" if mark[3] else ""), text)


def pictures_of(text: str) -> list[str]:
    """The pictures of a page, as paths from its folder, in their order."""
    return _SHOWN.findall(built(text))


def committed_pictures() -> Iterator[Path]:
    """Pictures that are kept beside the pages."""
    return (path for path in DOCS.rglob("*.svg") if BUILD not in path.parents)


def _small(svg: str) -> str:
    """A drawing with nothing in it that a browser can do without, a few elements a line."""
    svg = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->|<!DOCTYPE.*?>", "", svg, flags=re.DOTALL)
    svg = re.sub(r"-?\d+\.\d{3,}", lambda number: f"{float(number[0]):.2f}".rstrip("0").rstrip("."), svg)
    svg = re.sub(r"\s*\n\s*", " ", svg)
    return re.sub(r"> (?=<)", ">", svg).replace("<g id=", "\n<g id=") + "\n"


def kept_pages() -> list[Path]:
    """All pages that are not built."""
    return sorted(set(DOCS.rglob("*.md")) - set(BUILD.rglob("*.md")))


def _write_pages(folder: Path) -> None:
    """Writes all pages, the one of messages too, which changes with every message and is not kept with the others."""
    for page in kept_pages():
        to = folder / page.relative_to(DOCS)
        to.parent.mkdir(parents=True, exist_ok=True)
        to.write_text(built(page.read_text()))
    (folder / "reference" / "messages.md").write_text(messages_page())
    shutil.copytree(DOCS / "examples", folder / "examples", dirs_exist_ok=True)


def main() -> None:
    """Builds the pages."""
    arguments = argparse.ArgumentParser(description=main.__doc__)
    arguments.add_argument("--committed", action="store_true", help="draw the committed pictures again instead")
    if arguments.parse_args().committed:
        for name in COMMITTED:
            path = fair_share.FOLDER / f"{name}.svg"
            fair_share.draw(name, path)
            path.write_text(_small(path.read_text()))
        return
    shutil.rmtree(BUILD, ignore_errors=True)
    _write_pages(BUILD)
    for pictures in (fair_share, integral_guarantees, policies, preemption, replay):
        folder = BUILD / pictures.FOLDER.relative_to(DOCS)
        folder.mkdir(parents=True)
        for name in pictures.PICTURES:
            pictures.draw(name, folder / f"{name}.svg")
    if broken := broken_links(BUILD.rglob("*.md")):
        sys.exit("links that lead nowhere:\n" + "\n".join(broken))
    print(f"the pages with their pictures are in {BUILD.relative_to(ROOT_FOLDER)}, to begin with why/fair-share.md")


if __name__ == "__main__":
    main()
