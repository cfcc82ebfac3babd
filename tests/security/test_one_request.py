"""What one request of a person without any right costs: a bounded amount of work, however many names and pools it is about.

A request is decided while nothing else in its service runs. A change of 100 pools that did not exist, a message of 5 KB, once took
15 s of fair_share in a tree of 5,000 pools, and the counts of a pool that did not exist 1.7 s of admission.
"""

from __future__ import annotations

import difflib
import tracemalloc
from collections.abc import Callable
from functools import partial
from typing import Any, Final, cast

import msgspec
import pytest

from headrace.errors import BadInput
from headrace.ids import ROOT_POOL, AllocationId, NodeName, OperationId, PoolName, TreeName
from headrace.job_indexes import parse_indexes
from headrace.pools import POOL_ATTRIBUTES, TREE_ATTRIBUTES, Defects, Person, Pool, PoolConfig, PoolTree, Tree
from headrace.resources import Resources
from headrace.suggestions import MOST_COMPARED, hint, is_misspelt, near
from headrace.wire.heartbeat import JobEnd, JobResult
from headrace.wire.ledger import ReportedEnd, ReportEnds
from headrace.wire.operation_spec import Upstream
from headrace.wire.operations import StartAnswer
from headrace.wire.pool_changes import ChangePools, Create, Move, PoolChange, Remove, Set, SetOptions
from headrace.wire.refusals import BadRequest, BrokenRules, WrongState
from headrace_admission import queries
from headrace_admission.decisions import upstream
from headrace_fair_share.configuration.change_decisions import StoredTree, TreeConfiguration
from tests.support.clocks import at
from tests.support.work import lines_run
from tests.unit.admission.desk import TREE, Desk, oid

MALLORY: Final = Person("mallory")
POOLS: Final = [Pool(PoolName(f"pool-number-{number}"), ROOT_POOL, PoolConfig()) for number in range(1_000)]
#: Changes of one request. Before there was a bound they took minutes.
MANY: Final = 2_000
#: Comparisons of two names, letter by letter, that one request may cause.
MOST_OF_A_REQUEST: Final = 10_000


class Counted:
    """Numbers of slow steps: two names compared letter by letter, and all pools of a tree sorted and indexed."""

    comparisons = 0
    indexes = 0


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counted:
    counts = Counted()

    def counting(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            setattr(counts, name, getattr(counts, name) + 1)
            return function(*arguments)

        return call

    matcher = difflib.SequenceMatcher
    monkeypatch.setattr(matcher, "set_seq1", counting("comparisons", matcher.set_seq1))
    monkeypatch.setattr(PoolTree, "__init__", counting("indexes", PoolTree.__init__))
    return counts


def test_names_are_compared_with_a_bounded_number_of_names(counted: Counted) -> None:
    names = [f"pool-number-{number}" for number in range(5_000)]

    assert near("pool-number-x4999", [*names, "pool-number-x499"])[0] == "pool-number-x499"
    assert near("number-49", names)
    assert near("x" * 400_000, names) == []
    assert is_misspelt("pool-numbr-7", names)
    assert "did you mean" in hint("pool-numbr-7", names)
    # `set_seq1` is also called for each matcher that is made.
    assert counted.comparisons <= 5 * (MOST_COMPARED + 1)


UNKNOWN: Final = msgspec.json.encode({f"wieght{number}": 1 for number in range(MANY)})
AMOUNTS: Final = msgspec.json.encode(
    {"strong_guarantee_resources": {f"cpuu{number}": 1 for number in range(MANY)}, "weight": 2}
)
CHANGES: Final[dict[str, list[PoolChange]]] = {
    "removes of unknown pools": [Remove(PoolName(f"pool-numbr-{number}")) for number in range(MANY)],
    "settings of unknown pools": [Set(PoolName(f"pool-numbr-{number}"), b"{}") for number in range(MANY)],
    "removes": [Remove(pool.name) for pool in POOLS],
    "moves": [Move(pool.name, POOLS[0].name) for pool in POOLS],
    "creates": [Create(PoolName(f"new-{number}")) for number in range(MANY)],
    "unknown keys": [Set(POOLS[0].name, UNKNOWN)],
    "unknown resources": [Set(POOLS[0].name, AMOUNTS)],
    "unknown options": [SetOptions(UNKNOWN)],
}


@pytest.mark.parametrize("kind", CHANGES)
def test_a_change_by_a_person_without_rights_takes_a_bounded_amount_of_work(kind: str, counted: Counted) -> None:
    configured = TreeConfiguration(TreeName("default"))
    configured.on_stored(StoredTree(1, Tree(TreeName("default"), POOLS)))
    counted.comparisons = counted.indexes = 0
    refused = configured.decide(ChangePools(CHANGES[kind]), {}, MALLORY, Resources())

    assert isinstance(refused, BrokenRules)
    assert len(refused.problems) < 250
    assert counted.comparisons < MOST_OF_A_REQUEST
    assert counted.indexes <= 2


def test_the_refusal_of_very_many_changes_says_that_the_rest_was_not_checked() -> None:
    configured = TreeConfiguration(TreeName("default"))
    refused = configured.decide(
        ChangePools(CHANGES["removes of unknown pools"]), {}, Person("eve", administrator=True), Resources()
    )

    assert isinstance(refused, BrokenRules)
    assert len(refused.problems) == 101
    assert "the first 100 of 2000 changes have" in refused.problems[-1]


@pytest.mark.parametrize("names", [1, 99 * 1_000])
def test_kept_unknown_keys_cost_a_bounded_amount_of_work(names: int, counted: Counted) -> None:
    """An administrator of one pool once took 8 s of fair_share with 99 keys in each of 1,000 changes."""
    mine = POOL_ATTRIBUTES.changed(PoolConfig(), {"access": {"administer": ["mallory"]}}).value
    configured = TreeConfiguration(TreeName("default"))
    configured.on_stored(StoredTree(1, Tree(TreeName("default"), [Pool(PoolName("mine"), ROOT_POOL, mine)])))
    keys = [[f"own-{(place * 99 + key) % names}" for key in range(99)] for place in range(1_000)]
    changes = [Set(PoolName("mine"), msgspec.json.encode(dict.fromkeys(each, 1))) for each in keys]
    counted.comparisons = 0
    decided = configured.decide(ChangePools(list[PoolChange](changes)), {}, MALLORY, Resources())

    assert counted.comparisons < 2 * MOST_OF_A_REQUEST
    assert isinstance(decided, BadRequest) is (names > 1)
    if isinstance(decided, BadRequest):
        assert decided.fault == "the changes have 297 different unknown keys; at most 200 are allowed"


@pytest.mark.parametrize("schema", [POOL_ATTRIBUTES, TREE_ATTRIBUTES])
def test_unknown_keys_are_refused_after_a_bounded_number(schema: Any) -> None:
    with pytest.raises(Defects) as refusal:
        schema.changed(schema.of(), {f"wieght{number}": 1 for number in range(MANY)})

    assert len(refusal.value.problems) <= 101
    assert "of 2000 keys" in str(refusal.value.problems[-1])


@pytest.mark.parametrize("text", ["0-499999,5-499999", "0-999998:2,1-999998:2,77"])
def test_no_list_of_all_indexes_is_made_to_find_one_twice(text: str) -> None:
    """Two ranges with a million indexes once took 0.2 s of admission and 75 MB, and were refused then."""
    tracemalloc.start()
    with pytest.raises(BadInput, match="each index once"):
        parse_indexes(text)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert peak_bytes < 100_000


def test_a_long_text_of_indexes_costs_few_steps_for_each_index() -> None:
    """64 KB of numbers once took 43 ms of admission, and 17 lines for each number."""
    text = ",".join(str(number) for number in range(10_000, 0, -1))
    parse_indexes.cache_clear()

    assert lines_run(lambda: parse_indexes(text)) < 13 * 10_000


def test_the_end_of_an_operation_costs_the_same_however_many_others_are_waited_for() -> None:
    """With 12,000 operations that waited for 256 others each, each end once took 2.7 s of admission."""
    lines = []
    for others in (1, 200):
        desk = Desk({"p": {"max_operation_count": 1_000, "max_running_operation_count": 1_000}})
        names = [f"a{number}" for number in range(others + 1)]
        desk.started(*names, pool="p")
        desk.started("b", "c", pool="p", after=[Upstream(oid(name)) for name in names])
        end = ReportedEnd(NodeName("n1"), JobEnd(oid("a0"), 0, 1, AllocationId("1-1"), JobResult.COMPLETED))
        lines.append(lines_run(partial(desk.engine.on_report, ReportEnds(TREE, 1, [end]), at(0, 5))))
        assert desk.state.operations[oid("b")].awaits == [oid(name) for name in names[1:]]

    assert lines[0] == lines[1]


def test_the_ends_that_operations_of_one_person_wait_for_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upstream, "MOST_AWAITED_OF_A_USER", 5)
    desk = Desk({"p": {}})
    desk.started("a", "b", "c", pool="p")
    two, three = ([Upstream(oid(name)) for name in names] for names in ("ab", "abc"))
    desk.started("d", "e", pool="p", after=two)
    desk.started("with", pool="p", after=two[:1])
    refused = desk.start("f", "p", after=three)

    assert isinstance(refused, WrongState)
    assert (
        "waiting for 5 ends of operations, and this operation would wait for 3; expected at most 5 together"
        in refused.text()
    )
    assert isinstance(desk.start("f", "p", user="ben", after=three), StartAnswer)
    desk.finish("a")
    assert isinstance(desk.start("g", "p", after=three), StartAnswer), "an operation that is over counts no more"
    assert desk.engine.check() == []


def test_an_unknown_operation_is_compared_with_a_bounded_number_of_operations() -> None:
    """With 60,000 operations the refusal of an unknown id once took 75 ms of admission."""
    state = Desk().state
    known: dict[OperationId, Any] = {OperationId(f"operation-{number:05}"): None for number in range(10_000)}
    filled = cast("Any", state)
    filled.operations = known

    assert queries.not_found(state, "operation-0999x").near == ["operation-09997", "operation-09998", "operation-09999"]
    unknown = "other-" + "x" * 50
    many = lines_run(lambda: queries.not_found(state, unknown))
    filled.operations = dict(list(known.items())[-2_000:])
    assert lines_run(lambda: queries.not_found(state, unknown)) == many


def test_others_leave_places_among_the_followers_of_an_operation_to_its_owner() -> None:
    desk = Desk({"p": {"max_operation_count": 100}})
    desk.started("a", pool="p", job_count=2)
    answers = [desk.start(f"m{number}", "p", user="mallory", after_each=oid("a"), job_count=2) for number in range(9)]

    assert [isinstance(each, StartAnswer) for each in answers] == [True] * 8 + [False]
    assert "fewer than 8 of other users" in answers[-1].text()
    desk.started(*(f"own{number}" for number in range(8)), pool="p", after_each=oid("a"), job_count=2)
    assert isinstance(desk.start("more", "p", after_each=oid("a"), job_count=2), WrongState)
