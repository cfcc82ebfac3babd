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
    """A docstring or a block of comment lines, as a reader of the file finds it."""

    place: str
    #: The definitions around the text, from the outermost, and the line of code below a comment.
    about: str
    text: str


_Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def docstrings(path: Path) -> Iterator[Text]:
    """Yield the docstrings of a module, its classes and its functions."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    text = ast.get_docstring(tree)
    if text is not None:
        yield Text(f"{path.relative_to(ROOT)}:1", "module", text)
    for heads, node in _definitions(tree):
        text = ast.get_docstring(node)
        if text is not None:
            yield Text(f"{path.relative_to(ROOT)}:{node.lineno}", " > ".join(heads), text)


def comments(path: Path) -> Iterator[Text]:
    """Yield the comments that have lines of their own, adjacent lines as one text, with the line of code below them."""
    source = path.read_text(encoding="utf-8")
    definitions = list(_definitions(ast.parse(source)))
    block: list[str] = []
    for number, line in enumerate([*source.splitlines(), ""], start=1):
        code = line.strip()
        if code.startswith("#"):
            block.append(code.lstrip("#: "))
        elif block:
            around = [heads for heads, node in definitions if node.lineno < number <= (node.end_lineno or 0)]
            about = " > ".join([*(around[-1] if around else []), code])
            yield Text(f"{path.relative_to(ROOT)}:{number - len(block)}", about, " ".join(block))
            block = []


def _definitions(node: ast.AST, around: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], _Definition]]:
    """Yield the classes and functions below a node, each with its head and the heads of the definitions around it."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, _Definition):
            heads = (*around, _head(child))
            yield heads, child
            yield from _definitions(child, heads)
        else:
            yield from _definitions(child, around)


def _head(node: _Definition) -> str:
    if isinstance(node, ast.ClassDef):
        return f"class {node.name}"
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    return f"{node.name}({ast.unparse(node.args)}){returns}"


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
            print(f"{text.place}\n  {text.about}\n{text.text}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
