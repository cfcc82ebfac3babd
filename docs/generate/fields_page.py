"""Writes docs/reference/fields.md: `make docs-reference`."""

from __future__ import annotations

from headrace_cli.pools.fields import FIELDS, Field

__all__ = ["fields_page"]

_HEAD = """\
# Fields of pools

`headrace pool get NAME FIELD...` prints these, one a line; `--json` prints them as one object, and without any field the whole pool.
A part of a field follows it behind a slash or a dot: `accumulated_resource_volume/cpu`, `fair_share.total.cpu`.
What a pool does not have is `null`.

```console
$ headrace pool get nightly accumulated_resource_volume/cpu
$ headrace pool get nightly usage/cpu demand/cpu fair_share/total/cpu
$ headrace pool get '<Root>' resource_distribution_info --json
```

All figures are those of the last update of fair share.
The name, the unit and the meaning of a **stable** field stay as they are from version to version.
Others may be renamed or changed with any version; use them to look at things, not in programs that must go on working.
How a pool came to its figures over time is shown by `headrace pool volume NAME`.

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
