"""Room above burst pools that fill their parent to the last bit."""

from __future__ import annotations

from headrace.pools import IntegralType
from headrace.resources import Resources
from headrace_fair_share.hdrf.model import IntegralState, OperationInput, PoolInput, TreeInput
from tests.support.update_result import update

TOTAL = Resources(user_slots=10**6, cpu=10**6, memory=10**9)
FLOWS = (40990, 46005, 688, 4530, 10**6, 10**6)


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
