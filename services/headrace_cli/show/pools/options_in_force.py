"""The options of starvation and preemption in force for a pool, each with its source. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from rich.table import Table

from headrace.ids import ROOT_POOL
from headrace.pools import POOL_ATTRIBUTES, TREE_ATTRIBUTES, PreemptionPolicy, TreeOptions
from headrace.pools.effective_options import EffectiveOptions, of_tree
from headrace.pools.presets import with_presets
from headrace.wire.pools import PoolView
from headrace_cli.pools.attributes import value_words
from headrace_cli.show.tables import table

#: Options that pools may set, followed by options that only trees have.
_NAMES: Final = (
    "preemption",
    "fair_share_starvation_tolerance",
    "fair_share_starvation_timeout",
    "min_share_preemption_timeout",
    "enable_aggressive_starvation",
    "allow_normal_preemption",
    "allow_aggressive_preemption",
    "allow_preemption_from",
    "preemption_exempt_time",
    "non_preemptible_resource_usage_threshold",
    "waiting_for_resources_on_node_timeout",
    "fair_share_aggressive_starvation_timeout",
    "allocation_preemption_timeout",
    "allocation_graceful_preemption_timeout",
)
_OF_YARN: Final = "allow_preemption_from"
_USUAL: Final = of_tree(TreeOptions())


class OptionInForce(NamedTuple):
    """One option in force for a pool."""

    name: str
    value: str
    #: Source of the value: `own`, a pool above, `tree`, or `default`.
    source: str


def options_in_force(way: Sequence[PoolView], tree: TreeOptions) -> Iterator[OptionInForce]:
    """Yield the options of the last pool of `way`, a list of pools from below the root down. Empty before the pool's first update."""
    options = way[-1].share.options
    if options is None:
        return
    for name in _NAMES:
        if name != _OF_YARN or tree.preemption_policy is not PreemptionPolicy.YTSAURUS:
            value = _value(options, tree, name)
            yield OptionInForce(name, _words(name, value), _source(way, tree, name, value))


def options_table(options: Iterable[OptionInForce]) -> Table:
    """Return a table with one line for each option."""
    made = table("option in force", "value", "from")
    for each in options:
        made.add_row(*each)
    return made


def _value(options: EffectiveOptions, tree: TreeOptions, name: str) -> Any:
    found = getattr(options, name, None)
    return getattr(options, f"{name}_ms", getattr(tree, name, None)) if found is None else found


def _words(name: str, value: Any) -> str:
    attribute = TREE_ATTRIBUTES.attributes.get(name) or POOL_ATTRIBUTES.attributes[name]
    return attribute.default if value is None else value_words(attribute, value)


def _source(way: Sequence[PoolView], tree: TreeOptions, name: str, value: Any) -> str:
    """Return the source of a value: the nearest pool that sets this value.

    Pools with another value are skipped: a pool cannot allow again what a pool above forbids.
    """
    for pool in reversed(way):
        own = getattr(with_presets(pool.settings, tree), name, None)
        if pool.name != ROOT_POOL and own is not None and own == value:
            return "own" if pool is way[-1] else f"pool {pool.name}"
    is_set = name in TREE_ATTRIBUTES.attributes and TREE_ATTRIBUTES.is_set(tree, name)
    return "tree" if is_set or value != _value(_USUAL, TreeOptions(), name) else "default"
