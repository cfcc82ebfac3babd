"""Takes the picture of the terminal that the README shows: `headrace top` while the README's tree is at work.

    python -m docs.generate.readme_capture

It runs Headrace on this machine for some seconds and writes the block below the mark.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from tests.support.headrace_up import HEADRACE, Up
from tests.support.live_terminal import LiveTerminal

__all__ = ["captured", "main", "shown", "steady"]

README: Final = Path(__file__).parents[2] / "README.md"
_BLOCK: Final = re.compile(r"(<!-- picture of headrace top, by make docs-capture -->\n```\n)(.*?)(```\n)", re.DOTALL)
_NODES: Final = ("small:cpu=1,memory=2G", "medium:cpu=2,memory=2G", "large:cpu=3,memory=2G")
#: Each pool, its options, and the operation that runs in it.
_TREE: Final = (
    ("production", ("--guarantee", "cpu=2", "--weight", "1"), "invoices"),
    ("research", ("--weight", "2"), "training"),
    ("students", ("--weight", "1"), "homework"),
)
_WIDTH: Final = 80
_HEIGHT: Final = 19
#: Rows of the screen once each part of it has come, and tells that every core is at work.
_AT_WORK: Final = (
    re.compile(r".*cpu 6 of 6"),
    re.compile(r".*nodes 3 of 3 online +jobs 6 +operations 3 running of 3"),
    re.compile(r"<Root> +100% +100% +1000%"),
    *(re.compile(rf".*{pool} +(\S+%) +\1 .* 1/1") for pool, _, _ in _TREE),
    *(re.compile(rf"{operation} +running +\S+ +(\S+%) +\1 ") for _, _, operation in _TREE),
    *(re.compile(rf"{name} +(\d) +\1 of \1 ") for name in ("large", "medium", "small")),
    # The last one: until it has come the first frame is being drawn.
    re.compile(r".* q quit$"),
)


def shown() -> str:
    """The picture that the README has."""
    found = _BLOCK.search(README.read_text())
    assert found is not None
    return found[2]


def steady(picture: str) -> str:
    """The picture without what differs each time or with the account that takes it: ages, versions, users, gaps."""
    names = "|".join(operation for _, _, operation in _TREE)
    pools = "|".join(pool for pool, _, _ in _TREE)
    ages = re.sub(r"shares \S+, \S+ old| +user .*$", "", picture, flags=re.MULTILINE)
    # A long account name takes the room of the time.
    users = re.sub(rf"^((?:{names}) .* (?:{pools})) .*$", r"\1", ages, flags=re.MULTILINE)
    return re.sub(" +", " ", users)


def captured() -> str:
    """The screen of `headrace top` once every core of the README's tree is at work."""
    with Up(nodes=_NODES) as up:
        for pool, options, _ in _TREE:
            up.run("pool", "create", pool, *options)
        # All want more than there is before anybody gets anything.
        up.run("pause", "starts")
        for pool, _, operation in _TREE:
            up.run("run", "--id", operation, "--pool", pool, "--jobs", "20", "--memory", "64M", "--", "sleep", "600")
        up.run("resume", "starts")
        with LiveTerminal([*HEADRACE, "top"], up.environment, _WIDTH, _HEIGHT) as terminal:
            lines = terminal.until(lambda lines: all(any(map(row.match, lines)) for row in _AT_WORK))
            return "".join(f"{line}\n" for line in lines)


def main() -> None:
    """Writes the picture anew."""
    picture = captured()
    README.write_text(_BLOCK.sub(lambda found: found[1] + picture + found[3], README.read_text()))


if __name__ == "__main__":
    main()
