"""Random trees over time: what starves, why, and who may preempt is what the plain rules say, and follows from what is short."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from headrace.ids import PoolName
from headrace.pools import PoolTree
from headrace.resources import Resources
from headrace.wire.operation_spec import OperationSpec
from headrace.wire.snapshots import ElementKind, PreemptionPriority, SchedulingStatus, StarvationReason
from headrace_fair_share.starvation.clocks import STARVATION
from tests.reference.starvation import PlainStarvation, Waiting
from tests.support.effort import few_or_many
from tests.support.small_trees import TOTAL, TREE, SmallTree, Work, a_tree

Options = dict[str, Any]
PRIORITIES = tuple(PreemptionPriority)
TOLERANCES = st.sampled_from([0.0, 0.5, 0.8, 1.0])
TIMEOUTS = st.sampled_from(["0s", "1s", "5s", "30s"])


def some_of(options: dict[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[Options]:
    """Some of the options, each with some value."""
    return st.fixed_dictionaries({}, optional=options)


POOLS = some_of(
    {
        "fair_share_starvation_tolerance": TOLERANCES,
        "fair_share_starvation_timeout": TIMEOUTS,
        "enable_aggressive_starvation": st.booleans(),
        "strong_guarantee_resources": st.fixed_dictionaries({"cpu": st.integers(1, 30)}),
        "weight": st.sampled_from([0.5, 3.0]),
        "resource_limits": st.fixed_dictionaries({"cpu": st.integers(0, 60)}),
    }
)
OPTIONS = some_of(
    {
        "fair_share_starvation_tolerance": TOLERANCES,
        "fair_share_starvation_timeout": TIMEOUTS,
        "fair_share_aggressive_starvation_timeout": st.sampled_from(["30s", "1m"]),
        "enable_aggressive_starvation": st.booleans(),
        "enable_absolute_fair_share_starvation_tolerance": st.booleans(),
        "allocation_count_preemption_timeout_coefficient": st.sampled_from([1.0, 10.0]),
    }
)
#: Options that go together.
SCOPES: list[Options] = [
    {},
    {"min_share_preemption_timeout": "5s"},
    {"scheduling_preemption_priority_scope": "operation_only"},
    {"enable_pool_starvation": False},
]
WISHES = some_of(
    {"fair_share_starvation_tolerance": TOLERANCES, "fair_share_starvation_timeout_ms": st.integers(0, 60_000)}
)
MEMORY = st.sampled_from([0, 2**30, 3 * 2**30])


@st.composite
def trees(draw: st.DrawFn) -> tuple[dict[str, Options], list[Work], Options]:
    """Pools with their parents before them, operations in them, and options of the tree."""
    pools: dict[str, Options] = {}
    for number in range(draw(st.integers(1, 4))):
        parent = draw(st.sampled_from(["<Root>", *pools]))
        settings = draw(POOLS)
        if parent != "<Root>":
            settings = {name: value for name, value in settings.items() if name != "strong_guarantee_resources"}
        pools[f"p{number}"] = settings | {"parent": parent}
    work = [
        Work(
            f"x{number}",
            draw(st.sampled_from(sorted(pools))),
            draw(st.sampled_from([0, 5, 30, 80])),
            memory=draw(MEMORY),
            wishes=draw(WISHES),
        )
        for number in range(draw(st.integers(1, 5)))
    ]
    return pools, work, draw(OPTIONS) | draw(st.sampled_from(SCOPES))


def waiting(work: Work) -> Waiting:
    """An operation as the plain rules want it."""
    job = Resources(user_slots=1, cpu=100, memory=work.memory)
    return Waiting(
        OperationSpec(PoolName(work.pool), ["true"], **work.wishes), work.jobs - work.running, job.share_of(TOTAL)
    )


@settings(max_examples=few_or_many(25, 1_000))
@given(trees(), st.data())
def test_always_starves_and_preempts_by_the_plain_rules(
    tree: tuple[dict[str, Options], list[Work], Options], data: st.DataObject
) -> None:
    pools, work, options = tree
    small, plain, configured = SmallTree(pools, work, options), PlainStarvation(), PoolTree(a_tree(pools, options))
    for after_s in [0.0, *data.draw(st.lists(st.sampled_from([1.0, 4.0, 25.0, 31.0]), min_size=2, max_size=5))]:
        parts = data.draw(st.lists(st.sampled_from([0.0, 0.2, 0.5, 1.0]), min_size=len(work), max_size=len(work)))
        small.work = [replace(each, running=int(each.jobs * part)) for each, part in zip(work, parts, strict=True)]
        small.update(after_s)
        items = small.engine.items
        plain.update(small.engine.frame.at_ms, configured, items, {each.name: waiting(each) for each in small.work})
        for key, item in items.items():
            judged = plain.judged[key]
            found = (item.below_fair_share_since_ms, STARVATION.index(item.starvation_status))
            assert found == (judged.below_since, judged.starvation), key
            assert PRIORITIES.index(item.preemption_priority) == judged.priority, key
            is_owed = item.starvation_reason is StarvationReason.MIN_SHARE
            assert is_owed is judged.starves_for_guarantee, key
            assert (item.starving_since_ms is None) is (judged.starvation == 0), key
            is_below = item.scheduling_status is SchedulingStatus.BELOW_FAIR_SHARE
            assert is_below or is_owed or judged.starvation == 0, key
            assert item.kind is ElementKind.OPERATION or item.preemption_priority is PreemptionPriority.NONE, key
    assert small.engine.configuration.pools.name == TREE
