"""Updates worked out by hand, and updates that build upon the one before."""

import msgspec
import pytest

from headrace.pools import IntegralType, PoolMode
from headrace.resources import LARGEST_SUM, Resources
from headrace_fair_share.hdrf.arrays import BrokenInvariant
from headrace_fair_share.hdrf.model import ErrorKind, IntegralState, OperationInput, PoolInput, TreeInput, UpdateOptions
from headrace_fair_share.hdrf.tree_update import TreeUpdater
from tests.support.update_result import result_of, update

TOTAL = Resources(100, 10_000, 0, 1000, 0)


def a_pool(name: str, parent: int = -1, *, cpu: int | None = None, weight: float | None = None) -> PoolInput:
    return PoolInput(name=name, parent=parent, strong_guarantee=(None, cpu, None, None, None), weight=weight)


def an_operation(name: str, pool: int, demand: Resources, *, gang: bool = False) -> OperationInput:
    return OperationInput(name=name, pool=pool, demand=demand, gang=gang)


def a_tree_of(pools: list[PoolInput], *operations: OperationInput, improved: bool = False) -> TreeInput:
    options = UpdateOptions(improved=improved, gang_step_function=True)
    return TreeInput(total=TOTAL, options=options, pools=pools, operations=list(operations))


def near(*share: float) -> object:
    return pytest.approx(share, abs=1e-9)


@pytest.mark.parametrize("improved", [False, True])
def test_operations_that_complement_one_another_fill_the_cluster(improved: bool) -> None:
    """One wants twice as much memory as anything else, the other twice as much cpu: both are sure of two thirds of a cluster."""
    x = an_operation("x", 0, Resources(100, 10_000, 0, 2000, 0))
    y = an_operation("y", 0, Resources(100, 20_000, 0, 1000, 0))

    got = update(a_tree_of([a_pool("a")], x, y, improved=improved)).operations

    assert near(1 / 3, 1 / 3, 0, 2 / 3, 0) == got["x"].fair_share
    assert near(1 / 3, 2 / 3, 0, 1 / 3, 0) == got["y"].fair_share


@pytest.mark.parametrize(("improved", "shares"), [(False, (0.0, 0.0)), (True, (0.6, 0.0))])
def test_of_two_gangs_of_which_one_fits_only_the_improved_mode_serves_one(
    improved: bool, shares: tuple[float, float]
) -> None:
    gangs = [an_operation(name, 0, Resources(60, 6000, 0, 600, 0), gang=True) for name in "xy"]

    got = update(a_tree_of([a_pool("a")], *gangs, improved=improved)).operations

    assert pytest.approx(shares) == (got["x"].fair_share[1], got["y"].fair_share[1])


def test_in_a_fifo_pool_the_first_one_is_served_first() -> None:
    pool = PoolInput(name="a", parent=-1, mode=PoolMode.FIFO)
    early, late = (an_operation(name, 0, Resources(60, 6000, 0, 600, 0)) for name in ("early", "late"))
    early = msgspec.structs.replace(early, start_time_ms=1)
    late = msgspec.structs.replace(late, start_time_ms=2)

    got = update(a_tree_of([pool], late, early)).operations

    assert near(0.6, 0.6, 0, 0.6, 0) == got["early"].fair_share
    assert near(0.4, 0.4, 0, 0.4, 0) == got["late"].fair_share
    assert (got["late"].fifo_index, got["early"].fifo_index) == (1, 0)


def test_guarantees_beyond_the_cluster_are_scaled_and_complained_of() -> None:
    got = update(a_tree_of([a_pool("a", cpu=3000), a_pool("b", cpu=9000)]))

    assert pytest.approx(0.25) == got.pools["a"].strong_guarantee_share[1]
    assert pytest.approx(0.75) == got.pools["b"].strong_guarantee_share[1]
    assert [error.kind for error in got.errors] == [ErrorKind.OVERCOMMIT_FLOW, ErrorKind.OVERCOMMIT_BURST]
    assert got.errors[1].pools == ["a", "b"]
    assert "120 of cpu where there are 100 (20 too much)" in got.errors[1].text
    assert "0.833333" in got.errors[1].text


def test_figures_that_are_left_out_follow_the_main_resource() -> None:
    """0.29 of 100 slots is a little less than 29 in doubles, and parts of a slot are lost."""
    got = update(a_tree_of([a_pool("a", cpu=2900)]))

    assert got.pools["a"].strong_guarantee_share[0] == 0.28
    assert got.pools["a"].strong_guarantee_share[1] == 0.29


def test_a_donor_lends_to_those_with_priority_below_it() -> None:
    """A donor limited to 60 keeps 40 for priority; what is left is spread with one factor for all that have none."""
    pools = [
        PoolInput(name="t", parent=-1, strong_guarantee=(None, 10_000, None, None, None)),
        a_pool("n", 0, cpu=5000),
        a_pool("m", 0, cpu=5000),
        a_pool("p", 1, cpu=4000),
        a_pool("q", 1, cpu=1000),
    ]
    pools[0] = msgspec.structs.replace(
        pools[0], limits=(None, 6000, None, None, None), priority_strong_guarantee_donor=True
    )
    pools[3] = msgspec.structs.replace(pools[3], priority_strong_guarantee=True)

    got = update(a_tree_of(pools)).pools

    expected = {"t": 0.6, "n": 0.4 + 0.1 / 3, "m": 0.5 / 3, "p": 0.4, "q": 0.1 / 3}
    assert pytest.approx(expected) == {name: got[name].strong_guarantee_share[1] for name in expected}


def test_weights_follow_guarantees_where_the_tree_says_so() -> None:
    parent = a_pool("a", cpu=5000)
    child = PoolInput(
        name="b",
        parent=0,
        strong_guarantee=(None, 1000, None, None, None),
        integral=IntegralType.BURST,
        resource_flow=Resources(cpu=500),
    )
    tree = a_tree_of([parent, child])
    options = msgspec.structs.replace(tree.options, infer_weight_multiplier=10.0)

    got = update(msgspec.structs.replace(tree, options=options)).pools

    assert pytest.approx(10 * 0.15 / 0.55) == got["b"].weight


def an_integral_pool(kind: IntegralType) -> PoolInput:
    return PoolInput(
        name="a",
        parent=-1,
        integral=kind,
        resource_flow=Resources(cpu=1000),
        burst_guarantee=Resources(cpu=5000 if kind is IntegralType.BURST else 0),
    )


@pytest.mark.parametrize("kind", [IntegralType.BURST, IntegralType.RELAXED])
def test_savings_of_two_minutes_double_the_flow(kind: IntegralType) -> None:
    tree = a_tree_of(
        [an_integral_pool(kind), a_pool("b")],
        an_operation("x", 0, Resources(100, 10_000, 0, 1000, 0)),
        an_operation("y", 1, Resources(100, 10_000, 0, 1000, 0)),
    )
    volume = tuple(amount * 0.1 * 120 for amount in TOTAL.as_tuple())
    tree = msgspec.structs.replace(tree, integral={"a": IntegralState(volume=volume)})  # type: ignore[arg-type]

    got = update(tree)

    assert near(0.2, 0.2, 0, 0.2, 0) == got.pools["a"].integral_part
    assert near(0.6, 0.6, 0, 0.6, 0) == got.pools["a"].fair_share
    assert pytest.approx(0.2) == got.integral["a"].last_share_ratio


@pytest.mark.parametrize(("charged", "after"), [(True, 0.3), (False, 0.0)])
def test_a_relaxed_pool_without_savings_is_charged_for_its_last_grant_only_if_the_tree_says_so(
    charged: bool, after: float
) -> None:
    tree = a_tree_of([an_integral_pool(IntegralType.RELAXED)])
    options = msgspec.structs.replace(tree.options, charge_skipped_relaxed_pools=charged)
    states = {"a": IntegralState(last_share_ratio=0.3)}

    got = update(msgspec.structs.replace(tree, options=options, integral=states))

    assert after == got.integral["a"].last_share_ratio


def test_usage_beyond_demand_is_refused() -> None:
    operation = OperationInput(name="x", pool=0, usage=Resources(cpu=1))

    with pytest.raises(BrokenInvariant):
        update(a_tree_of([a_pool("a")], operation))


def test_an_engine_works_on_after_an_input_that_it_refused() -> None:
    engine = TreeUpdater()
    good = a_tree_of([a_pool("a")], an_operation("x", 0, TOTAL))
    engine.update(good)
    with pytest.raises(BrokenInvariant):
        engine.update(a_tree_of([a_pool("a")], OperationInput(name="x", pool=0, usage=TOTAL)))

    assert update(good) == result_of(engine.update(good))


# --- updates that build upon the one before ---------------------------------------------------------------------------


def test_where_nothing_changes_nothing_is_handed_out_again() -> None:
    engine = TreeUpdater()
    tree = a_tree_of([a_pool("a")], an_operation("x", 0, TOTAL))

    first, second = engine.update(tree), engine.update(tree)
    engine.functions = None
    afresh = engine.update(tree)

    assert first.fair_share is second.fair_share
    assert first.fair_share is not afresh.fair_share
    assert result_of(first) == result_of(afresh)


#: 100,000 hosts of 256 cores and 4 TiB.
LARGE = Resources(user_slots=25_600_000, cpu=2_560_000_000, memory=100_000 * 2**42)


def parts_of_large(part: float) -> Resources:
    return Resources(*(round(amount * part) for amount in LARGE.as_tuple()))


def test_operations_that_want_more_than_can_be_added_up_take_nothing_from_what_others_use_and_want() -> None:
    """The most that the wire carries, three times: the sum does not fit into 64 bits."""
    most = Resources(user_slots=LARGEST_SUM, cpu=LARGEST_SUM, memory=LARGEST_SUM)
    used = [
        OperationInput(name=f"user{number}", pool=0, usage=parts_of_large(0.005), demand=parts_of_large(0.01))
        for number in range(100)
    ]
    endless = [OperationInput(name=f"endless{number}", pool=1, demand=most) for number in range(3)]
    pools = [a_pool("a"), a_pool("b")]

    got = update(TreeInput(total=LARGE, pools=pools, operations=[*used, *endless]))

    alone = update(TreeInput(total=LARGE, pools=pools, operations=used))
    for operation in used:
        told = got.operations[operation.name]
        assert told.usage_share == alone.operations[operation.name].usage_share
        assert told.demand_share == alone.operations[operation.name].demand_share
        assert told.fair_share == near(0.005, 0.005, 0, 0.005, 0)
    assert got.pools["b"].fair_share[0] == pytest.approx(0.5)


def test_a_flow_of_more_than_can_be_counted_is_told_as_an_overcommitment() -> None:
    pool = PoolInput(name="a", parent=-1, integral=IntegralType.RELAXED, resource_flow=Resources(gpu=2**60))
    total = Resources(user_slots=10, cpu=1_000, gpu=1, memory=2**50)

    errors = update(TreeInput(total=total, pools=[pool])).errors

    assert [error.kind for error in errors] == [ErrorKind.OVERCOMMIT_FLOW]
    assert "gpu" in errors[0].text
    assert "memory" in errors[0].text


def a_relaxed_pool(name: str, parent: int, cpu: int) -> PoolInput:
    return PoolInput(name=name, parent=parent, integral=IntegralType.RELAXED, resource_flow=Resources(cpu=cpu))


def test_savings_of_a_pool_without_flow_grant_it_nothing_below_an_integral_pool() -> None:
    """It would be tried out by the functions of the pool above, which know no limit for it."""
    pools = [a_relaxed_pool("upper", -1, 100), a_relaxed_pool("lower", 0, 0), a_pool("other")]
    everything = [an_operation(name, place, TOTAL) for name, place in (("x", 1), ("y", 2))]
    saved = IntegralState((1e4, 1e6, 0.0, 1e5, 0.0))
    tree = msgspec.structs.replace(a_tree_of(pools, *everything), integral={"upper": saved, "lower": saved})

    got = update(tree)

    assert pytest.approx(0.03) == got.integral["upper"].last_share_ratio
    assert got.integral["lower"].last_share_ratio == 0.0
    assert got.pools["lower"].integral_guarantee_share == (0.0,) * 5


def test_integral_guarantees_below_others_are_refused_with_their_names() -> None:
    """No configuration has them: what the pool above may have at most is less than what the one below was granted."""
    pools = [a_relaxed_pool("upper", -1, 100), a_pool("between", 0), a_relaxed_pool("lower", 1, 50)]

    with pytest.raises(BrokenInvariant, match="are below other pools that have them: lower"):
        update(a_tree_of(pools))


@pytest.mark.parametrize("improved", [False, True])
def test_a_remainder_of_rounding_is_nobodys_share(improved: bool) -> None:
    """In this order the sum of the guarantees is 0.9999999999999999."""
    pools = [a_pool(str(cpu), cpu=cpu) for cpu in (7_000, 1_000, 2_000)]
    everything = [an_operation(f"of {place}", place, TOTAL) for place in range(4)]

    got = update(a_tree_of([*pools, a_pool("other")], *everything, improved=improved))

    nothing = (0.0,) * 5
    assert got.operations["of 3"].fair_share == got.pools["other"].fair_share == nothing
    assert got.pools["other"].estimated_guarantee_share == nothing
    assert [pool.weight_proportional_part for pool in (got.root, *got.pools.values())] == [nothing] * 5


_GUARANTEES = pytest.mark.parametrize("guarantees", [(10_000,), (7_000, 1_000, 2_000)])


@pytest.mark.parametrize("improved", [False, True])
@_GUARANTEES
def test_a_wholly_guaranteed_resource_stops_only_what_wants_it(improved: bool, guarantees: tuple[int, ...]) -> None:
    """All cores are guaranteed and used; what needs memory only, or comes before the first that needs a core, gets it."""
    owners = [a_pool(f"owner{place}", cpu=cpu) for place, cpu in enumerate(guarantees)]
    queue, web = len(owners), len(owners) + 1
    fifo = PoolInput(name="queue", parent=-1, mode=PoolMode.FIFO)
    tree = a_tree_of(
        [*owners, fifo, a_pool("web")],
        *(
            an_operation(owner.name, place, Resources(cpu=cpu))
            for place, (owner, cpu) in enumerate(zip(owners, guarantees, strict=True))
        ),
        an_operation("first", queue, Resources(memory=400)),
        an_operation("second", queue, Resources(cpu=100, memory=64)),
        an_operation("pages", web, Resources(memory=900)),
        improved=improved,
    )

    got = update(tree)

    assert got.operations["first"].fair_share == near(0, 0, 0, 0.4, 0)
    assert got.operations["second"].fair_share == (0.0,) * 5
    # Both pools have the weight 1, and the fit factor ends where the second operation of the queue wants a core.
    assert got.operations["pages"].fair_share == near(0, 0, 0, 0.4, 0)


@pytest.mark.parametrize("improved", [False, True])
@_GUARANTEES
def test_running_jobs_that_use_none_of_a_wholly_guaranteed_resource_are_owed_their_usage(
    improved: bool, guarantees: tuple[int, ...]
) -> None:
    owners = [a_pool(f"owner{place}", cpu=cpu) for place, cpu in enumerate(guarantees)]
    demand, usage = Resources(cpu=3_000, memory=600), Resources(memory=300)
    late = OperationInput(name="late", pool=len(owners), demand=demand, usage=usage)
    tree = a_tree_of(
        [*owners, a_pool("other")],
        *(
            an_operation(owner.name, place, Resources(cpu=cpu))
            for place, (owner, cpu) in enumerate(zip(owners, guarantees, strict=True))
        ),
        late,
        improved=improved,
    )

    assert update(tree).operations["late"].fair_share == near(0, 0, 0, 0.3, 0)
