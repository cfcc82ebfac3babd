"""Writes docs/reference/subjects.md from the tables of subjects and stores: `make docs-reference`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from headrace.access.permissions import Party, permissions_of
from headrace.access.routes import ROUTES, STORES, PartyKind
from headrace.ids import TreeName

_HEAD = """\
# Subjects, stores and permissions

All subjects of the bus, and who may publish and subscribe to each.
The permissions of each credential are made from these tables; the server refuses everything else.
[How to run a cluster](../how-to/cluster.md) shows how the server gets the permissions.
`{node}`, `{user}` and `{tree}` stand for a name. A node, a person or a service of a tree can use only its own name there;
the other side can use any name.
The answer to a request goes to the inbox of the party that sent the request.

"""
_STORES = """
## Buckets and streams

Only the provisioner creates them (`headrace bus provision`). Nodes and persons cannot reach them.

"""
_RIGHTS = """
## The rights of each credential

For a node `n1`, a host with the token `UA7N`, a person `anna` and services of the tree `default`. There are no other rights.
"""
_NAMES: Final = {PartyKind.NODE: "n1", PartyKind.HOST: "UA7N", PartyKind.PERSON: "anna"}


def subjects_page() -> str:
    """The page, from the tables."""
    lines = ["| subject | published by | received by | answered |", "|---|---|---|---|"]
    for route in ROUTES:
        answered = "yes" if route.is_request else "no"
        lines.append(f"| `{route.subject}` | {_kinds(route.senders)} | {_kinds(route.receivers)} | {answered} |")
    stores = ["| name | use | written by, with the keys | read by | values kept per key |", "|---|---|---|---|---|"]
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
