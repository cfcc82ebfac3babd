"""Build the documentation site: all pages with their pictures, in docs/build/site.

    python docs/pictures/build.py [--committed]

A page marks the place of a picture that only the site has by a comment, which a forge does not show:

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
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT_FOLDER: Final = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT_FOLDER), str(ROOT_FOLDER / "shared"), str(ROOT_FOLDER / "services")]

from docs.generate.messages_page import messages_page  # noqa: E402
from docs.pictures import fair_share, integral_guarantees, policies, preemption, real_workloads, replay  # noqa: E402

__all__ = [
    "BUILD",
    "COMMITTED",
    "DOCS",
    "build_site",
    "built",
    "committed_pictures",
    "main",
    "pictures_of",
    "write_pages",
]

DOCS: Final = ROOT_FOLDER / "docs"
BUILD: Final = DOCS / "build"
#: Pictures without which a page would be hard to follow. They stay small: a reader of changes has to look at them.
COMMITTED: Final = ("pool", "suggestion")
_MARK: Final = re.compile(r"<!-- picture: (\S+)\n([^\n]+)\n(.*?)-->\n", re.DOTALL)
_SHOWN: Final = re.compile(r"!\[[^\]]+\]\(([^)]+\.svg)\)")
#: The site generator knows a block of code by its language alone.
_BLOCK_WORDS: Final = re.compile(r"^(```\w+) .*$", re.MULTILINE)
_COLOURS: Final = re.compile(r"\x1b\[[0-9;]*m")


def built(text: str) -> str:
    """A page with its pictures in place of their comments, and without the words by which tests find blocks of code."""
    text = _BLOCK_WORDS.sub(r"\1", text)
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


def write_pages(folder: Path) -> None:
    """Write all pages with the paths that they have in the repository, so that the links between them hold.

    Two pages exist only here: the messages, which change with the code, and the Python client, which the site generator fills.
    """
    for page in [*kept_pages(), *ROOT_FOLDER.glob("*.md"), *ROOT_FOLDER.glob("services/*/README.md")]:
        to = folder / page.relative_to(ROOT_FOLDER)
        to.parent.mkdir(parents=True, exist_ok=True)
        to.write_text(built(page.read_text()))
    reference = folder / "docs" / "reference"
    (reference / "messages.md").write_text(messages_page())
    (reference / "python.md").write_text("# Python client\n\n::: headrace.connect\n\n::: headrace.client\n")
    for picture in DOCS.rglob("*.png"):
        if BUILD not in picture.parents:
            shutil.copy(picture, folder / picture.parent.relative_to(ROOT_FOLDER))
    shutil.copytree(DOCS / "examples", folder / "docs" / "examples", dirs_exist_ok=True)


def _draw_pictures(folder: Path) -> None:
    for pictures in (fair_share, integral_guarantees, policies, preemption, real_workloads, replay):
        to = folder / pictures.FOLDER.relative_to(ROOT_FOLDER)
        to.mkdir(parents=True, exist_ok=True)
        for name in pictures.PICTURES:
            pictures.draw(name, to / f"{name}.svg")


def build_site(configuration: Path) -> str:
    """Build the site from pages that are there. Returns "", or what is wrong: links and anchors that lead nowhere, with their lines."""
    command = [sys.executable, "-m", "zensical", "build", "--clean", "--strict", "--config-file", str(configuration)]
    done = subprocess.run(command, cwd=configuration.parent, capture_output=True, text=True)
    said = _COLOURS.sub("", done.stdout + done.stderr)
    return said.partition("Traceback")[0] if done.returncode else ""


def main() -> None:
    """Build the site."""
    arguments = argparse.ArgumentParser(description=main.__doc__)
    arguments.add_argument("--committed", action="store_true", help="draw the committed pictures again instead")
    if arguments.parse_args().committed:
        for name in COMMITTED:
            path = fair_share.FOLDER / f"{name}.svg"
            fair_share.draw(name, path)
            path.write_text(_small(path.read_text()))
        return
    shutil.rmtree(BUILD, ignore_errors=True)
    write_pages(BUILD / "pages")
    _draw_pictures(BUILD / "pages")
    if wrong := build_site(DOCS / "zensical.toml"):
        sys.exit(wrong)
    print(f"the site is in {BUILD.relative_to(ROOT_FOLDER)}/site: open index.html in a browser")


if __name__ == "__main__":
    main()
