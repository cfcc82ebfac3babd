"""Writes docs/reference/pools.md: `make docs-reference`."""

from __future__ import annotations

from headrace.pools import POOL_ATTRIBUTES, TREE_ATTRIBUTES, Schema
from headrace_cli.pools.attributes import rows_of

__all__ = ["pools_page"]

_HEAD = """\
# Pools and trees: what can be set

`headrace pool set NAME key=value ...` sets attributes of a pool, `headrace tree set NAME key=value ...` options of a tree.
`headrace pool attributes` and `headrace tree options` print these tables.
[How to set up pools](../how-to/pools.md) leads through it.

```console
$ headrace pool set research weight=3 max_operation_count=20
$ headrace pool set research integral_guarantees/resource_flow='{cpu=100}'
$ headrace pool set research integral_guarantees.resource_flow.cpu=100
$ headrace pool set research weight=
$ headrace pool import pools.yaml --dry-run
```

* A part of an attribute follows it behind a slash or a dot. `key=` takes one back to its default.
* A value that is set replaces what stood there as a whole; to change a part, name the part.
* Amounts are maps by resource: `user_slots`, `cpu` (cores), `gpu`, `memory` (bytes, or `4G`), `network`.
  A resource that is left out is not the same as none of it.
* Lengths of time are `30s`, `500ms`, `2h`; a bare number is milliseconds.
* A change happens as a whole or not at all. What is wrong with it is told all at once; `--dry-run` only tells.

**Who**: a *user* has the right `write` on the pool; an *administrator* has `administer` there, or everywhere (`administrators` in the
settings of fair_share). Rights are named in `access`, of a pool or of the tree, and hold for everything below.
While `administrators` is `*`, as on one machine, everybody is one.

**Effect**: *in force* attributes do what they say. What is *kept, not in force* is checked, stored and exported, and nothing follows from
it in this version: setting it and `headrace tree list` say so. What is *met anyway* asks how fresh or quick something is that here
always is: decisions are made from the newest usage, one after the other. What is *kept, nothing here to act on* speaks of something
that this system does not have, such as disk as a resource. What is *kept as data* is there for people to read.

Attributes that nobody knows are kept as data where an administrator sets them, and warned of. A misspelt one is refused.

## Rules

These hold for a tree as a whole; a change that breaks one is refused with the figures of both sides.

* **Names**: users name pools with `a-z`, `0-9`, `-` and `_`, administrators with `A-Z` and `:` too; 1 to 100 characters, each name once
  in the tree.
* **Depth and size**: at most 30 levels of pools, and 1000 pools from any pool on downwards (settings of fair_share).
* **Fifo pools** have no child pools and are no hubs.
* **Limits**: `max_running_operation_count` is not above `max_operation_count` where a pool sets both.
  Limits of children are not compared with the parent's.
* **Guarantees**: strong guarantees, flows and bursts of children add up to no more than the parent's, resource by resource.
  A child may have a figure only where the parent has one, an explicit 0 included.
  Top pools may be promised more than there is: that is told, and scaled when shares are computed.
* **Main resource**: a strong guarantee of any resource comes with a figure of the tree's `main_resource`, which may be 0.
* **Savings**: below a pool whose `guarantee_type` is not `none` nobody has a flow or a burst; a relaxed pool has no burst.
* **Presets** exist, and hold only attributes that may stand in a preset.
  An attribute of the pool goes first, then an earlier preset before a later one.
* **Options**: `aggressive_preemption_satisfaction_threshold` is not above `preemption_satisfaction_threshold`, and
  `fair_share_aggressive_starvation_timeout` not below `fair_share_starvation_timeout`.
* **Spelling**: an option is set under one of its names at a time.

"""
_TREES = """\
## Options of trees

A tree is configuration. It is shared out by a fair_share, an integral and an allocator of its own, started with the setting `tree`, and by
agents with the same setting. Options are for administrators.
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
    columns = ["attribute", "what it is", "default", *more, "effect", "what for"]
    lines = [f"\n### {group}\n", f"| {' | '.join(columns)} |", "|" + "---|" * len(columns)]
    for row in rows:
        also = f" (also {', '.join(f'`{name}`' for name in row['also'].split(', '))})" if row["also"] else ""
        cells = [f"`{row['name']}`{also}", row["kind"], row["default"], *(row[name] for name in more)]
        cells += [row["effect"], row["help"]]
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(pools_page(), end="")
