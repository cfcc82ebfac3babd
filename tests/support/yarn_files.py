"""Allocation files of YARN as the trees that they become, judged by the rules of the service that takes them."""

from __future__ import annotations

from headrace.ids import PoolName, TreeName
from headrace.pools import POOL_ATTRIBUTES, TREE_ATTRIBUTES, Pool, PoolConfig, PoolTree, Tree, TreeOptions
from headrace.pools.effective_options import EffectiveOptions, of_pool, of_tree
from headrace.resources import Resources
from headrace.tree_file.problems import Problems
from headrace_cli.yarn.allocation_file import read_allocation_file
from headrace_cli.yarn.site_file import YarnSite
from headrace_cli.yarn.translation import Imported, imported
from headrace_cli.yarn.warnings import Warnings
from headrace_fair_share.configuration.rules import TreeBounds, broken_options, broken_rules

__all__ = ["CLUSTER", "in_force", "translated", "tree_of"]

#: 200 nodes of 128 GiB and 32 cores.
CLUSTER = Resources(user_slots=2_000, cpu=200 * 32 * 100, memory=200 * 128 * 2**30)


def translated(
    text: str | bytes, site: YarnSite | None = None, total: Resources = CLUSTER
) -> tuple[Imported, Warnings]:
    data = text if isinstance(text, bytes) else text.encode()
    problems, warnings = Problems("f.xml"), Warnings("f.xml")
    return imported(read_allocation_file(data, problems, warnings), site, total, problems, warnings), warnings


def tree_of(found: Imported) -> PoolTree:
    """The tree as the service would have it, which no rule of it forbids."""
    options = TREE_ATTRIBUTES.changed(TreeOptions(), found.options).value
    pools = [
        Pool(PoolName(each.name), PoolName(each.parent), POOL_ATTRIBUTES.changed(PoolConfig(), each.attributes).value)
        for each in found.pools
    ]
    tree = PoolTree(Tree(TreeName("default"), pools, options))
    assert [*broken_options(options), *broken_rules(tree, TreeBounds(pool_name_pattern_for_users=".*"))] == []
    return tree


def in_force(tree: PoolTree, name: str) -> EffectiveOptions:
    found = of_tree(tree.options)
    for each in reversed(list(tree.upwards(PoolName(name)))[:-1]):
        found = of_pool(found, tree.settings(each))
    return found
