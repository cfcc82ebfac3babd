"""Writes docs/reference/subjects.md from the tables of subjects and stores: `make docs-reference`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from headrace.access.permissions import Party, permissions_of
from headrace.access.routes import ROUTES, STORES, PartyKind
from headrace.ids import TreeName

_HEAD = """\
# Subjects, stores and permissions

Everything that is said on the bus, and who may say and hear it.
The rights of each credential are made from these tables, and the server refuses everything else.
How the server gets them is told with [the cluster](../how-to/cluster.md).
`{node}`, `{user}` and `{tree}` stand for a name: their own for nodes, persons and services of a tree, any name for the other side.
Answers of requests go to the inbox of whoever asked.

"""
_STORES = """
## Buckets and streams

The provisioner alone makes them, by `headrace bus provision`. Nodes and persons reach none.

"""
_RIGHTS = """
## The rights of each credential

For a node `n1`, a host with the token `UA7N`, a person `anna` and services of the tree `default`. Nobody has any other right.
"""
_NAMES: Final = {PartyKind.NODE: "n1", PartyKind.HOST: "UA7N", PartyKind.PERSON: "anna"}


def subjects_page() -> str:
    """The page, from the tables."""
    lines = ["| subject | said by | heard by | answered |", "|---|---|---|---|"]
    for route in ROUTES:
        answered = "yes" if route.is_request else "no"
        lines.append(f"| `{route.subject}` | {_kinds(route.senders)} | {_kinds(route.receivers)} | {answered} |")
    stores = ["| name | use | written by, with the keys | read by | values kept of a key |", "|---|---|---|---|---|"]
    for store in STORES:
        writers = ", ".join(f"{_kinds([kind])} (`{key}`)" for kind, key in store.writers)
        kept = store.history if store.kind.value == "bucket" else "all"
        stores.append(f"| `{store.name}` | {store.kind.value} | {writers} | {_kinds(store.readers) or '–'} | {kept} |")
    return (
        _HEAD
        + "\n".join(lines)
        + "\n"
        + _STORES
        + "\n".join(stores)
        + "\n"
        + _RIGHTS
        + "".join(map(_rights, PartyKind))
    )


def _rights(kind: PartyKind) -> str:
    party = Party(kind=kind, name=_NAMES.get(kind, ""), tree=TreeName("default"))
    rights = permissions_of(party)
    lists = "\n\n".join(
        f"{what}:\n\n```\n" + "\n".join(subjects) + "\n```"
        for what, subjects in (("May publish", rights.publish), ("May subscribe", rights.subscribe))
    )
    return f"\n### {_kinds([kind])}\n\n{lists}\n"


def _kinds(kinds: Iterable[PartyKind]) -> str:
    return ", ".join("person" if kind is PartyKind.PERSON else kind.value for kind in kinds)


if __name__ == "__main__":
    print(subjects_page(), end="")
