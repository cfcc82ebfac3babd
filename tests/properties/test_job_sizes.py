"""Admission, which refuses starts, and the allocator, which stops further jobs, judge each size of jobs alike, whatever the bounds are."""

from __future__ import annotations

from collections.abc import Iterator

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.ids import ROOT_POOL, PoolName, TreeName
from headrace.pools import Pool, PoolConfig, Tree, TreeOptions
from headrace.pools.amounts import PartialResources
from headrace.pools.effective_options import of_pool, of_tree
from headrace.resources import Resources
from headrace.wire.operation_spec import OperationSpec
from headrace.wire.refusals import BadRequest
from headrace.wire.snapshots import ElementKind, ShareItem
from headrace_admission.decisions.job_sizes import refused_job_size
from headrace_admission.state.rules import rules_of
from headrace_admission.state.tree_book import TreeBook
from headrace_allocator.facts.pool_tree import PoolStates, ShareSnapshot
from tests.support.effort import few_or_many

TREE = TreeName("default")
#: Each pool stands below the one before it.
NAMES = [PoolName(name) for name in "abc"]
AMOUNT = st.sampled_from([None, None, 0, 1, 2, 3])
AMOUNTS = st.builds(PartialResources, cpu=AMOUNT, gpu=AMOUNT, memory=AMOUNT)
SIZE = st.builds(
    Resources, user_slots=st.just(1), cpu=st.integers(0, 3), gpu=st.integers(0, 3), memory=st.integers(0, 3)
)
BOUNDS = st.tuples(AMOUNTS, AMOUNTS)


def items(tree: Tree) -> Iterator[ShareItem]:
    """What fair_share tells of the pools."""
    above = of_tree(tree.options)
    yield ShareItem(ElementKind.ROOT, ROOT_POOL, PoolName(""), options=above)
    for pool in tree.pools:
        above = of_pool(above, pool.settings)
        yield ShareItem(ElementKind.POOL, pool.name, pool.parent, options=above)


@settings(max_examples=few_or_many(200, 5_000), deadline=None)
@given(BOUNDS, st.lists(BOUNDS, min_size=3, max_size=3), SIZE, st.sampled_from(NAMES))
def test_both_services_name_the_same_level_and_are_silent_exactly_if_every_level_accepts_the_size(
    of_root: tuple[PartialResources, PartialResources],
    of_pools: list[tuple[PartialResources, PartialResources]],
    size: Resources,
    name: PoolName,
) -> None:
    least, most = of_root
    pools = [
        Pool(pool, parent, PoolConfig(min_job_resource_limits=low, max_job_resource_limits=high))
        for pool, parent, (low, high) in zip(NAMES, [ROOT_POOL, *NAMES], of_pools, strict=False)
    ]
    options = TreeOptions(min_job_resource_limits=least, max_job_resource_limits=most)
    tree = Tree(TREE, pools, options)
    book, states = TreeBook(), PoolStates()
    book.configure(rules_of(tree))
    told = {item.key: item for item in items(tree)}
    states.apply(ShareSnapshot(told, told.keys(), total=Resources(1, 1, 1, 1, 1), options=options.for_allocation()))

    spec = OperationSpec(name, ["true"], resources=size)
    refusal, refused = refused_job_size(TREE, book, name, spec), states.refused_size(spec)

    levels = [of_root, *of_pools[: NAMES.index(name) + 1]]
    accepts = all(
        (low is None or low <= has) and (high is None or has <= high)
        for lows, highs in levels
        for low, has, high in zip(lows.as_tuple(), size.as_tuple(), highs.as_tuple(), strict=True)
    )
    assert (refusal is None) == (refused is None) == accepts
    if refused is not None:
        assert isinstance(refusal, BadRequest)
        where = "tree default" if refused.pool == ROOT_POOL else f"pool {refused.pool} in tree default"
        assert refusal.place == f"spec.resources.{refused.broken.resource}"
        assert refusal.expected.endswith(f"_job_resource_limits of {where}")
