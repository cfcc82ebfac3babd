"""Writes docs/reference/messages.md from the modules of `headrace.wire`: `make docs-reference`."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from types import ModuleType

import msgspec

import headrace.wire
from docs.generate.struct_fields import cell, own_fields

_INTRODUCTION = """\
# Messages

All messages of the bus, by conversation. [Another page](subjects.md) says who sends each to whom.
Messages are MessagePack maps with the field names below; a message marked "array" is an array of its values in this order.

"""


def messages_page() -> str:
    """The page, from all modules of messages."""
    modules = [
        importlib.import_module(f"{headrace.wire.__name__}.{each.name}")
        for each in pkgutil.iter_modules(headrace.wire.__path__)
    ]
    sections = [section for module in modules for section in _sections(module)]
    return _INTRODUCTION + _paragraphs(headrace.wire) + "\n" + "".join(sections)


def _sections(module: ModuleType) -> Iterator[str]:
    structs = [
        each
        for each in vars(module).values()
        if inspect.isclass(each) and issubclass(each, msgspec.Struct) and each.__module__ == module.__name__
    ]
    if structs:
        yield f"\n## {module.__name__.rpartition('.')[2]}\n\n{_paragraphs(module)}"
        yield from map(_struct, sorted(structs, key=lambda each: inspect.getsourcelines(each)[1]))


def _struct(kind: type[msgspec.Struct]) -> str:
    config = kind.__struct_config__
    marks = [f"tag `{config.tag}`"] if config.tag is not None else []
    marks += ["array"] if config.array_like else []
    rows = [
        f"| `{field.name}` | `{cell(field.type)}` | {f'`{cell(field.default)}`' if field.default else ''} | {cell(field.says)} |"
        for base in reversed(kind.__mro__)
        if base is not msgspec.Struct and issubclass(base, msgspec.Struct)
        for field in own_fields(base)
    ]
    table = ["", "| field | type | default | what it says |", "|---|---|---|---|", *rows] if rows else []
    marked = f" ({', '.join(marks)})" if marks else ""
    return f"\n### `{kind.__name__}`{marked}\n\n" + _paragraphs(kind) + "\n".join(table) + ("\n" if table else "")


def _paragraphs(about: object) -> str:
    return inspect.cleandoc(about.__doc__ or "") + "\n"


if __name__ == "__main__":
    print(messages_page(), end="")
