"""The rules that a tree's configuration must keep as a whole. Pure.

`broken_rules` lists the violations. Fifo pools have no child pools and are not hubs. The limit of running operations of a pool is not above
its limit of all operations. Presets that pools name exist, and contain only settings that presets may contain. The number of levels and the
sizes of subtrees are bounded. Guarantees keep the rules of `guarantee_rules`. Each rule is checked for the requested pools, their parents
and their children.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from headrace.ids import ROOT_POOL, PoolName
from headrace.pools import (
    POOL_ATTRIBUTES,
    TREE_ATTRIBUTES,
    Defects,
    PoolConfig,
    PoolMode,
    PoolTree,
    TreeOptions,
    preset_names,
    preset_problems,
)
from headrace.pools.tree_options import PriorityScope
from headrace.resources import format_amount
from headrace.suggestions import near, some
from headrace.wire.refusals import BadRequest, Exists, NotFound, Refusal
from headrace_fair_share.configuration.guarantee_rules import broken_guarantees

_LONGEST_SHOWN: Final = 100


class TreeBounds(msgspec.Struct, frozen=True):
    """The bounds of all trees, from the settings of the process."""

    #: Pattern of pool names that every user may give.
    pool_name_pattern_for_users: str = "[-_a-z0-9]+"
    #: Pattern of pool names that administrators may give.
    pool_name_pattern_for_administrators: str = "[-_a-z0-9:A-Z]+"
    #: Largest number of levels of pools below the root.
    most_levels: int = 30
    #: Largest number of pools in the subtree of a pool, itself included.
    largest_subtree: int = 1_000


def broken_rules(tree: PoolTree, bounds: TreeBounds, names: Iterable[PoolName] | None = None) -> list[Refusal]:
    """Return a refusal for each rule that pools break.

    With `names`, only these pools, their parents and their children are checked; else all pools.
    """
    asked = tree.preorder if names is None else list(dict.fromkeys(name for name in names if name in tree.pools))
    around = dict.fromkeys(asked)
    for name in asked:
        around[tree.pools[name].parent] = None
        around.update(dict.fromkeys(tree.children[name]))
    around.pop(ROOT_POOL, None)
    found: list[Refusal] = []
    for name in around:
        found.extend(_broken_at(tree, name))
        found.extend(broken_guarantees(tree, name))
    found.extend(_sizes(tree, bounds, asked))
    return found


def broken_options(options: TreeOptions) -> list[Refusal]:
    """Return a refusal for each rule that the options of a tree break, whatever its pools are."""
    found: list[Refusal] = []

    def order(lower: str, least: float, upper: str, most: float) -> None:
        if least > most:
            found.append(
                BadRequest.because(lower, f"{least:g} is more than {upper}, {most:g}", rule="order_of_options")
            )

    order(
        "aggressive_preemption_satisfaction_threshold",
        options.aggressive_preemption_satisfaction_threshold,
        "preemption_satisfaction_threshold",
        options.preemption_satisfaction_threshold,
    )
    plain, aggressive = options.fair_share_starvation_timeout, options.fair_share_aggressive_starvation_timeout
    if aggressive < plain:
        found.append(
            BadRequest.because(
                "fair_share_aggressive_starvation_timeout",
                f"{aggressive} ms is less than fair_share_starvation_timeout, {plain} ms",
                rule="order_of_options",
            )
        )
    found.extend(_job_sizes(options))
    if options.enable_infinite_resource_limits_overcommit and not options.use_precommit_for_preemption:
        found.append(
            BadRequest.because(
                "enable_infinite_resource_limits_overcommit",
                "this option needs use_precommit_for_preemption. Set both to true",
                rule="needs_another_option",
            )
        )
    found.extend(_lone_min_share_timeout(options, options.min_share_preemption_timeout))
    return found


def misplaced(tree: PoolTree) -> list[Refusal]:
    """Return an error for each pool with a duplicate or unusable name, or without a parent before it.

    The other rules cannot be checked for a tree with such an error.
    """
    if len(tree.pools) != len(tree.tree.pools):
        twice = [pool.name for pool in tree.tree.pools]
        return [Exists(what="pool", name=name) for name in tree.pools if twice.count(name) > 1]
    seen: set[PoolName] = {ROOT_POOL}
    found: list[Refusal] = []
    for at, pool in enumerate(tree.tree.pools):
        if not pool.name or pool.name == ROOT_POOL or not pool.name.isprintable():
            found.append(BadRequest(f"pools[{at}].name", _shown(pool.name), "the name of a pool"))
        if pool.parent not in seen:
            found.append(NotFound(what="pool", name=pool.parent, near=near(pool.parent, tree.pools)))
        seen.add(pool.name)
    return found


def invalid_values(tree: PoolTree, names: Iterable[PoolName]) -> list[Refusal]:
    """Return a refusal for each value, of the options or of a pool in `names`, that no request could have set."""
    found: list[Refusal] = []
    try:
        TREE_ATTRIBUTES.changed(TreeOptions(), TREE_ATTRIBUTES.written(tree.options), "options")
    except Defects as defects:
        found.extend(map(BadRequest.of, defects.problems))
    for name in names:
        settings = tree.pools[name].settings
        written = POOL_ATTRIBUTES.written(settings)
        try:
            if written:
                POOL_ATTRIBUTES.changed(type(settings)(), written, f"pools.{name}")
        except Defects as defects:
            found.extend(map(BadRequest.of, defects.problems))
    return found


def _broken_at(tree: PoolTree, name: PoolName) -> Iterator[Refusal]:
    settings, path = tree.pools[name].settings, tree.path(name)
    total, running = settings.max_operation_count, settings.max_running_operation_count
    if total is not None and running is not None and running > total:
        yield BadRequest.because(
            "max_running_operation_count",
            f"{path} has {running}, more than its max_operation_count of {total}",
            rule="running_exceeds_total",
        )
    if settings.mode is PoolMode.FIFO:
        if tree.children[name]:
            children = some(tree.children[name])
            fault = f"{path} is a fifo pool, but has the child pools {children}. Set mode to fair_share, or remove the child pools"
            yield BadRequest.because("mode", fault, rule="fifo_with_children")
        if settings.create_ephemeral_subpools:
            fault = f"{path} is a fifo pool, in which no pools can be made. Set this to false, or mode to fair_share"
            yield BadRequest.because("create_ephemeral_subpools", fault, rule="fifo_hub")
    yield from _job_sizes(settings, f" on {path}")
    timeout_ms = tree.settings(name).min_share_preemption_timeout
    yield from _lone_min_share_timeout(tree.options, timeout_ms, f" on {path}")
    if settings.metering_tags and settings.abc is None:
        yield BadRequest.because(
            "metering_tags", f"{path} has metering_tags without abc. Set abc as well", rule="metering_without_abc"
        )
    if settings.config_preset is not None and settings.config_presets:
        fault = f"{path} has both config_preset and config_presets. Use only one of them"
        yield BadRequest.because("config_preset", fault, rule="both_preset_forms")
    if preset_names(settings):
        for problem in preset_problems(settings, tree.options):
            yield BadRequest.of(problem.at(f"{problem.place} of {path}"), rule="preset")


def _job_sizes(level: TreeOptions | PoolConfig, where: str = "") -> Iterator[Refusal]:
    """Yield a refusal for each resource whose lower bound for jobs is above the upper bound, in the settings of one pool or of the tree."""
    least, most = level.min_job_resource_limits.named(), level.max_job_resource_limits.named()
    for resource, amount in least.items():
        if resource in most and amount > most[resource]:
            lower, upper = (format_amount(resource, bound) for bound in (amount, most[resource]))
            yield BadRequest.because(
                f"min_job_resource_limits.{resource}",
                f"{lower}{where} is more than max_job_resource_limits, {upper}",
                rule="order_of_options",
            )


def _lone_min_share_timeout(options: TreeOptions, timeout_ms: int | None, where: str = "") -> Iterator[Refusal]:
    """Yield a refusal of a preemption timeout for strong guarantees that would have no effect.

    A pool that is below its strong guarantee for longer than the timeout starves. So the timeout has an effect only if pools may starve,
    and if a starving pool allows its operations to preempt.
    """
    scope = options.scheduling_preemption_priority_scope
    if timeout_ms is None or (options.enable_pool_starvation and scope is PriorityScope.OPERATION_AND_ANCESTORS):
        return
    needed = (
        f"enable_pool_starvation=true and scheduling_preemption_priority_scope={PriorityScope.OPERATION_AND_ANCESTORS}"
    )
    yield BadRequest.because(
        "min_share_preemption_timeout",
        f"{timeout_ms} ms{where} has an effect only with {needed}",
        rule="needs_another_option",
    )


def _sizes(tree: PoolTree, bounds: TreeBounds, names: Iterable[PoolName]) -> Iterator[Refusal]:
    above = dict.fromkeys(each for name in names for each in tree.upwards(name) if each != ROOT_POOL)
    levels = {name: len(list(tree.upwards(name))) - 1 for name in above}
    for name in above:
        if tree.pools[name].parent not in above or levels[name] == 1:
            yield from _subtree(tree, bounds, name, levels[name])


def _subtree(tree: PoolTree, bounds: TreeBounds, top: PoolName, level: int) -> Iterator[Refusal]:
    """Check the sizes and levels of `top` and all pools below it. `level` is the level of `top`."""
    order = tree.subtree(top)
    sizes = dict.fromkeys(order, 1)
    for name in reversed(order[1:]):
        sizes[tree.pools[name].parent] += sizes[name]
    for name, size in sizes.items():
        if size > bounds.largest_subtree:
            yield BadRequest.because(
                "parent",
                f"the subtree of {tree.path(name)} has {size} pools; at most {bounds.largest_subtree} are allowed",
                rule="subtree_size",
            )
    levels = {top: level}
    for name in order[1:]:
        levels[name] = levels[tree.pools[name].parent] + 1
    deepest = max(levels, key=lambda name: levels[name])
    if levels[deepest] > bounds.most_levels:
        yield BadRequest.because(
            "parent",
            f"pool {deepest} is on level {levels[deepest]}; at most {bounds.most_levels} levels are allowed",
            rule="depth",
        )


def _shown(value: object) -> str:
    text = str(value)
    return text if len(text) <= _LONGEST_SHOWN else text[: _LONGEST_SHOWN - 3] + "..."
