"""Takes the picture of the terminal that the README shows: what a command prints while the README's tree is at work.

    python -m docs.generate.readme_capture

It runs Headrace on this machine for some seconds and writes the block below the mark `<!-- capture: … -->`.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import msgspec

from tests.support.headrace_up import Up

__all__ = ["captured", "main", "shown"]

README: Final = Path(__file__).parents[2] / "README.md"
_BLOCK: Final = re.compile(r"(<!-- capture: headrace ([^\n]+) -->\n```\n)(.*?)(```\n)", re.DOTALL)
_NODES: Final = ("small:cpu=1,memory=2G", "medium:cpu=2,memory=2G", "large:cpu=3,memory=2G")
_TREE: Final = {
    "production": ("--guarantee", "cpu=2", "weight=1"),
    "research": ("--weight", "2"),
    "students": ("--weight", "1"),
}
_CORES: Final = 6


def shown() -> tuple[list[str], str]:
    """The words of the command behind the README's picture, and the picture."""
    found = _BLOCK.search(README.read_text())
    assert found is not None
    return found[2].split(), found[3]


def captured(words: list[str]) -> str:
    """The text that a command prints on a terminal of 80 columns once every core of the README's tree is at work."""
    with Up(nodes=_NODES) as up:
        up.environment["COLUMNS"] = "80"
        for pool, options in _TREE.items():
            up.run("pool", "create", pool, *options)
        # All want more than there is before anybody gets anything.
        up.run("pause", "starts")
        for pool in _TREE:
            up.run(
                "run",
                "--id",
                f"work-of-{pool}",
                "--pool",
                pool,
                "--jobs",
                "20",
                "--memory",
                "64M",
                "--",
                "sleep",
                "600",
            )
        up.run("resume", "starts")
        while _cores_used(up) < _CORES:
            pass
        return "".join(f"{line.rstrip()}\n" for line in up.run(*words).stdout.splitlines())


def _cores_used(up: Up) -> float:
    return float(msgspec.json.decode(up.run("pool", "get", "<Root>", "usage/cpu", "--json").stdout)["usage/cpu"])


def main() -> None:
    """Writes the picture anew."""
    words, _ = shown()
    picture = captured(words)
    README.write_text(_BLOCK.sub(lambda found: found[1] + picture + found[4], README.read_text()))


if __name__ == "__main__":
    main()
