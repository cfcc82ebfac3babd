"""Quotas of bytes: live operations of each user and of all, finished operations, and a log from before there were quotas."""

from __future__ import annotations

import gc
import tracemalloc
from typing import Any, Final

import msgspec
import pytest
from msgspec import inspect

from headrace.ids import AllocationId, NodeName, OperationId, PoolName, TreeName
from headrace.resources import Resources
from headrace.wire.heartbeat import JobEnd, JobResult
from headrace.wire.log import JobsEnded, LoggedEnd, OperationStarted, OperationStateChanged, StateCause
from headrace.wire.operation_spec import Upstream
from headrace.wire.operations import OperationSpec, OperationState, PerTree, StartAnswer
from headrace.wire.refusals import BadRequest, OverLimit
from headrace.wire.tasks import Task
from headrace_admission.engine import AdmissionEngine
from headrace_admission.state.ledger import KEPT_STDERR_TAILS, Ledger
from headrace_admission.state.operation import OperationRecord
from headrace_admission.state.rules import GlobalRules
from headrace_admission.state.spec_size import spec_bytes, without_command
from headrace_admission.state.state import Page, Restored
from tests.support.clocks import at
from tests.unit.admission.desk import Desk, oid

_KIB: Final = 1024
_LARGE: Final = {"WORDS": "x" * 100 * _KIB}


def a_desk(most: int, most_of_a_user: int) -> Desk:
    rules = GlobalRules(most_operation_bytes=most * _KIB, most_operation_bytes_of_a_user=most_of_a_user * _KIB)
    return Desk({"p": {}}, everywhere=rules)


def test_a_user_at_their_quota_of_bytes_is_refused_until_an_operation_ends_and_others_are_not() -> None:
    desk = a_desk(most=1_000, most_of_a_user=250)
    desk.started("a", "b", pool="p", environment=_LARGE)

    refused = desk.start("c", "p", environment=_LARGE)

    assert isinstance(refused, OverLimit)
    used = desk.state.bytes.live_of_user["anna"]
    more = spec_bytes(OperationSpec(PoolName("p"), ["true"], environment=_LARGE))
    assert refused.text() == (
        f"too many bytes: live operations of anna take {used} bytes of memory, and this operation would take {more} more; "
        "most_operation_bytes_of_a_user is 256000. Wait until operations end, abort operations, or send large data as files "
        "(--upload) instead of arguments"
    )
    assert isinstance(desk.start("d", "p", user="ben", environment=_LARGE), StartAnswer)
    # A small operation still fits, and a start that was recorded is answered again.
    assert isinstance(desk.start("e", "p"), StartAnswer)
    assert isinstance(desk.start("a", "p", environment=_LARGE), StartAnswer)
    desk.finish("a")
    assert isinstance(desk.start("c", "p", environment=_LARGE), StartAnswer)
    assert desk.engine.check() == []


def test_the_quota_of_all_users_refuses_when_no_user_is_at_their_own() -> None:
    desk = a_desk(most=250, most_of_a_user=1_000)
    for name, user in (("a", "anna"), ("b", "ben")):
        assert isinstance(desk.start(name, "p", user=user, environment=_LARGE), StartAnswer)

    refused = desk.start("c", "p", user="cora", environment=_LARGE)

    assert isinstance(refused, OverLimit)
    assert "live operations of all users take" in refused.text()
    assert "most_operation_bytes is 256000" in refused.text()


@pytest.mark.long
@pytest.mark.parametrize(
    "spec",
    [
        {"argv": ["x" * 120_000]},
        {"argv": ["true"] + [""] * 9_999},
        {"argv": ["abcd"] * 9_999},
        {"environment": {f"{number:x}": "" for number in range(20_000)}},
        {"environment": {f"{number:x}": f"{number:04x}" for number in range(10_000)}},
        {"argv": ["a" * 120_000 + "😀"]},
        {"argv": ["true", "a" * 60_000, "ü" + "b" * 30_000]},
        {"tentative_pool_trees": ["t" * 2_000 + str(number) for number in range(60)]},
        {"pool_trees": [str(number) for number in range(60)]},
        {"scheduling_options_per_pool_tree": {f"{number:x}": {"pool": f"p{number}"} for number in range(5_000)}},
        {"tasks": [{"name": f"t{n}", "argv": [""] * 1_000} for n in range(32)]},
        {
            "tasks": [
                {"name": f"t{n}", "argv": ["x"], "environment": {str(m): "" for m in range(500)}} for n in range(32)
            ]
        },
    ],
    ids=[
        "one argument",
        "empty",
        "short",
        "tiny entries",
        "short entries",
        "emoji",
        "umlaut",
        "trees",
        "short trees",
        "options",
        "tasks",
        "variables of tasks",
    ],
)
def test_an_operation_counts_at_least_as_much_as_its_spec_takes_in_memory(spec: dict[str, object]) -> None:
    """An environment of 20,000 tiny entries has 116 kB in a message and takes 1.5 MB in memory."""
    encoded = msgspec.msgpack.encode({"pool": "p", "argv": ["true"], **spec})
    # Memory that Python keeps from the first time is no part of it.
    msgspec.msgpack.decode(encoded, type=OperationSpec)
    gc.collect()
    tracemalloc.start()
    try:
        read = msgspec.msgpack.decode(encoded, type=OperationSpec)
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert taken <= spec_bytes(read) + 2 * _KIB
    assert spec_bytes(read) <= 10 * taken


def test_every_field_of_any_length_is_counted() -> None:
    kinds = (inspect.StrType, inspect.ListType, inspect.DictType)
    fields = {each.name: each.type for each in inspect.type_info(OperationSpec).fields}  # type: ignore[attr-defined]
    long = {name for name, kind in fields.items() if isinstance(getattr(kind, "type", kind), kinds)}
    # The names of these two are bounded, and so are the texts of the others.
    bounded = {"pool", "tree", "type", "trace"}
    small = spec_bytes(OperationSpec(PoolName("p"), ["true"]))
    larger: dict[str, Any] = {
        "argv": ["true", "x"],
        "environment": {"x": ""},
        "after": [Upstream(OperationId("x"))],
        "lines": ["x"],
        "tasks": [Task("x", ["x"])],
        "scheduling_options_per_pool_tree": {"x": PerTree()},
    }
    grown = {
        name
        for name in long
        if spec_bytes(OperationSpec(**{"pool": "p", "argv": ["true"], name: larger.get(name, "x")})) > small
    }

    assert long - grown == bounded


@pytest.mark.parametrize(
    ("named", "place"),
    [
        ({"tentative_pool_trees": ["t" * 120_000]}, "tree name"),
        ({"pool_trees": ["p", "a.b"]}, "tree name"),
        ({"scheduling_options_per_pool_tree": {"no tree": PerTree()}}, "tree name"),
        ({"scheduling_options_per_pool_tree": {"gpu": PerTree(PoolName("p" * 101))}}, "pool name"),
    ],
)
def test_names_of_trees_that_may_be_missing_are_names_of_trees_all_the_same(named: dict[str, Any], place: str) -> None:
    """Trees that do not exist were left out silently, and their names kept: 1,500 starts took 190 MB of two services."""
    desk = a_desk(most=1_000, most_of_a_user=1_000)
    named = {
        "pool_trees": ["default"],
        "tentative_pool_trees": ["gpu"],
        "ignore_missing_tentative_trees": True,
        **named,
    }
    refused = desk.start("a", "p", **named)

    assert isinstance(refused, BadRequest)
    assert refused.place == place
    assert len(refused.value) < 1_000


def test_a_quota_counts_the_trees_that_an_operation_names() -> None:
    names = [TreeName("t" * 60 + str(number)) for number in range(64)]
    several: dict[str, Any] = {"pool_trees": ["default"], "ignore_missing_tentative_trees": True}
    desk = a_desk(most=100, most_of_a_user=100)
    answers = [desk.start(f"a{number}", "p", tentative_pool_trees=names, **several) for number in range(30)]

    assert sum(isinstance(answer, StartAnswer) for answer in answers) == 10
    assert isinstance(answers[-1], OverLimit)
    assert desk.engine.check() == []


def test_the_reason_of_an_end_is_counted_with_its_operation() -> None:
    desk = a_desk(most=1_000, most_of_a_user=1_000)
    sizes = []
    for reason in ("", "x" * 4_000):
        before = desk.state.bytes.finished + desk.state.bytes.live
        desk.started(f"b{len(reason)}", pool="p")
        desk.abort(f"b{len(reason)}", reason=reason)
        sizes.append(desk.state.bytes.finished + desk.state.bytes.live - before)

    assert sizes[1] - sizes[0] >= 4_000
    assert desk.engine.check() == []


def test_finished_operations_are_kept_within_bytes_and_the_oldest_go_first() -> None:
    engine = AdmissionEngine(keep_finished_bytes=350 * _KIB)
    for number in range(6):
        engine.on_entry([a_start(f"a{number}", _LARGE)], number + 1, 1, at(0, 0))
    for number in range(6):
        end = JobEnd(oid(f"a{number}"), 0, 1, AllocationId("1-1"), JobResult.COMPLETED)
        engine.state.apply(jobs_ended(end))
        engine.state.apply(completed(f"a{number}"))

    assert list(engine.state.finished) == [oid("a3"), oid("a4"), oid("a5")]
    assert list(engine.state.operations) == list(engine.state.finished)
    assert engine.state.bytes.live == 0
    assert engine.state.bytes.finished <= 350 * _KIB
    assert engine.check() == []


def test_the_newest_finished_operation_is_kept_though_it_is_larger_than_all_may_be() -> None:
    engine = AdmissionEngine(keep_finished_bytes=1_000)
    engine.on_entry([a_start("a", _LARGE), completed("a")], 1, 1, at(0, 0))

    assert list(engine.state.finished) == [oid("a")]


def test_large_operations_of_one_user_make_admission_forget_none_of_another_user() -> None:
    engine = AdmissionEngine(keep_finished_bytes=350 * _KIB)
    engine.on_entry([a_start("thesis", _LARGE, user="anna"), completed("thesis")], 1, 1, at(0, 0))
    for number in range(20):
        name = f"b{number}"
        engine.on_entry([a_start(name, _LARGE, user="ben"), completed(name)], number + 2, 1, at(0, 0))

    assert list(engine.state.operations) == [oid("thesis"), oid("b18"), oid("b19")]
    assert engine.state.bytes.finished <= 350 * _KIB
    assert engine.check() == []


def test_many_operations_of_one_user_make_admission_forget_none_of_another_user() -> None:
    engine = AdmissionEngine(keep_finished=3)
    for number, user in enumerate(["anna", *["ben"] * 20, "cleo"]):
        engine.on_entry([a_start(f"a{number}", {}, user=user), completed(f"a{number}")], number + 1, 1, at(0, 0))

    assert list(engine.state.operations) == [oid("a0"), oid("a20"), oid("a21")]


def test_a_single_operation_that_ended_last_stays_though_its_user_has_the_largest_share() -> None:
    engine = AdmissionEngine(keep_finished_bytes=150 * _KIB)
    for number, user in enumerate(["anna", "anna", "ben"]):
        environment = {"X": "x" * (200 * _KIB if user == "ben" else 10)}
        start = a_start(f"a{number}", environment, user=user)
        engine.on_entry([start, completed(f"a{number}")], number + 1, 1, at(0, 0))

    assert list(engine.state.operations) == [oid("a2")]


def test_an_id_that_is_used_again_begins_anew_though_the_earlier_operation_is_still_known() -> None:
    """The entries were written by an admission that kept fewer operations."""
    engine = AdmissionEngine(keep_finished=10)
    engine.on_entry([a_start("a", {}, user="anna"), completed("a")], 1, 1, at(0, 0))
    engine.on_entry([a_start("a", {}, user="ben")], 2, 1, at(0, 0))

    assert [(each.id, each.user) for each in engine.state.live.values()] == [(oid("a"), "ben")]
    engine.on_entry([completed("a")], 3, 1, at(0, 0))
    assert list(engine.state.finished) == [oid("a")]
    assert engine.check() == []


def test_the_log_and_a_checkpoint_give_the_same_bytes() -> None:
    desk = a_desk(most=10_000, most_of_a_user=10_000)
    desk.started("a", "b", "c", pool="p", environment=_LARGE, job_count=1)
    desk.end_run("a", JobResult.FAILED, stderr_tail="e" * 2_000)
    desk.finish("b")
    desk.abort("c")
    restored = AdmissionEngine(desk.everywhere)
    restored.on_restored(Page([decoded(each.to_record()) for each in desk.state.operations.values()]), at(0, 0))
    restored.on_restored(Restored(len(desk.entries)), at(0, 0))

    for state in (desk.replayed().state, restored.state):
        assert state.bytes.live_of_user == desk.state.bytes.live_of_user
        assert (state.bytes.live, state.bytes.finished) == (desk.state.bytes.live, desk.state.bytes.finished)
    assert desk.state.bytes.finished > 100 * _KIB
    assert restored.check() == []


def test_an_operation_grows_with_its_results_and_with_the_failures_that_are_kept() -> None:
    ledger = Ledger(100_000)
    sizes = [ledger.size_bytes]
    ledger.draw(8_192, 1)
    sizes.append(ledger.size_bytes)
    for index in range(20):
        end = JobEnd(OperationId("operation-1"), index, 1, AllocationId("1"), JobResult.FAILED, stderr_tail="e" * 4_000)
        ledger.record(end, NodeName("n1"), None)
        sizes.append(ledger.size_bytes)

    assert sizes[0] < 1_000
    assert sizes[1] - sizes[0] == 8_192 * 3 + 8_192 // 4
    # People are shown the last words of the last three failures, so no more of them are kept.
    assert [bool(end.stderr_tail) for end in ledger.failures] == [False] * 7 + [True] * KEPT_STDERR_TAILS
    assert sizes[-1] == sizes[-2] < sizes[1] + 4_000 * KEPT_STDERR_TAILS + 16_000


def test_a_log_from_before_there_were_quotas_is_read_within_a_bound_and_what_is_beyond_is_aborted() -> None:
    """Once 16,214 acknowledged starts of 120 kB each made admission end at each start while it read its log."""
    # The text is shared by all of them here, so the test takes no memory.
    command = ["run", "x" * 120_000]
    rules = GlobalRules()
    engine = AdmissionEngine(rules)
    for number in range(16_214):
        event = a_start(f"{number:05}", argv=command)
        engine.on_entry([event], number + 1, 1, at(0, 0))

    small = spec_bytes(without_command(a_start("small").spec))
    assert engine.state.bytes.live <= rules.largest_replayed_bytes + 16_214 * small
    dropped = list(engine.state.without_command)
    assert len(dropped) > 7_000
    assert engine.state.operations[dropped[0]].spec.argv == ["run"]

    events = engine.on_commands_dropped(at(0, 5)).effects

    assert len(events) == len(dropped)
    assert {engine.state.operations[name].state for name in dropped} == {OperationState.ABORTING}
    assert (
        "admission did not load the command of the operation from the log" in engine.state.operations[dropped[0]].reason
    )
    assert engine.state.operations[oid("00000")].state is OperationState.RUNNING
    assert not engine.on_commands_dropped(at(0, 6)).effects


def jobs_ended(end: JobEnd) -> JobsEnded:
    return JobsEnded(end.operation, [LoggedEnd(end, NodeName("n1"))], at_ms=2)


def completed(name: str) -> OperationStateChanged:
    return OperationStateChanged(oid(name), OperationState.COMPLETED, StateCause.JOBS_DONE, "", at_ms=2)


def decoded(record: OperationRecord) -> OperationRecord:
    return msgspec.msgpack.decode(msgspec.msgpack.encode(record), type=OperationRecord)


def a_start(
    name: str, environment: dict[str, str] | None = None, argv: list[str] | None = None, user: str = "anna"
) -> OperationStarted:
    spec = OperationSpec(
        PoolName("p"), argv or ["true"], resources=Resources(user_slots=1, cpu=100), environment=environment or {}
    )
    return OperationStarted(oid(name), user, spec, OperationState.RUNNING, False, 1, 1, at_ms=1)
