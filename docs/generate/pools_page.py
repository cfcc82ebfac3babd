"""Writes docs/reference/pools.md: `make docs-reference`."""

from __future__ import annotations

from headrace.pools import POOL_ATTRIBUTES, TREE_ATTRIBUTES, Schema
from headrace_cli.commands.pools.attributes import rows_of

__all__ = ["pools_page"]

_HEAD = """\
# Pools and trees: what can be set

`headrace pool set NAME key=value ...` sets attributes of a pool, `headrace tree set NAME key=value ...` options of a tree.
`headrace pool attributes` and `headrace tree options` print these tables.
[How to set up pools](../how-to/pools.md) shows how to use them.

```console
$ headrace pool set research weight=3 max_operation_count=20
$ headrace pool set research integral_guarantees/resource_flow='{cpu=100}'
$ headrace pool set research integral_guarantees.resource_flow.cpu=100
$ headrace pool set research weight=
$ headrace pool import pools.yaml --dry-run
```

* To name a part of an attribute, write it after a slash or a dot. `key=` resets an attribute to its default.
* A new value replaces the whole old value; to change only a part, name the part.
* Amounts are maps by resource: `user_slots`, `cpu` (cores), `gpu`, `memory` (such as `4G`), `network`.
  Leaving out a resource does not mean an amount of 0.
* Times are written `30s`, `500ms`, `2h`, and memory `512M`, `2GiB` or `1000B`. A number without a unit is refused.
* A change is applied completely or not at all. All errors in it are reported together; `--dry-run` reports them and changes nothing.

**Who** says who may set it. A *user* needs the right `write` on the pool. An *administrator* needs `administer` on the pool, or is named in
the setting `administrators` of fair_share. The attribute `access` of a pool or tree grants rights on it and on everything below.
If `administrators` is `*`, as on one machine, every user is an administrator.

**Effect** says what setting it does:

* *in force*: it has the effect that the table describes.
* *met anyway*: it limits how old or slow something may be, and Headrace is always within that limit,
  because it decides on the newest usage, one decision at a time.
* *for people to read*: it is information, such as the owner of a pool.
* *not supported*: it has no effect, for the reason in the last column. It belongs to a part of YTsaurus that Headrace does not have.
  It is accepted, so that a configuration from there can be imported, and it is stored and exported again. Setting it prints a warning
  with the reason, an import also prints the line of the file, and `headrace tree get` lists it.

An unknown attribute is stored for people to read if an administrator sets it, with a warning. A misspelt attribute is refused.

## Rules

These rules hold for a whole tree. A change that breaks a rule is refused, and the refusal shows both values.

* **Names**: users name pools with `a-z`, `0-9`, `-` and `_`, administrators with `A-Z` and `:` too; 1 to 100 characters, each name once
  in the tree.
* **Depth and size**: at most 30 levels of pools, and 1000 pools from any pool on downwards (settings of fair_share).
* **Fifo pools** have no child pools and are no hubs.
* **Limits**: `max_running_operation_count` is not above `max_operation_count` where a pool sets both.
  Limits of children are not compared with the parent's.
* **Guarantees**: strong guarantees, flows and bursts of children add up to no more than the parent's, resource by resource.
  A child may have a guarantee of a resource only if its parent has one for that resource; an explicit 0 counts.
  Top pools may be guaranteed more than the cluster has: a warning says so, and the guarantees are scaled down when shares are computed.
* **Main resource**: a strong guarantee of any resource comes with a figure of the tree's `main_resource`, which may be 0.
* **Savings**: no pool below a pool whose `guarantee_type` is not `none` has a flow or a burst; a relaxed pool has no burst.
* **Presets**: a pool can name only presets that exist, and a preset can contain only attributes that are allowed in presets.
  A value of the pool itself takes precedence over its presets, and an earlier preset over a later one.
* **Options**: `aggressive_preemption_satisfaction_threshold` is not above `preemption_satisfaction_threshold`, and
  `fair_share_aggressive_starvation_timeout` not below `fair_share_starvation_timeout`.
* **Spelling**: an option is set under one of its names at a time.

"""
_TREES = """\
## Options of trees

A tree has its own fair_share, integral and allocator, and its own agents; each is started with the name of the tree in its setting `tree`.
Only administrators can set options.
"""


def pools_page() -> str:
    """The page, from the tables of attributes."""
    return "".join(
        [
            _HEAD,
            "## Attributes of pools\n",
            *_tables(POOL_ATTRIBUTES, ("who", "preset")),
            "\n" + _TREES,
            *_tables(TREE_ATTRIBUTES, ()),
        ]
    )


def _tables(schema: Schema, more: tuple[str, ...]) -> list[str]:
    """A table for each group."""
    groups: dict[str, list[dict[str, str]]] = {}
    for row in rows_of(schema):
        groups.setdefault(row["group"], []).append(row)
    return [_table(group, rows, more) for group, rows in groups.items()]


def _table(group: str, rows: list[dict[str, str]], more: tuple[str, ...]) -> str:
    columns = ["attribute", "type", "default", *more, "effect", "purpose"]
    lines = [f"\n### {group}\n", f"| {' | '.join(columns)} |", "|" + "---|" * len(columns)]
    for row in rows:
        also = f" (also {', '.join(f'`{name}`' for name in row['also'].split(', '))})" if row["also"] else ""
        cells = [f"`{row['name']}`{also}", row["kind"], row["default"], *(row[name] for name in more)]
        cells += [row["effect"], row["help"]]
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(pools_page(), end="")
