"""`sacctmgr show`: list the pools as accounts. Changes are refused, with the command of `headrace pool` to use instead."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from headrace.client import Client
from headrace.errors import BadInput
from headrace.ids import ROOT_POOL
from headrace_cli.slurm.command_line import Given, NoCounterpart
from headrace_cli.slurm.printing import Part, rows
from headrace_cli.slurm.request import CLUSTER
from headrace_cli.slurm.submit import pools_file

_CHANGES: Final = {
    "add": "create",
    "create": "create",
    "modify": "set",
    "update": "set",
    "delete": "remove",
    "remove": "remove",
}
_KINDS: Final = ("user", "account", "association", "assoc")


class Association(NamedTuple):
    """A line of `sacctmgr show`: the user, and an account, which is a pool or a name in the file of pools."""

    user: str
    account: str


#: Fields of `format=`, by their names in lower case.
_FIELDS: Final[Mapping[str, tuple[str, int, Callable[[Association], str]]]] = {
    "user": ("User", 10, lambda each: each.user),
    "account": ("Account", 10, lambda each: each.account),
    "defaultaccount": ("Def Acct", 10, lambda each: each.account),
    "cluster": ("Cluster", 10, lambda _: CLUSTER),
    "partition": ("Partition", 10, lambda _: ""),
    "qos": ("QOS", 20, lambda _: "normal"),
    "share": ("Share", 9, lambda _: "1"),
}
_USUAL: Final = "cluster,account,user,partition,qos"


async def sacctmgr(client: Client, given: Given) -> int:
    """Print associations. Return the exit status."""
    verb, kind, *words = [*given.words, "", ""][: max(2, len(given.words))]
    if instead := _CHANGES.get(verb.lower()):
        raise NoCounterpart(f"sacctmgr {verb}", f"headrace pool {instead}")
    if verb.lower() not in ("show", "list") or kind.lower().rstrip("s") not in _KINDS:
        raise BadInput("sacctmgr", f"{verb} {kind}", f"show or list, and one of {', '.join(_KINDS)}")
    text = next((word.partition("=")[2] for word in words if word.lower().startswith("format=")), _USUAL)
    names = [
        word.lower().removeprefix("account=")
        for word in words
        if "=" not in word or word.lower().startswith("account=")
    ]
    parsed = given.has("parsable") or given.has("parsable2")
    parts = parse_fields(text, delimiter="|" if parsed else " ", pads=not parsed)
    file = pools_file(os.environ)
    views = (await client.pools.list()).pools
    pools = [str(view.name) for view in views if view.name != ROOT_POOL and not view.ephemeral]
    accounts = sorted({*pools, *file.account})
    if kind.lower().startswith("account") and names:
        accounts = [account for account in accounts if account.lower() in names]
    for line in rows(
        parts, [Association(str(client.user), account) for account in accounts], header=not given.has("noheader")
    ):
        print(line)
    return 0


def parse_fields(text: str, *, delimiter: str, pads: bool) -> list[Part[Association]]:
    """Read `user,account%30`. Raises `BadInput`."""
    parts = list[Part[Association]]()
    for word in filter(None, (each.strip() for each in text.split(","))):
        name, _, width = word.partition("%")
        field = _FIELDS.get(name.lower())
        if field is None or (not width.lstrip("-").isdecimal() and width):
            raise BadInput("format", word, f"fields such as account%30, out of {', '.join(_FIELDS)}")
        title, usual, value = field
        size = int(width or usual) if pads else 0
        parts += [Part(delimiter)] if parts else []
        parts.append(Part("", title, value, abs(size), size > 0))
    return parts
