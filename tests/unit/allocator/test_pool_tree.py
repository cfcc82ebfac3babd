"""The tree of pools: taken over from snapshots of shares, whole and by what changed."""

from __future__ import annotations

from random import Random

import msgspec

from headrace.ids import ROOT_POOL, PoolName
from headrace.wire.snapshots import DetailedShare, ElementKind, ShareItem
from headrace_allocator.facts.pool_tree import PoolStates, ShareSnapshot
from tests.support.allocating import a_share, an_operation, cores
from tests.unit.allocator.test_limits import TOTAL, Tree, a_pool


def test_a_pools_path_leads_upwards_and_ends_below_the_root() -> None:
    tree = Tree([a_pool("above"), a_pool("p", "above"), a_pool("q", "p")], an_operation("a"))

    assert list(tree.facts.pools.path(PoolName("q"))) == ["q", "p", "above"]
    assert list(tree.facts.pools.path(PoolName("unknown"))) == ["unknown"]


def test_the_shares_of_pools_and_of_the_root_are_those_of_the_newest_snapshot() -> None:
    root = ShareItem(ElementKind.ROOT, ROOT_POOL, PoolName(""))
    tree = Tree([root, a_pool("p")], an_operation("a"))
    fair = DetailedShare(total=(0.5, 0.5, 0.0, 0.0, 0.0))
    newer = msgspec.structs.replace(a_pool("p"), fair_share=fair, demand_share=(1.0, 0.7, 0.0, 0.0, 0.0))

    tree.tell([root, newer])

    assert tree.facts.pools.pools == {"p": newer, ROOT_POOL: root}


def test_a_pool_that_is_gone_takes_its_limit_with_it() -> None:
    tree = Tree([a_pool("p", cpu=0.3)], an_operation("a", 20))
    items = {item.key: item for item in tree.told}
    tree.engine.on_shares(ShareSnapshot(items, [], ["/p"], TOTAL, tree.options), tree.now)
    tree.refresh()
    tree.beat("n")

    assert tree.used("a") == 10
    assert tree.facts.pools.pools == {}


def test_always_the_same_tree_by_changes_as_by_the_whole() -> None:
    random = Random(8)
    pools = PoolStates()
    items: dict[str, ShareItem] = {}
    names = [f"p{number}" for number in range(8)]
    held = [(PoolName(name), cores(number)) for number, name in enumerate(names)]

    for name, amount in held:
        pools.use(name, amount, amount)

    def limits_of(pools: PoolStates) -> object:
        return {
            name: [(pool.name, pool.most, pool.used, pool.in_doubt) for pool in pools.pool(PoolName(name)).path()]
            for name in names
        }

    for _ in range(300):
        changed, removed = set(), set()
        for number in random.sample(range(8), random.randint(0, 3)):
            key = f"/{names[number]}"
            if random.random() < 0.3:
                items.pop(key, None)
                removed.add(key)
            else:
                parent = random.choice([ROOT_POOL, *names[:number]])
                items[key] = a_pool(names[number], parent, cpu=random.choice([0.5, 1.0]))
                changed.add(key)
        total = random.choice([TOTAL, cores(20, slots=100)])
        pools.apply(ShareSnapshot(items, changed, removed, total))
        whole = PoolStates()
        whole.apply(ShareSnapshot(items, items.keys(), [], total))
        for name, amount in held:
            whole.use(name, amount, amount)

        assert pools.pools == whole.pools
        assert limits_of(pools) == limits_of(whole)
        for name in pools.known:
            own = [amount for pool, amount in held if pool == name]
            assert pools.check(name, "cpu", own, own) == []


def test_shares_of_operations_are_no_pools() -> None:
    pools = PoolStates()
    share = a_share("a", 0.5)

    pools.apply(ShareSnapshot({share.key: share}, [share.key], [], TOTAL))

    assert pools.pools == {}
