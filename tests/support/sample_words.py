"""Print N docstrings and N comments of the production code, drawn at random, for a reading with fresh eyes.

python -m tests.support.sample_words N SEED
"""

from __future__ import annotations

import argparse
import ast
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[2]


class Text(NamedTuple):
    """A docstring or a block of comment lines, with its place and the code that it stands at."""

    place: str
    about: str
    text: str


def docstrings(path: Path) -> Iterator[Text]:
    """Yield the docstrings of a module, its classes and its functions."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text is not None:
                about = "module" if isinstance(node, ast.Module) else node.name
                yield Text(f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 1)}", about, text)


def comments(path: Path) -> Iterator[Text]:
    """Yield the comments that have lines of their own, adjacent lines as one text, with the line of code below them."""
    block: list[str] = []
    for number, line in enumerate([*path.read_text(encoding="utf-8").splitlines(), ""], start=1):
        code = line.strip()
        if code.startswith("#"):
            block.append(code.lstrip("#: "))
        elif block:
            yield Text(f"{path.relative_to(ROOT)}:{number - len(block)}", code, " ".join(block))
            block = []


def main(arguments: list[str] | None = None) -> None:
    """Print the sample."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.support.sample_words", description="Print random docstrings and comments."
    )
    parser.add_argument("count", type=int, help="how many of each")
    parser.add_argument("seed", type=int, help="the same seed draws the same texts from the same code")
    asked = parser.parse_args(arguments)
    paths = sorted(path for root in ("shared", "services") for path in (ROOT / root).rglob("*.py"))
    drawn = random.Random(asked.seed)
    for kind, find in (("Docstrings", docstrings), ("Comments", comments)):
        found = [text for path in paths for text in find(path)]
        print(f"# {kind}: {min(asked.count, len(found))} of {len(found)}\n")
        for text in drawn.sample(found, min(asked.count, len(found))):
            print(f"{text.place}  {text.about}\n{text.text}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
