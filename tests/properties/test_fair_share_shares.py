"""What must hold of the shares of any tree."""

from __future__ import annotations

from math import fsum

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.resources import ZERO, Resources, Share
from headrace_fair_share.shares import Distribution, Element, distribute, fill

TOTAL = Resources(user_slots=1_000, cpu=10_000, gpu=8, memory=2**36)
#: Sums of shares are equal up to rounding.
NEAR = 1e-12

amounts = st.builds(
    Resources,
    user_slots=st.integers(0, 1_500),
    cpu=st.one_of(st.just(0), st.integers(0, 20_000)),
    gpu=st.one_of(st.just(0), st.integers(0, 12)),
    memory=st.one_of(st.just(0), st.integers(0, 2**37)),
    network=st.sampled_from([0, 0, 5]),
)
weights = st.one_of(st.sampled_from([1.0, 2.0, 0.5]), st.floats(2**-26, 2**26))


@st.composite
def trees(draw: st.DrawFn) -> list[Element]:
    """Up to 6 pools of up to 4 levels and up to 10 operations."""
    elements = [Element(parent=-1)]
    for _ in range(draw(st.integers(0, 6))):
        parent = draw(st.integers(0, len(elements) - 1))
        guarantee = draw(st.one_of(st.just(ZERO), amounts))
        elements.append(Element(parent=parent, weight=draw(weights), strong_guarantee=guarantee))
    pools = len(elements)
    for _ in range(draw(st.integers(0, 10))):
        usage, wanted = draw(amounts), draw(amounts)
        elements.append(
            Element(parent=draw(st.integers(0, pools - 1)), weight=draw(weights), demand=usage + wanted, usage=usage)
        )
    return elements


def children(elements: list[Element], place: int) -> list[int]:
    return [at for at, element in enumerate(elements) if at and element.parent == place]


def no_more(one: Share, other: Share, slack: float = NEAR) -> bool:
    return all(a <= b + slack * max(1.0, b) for a, b in zip(one, other, strict=True))


def totals(outcome: Distribution) -> list[Share]:
    return [handed.fair_share.total for handed in outcome.elements]


@given(trees())
def test_always_a_pool_is_owed_what_its_children_are(elements: list[Element]) -> None:
    shares = totals(distribute(TOTAL, elements))

    for place in range(len(elements)):
        below = children(elements, place)
        if below:
            expected = [fsum(shares[child][r] for child in below) for r in range(5)]
            assert list(shares[place]) == pytest.approx(expected, abs=NEAR)


@given(trees())
def test_never_more_than_everything_is_handed_out(elements: list[Element]) -> None:
    assert no_more(totals(distribute(TOTAL, elements))[0], (1.0,) * 5)


@given(trees())
def test_never_is_anybody_owed_more_than_demanded(elements: list[Element]) -> None:
    for handed in distribute(TOTAL, elements).elements:
        assert no_more(handed.fair_share.total, handed.demand_share)


@given(trees())
def test_always_the_parts_are_not_negative_and_add_up(elements: list[Element]) -> None:
    for handed in distribute(TOTAL, elements).elements:
        parts = handed.fair_share
        assert min(*parts.strong_guarantee, *parts.integral_guarantee, *parts.weight_proportional) >= 0
        for strong, integral, free, total in zip(*msgspec.structs.astuple(parts), strict=True):
            assert strong + integral + free == pytest.approx(total, abs=NEAR)
        assert no_more(parts.strong_guarantee, handed.strong_guarantee_share)


@given(trees())
def test_always_a_strong_guarantee_is_met_as_far_as_it_is_wanted(elements: list[Element]) -> None:
    """By dominant share, counted as this algorithm counts: a pool's demand is the sum of its children's."""
    outcome = distribute(TOTAL, elements)
    wanted = [max(handed.demand_share) for handed in outcome.elements]
    given_ = [max(handed.fair_share.total) for handed in outcome.elements]
    for place in range(len(elements) - 1, -1, -1):
        below = children(elements, place)
        if below:
            wanted[place] = fsum(wanted[child] for child in below)
            given_[place] = fsum(given_[child] for child in below)
    for place, handed in enumerate(outcome.elements[1:], start=1):
        assert given_[place] >= min(max(handed.strong_guarantee_share), wanted[place]) - 1e-9


@given(trees())
def test_always_scaled_guarantees_fit_into_the_parent_and_that_is_said(elements: list[Element]) -> None:
    outcome = distribute(TOTAL, elements)
    guarantees = [max(handed.strong_guarantee_share) for handed in outcome.elements]
    specified = fsum(max(element.strong_guarantee.share_of(TOTAL)) for element in elements if element.parent == 0)

    assert bool(outcome.errors) == (specified > 1.0)
    for place in range(len(elements)):
        below = fsum(guarantees[child] for child in children(elements, place))
        assert below <= (1.0 if place == 0 else guarantees[place]) + 1e-9


@given(trees(), st.randoms(use_true_random=False))
def test_never_does_the_order_of_siblings_matter(elements: list[Element], random: object) -> None:
    order = list(range(1, len(elements)))
    random.shuffle(order)  # type: ignore[attr-defined]
    order = [0, *order]
    depth = [0] * len(elements)
    for place in range(1, len(elements)):
        depth[place] = depth[elements[place].parent] + 1
    order.sort(key=lambda place: depth[place])
    moved_to = {old: new for new, old in enumerate(order)}
    moved = [
        msgspec.structs.replace(elements[old], parent=moved_to[elements[old].parent] if old else -1) for old in order
    ]
    before, after = totals(distribute(TOTAL, elements)), totals(distribute(TOTAL, moved))

    for old, share in enumerate(before):
        assert list(after[moved_to[old]]) == pytest.approx(list(share), abs=NEAR)


@given(trees(), st.integers(-8, 8))
def test_never_does_a_common_factor_of_weights_matter(elements: list[Element], exponent: int) -> None:
    factor = 3.0**exponent
    scaled = [msgspec.structs.replace(element, weight=element.weight * factor) for element in elements]
    before, after = totals(distribute(TOTAL, elements)), totals(distribute(TOTAL, scaled))

    for one, other in zip(before, after, strict=True):
        assert list(one) == pytest.approx(list(other), abs=NEAR)


@given(trees(), st.data())
def test_never_does_more_weight_get_less(elements: list[Element], data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(elements) - 1))
    heavier = [
        msgspec.structs.replace(element, weight=element.weight * 4) if at == place else element
        for at, element in enumerate(elements)
    ]
    before, after = totals(distribute(TOTAL, elements)), totals(distribute(TOTAL, heavier))

    assert fsum(after[place]) >= fsum(before[place]) - 1e-9


# Filling, the step that each pool takes.

parts = st.lists(st.tuples(st.floats(0, 2), st.floats(0, 1), weights), min_size=1, max_size=8)


@given(st.floats(0, 1), parts)
def test_always_filling_is_max_min_fair_by_weight(room: float, asked: list[tuple[float, float, float]]) -> None:
    """Nobody could get more without somebody getting less who has no more beyond the guarantee, per weight."""
    wanted = [want for want, _, _ in asked]
    first = [min(want * share, want) for want, share, _ in asked]
    weights_ = [weight for _, _, weight in asked]
    got = fill(room, wanted, first, weights_)

    assert fsum(got) <= room + NEAR
    assert all(0 <= part <= want for part, want in zip(got, wanted, strict=True))
    if fsum(first) < room:
        assert fsum(got) == pytest.approx(min(room, fsum(wanted)), abs=NEAR)
        level = max((part - own - NEAR) / weight for part, own, weight in zip(got, first, weights_, strict=True))
        for part, own, want, weight in zip(got, first, wanted, weights_, strict=True):
            assert part >= want - NEAR or (part - own) / weight >= level * (1 - 1e-9) - NEAR / weight


@given(st.floats(0, 1), parts)
def test_always_what_comes_first_is_scaled_by_one_factor(room: float, asked: list[tuple[float, float, float]]) -> None:
    wanted = [want for want, _, _ in asked]
    got = fill(room, wanted, wanted, [weight for _, _, weight in asked])

    together = fsum(wanted)
    factor = min(1.0, room / together) if together > 0 else 0.0
    assert got == pytest.approx([want * factor for want in wanted], abs=NEAR)


def test_the_cluster_without_nodes_owes_nothing() -> None:
    outcome = distribute(ZERO, [Element(parent=-1), Element(parent=0, demand=Resources(user_slots=1, cpu=100))])

    assert totals(outcome) == [(0.0,) * 5, (0.0,) * 5]
    assert not outcome.errors
