"""What if: the second world is what the engine publishes once the changes are really made, and the first what it published."""

from __future__ import annotations

from typing import Any, Final

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.ids import ROOT_POOL, PoolName, TreeName
from headrace.pools import Person, Pool, Tree, TreeOptions
from headrace.resources import EPS, LARGEST_SUM, Resources
from headrace.runtime.engine import Moment
from headrace.wire.operation_spec import OperationSpec
from headrace.wire.pool_changes import ChangePools, Create, PoolChange, Remove, Set
from headrace.wire.refusals import BadRequest, NotFound
from headrace.wire.snapshots import UsageFrame, UsageItem
from headrace.wire.version import Version
from headrace.wire.what_if import ElementShares, SupposedNodes, SupposedOperation, WhatIf, WhatIfAnswer
from headrace_fair_share.effects import WriteTree
from headrace_fair_share.engine import EngineOptions, FairShareEngine
from headrace_fair_share.facts.usage import UsageChange
from headrace_fair_share.update.updater import Updater
from headrace_fair_share.what_if.comparison import compared
from headrace_fair_share.what_if.supposing import Supposed
from tests.support.fair_share import stored, updated
from tests.support.tree_services import live

TREE: Final = TreeName("default")
TOTAL: Final = Resources(user_slots=100, cpu=1_000, memory=2**40)
ANYBODY: Final = Person("anybody", administrator=True)
NOBODY: Final = Person("nobody")
NOW: Final = Moment(1_000_000_000_000, 1_700_000_000_000)
JOB: Final = Resources(user_slots=1, cpu=100)
NAMES: Final = [PoolName(name) for name in ("a", "b", "c")]


def an_engine() -> tuple[FairShareEngine, Updater]:
    """Three pools; `a` uses all, `b` waits, `c` wants nothing."""
    engine, updater = FairShareEngine(TREE, 3, EngineOptions()), Updater()
    tree = Tree(tree=TREE, pools=[Pool(name, ROOT_POOL) for name in NAMES], options=TreeOptions())
    engine.on_stored_tree(stored(tree, 1), NOW)
    engine.on_operations([live("of-a", PoolName("a"), 20), live("of-b", PoolName("b"), 20)], NOW)
    used = [
        UsageItem(
            live("of-a", PoolName("a"), 20).operation, JOB * 10, pending_jobs=10, pending=JOB * 10, min_needed=JOB
        )
    ]
    engine.on_usage(UsageChange(Version(1, 1), UsageFrame(TOTAL, complete=True), used, whole=True), NOW)
    updated(engine, updater, NOW)
    return engine, updater


def asked(engine: FairShareEngine, request: WhatIf, person: Person = ANYBODY) -> WhatIfAnswer:
    supposed = engine.on_what_if(request, person, NOW).answer
    assert isinstance(supposed, Supposed), supposed
    return compared(supposed)


def published(engine: FairShareEngine) -> dict[str, tuple[object, ...]]:
    total = engine.frame.total
    return {
        key: (item.weight, item.fair_share.total, total.part(item.strong_guarantee_share))
        for key, item in engine.items.items()
    }


def differ(was: tuple[Any, ...] | None, now: tuple[Any, ...] | None) -> bool:
    """False for what is the same to a rounding: shares that are demands are rounded otherwise than shares that functions give."""
    if was is None or now is None:
        return was is not now
    moved = max(abs(one - other) for one, other in zip(was[1], now[1], strict=True))
    return bool(moved > EPS or was[::2] != now[::2])


def side(answer: WhatIfAnswer, which: str) -> dict[str, tuple[object, ...]]:
    found: dict[str, tuple[object, ...]] = {}
    for each in answer.elements:
        shares: ElementShares | None = getattr(each, which)
        if shares is not None:
            key = each.name if each.kind == "operation" else f"/{each.name}"
            found[key] = (shares.weight, shares.fair_share, shares.guarantee)
    return found


def attributes(**values: object) -> bytes:
    return msgspec.json.encode(values)


CHANGES: Final[st.SearchStrategy[PoolChange]] = st.one_of(
    st.builds(lambda name, weight: Set(name, attributes(weight=weight)), st.sampled_from(NAMES), st.floats(0.5, 8)),
    st.builds(
        lambda name, cores: Set(name, attributes(resource_limits={"cpu": cores})),
        st.sampled_from(NAMES),
        st.integers(0, 12),
    ),
    st.builds(
        lambda name, cores: Set(name, attributes(strong_guarantee_resources={"cpu": cores})),
        st.sampled_from(NAMES),
        st.integers(0, 4),
    ),
    st.builds(Create, st.just(PoolName("d")), st.sampled_from([ROOT_POOL, *NAMES])),
    st.builds(lambda name: Remove(name, recursive=True, in_use=True), st.sampled_from(NAMES)),
)


def test_a_lowered_bound_of_job_sizes_names_the_operations_of_which_no_further_jobs_start() -> None:
    engine, _ = an_engine()
    lower = Set(PoolName("a"), attributes(max_job_resource_limits={"cpu": 0.5}))

    (note,) = asked(engine, WhatIf(TREE, [lower])).notes

    assert note.startswith("of 1 operation no further jobs start, because their size is outside the bounds")
    assert note.endswith(live("of-a", PoolName("a"), 20).operation)
    assert asked(engine, WhatIf(TREE, [Set(PoolName("a"), attributes(max_job_resource_limits={"cpu": 1}))])).notes == []


@given(changes=st.lists(CHANGES, min_size=1, max_size=3))
def test_what_was_supposed_is_what_is_published_once_it_is_made(changes: list[PoolChange]) -> None:
    engine, updater = an_engine()
    was = published(engine)
    answer = asked(engine, WhatIf(TREE, changes))
    assert published(engine) == was
    effects = engine.on_change_request(ChangePools(changes, TREE), ANYBODY, None, NOW).effects
    if not effects:
        assert answer.plan.broken
        return
    (write,) = effects
    assert isinstance(write, WriteTree)
    engine.on_tree_written([write.change], 2, NOW)
    updated(engine, updater, NOW)

    now = published(engine)
    before, after = side(answer, "before"), side(answer, "after")
    assert before.items() <= was.items()
    assert after.items() <= now.items()
    # Operations that do not differ are counted, and not told.
    assert answer.unchanged_operations == len([key for key in now if key not in after])
    assert {key for key in was | now if differ(was.get(key), now.get(key))} <= {*before, *after}


def test_what_if_of_nothing_is_what_is_published() -> None:
    engine, _ = an_engine()
    answer = asked(engine, WhatIf(TREE))
    pools = {key: figures for key, figures in published(engine).items() if key.startswith("/")}

    assert side(answer, "before") == side(answer, "after") == pools
    assert not any(each.differs for each in answer.elements)
    assert (answer.unchanged_pools, answer.unchanged_operations) == (4, 2)


def test_more_jobs_take_their_part_and_are_told_when_they_starve() -> None:
    engine, _ = an_engine()
    spec = OperationSpec(PoolName("c"), ["true"], job_count=200, resources=JOB)
    answer = asked(engine, WhatIf(TREE, operations=[SupposedOperation(spec)]))
    told = {each.name: each for each in answer.elements}

    assert told["a"].before is not None
    assert told["a"].after is not None
    assert told["a"].before.fair_resources.cpu == 500
    assert told["a"].after.fair_resources.cpu == 333
    new = told["supposed-1"]
    assert new.before is None
    assert new.after is not None
    assert new.after.demand == JOB * 200
    assert new.after.starves_in_ms == TreeOptions().fair_share_starvation_timeout
    assert answer.notes == []


def test_who_would_become_aggressive_before_its_own_long_timeout_starves_then() -> None:
    engine, _ = an_engine()
    tree = Tree(
        tree=TREE,
        pools=[Pool(name, ROOT_POOL) for name in NAMES],
        options=TreeOptions(enable_aggressive_starvation=True),
    )
    engine.on_stored_tree(stored(tree, 2), NOW)
    spec = OperationSpec(
        PoolName("c"), ["true"], job_count=200, resources=JOB, fair_share_starvation_timeout_ms=600_000
    )
    answer = asked(engine, WhatIf(TREE, operations=[SupposedOperation(spec)]))

    (new,) = [each for each in answer.elements if each.name == "supposed-1"]
    assert new.after is not None
    assert new.after.starves_in_ms == TreeOptions().fair_share_aggressive_starvation_timeout


def test_nodes_come_and_go_and_no_more_go_than_there_are() -> None:
    engine, _ = an_engine()
    node = Resources(user_slots=10, cpu=200, memory=2**30)
    less = asked(engine, WhatIf(TREE, nodes=[SupposedNodes(-2, node)]))
    refused = engine.on_what_if(WhatIf(TREE, nodes=[SupposedNodes(-6, node)]), ANYBODY, NOW).answer

    assert less.total_after == TOTAL - node * 2
    (of_a,) = [each for each in less.elements if each.name == "a"]
    assert of_a.after is not None
    assert of_a.after.fair_resources.cpu == 300
    assert isinstance(refused, BadRequest)
    assert "each cannot be removed" in refused.text()


def test_nodes_that_have_more_than_an_update_counts_are_refused() -> None:
    engine, _ = an_engine()
    all_there_is = Resources(memory=LARGEST_SUM)
    for nodes in ([SupposedNodes(1, all_there_is)], [SupposedNodes(1, Resources(gpu=2**61))] * 3):
        refused = engine.on_what_if(WhatIf(TREE, nodes=nodes), ANYBODY, NOW).answer
        assert isinstance(refused, BadRequest)
        assert f"at most {LARGEST_SUM} of each resource" in refused.text()
    most = Resources(gpu=LARGEST_SUM)
    assert asked(engine, WhatIf(TREE, nodes=[SupposedNodes(1, most)])).total_after == TOTAL + most


def test_a_full_pool_lets_supposed_jobs_wait_and_an_unknown_one_is_refused() -> None:
    engine, _ = an_engine()
    full: list[PoolChange] = [Set(PoolName("b"), attributes(max_running_operation_count=1))]
    spec = OperationSpec(PoolName("b"), ["true"], resources=JOB)
    answer = asked(engine, WhatIf(TREE, full, [SupposedOperation(spec)]))
    unknown = msgspec.structs.replace(spec, pool=PoolName("bb"))
    refused = engine.on_what_if(WhatIf(TREE, operations=[SupposedOperation(unknown)]), ANYBODY, NOW).answer

    assert answer.notes == ["supposed-1 would wait and be owed nothing yet: 1 of 1 operations run in pool b"]
    assert isinstance(refused, NotFound)


@pytest.mark.parametrize(
    ("kind", "limit", "notes"),
    [
        ("vanilla", 0, []),
        ("map", 1, []),
        ("map", 0, ["supposed-1 would wait and be owed nothing yet: 0 of 0 operations run in pool b"]),
    ],
)
def test_a_running_limit_does_not_count_lightweight_operations(kind: str, limit: int, notes: list[str]) -> None:
    engine, _ = an_engine()
    quick = attributes(mode="fifo", enable_lightweight_operations=True, max_running_operation_count=limit)
    supposed = SupposedOperation(OperationSpec(PoolName("b"), ["true"], resources=JOB, type=kind))
    answer = asked(engine, WhatIf(TREE, [Set(PoolName("b"), quick)], [supposed]))

    assert answer.notes == notes


def test_whoever_may_not_make_a_change_sees_what_it_would_do() -> None:
    engine, _ = an_engine()
    change = Set(PoolName("a"), attributes(weight=3))
    answer = asked(engine, WhatIf(TREE, [change]), NOBODY)
    impossible = asked(engine, WhatIf(TREE, [Set(PoolName("a"), attributes(weight=-1))]), NOBODY)

    assert "nobody may not" in answer.plan.broken[0]
    (of_a,) = [each for each in answer.elements if each.name == "a"]
    assert of_a.after is not None
    assert of_a.after.fair_resources.cpu == 750
    assert impossible.plan.broken
    assert impossible.elements == []
