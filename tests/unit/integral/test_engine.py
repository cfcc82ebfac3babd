"""Which advance is applied, which is answered again, which is refused."""

from __future__ import annotations

import msgspec
import pytest

from headrace.ids import PoolName, TreeName
from headrace.resources import ZERO, Resources
from headrace.runtime.engine import Outcome
from headrace.wire.codec import BadMessage, decode, encode
from headrace.wire.integral import (
    LARGEST_CPU_VOLUME,
    Advance,
    Advanced,
    AdvanceGap,
    GetVolumes,
    PoolFlow,
    PoolVolume,
    Volume,
)
from headrace.wire.refusals import BadRequest, NotFound, StaleTerm
from headrace.wire.version import LARGEST_JUMP, NEVER, Version
from headrace_integral.engine import IntegralEngine, VolumesRecord
from tests.support.clocks import NOW

TREE = TreeName("default")
TOTAL = Resources(user_slots=10, cpu=1_000)


def a_flow(name: str = "a", flow: float = 0.1, grant: float = 0.0, kind: str = "burst") -> PoolFlow:
    return PoolFlow(PoolName(name), flow, 0.5, grant, kind)


def an_advance(
    epoch: int,
    dt_us: int = 1_000_000,
    *pools: PoolFlow,
    previous: Version | None = None,
    term: int = 1,
    total: Resources = TOTAL,
    tree: TreeName = TREE,
) -> Advance:
    if previous is None:
        previous = Version(term, epoch - 1) if epoch > 1 else NEVER
    return Advance(
        tree=tree,
        version=Version(term, epoch),
        previous=previous,
        dt_us=dt_us if previous.term == term else 0,
        total=total,
        pools=list(pools) or [a_flow()],
    )


def apply(engine: IntegralEngine, request: Advance) -> Advanced:
    outcome = engine.on_advance(request, NOW)
    assert outcome.effects, outcome
    return engine.on_saved(outcome.effects[0].record, NOW).answer


def refused(engine: IntegralEngine, request: Advance) -> object:
    before = engine.record
    outcome = engine.on_advance(request, NOW)
    assert engine.record is before
    return outcome.answer


def an_engine(updates: int = 0) -> IntegralEngine:
    engine = IntegralEngine(TREE, writer=1)
    for epoch in range(1, updates + 1):
        apply(engine, an_advance(epoch))
    return engine


def test_each_advance_lets_its_time_pass() -> None:
    engine = an_engine(3)

    assert engine.record.pools == [PoolVolume(PoolName("a"), Volume(user_slots=2.0, cpu=200), 0.2)]


def test_nothing_changes_until_it_is_saved() -> None:
    engine = an_engine(1)
    before = engine.record
    outcome = engine.on_advance(an_advance(2), NOW)

    assert outcome.effects
    assert engine.record is before


def test_an_advance_that_comes_again_is_answered_again_from_memory() -> None:
    engine = an_engine(2)
    third = apply(engine, an_advance(3))
    fourth = apply(engine, an_advance(4))

    assert engine.on_advance(an_advance(4), NOW) == Outcome(fourth)
    assert engine.on_advance(an_advance(3), NOW) == Outcome(third)
    assert engine.repeated == 2


def test_an_advance_that_follows_another_than_the_newest_is_refused_with_what_there_is() -> None:
    engine = an_engine(3)

    assert refused(engine, an_advance(6)) == AdvanceGap(TREE, have=Version(1, 3), previous=Version(1, 5))


def test_what_is_older_than_memory_is_refused() -> None:
    engine = an_engine(100)

    assert refused(engine, an_advance(2)) == AdvanceGap(TREE, have=Version(1, 100), previous=Version(1, 1))


def test_a_higher_term_begins_a_chain_without_time_and_the_lower_one_is_over() -> None:
    engine = an_engine(3)
    after = apply(engine, an_advance(1, term=2))

    assert after.pools[0].volume == Volume(user_slots=2.0, cpu=200)
    assert refused(engine, an_advance(4)) == StaleTerm(role="fair_share.default", known=2, got=1)


def test_a_sender_that_begins_anew_within_its_term_passes_no_time() -> None:
    engine = an_engine(3)
    after = apply(engine, an_advance(9, previous=NEVER))

    assert after.pools[0].volume == Volume(user_slots=2.0, cpu=200)


def test_a_pool_that_is_not_named_loses_its_savings() -> None:
    engine = an_engine(3)
    apply(engine, an_advance(4, 0, a_flow("b")))
    after = apply(engine, an_advance(5, 1_000_000, a_flow("a"), a_flow("b")))

    assert [(pool.pool, pool.volume.cpu) for pool in after.pools] == [("a", 100), ("b", 100)]


def test_a_cluster_without_nodes_freezes_what_there_is() -> None:
    engine = an_engine(3)
    after = apply(engine, an_advance(4, total=ZERO))

    assert after.pools[0].volume == Volume(user_slots=2.0, cpu=200)


@pytest.mark.parametrize(
    ("request_", "kind"),
    [
        (an_advance(4, tree=TreeName("other")), NotFound),
        (an_advance(4, 1_000_000, a_flow(), a_flow()), BadRequest),
        (an_advance(4, 1_000_000, a_flow(kind="lavish")), BadRequest),
        (an_advance(4, 1_000_000, msgspec.structs.replace(a_flow(), parent=0)), BadRequest),
        (an_advance(4, previous=Version(1, 4)), BadRequest),
        (Advance(TREE, Version(2, 1), NEVER, 5, TOTAL, [a_flow()]), BadRequest),
        (Advance(TREE, Version(2, 1), Version(1, 3), 5, TOTAL, [a_flow()]), BadRequest),
        (Advance(TREE, Version(2 + LARGEST_JUMP, 1), NEVER, 0, TOTAL, [a_flow()]), BadRequest),
        (Advance(TREE, Version(0, 5), NEVER, 0, TOTAL, [a_flow()]), StaleTerm),
    ],
)
def test_what_cannot_be_applied_is_refused_and_changes_nothing(request_: Advance, kind: type) -> None:
    assert isinstance(refused(an_engine(3), request_), kind)


def test_a_pool_whose_volume_cannot_be_kept_harms_no_other_and_is_an_alarm() -> None:
    engine = IntegralEngine(TREE, writer=1)
    total = Resources(user_slots=2**60, cpu=2**60, memory=2**60)
    flows = [a_flow("all", flow=1e6), a_flow("some", flow=1e-9)]
    for epoch in (1, 2):
        previous = Version(1, epoch - 1) if epoch > 1 else NEVER
        request = Advance(TREE, Version(1, epoch), previous, (epoch - 1) * 10**12, total, flows, 1e9)
        advanced = decode(encode(apply(engine, request)), Advanced)

    (too_much, kept) = advanced.pools
    assert too_much.volume.cpu == LARGEST_CPU_VOLUME
    assert kept.volume == Volume(2**60 * 1e6 * 1e-9, round(2**60 * 1e6 * 1e-9), 0.0, 2**60 * 1e6 * 1e-9)
    assert [words.split(" has")[0] for words in engine.check()] == ["pool all"]


def test_what_was_saved_is_what_the_next_life_has() -> None:
    first = an_engine(3)
    second = IntegralEngine(TREE, writer=2, record=first.record)

    assert second.on_get(GetVolumes(TREE), NOW) == first.on_get(GetVolumes(TREE), NOW)
    assert second.on_advance(an_advance(3), NOW) == Outcome(first.record.answer())
    assert apply(second, an_advance(4)) == apply(first, an_advance(4))


def test_the_volumes_of_another_tree_are_not_here() -> None:
    answer = an_engine().on_get(GetVolumes(TreeName("other")), NOW).answer

    assert answer == NotFound("tree", "other", ["default"])


def test_an_empty_record_is_no_error() -> None:
    assert IntegralEngine(TREE, 1, VolumesRecord(tree=TREE)).record.pools == []


@pytest.mark.parametrize("part", Volume.__struct_fields__)
def test_a_volume_below_nothing_is_no_message(part: str) -> None:
    with pytest.raises(BadMessage):
        decode(encode(msgspec.structs.replace(Volume(), **{part: -1})), Volume)


def test_a_ratio_volume_below_nothing_is_no_message() -> None:
    with pytest.raises(BadMessage):
        decode(encode(PoolVolume(PoolName("a"), Volume(), -1.0)), PoolVolume)
