"""Whatever is lost, repeated, late or killed on the way: volumes are bit for bit those of a single process."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from headrace.ids import PoolName, TreeName
from headrace.resources import Resources
from headrace.wire.codec import decode, encode
from headrace.wire.integral import Advance, Advanced, AdvanceGap, PoolFlow, Volume
from headrace_fair_share.facts.unconfirmed_advances import AdvanceChain
from headrace_integral.engine import IntegralEngine, VolumesRecord
from headrace_integral.volumes import Refill, refilled
from tests.support.clocks import NOW
from tests.unit.integral.columns import columns, volumes_of

TREE = TreeName("default")
#: Up to a month.
SATURATIONS_S = st.sampled_from([3_600.0, 86_400.0, 30 * 86_400.0])

flows = st.builds(
    PoolFlow,
    pool=st.sampled_from(["a", "b", "c"]).map(PoolName),
    flow_ratio=st.floats(0, 1),
    burst_ratio=st.floats(0, 1),
    grant_ratio=st.floats(0, 1),
    guarantee_type=st.sampled_from(["burst", "relaxed"]),
)
#: Up to 100,000 hosts of 256 cores and 4 TiB.
totals = st.builds(
    Resources,
    user_slots=st.integers(0, 25_600_000),
    cpu=st.integers(0, 2_560_000_000),
    memory=st.integers(0, 100_000 * 2**42),
)
#: Microseconds between them: mostly a period of updates, sometimes days.
updates = st.tuples(
    st.one_of(st.integers(1, 10_000_000), st.integers(1, 40 * 86_400 * 10**6)),
    totals,
    st.lists(flows, min_size=1, max_size=3, unique_by=lambda flow: flow.pool),
)


class Integral:
    """The service without its shell: a store that survives, a process that may be killed at either side of saving."""

    def __init__(self) -> None:
        self.stored: bytes | None = None
        self.term = 0
        self.start()

    def start(self) -> None:
        self.term += 1
        record = decode(self.stored, VolumesRecord) if self.stored is not None else None
        self.engine = IntegralEngine(TREE, self.term, record)

    def advance(self, request: Advance, fate: str) -> object:
        """The answer; None where it is lost."""
        outcome = self.engine.on_advance(decode(encode(request), Advance), NOW)
        if outcome.effects:
            if fate == "killed before it is saved":
                self.start()
                return None
            self.stored = encode(outcome.effects[0].record)
            if fate == "killed before it is confirmed":
                self.start()
                return None
            answer: object = self.engine.on_saved(outcome.effects[0].record, NOW).answer
        else:
            answer = outcome.answer
        return None if fate == "answer lost" else answer


FATES = ["killed before it is saved", "killed before it is confirmed", "answer lost", "request lost", "twice", "late"]


def alone(before: Volume, flow: PoolFlow, total: Resources, dt_us: int, saturation_s: float) -> Volume:
    if total == Resources():
        return before
    ratios = np.array([flow.flow_ratio]), np.array([flow.grant_ratio])
    refill = Refill(total, dt_us / 1e6, saturation_s, *ratios, np.array([flow.can_accept_free_volume]))
    (volume,) = volumes_of(refilled(columns(before), refill).volume)
    return volume


def single_process(given_: list[tuple[int, Resources, list[PoolFlow]]], saturation_s: float) -> dict[PoolName, Volume]:
    volumes: dict[PoolName, Volume] = {}
    for number, (dt_us, total, pools) in enumerate(given_):
        before = volumes
        volumes = {
            flow.pool: alone(before.get(flow.pool, Volume()), flow, total, dt_us if number else 0, saturation_s)
            for flow in pools
        }
    return volumes


@given(st.lists(updates, min_size=1, max_size=12), SATURATIONS_S, st.data())
def test_always_the_volumes_equal_those_of_a_single_process(
    given_: list[tuple[int, Resources, list[PoolFlow]]], saturation_s: float, data: st.DataObject
) -> None:
    integral, chain = Integral(), AdvanceChain(TREE, 1, 1_000)
    sent: list[Advance] = []
    for dt_us, total, pools in given_:
        chain.add(dt_us, total, pools, saturation_s)
        for _ in range(3):
            head = chain.head()
            if head is None:
                break
            fate = data.draw(st.sampled_from(["", "", *FATES]))
            sent.append(head)
            if fate == "request lost":
                break
            if fate == "late":
                integral.advance(data.draw(st.sampled_from(sent)), "")
            answer = integral.advance(head, fate)
            if fate == "twice":
                answer = integral.advance(head, "")
            tell(chain, answer)
    while (head := chain.head()) is not None:
        tell(chain, integral.advance(head, ""))

    assert chain.given_up == 0
    assert integral.engine.out_of_bounds == 0
    assert integral.engine.check() == []
    assert {pool.pool: pool.volume for pool in integral.engine.record.pools} == single_process(given_, saturation_s)


def tell(chain: AdvanceChain, answer: object) -> None:
    match answer:
        case Advanced():
            assert chain.on_confirmed(answer)
        case AdvanceGap():
            chain.on_gap(answer)
        case _:
            assert answer is None
