"""Room above burst pools that fill their parent to the last bit."""

from __future__ import annotations

from random import Random

import numpy as np

from headrace.pools import IntegralType
from headrace.resources import Resources
from headrace_fair_share.hdrf.integral_shares import clipped
from headrace_fair_share.hdrf.model import IntegralState, OperationInput, PoolInput, TreeInput
from tests.support.update_result import update

TOTAL = Resources(user_slots=10**6, cpu=10**6, memory=10**9)
FLOWS = (40990, 46005, 688, 4530, 10**6, 10**6)


def filled(strong: int, limit: int, flows: list[int]) -> TreeInput:
    """A pool whose children have more savings than its limit leaves room for, of cpu alone."""
    parent = PoolInput(
        name="p",
        parent=-1,
        strong_guarantee=(None, strong, None, None, None),
        limits=(None, limit, None, None, None),
    )
    children = [
        PoolInput(
            name=f"c{number}",
            parent=0,
            integral=IntegralType.BURST,
            resource_flow=Resources(cpu=flow),
            burst_guarantee=Resources(cpu=flow),
        )
        for number, flow in enumerate(flows)
    ]
    operations = [
        OperationInput(name=f"o{number}", pool=number + 1, demand=Resources(cpu=10**6)) for number in range(len(flows))
    ]
    integral = {child.name: IntegralState((10.0**11,) * 5) for child in children}
    return TreeInput(total=TOTAL, pools=[parent, *children], operations=operations, integral=integral)


def test_grants_that_fill_a_limit_keep_it_to_the_last_bit_and_raise_nothing_else() -> None:
    """Six grants one after the other came out an ulp above the limit of their parent with these figures."""
    random = Random(1)
    strong = random.randrange(10**5, 5 * 10**5)
    limit = strong + random.randrange(10**4, 4 * 10**5)

    shares = update(filled(strong, limit, [*(random.randrange(1, 10**5) for _ in range(6)), 10**6])).pools["p"]

    granted = shares.integral_guarantee_share
    assert shares.strong_guarantee_share[1] + granted[1] <= shares.limits_share[1]
    assert shares.limits_share[1] - shares.strong_guarantee_share[1] - granted[1] < 1e-15
    assert (granted[0], granted[2], granted[3], granted[4]) == (0.0, 0.0, 0.0, 0.0)


def test_what_is_over_a_limit_by_rounding_is_brought_within_it_and_the_rest_stays() -> None:
    strong, limits = np.full((5, 1), 0.1), np.full((5, 1), 0.3)
    proposed = np.array([[0.2], [0.2 + 5e-10], [0.1], [0.0], [0.05]])
    assert ((strong + proposed)[:2] > limits[:2]).all()

    fitted = clipped(proposed, strong, limits)

    assert (strong + fitted <= limits).all()
    assert (strong + np.nextafter(fitted, 1.0) >= limits)[:2].all()
    assert fitted[2:].tolist() == proposed[2:].tolist()


def test_siblings_that_fill_their_parent_leave_no_room_less_than_none() -> None:
    """Limit minus guarantee minus grants, one after the other, came out below zero by an ulp with these figures."""
    parent = PoolInput(
        name="p",
        parent=-1,
        strong_guarantee=(None, 402291, None, None, None),
        limits=(504451, 504451, None, 504451000, None),
    )
    flows = [Resources(user_slots=flow, cpu=flow, memory=flow * 1000) for flow in FLOWS]
    children = [
        PoolInput(name=f"c{number}", parent=0, integral=IntegralType.BURST, resource_flow=flow, burst_guarantee=flow)
        for number, flow in enumerate(flows)
    ]
    savings = IntegralState((10.0**11, 10.0**11, 0.0, 10.0**14, 0.0))
    operations = [OperationInput(name=f"o{number}", pool=number + 1, demand=TOTAL) for number in range(len(FLOWS))]
    tree = TreeInput(
        total=TOTAL,
        pools=[parent, *children],
        operations=operations,
        integral={child.name: savings for child in children},
    )

    shares = update(tree).pools

    used = sum(shares[child.name].integral_guarantee_share[1] for child in children)
    assert abs(shares["p"].limits_share[1] - shares["p"].strong_guarantee_share[1] - used) < 1e-9
