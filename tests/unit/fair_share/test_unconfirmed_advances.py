"""The chain of advances: in order, never put together, given up only when it must be."""

from __future__ import annotations

from headrace.ids import PoolName, TreeName
from headrace.resources import Resources
from headrace.wire.integral import Advanced, AdvanceGap, PoolFlow
from headrace.wire.version import NEVER, Version
from headrace_fair_share.facts.unconfirmed_advances import AdvanceChain

TREE = TreeName("default")
POOLS = [PoolFlow(PoolName("a"), 0.1, 0.2, 0.0, "burst")]


def a_chain(updates: int = 0, most: int = 10) -> AdvanceChain:
    chain = AdvanceChain(TREE, 3, most)
    for number in range(updates):
        chain.add(100 + number, Resources(cpu=100), POOLS, 60.0)
    return chain


def confirm(chain: AdvanceChain) -> bool:
    head = chain.head()
    assert head is not None
    return chain.on_confirmed(Advanced(TREE, head.version, []))


def gap(have: Version) -> AdvanceGap:
    return AdvanceGap(TREE, have=have, previous=NEVER)


def test_advances_of_very_many_pools_are_given_up_before_they_fill_the_memory() -> None:
    chain, pools = a_chain(most=10_000), POOLS * 300_000
    for _ in range(5):
        chain.add(100, Resources(cpu=100), pools, 60.0)
    kept, given_up = len(chain), chain.given_up
    confirm(chain)
    chain.add(100, Resources(cpu=100), pools, 60.0)

    assert (kept, given_up, len(chain)) == (3, 2, 3)
    assert chain.check() == []


def test_without_integral_pools_nothing_is_asked() -> None:
    chain = a_chain()
    chain.add(100, Resources(cpu=100), [], 60.0)

    assert chain.head() is None


def test_the_last_pool_that_goes_is_told_once() -> None:
    chain = a_chain(1)
    confirm(chain)
    chain.add(100, Resources(cpu=100), [], 60.0)
    chain.add(100, Resources(cpu=100), [], 60.0)

    head = chain.head()
    assert head is not None
    assert head.pools == []
    assert len(chain) == 1


def test_savings_of_pools_that_were_no_longer_integral_when_the_term_began_are_dropped_first() -> None:
    chain = a_chain()
    chain.add(100, Resources(cpu=100), [], 60.0)
    chain.add(200, Resources(cpu=100), POOLS, 60.0)
    sent = []
    while (head := chain.head()) is not None:
        sent.append((len(head.pools), head.dt_us))
        confirm(chain)

    assert sent == [(0, 0), (1, 200)]


def test_the_first_of_a_term_begins_a_chain_and_no_time_passed() -> None:
    head = a_chain(1).head()

    assert head is not None
    assert (head.version, head.previous, head.dt_us) == (Version(3, 1), NEVER, 0)


def test_missed_advances_wait_in_order_with_their_own_times() -> None:
    chain = a_chain(3)
    sent = []
    while (head := chain.head()) is not None:
        sent.append((head.version.epoch, head.previous.epoch, head.dt_us))
        assert confirm(chain)

    assert sent == [(1, 0, 0), (2, 1, 101), (3, 2, 102)]


def test_a_confirmation_of_another_advance_changes_nothing() -> None:
    chain = a_chain(2)

    assert not chain.on_confirmed(Advanced(TREE, Version(3, 2), []))
    assert len(chain) == 2


def test_where_integral_has_applied_one_without_our_hearing_of_it_the_chain_goes_on_behind_it() -> None:
    chain = a_chain(3)
    chain.on_gap(gap(Version(3, 2)))
    head = chain.head()

    assert head is not None
    assert head.version == Version(3, 3)
    assert chain.broken == 0


def test_where_integral_has_lost_the_thread_a_new_chain_begins_and_the_time_is_counted_as_given_up() -> None:
    chain = a_chain(3)
    chain.on_gap(gap(Version(2, 900)))

    assert (chain.given_up, chain.given_up_us, chain.broken) == (3, 0 + 101 + 102, 1)
    assert chain.head() is None
    chain.add(500, Resources(cpu=100), POOLS, 60.0)
    head = chain.head()
    assert head is not None
    assert (head.version, head.previous, head.dt_us) == (Version(3, 4), NEVER, 0)


def test_above_the_cap_time_is_given_up_and_counted_and_what_waits_is_kept() -> None:
    chain = a_chain(5, most=3)

    assert len(chain) == 3
    assert (chain.given_up, chain.given_up_us) == (2, 103 + 104)
    for _ in range(3):
        confirm(chain)
    chain.add(500, Resources(cpu=100), POOLS, 60.0)
    head = chain.head()
    assert head is not None
    assert (head.previous, head.dt_us) == (Version(3, 3), 500)
