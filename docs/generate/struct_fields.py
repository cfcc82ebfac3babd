"""The fields of a Struct as its source has them: type, default, and the comment of `#:` above each."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator

import msgspec


class StructField(msgspec.Struct, frozen=True):
    """One field, in words of Markdown."""

    name: str
    type: str
    #: Empty if there is none.
    default: str
    says: str


def own_fields(kind: type) -> Iterator[StructField]:
    """The fields that a Struct or a TypedDict adds to those of its bases, in their order."""
    source = textwrap.dedent(inspect.getsource(kind))
    lines = source.splitlines()
    (tree,) = ast.parse(source).body
    assert isinstance(tree, ast.ClassDef)
    above = tree.body[0].lineno
    for statement in tree.body:
        if isinstance(statement, ast.AnnAssign) and not ast.unparse(statement.annotation).startswith("ClassVar"):
            comments = [line.strip() for line in lines[above : statement.lineno - 1]]
            yield StructField(
                name=ast.unparse(statement.target),
                type=_type(statement.annotation),
                default=ast.unparse(statement.value) if statement.value else "",
                says=" ".join(comment.removeprefix("#:").strip() for comment in comments if comment.startswith("#:")),
            )
        above = statement.end_lineno or above


def cell(text: str) -> str:
    """The text as it may stand in a cell of a table."""
    return text.replace("|", "\\|")


def _type(annotation: ast.expr) -> str:
    match annotation:
        case ast.Subscript(value=ast.Name(id="Annotated"), slice=ast.Tuple(elts=[kind, *_])):
            return ast.unparse(kind)
    return ast.unparse(annotation)
