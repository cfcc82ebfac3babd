"""Settings without effect: settings that never act in Headrace, and settings that do not act under the tree's other options. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Final, NamedTuple

from headrace.ids import PoolName
from headrace.pools import POOL_ATTRIBUTES, TREE_ATTRIBUTES, PoolTree, PreemptionPolicy, Record, Schema
from headrace.pools.tree_options import TreeOptions, VictimRules
from headrace.suggestions import some

_ONLY: Final = "in force only under preemption_policy"


class Idle(NamedTuple):
    """One setting that has no effect."""

    #: The pool that has the setting; empty for an option of the tree.
    pool: PoolName
    name: str
    why: str

    @property
    def attribute(self) -> str:
        """The name of the attribute: the part of the setting's key before the first slash."""
        return self.name.partition("/")[0]


class _Rule(NamedTuple):
    """Settings that have an effect only if certain options of the tree are set."""

    why: str
    acts: Callable[[TreeOptions], bool]
    of_tree: tuple[str, ...] = ()
    of_pools: tuple[str, ...] = ()


def _policy(*policies: PreemptionPolicy) -> Callable[[TreeOptions], bool]:
    return lambda options: options.preemption_policy in policies


_YTSAURUS, _YARN, _LEGACY = PreemptionPolicy.YTSAURUS, PreemptionPolicy.YARN, PreemptionPolicy.YARN_LEGACY
_LEGACY_VICTIMS: Final = (
    "enable_conditional_preemption",
    "preemption_check_starvation",
    "preemption_check_satisfaction",
)
_RULES: Final = (
    _Rule(
        f"{_ONLY} ytsaurus",
        _policy(_YTSAURUS),
        (
            "enable_aggressive_starvation",
            "fair_share_aggressive_starvation_timeout",
            "allow_aggressive_preemption_for_gang_operations",
            "preempt_gangs_whole",
            "scheduling_preemption_priority_scope",
            "victim_rules",
            "drop_needless_victims",
            "take_excess_for_few_nodes",
            "preemption_exempt_time",
            "node_reservation_time",
            "preempt_at_bound_for_owed_jobs",
            *_LEGACY_VICTIMS,
        ),
        ("enable_aggressive_starvation", "allow_aggressive_preemption", "preemption_exempt_time"),
    ),
    _Rule(
        f"{_ONLY} yarn and yarn_legacy",
        _policy(_YARN, _LEGACY),
        (
            "yarn/enabled",
            "yarn/share",
            "yarn/cluster_utilization_threshold",
            "yarn/wait_before_kill",
            "yarn/min_share_spread",
            "yarn/older_release",
        ),
        ("allow_preemption_from",),
    ),
    _Rule(f"{_ONLY} yarn", _policy(_YARN), ("yarn/heartbeat_allowance", "yarn/wait_before_next_check")),
    _Rule(f"{_ONLY} yarn_legacy", _policy(_LEGACY), ("yarn/legacy_interval", "yarn/drf_needy_quirk")),
    _Rule(
        "in force only with victim_rules legacy",
        lambda options: options.victim_rules is VictimRules.LEGACY or options.preemption_policy is not _YTSAURUS,
        _LEGACY_VICTIMS,
    ),
    _Rule(
        "in force only once ssd_priority_preemption/enable is true for the tree",
        lambda options: options.ssd_priority_preemption.enable,
        ("ssd_priority_preemption/node_tag_filter",),
        ("allow_regular_allocations_on_ssd_nodes",),
    ),
    _Rule(
        "in force only once the tree's option of this name is true",
        lambda options: options.enable_step_function_for_gang_operations,
        of_pools=("enable_step_function_for_gang_operations",),
    ),
    _Rule(
        "in force only once the tree's option of this name is true",
        lambda options: options.enable_fifo_children_reordering_for_guarantee_utilization,
        of_pools=("enable_fifo_children_reordering_for_guarantee_utilization",),
    ),
)


def idle_settings(tree: PoolTree, names: Collection[PoolName] | None = None) -> list[Idle]:
    """Return the settings that have no effect now: first those of the tree, then those of all pools or of `names`."""
    options = tree.options
    found = [Idle(PoolName(""), name, why) for why, name in TREE_ATTRIBUTES.ignored(options)]
    rules = [rule for rule in _RULES if not rule.acts(options)]
    is_set = set(_set_keys(TREE_ATTRIBUTES, options))
    found += [Idle(PoolName(""), name, rule.why) for rule in rules for name in rule.of_tree if name in is_set]
    of_pools = [(rule.why, name, POOL_ATTRIBUTES.default(name)) for rule in rules for name in rule.of_pools]
    for pool in tree.pools.values():
        if names is not None and pool.name not in names:
            continue
        found += [Idle(pool.name, name, why) for why, name in POOL_ATTRIBUTES.ignored(pool.settings)]
        found += [Idle(pool.name, name, why) for why, name, usual in of_pools if getattr(pool.settings, name) != usual]
    return found


def in_words(idle: Iterable[Idle]) -> list[str]:
    """Return the settings without effect as texts, each with the reason.

    Options of the tree that have the same reason share one text. For pools, there is one text for each attribute and reason; it names the
    pools.
    """
    of_tree: dict[str, list[str]] = {}
    of_pools: dict[tuple[str, str], list[PoolName]] = {}
    for each in idle:
        if each.pool:
            of_pools.setdefault((each.why, each.name), []).append(each.pool)
        else:
            of_tree.setdefault(each.why, []).append(each.name)
    told = [f"{', '.join(names)}: {why}" for why, names in of_tree.items()]
    return told + [f"{name} of {some(pools)}: {why}" for (why, name), pools in of_pools.items()]


def _set_keys(schema: Schema, value: object) -> Iterator[str]:
    """Yield the keys of all settings that differ from the default. A setting that is a record has one key for each of its fields."""
    for name, attribute in schema.attributes.items():
        inner = getattr(value, name)
        if isinstance(attribute.kind, Record) and inner is not None:
            yield from (f"{name}/{key}" for key in _set_keys(attribute.kind.schema, inner))
        elif inner != schema.default(name):
            yield name
