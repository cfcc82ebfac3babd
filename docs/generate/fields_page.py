"""Writes docs/reference/fields.md: `make docs-reference`."""

from __future__ import annotations

from headrace_cli.commands.pools.fields import FIELDS, Field

__all__ = ["fields_page"]

_HEAD = """\
# Fields of pools

`headrace pool get NAME FIELD...` prints these fields of a pool, one per line. With `--json` it prints one object;
without any field it prints the whole pool.
To name a part of a field, write it after a slash or a dot: `accumulated_resource_volume/cpu`, `fair_share.total.cpu`.
A field that a pool does not have is `null`.

```console
$ headrace pool get nightly accumulated_resource_volume/cpu
$ headrace pool get nightly usage/cpu demand/cpu fair_share/total/cpu
$ headrace pool get '<Root>' resource_distribution_info --json
```

All values are those of the last update of the shares.
The name, unit and meaning of a **stable** field do not change between versions.
A field that is not stable may be renamed or changed by any version: look at it, but do not use it in programs that must keep working.
`headrace pool volume NAME` shows the values of a pool over time.

Resources are `user_slots`, `cpu`, `gpu`, `memory` and `network`; cpu is in cores, memory in bytes.

"""


def fields_page() -> str:
    """The page, from the table of fields."""
    lines = ["| field | unit | stable | what it says |", "|---|---|---|---|"]
    lines += [
        f"| {_names(field)} | {field.unit} | {'yes' if field.stable else 'no'} | {_help(field)} |" for field in FIELDS
    ]
    return _HEAD + "\n".join(lines) + "\n"


def _names(field: Field) -> str:
    also = f" (also {', '.join(f'`{alias}`' for alias in field.aliases)})" if field.aliases else ""
    return f"`{field.name}`{also}"


def _help(field: Field) -> str:
    return f"{field.help} Only {field.only}." if field.only else field.help


if __name__ == "__main__":
    print(fields_page(), end="")
