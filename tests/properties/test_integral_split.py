"""The split over two services changes no figure: whatever is lost, repeated, late or killed on the way, savings and grants are to the
bit those of one process that has everything in it."""

from __future__ import annotations

from typing import Final

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.ids import ROOT_POOL, PoolName
from headrace.pools import IntegralGuarantees, IntegralType, PartialResources, Pool, PoolConfig, TreeOptions
from headrace.resources import Resources
from headrace.wire.codec import decode, encode
from headrace.wire.integral import Advance, Advanced, AdvanceGap
from headrace.wire.refusals import StaleTerm
from headrace.wire.version import Version
from headrace_fair_share.effects import Compute
from headrace_fair_share.hdrf.model import TreeInput
from headrace_fair_share.update.algorithm_input import InputMaker
from headrace_integral.engine import IntegralEngine, VolumesRecord
from tests.support.clocks import NOW
from tests.support.effort import few_or_many
from tests.support.simulated_tree import TREE, SimulatedTree
from tests.support.twin_savings import SingleProcess

#: Fates of an advance and of its answer.
FATES: Final = (
    "request lost",
    "answer lost",
    "twice",
    "overtaken",
    "integral killed before it saves",
    "integral killed before it answers",
    "integral killed at rest",
)
TOTALS: Final = (
    Resources(user_slots=100, cpu=10_007, memory=1_000_003),
    Resources(user_slots=333, cpu=33_331, gpu=7, memory=7_777_777, network=13),
    Resources(),
)
SAVERS: Final = ("burst", "relaxed", "first", "second")


class _Killed(Exception):
    """fair_share ended in the middle of an update."""


class Split(SimulatedTree):
    """The two services with a bad network between them, and power that fails."""

    def __init__(self, total: Resources, pools: list[Pool], options: TreeOptions, data: st.DataObject) -> None:
        super().__init__(total, pools, options)
        self._data = data
        self._saved: bytes | None = None
        self._sent: list[Advance] = []
        self._terms = 1
        self.fatal = False

    def exchange(self) -> None:
        """Sends again and again, as updates do, until everything is confirmed."""
        while (head := self.unconfirmed()) is not None:
            self._sent.append(head)
            answer = self._delivered(head, self._data.draw(st.sampled_from(["", "", "", *FATES])))
            if self.fatal and self._data.draw(st.booleans()):
                raise _Killed
            if answer is not None:
                self.answered(answer)

    @property
    def newest(self) -> Version:
        """Of the advance that was begun last."""
        return self.fair_share.volumes.chain._newest

    def tree_input(self) -> TreeInput:
        """What the algorithm is to work on now, but for the savings."""
        (compute,) = self.fair_share.on_advance_answer(None, self.now).effects
        assert isinstance(compute, Compute)
        return InputMaker().make(compute.cut).tree

    def arrive_late(self) -> None:
        """What was sent last arrives, or is lost for good."""
        if self._data.draw(st.booleans()):
            self._answered(self._sent[-1], "")

    def kill_fair_share(self) -> None:
        """It begins again, with a higher term."""
        self._terms += 1
        self.begin_fair_share(self._terms)

    def _delivered(self, advance: Advance, fate: str) -> Advanced | AdvanceGap | StaleTerm | None:
        """The answer, if it arrives."""
        match fate:
            case "request lost":
                return None
            case "integral killed at rest":
                self._kill_integral()
            case "twice":
                self._answered(advance, "")
            case "overtaken":
                # Messages of a killed fair_share arrive before its successor is heard, or not at all: `arrive_late`.
                is_heard = self.integral.record.version.term >= advance.version.term
                sent = [each for each in self._sent if is_heard or each.version.term == advance.version.term]
                self._answered(self._data.draw(st.sampled_from(sent)), "")
        answer = self._answered(advance, fate)
        return None if fate == "answer lost" else answer

    def _answered(self, advance: Advance, fate: str) -> Advanced | AdvanceGap | StaleTerm | None:
        outcome = self.integral.on_advance(decode(encode(advance), Advance), NOW)
        if not outcome.effects:
            assert isinstance(outcome.answer, Advanced | AdvanceGap | StaleTerm), outcome
            return outcome.answer
        if fate == "integral killed before it saves":
            self._kill_integral()
            return None
        self._saved = encode(outcome.effects[0].record)
        if fate == "integral killed before it answers":
            self._kill_integral()
            return None
        return decode(encode(self.integral.on_saved(outcome.effects[0].record, NOW).answer), Advanced)

    def _kill_integral(self) -> None:
        assert self.integral.out_of_bounds == 0
        self._terms += 1
        saved = None if self._saved is None else decode(self._saved, VolumesRecord)
        self.integral = IntegralEngine(TREE, self._terms, saved)


def a_saver(name: str, parent: str, kind: IntegralType, flow: int, burst: int, *, accepts: bool = True) -> Pool:
    guarantees = IntegralGuarantees(
        guarantee_type=kind,
        resource_flow=PartialResources(cpu=flow),
        burst_guarantee_resources=PartialResources(cpu=burst if kind is not IntegralType.RELAXED else None),
        can_accept_free_volume=accepts,
    )
    return Pool(PoolName(name), PoolName(parent), PoolConfig(integral_guarantees=guarantees))


@st.composite
def configurations(draw: st.DrawFn) -> tuple[list[Pool], TreeOptions]:
    """Savers at the top and two below a parent, which may hand on what overflows; savings are full after some minutes."""
    flows = st.sampled_from([700, 100, 2_500, 0])
    kinds = st.sampled_from([*[IntegralType.BURST, IntegralType.RELAXED] * 3, IntegralType.NONE])
    budget = IntegralGuarantees(
        resource_flow=PartialResources(cpu=5_000),
        burst_guarantee_resources=PartialResources(cpu=8_000),
        should_distribute_free_volume_among_children=draw(st.sampled_from([True, True, None, False])),
    )
    strong = PoolConfig(strong_guarantee_resources=PartialResources(cpu=draw(st.sampled_from([1_000, 4_000]))))
    pools = [
        a_saver("burst", ROOT_POOL, IntegralType.BURST, draw(flows), draw(st.sampled_from([50, 2_000, 6_000]))),
        a_saver("relaxed", ROOT_POOL, draw(kinds), draw(flows), 300),
        Pool(PoolName("parent"), ROOT_POOL, PoolConfig(integral_guarantees=budget)),
        a_saver("first", "parent", draw(kinds), draw(flows), 1_000),
        a_saver("second", "parent", draw(kinds), draw(flows), 3_000, accepts=draw(st.booleans())),
        Pool(PoolName("strong"), ROOT_POOL, strong),
    ]
    plain = TreeOptions()
    options = TreeOptions(
        integral_guarantees=msgspec.structs.replace(
            plain.integral_guarantees, pool_capacity_saturation_period=draw(st.sampled_from([60_000, 600_000]))
        ),
        should_distribute_free_volume_among_children=draw(st.booleans()),
        charge_skipped_relaxed_pools=draw(st.booleans()),
    )
    return pools, options


waits_ms = st.sampled_from([5_000, 60_000, 200, 333, 1, 3_600_000])


@pytest.mark.timeout(600)
@settings(max_examples=few_or_many(10, 200), suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(st.data())
def test_always_savings_and_grants_are_those_of_a_single_process(data: st.DataObject) -> None:
    split = Split(TOTALS[0], *data.draw(configurations()), data)
    single = SingleProcess()
    last_ms, complete_before = None, True
    for _ in range(data.draw(st.integers(3, 20))):
        happens = data.draw(
            st.sampled_from([*["demand"] * 5, "", "pools", "total", "recovering", "killed", "killed within"])
        )
        split.complete = happens != "recovering"
        split.fatal = happens == "killed within"
        match happens:
            case "demand":
                name = data.draw(st.sampled_from([*SAVERS, "strong", "guest"]))
                split.wants(name, data.draw(st.sampled_from([150, 40, 3, 0])))
            case "pools":
                split.configure(*data.draw(configurations()))
            case "total":
                split.total = data.draw(st.sampled_from(TOTALS))
            case "killed":
                split.kill_fair_share()
                single.begin()
                last_ms = None
        wait_ms = data.draw(waits_ms)
        begun_ms = split.now_ms + wait_ms
        dt_us = (begun_ms - last_ms) * 1_000 if last_ms is not None and split.complete and complete_before else 0
        had = split.integral.record.version
        try:
            split.update(wait_ms)
        except _Killed:
            split.arrive_late()
            # An advance that was applied counts, whether or not fair_share came to hear of it; what was not is lost time.
            if split.integral.record.version == split.newest:
                single.pass_time(split.tree_input(), dt_us)
            elif split.integral.record.version > had:
                # Of two that were to be sent, the first said that there had been no pools meanwhile.
                single.states = {}
            split.kill_fair_share()
            single.begin()
            last_ms = None
            continue
        single.pass_time(split.tree_input(), dt_us)
        same(split, single)
        single.grant(split.tree_input())
        granted = {name: each.grant_ratio for name, each in split.fair_share.pool_results.items() if each.grant_ratio}
        assert granted == {
            name: state.last_share_ratio for name, state in single.states.items() if state.last_share_ratio
        }
        last_ms, complete_before = begun_ms, split.complete
    assert split.integral.out_of_bounds == 0
    assert split.fair_share.volumes.chain.given_up == 0


def same(split: Split, single: SingleProcess) -> None:
    """The savings in both services are those of the single process, to the bit."""
    told = {name: pool.volume for name, pool in split.fair_share.volumes.of.items()}
    if split.integral.record.version == split.newest:
        assert told == {pool.pool: pool.volume for pool in split.integral.record.pools}
    wanted = {name: state.volume for name, state in single.states.items()}
    assert wanted == {
        name: (volume.user_slots, float(volume.cpu), volume.gpu, volume.memory, volume.network)
        for name, volume in told.items()
    }
