"""Tables of the attributes that users can set, made from the schema."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.table import Table

from headrace.errors import BadInput
from headrace.pools import Attribute, PartialResources, Record, Schema
from headrace.resources import format_amount
from headrace.suggestions import hint
from headrace_cli.show.tables import table


def attribute_table(schema: Schema, name: str = "") -> tuple[list[dict[str, str]], Table]:
    """Return rows and a table of the attributes whose name contains `name`, or which have the alias `name`.

    An empty `name` matches all attributes. Raises `BadInput` if no attribute matches.
    """
    rows = [row for row in rows_of(schema) if name in row["name"] or name in row["also"].split(", ")]
    if not rows:
        raise BadInput("attribute", name, hint(name, schema.names, most_listed=12))
    made = table("attribute", "type", "default", "who", "effect", "purpose")
    for row in rows:
        named = f"{row['name']} (also {row['also']})" if row["also"] else row["name"]
        made.add_row(named, row["kind"], row["default"], row["who"], row["effect"], row["help"])
    return rows, made


def rows_of(schema: Schema, above: str = "") -> Iterator[dict[str, str]]:
    """Yield one row for each attribute. The parts of a map follow the map, each with its path."""
    for attribute in schema.attributes.values():
        yield _row(schema, attribute, above)
        if isinstance(attribute.kind, Record):
            for row in rows_of(attribute.kind.schema, f"{above}{attribute.name}/"):
                yield {**row, "who": str(attribute.who), "group": attribute.group}


def _row(schema: Schema, attribute: Attribute, above: str) -> dict[str, str]:
    return {
        "name": above + attribute.name,
        "also": ", ".join((*attribute.aliases, *attribute.renamed)),
        "kind": "a map, below" if isinstance(attribute.kind, Record) else attribute.kind.words,
        "default": attribute.default or value_words(attribute, schema.default(attribute.name)),
        "who": str(attribute.who),
        "effect": "per part" if isinstance(attribute.kind, Record) else str(attribute.support),
        "help": f"{attribute.help}; {attribute.reason}" if attribute.reason else attribute.help,
        "preset": "yes" if attribute.preset else "",
        "group": attribute.group,
    }


def value_words(attribute: Attribute, value: Any) -> str:
    """Return a value of an attribute as a table shows it."""
    if isinstance(value, PartialResources):
        return ", ".join(f"{key} {format_amount(key, amount)}" for key, amount in value.named().items()) or "none"
    written = attribute.kind.write(value)
    match written:
        case bool():
            return "true" if written else "false"
        case dict():
            return ", ".join(f"{key} {item}" for key, item in written.items()) or "none"
        case list():
            return ", ".join(map(str, written)) or "none"
        case _:
            return str(written)
