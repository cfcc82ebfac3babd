"""The vectors, run with the engine of the service and with its plain twin; and that the runner hides nothing."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from headrace_fair_share.hdrf.model import TreeInput
from headrace_fair_share.hdrf.tree_update import TreeUpdater
from tests.conformance.__main__ import main
from tests.conformance.allocation.heartbeats import Fleet
from tests.conformance.engines import Engine, Graph, Point, Production, Twin, ViaService
from tests.conformance.pools_and_admission import GROUPS
from tests.conformance.reporting import Status
from tests.conformance.runner import cases_of, run_case
from tests.support.savings import after
from tests.support.update_result import ElementShares, UpdateResult, result_of

pytestmark = pytest.mark.usefixtures("heartbeats_compared")

VECTORS: Final = Path(__file__).parents[1] / "conformance" / "vectors"


def updates_of(case: Any) -> float:
    """The number of updates that a series takes."""
    return max(float(point["t"]) for point in case["expect"]) / float(case["given"]["dt"])


FILES: Final = ("fair_share", "own_fair_share", "fair_share_random", "piecewise_linear")
CASES: Final = (
    [
        pytest.param(suite, case, id=f"{suite}-{case.get('op', 'tree')}-{case['name']}")
        for name in FILES
        for suite, case in cases_of(VECTORS / f"{name}.json")
    ]
    + [
        pytest.param(suite, case, id=f"{case['group']}-{case['id']}")
        for name in ("pools_and_admission", "own_pools_and_admission")
        for suite, case in cases_of(VECTORS / f"{name}.json")
        if case["group"] in GROUPS
    ]
    + [
        pytest.param(suite, case, id=f"allocation-{case['name']}")
        for name in ("allocation", "own_allocation")
        for suite, case in cases_of(VECTORS / f"{name}.json")
    ]
    + [
        pytest.param(suite, case, id=f"yarn-{case['id']}")
        for name in ("yarn", "own_yarn")
        for suite, case in cases_of(VECTORS / f"{name}.json")
    ]
)


#: Hundreds of updates, one after another.
SERIES: Final = [case for case in CASES if str(case.id).startswith("integral_series")]
LONG_SERIES: Final = [case for case in SERIES if updates_of(case.values[1]) > 200]
#: Groups in which nothing is computed that the twin computes too. Those of `allocation` drive the allocator,
#: YARN's shares have no twin, and who is let in and how pools may be changed is decided without any share.
WITHOUT_TWIN: Final = {
    *("allocation", "yarn"),
    *("admission", "move", "lightweight", "ephemeral", "multi_tree", "config", "transfer"),
}
COMPUTED: Final = [
    case for case in CASES if case not in LONG_SERIES and str(case.id).partition("-")[0] not in WITHOUT_TWIN
]


@pytest.mark.parametrize(("suite", "case"), [case for case in CASES if case not in LONG_SERIES])
def test_the_engine_agrees_with_the_vectors(suite: str, case: dict[str, Any]) -> None:
    outcome = run_case(suite, case, Production())

    assert outcome.status is Status.PASSED, outcome.detail


class Resident(Production):
    """The engine as the service keeps it: an update works out again only what has changed since the one before."""

    def __init__(self) -> None:
        self._updater = TreeUpdater()

    def update(self, tree: TreeInput, *, dt_us: int | None = None, fast_fifo: bool = False) -> UpdateResult:
        return result_of(self._updater.update(after(tree, dt_us)))


@pytest.mark.parametrize(
    ("suite", "case"),
    [pytest.param(*case.values, id=case.id, marks=pytest.mark.long if case in LONG_SERIES else ()) for case in SERIES],
)
def test_the_resident_engine_agrees_with_the_vectors(suite: str, case: dict[str, Any]) -> None:
    outcome = run_case(suite, case, Resident())

    assert outcome.status is Status.PASSED, outcome.detail


@pytest.mark.long
@pytest.mark.parametrize(("suite", "case"), LONG_SERIES)
@pytest.mark.parametrize("engine", [Production, Twin])
def test_an_engine_that_begins_each_update_afresh_agrees_with_the_long_series(
    engine: type[Engine], suite: str, case: dict[str, Any]
) -> None:
    outcome = run_case(suite, case, engine())

    assert outcome.status is Status.PASSED, outcome.detail
    assert [each for each in outcome.comparisons if each.exact is False] == []


@pytest.mark.parametrize(("suite", "case"), [case for case in CASES if case.values[0] == "fair_share"])
def test_the_engine_agrees_when_it_is_told_and_read_by_messages(suite: str, case: dict[str, Any]) -> None:
    """Some are lost and some come twice, which changes nothing."""
    outcome = run_case(suite, case, ViaService())

    assert outcome.status is Status.PASSED, outcome.detail


@pytest.mark.parametrize(("suite", "case"), COMPUTED)
def test_the_twin_agrees_with_the_vectors(suite: str, case: dict[str, Any]) -> None:
    """To the bit where a case asks for that."""
    outcome = run_case(suite, case, Twin())

    assert outcome.status is Status.PASSED, outcome.detail
    assert [each for each in outcome.comparisons if each.exact is False] == []


def nudged(shares: ElementShares) -> ElementShares:
    """All shares off by a millionth."""
    changes: dict[str, Any] = {}
    for field in msgspec.structs.fields(shares):
        value = getattr(shares, field.name)
        if isinstance(value, tuple):
            changes[field.name] = tuple(part + 1e-6 for part in value)
    return msgspec.structs.replace(shares, **changes)


class Nudged(Production):
    """An engine that is nearly right."""

    def update(self, tree: TreeInput, *, dt_us: int | None = None, fast_fifo: bool = False) -> UpdateResult:
        result = super().update(tree, dt_us=dt_us, fast_fifo=fast_fifo)
        return msgspec.structs.replace(
            result,
            root=nudged(result.root),
            pools={name: nudged(shares) for name, shares in result.pools.items()},
            operations={name: nudged(shares) for name, shares in result.operations.items()},
        )


def test_an_engine_that_is_off_by_a_millionth_fails_cases_of_integral_shares() -> None:
    cases = list(cases_of(VECTORS / "pools_and_admission.json"))
    wrongly_passed = [
        case["id"]
        for suite, case in cases
        if case["group"] == "integral_share" and run_case(suite, case, Nudged()).status is not Status.FAILED
    ]

    assert wrongly_passed == []


@pytest.mark.parametrize(
    "case",
    [
        {"group": "integral_share", "given": {}, "expect": {}},
        {"id": "x", "given": {}, "expect": {}},
        {"id": "x", "group": "integral_share", "given": {}, "expect": {}, "surprise": 1},
        {"id": "x", "group": "integral_fields", "given": {"surprise": 1}, "expect": {}},
        {"id": "x", "group": "integral_housekeeping", "given": {"surprise": 1}, "expect": {}},
    ],
)
def test_a_case_of_pools_that_cannot_be_read_is_an_error_of_the_runner(case: dict[str, Any]) -> None:
    assert run_case("pools_and_admission", case, Production()).broken


def case_of_heartbeats(event: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """One operation on one node, an update, and then the event."""
    case = {
        "name": "one",
        "nodes": [{"name": "n", "limits": {"cpu": 4, "user_slots": 4}}],
        "operations": [{"name": "x", "parent": "<root>", "job": {"cpu": 1, "user_slots": 1}, "pending": 1}],
        "events": [{"type": "fair_share_update", "fair_share": {"x": 0.25}}, event],
    }
    return {**case, **changes}


HEARTBEAT: Final = {"type": "heartbeat", "node": "n"}


def test_a_case_of_heartbeats_that_can_be_read_passes() -> None:
    case = case_of_heartbeats(
        {**HEARTBEAT, "expect": {"scheduled": {"x": 1}}}, options={"enable_pool_starvation": True}
    )

    assert run_case("allocation", case, Production()).status is Status.PASSED


@pytest.mark.parametrize(
    "case",
    [
        case_of_heartbeats({"type": "tide"}),
        case_of_heartbeats({**HEARTBEAT, "surprise": 1}),
        case_of_heartbeats({"type": "set", "node_has_waiting": {"nowhere": True}}),
        case_of_heartbeats({**HEARTBEAT, "expect": {"surprise": 1}}),
        case_of_heartbeats({**HEARTBEAT, "expect": {"deactivation_reasons": {"x": ["surprise"]}}}),
        case_of_heartbeats({**HEARTBEAT, "expect": {"stages": {"surprise": {"attempts": 0}}}}),
        case_of_heartbeats({**HEARTBEAT, "expect": {"stages": {"regular_medium_priority": {"surprise": 0}}}}),
        case_of_heartbeats(HEARTBEAT, options={"surprise": 1}),
        case_of_heartbeats(HEARTBEAT, pools=[{"name": "p", "parent": "<root>", "surprise": 1}]),
        case_of_heartbeats(HEARTBEAT, nodes=[{"name": "n", "limits": {}, "surprise": 1}]),
        case_of_heartbeats(HEARTBEAT, events=[{**HEARTBEAT, "expect": {"status": {"x": "normal"}}}]),
        case_of_heartbeats(HEARTBEAT, allocations=[{"operation": "x", "node": "n", "surprise": 1}]),
    ],
)
def test_a_case_of_heartbeats_that_cannot_be_read_is_an_error_of_the_runner(case: dict[str, Any]) -> None:
    assert run_case("allocation", case, Production()).broken


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("fair_share_tree", {"apps": [{"id": "a", "queue": "root.nowhere", "runnable": True}]}),
        ("fair_share_tree", {"apps": [{"id": "a", "queue": "root", "surprise": 1}]}),
        ("fair_share_tree", {"steady": {"nowhere": [1, 1]}}),
        ("fair_share_tree", {"defaults": {"surprise": 1}}),
        ("timeline", {"engine": "neither"}),
        ("timeline", {"steps": [{"do": ["legacy_pass"]}]}),
        ("timeline", {"steps": [{"expect": {"queue_fair": {"nowhere": [1, 1]}}}]}),
        ("timeline", {"steps": [{"expect": {"surprise": {"a": 1}}}]}),
    ],
)
def test_a_case_of_yarn_that_cannot_be_read_is_an_error_of_the_runner(kind: str, changes: dict[str, Any]) -> None:
    setup = {"queues": {"children": []}, "nodes": [], "apps": []}
    base: dict[str, Any] = {"queues": {"children": []}, "cluster": [1, 1]}
    if kind == "timeline":
        base = {"engine": "new", "setup": setup, "steps": []}

    assert run_case("yarn", {"id": "x", "kind": kind, **base, **changes}, Production()).broken


def test_a_reason_without_counterpart_is_told_as_skipped() -> None:
    expect = {"deactivation_reasons": {"x": ["bad_packing"]}}
    outcome = run_case("allocation", case_of_heartbeats({**HEARTBEAT, "expect": expect}), Production())

    assert outcome.status is Status.UNSUPPORTED


def test_a_key_that_nobody_reads_is_an_error_though_its_name_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as one that is listed as known and then ignored."""
    monkeypatch.setattr(Fleet, "set_waiting", lambda *_: None)
    case = case_of_heartbeats({"type": "set", "node_has_waiting": {"n": True}})

    outcome = run_case("allocation", case, Production())

    assert outcome.broken
    assert "events.1.node_has_waiting.n" in outcome.detail


def test_a_group_that_is_not_supported_is_not_passed() -> None:
    assert run_case("pools_and_admission", {"id": "x", "group": "tides"}, Production()).status is Status.UNSUPPORTED


class Failing(Production):
    """An engine that does not come to an end."""

    def update(self, tree: TreeInput, *, dt_us: int | None = None, fast_fifo: bool = False) -> UpdateResult:
        raise ArithmeticError("out of numbers")


@pytest.mark.parametrize("name", ["fair_share", "fair_share_random"])
def test_an_engine_that_is_off_by_a_millionth_fails_every_case_that_names_shares(name: str) -> None:
    wrongly_passed = [
        case["name"]
        for suite, case in cases_of(VECTORS / f"{name}.json")
        if re.search(r'"[a-z_]+_share[a-z_]*": \{', json.dumps(case))
        and run_case(suite, case, Nudged()).status is not Status.FAILED
    ]

    assert wrongly_passed == []


def test_an_engine_that_breaks_fails_every_case() -> None:
    outcomes = [run_case(suite, case, Failing()) for suite, case in cases_of(VECTORS / "fair_share.json")]

    assert {outcome.status for outcome in outcomes} == {Status.FAILED}
    assert {outcome.broken for outcome in outcomes} == {False}


def case_of_one_operation(**changes: Any) -> dict[str, Any]:
    """One operation that wants half the cluster."""
    case = {
        "name": "half",
        "total": {"cpu": 10},
        "pools": [{"name": "a", "parent": "<root>"}],
        "operations": [{"name": "x", "parent": "a", "demand": {"cpu": 5}}],
        "expect": {"x": {"fair_share": {"cpu": 0.5}}},
        "tolerance": 1e-9,
    }
    return {**case, **changes}


def file_of(folder: Path, *cases: dict[str, Any], suite: str = "fair_share") -> str:
    path = folder / f"{suite}.json"
    path.write_text(json.dumps({"suite": suite, "cases": cases}), encoding="utf-8")
    return str(path)


def run(*arguments: str) -> int:
    return main(list(arguments))


def test_the_twin_can_be_run_instead(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Production, "update", Failing.update)

        assert run(file_of(tmp_path, case_of_one_operation())) == 1
        assert run(file_of(tmp_path, case_of_one_operation()), "--engine", "twin") == 0
        assert run(file_of(tmp_path, case_of_one_operation()), "--engine", "production") == 1


def test_the_last_line_counts_the_cases(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = case_of_one_operation(name="wrong", expect={"x": {"fair_share": {"cpu": 0.6}}})

    assert run(file_of(tmp_path, case_of_one_operation(), wrong)) == 1

    first, last = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"wrong: failed: x fair_share: expected \(.*0\.6.*\), got \(.*0\.5.*\)", first)
    assert last == "1 passed, 1 failed"


def test_what_passes_ends_with_success(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(file_of(tmp_path, case_of_one_operation())) == 0
    assert capsys.readouterr().out == "1 passed, 0 failed\n"


def test_a_suite_that_is_not_supported_is_not_passed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(file_of(tmp_path, {"name": "a"}, {"name": "b"}, suite="another")) == 1

    assert capsys.readouterr().out.splitlines()[-1] == "0 passed, 0 failed, 2 skipped"


@pytest.mark.parametrize(
    "changes",
    [
        {"surprise": 1},
        {"options": {"surprise": True}},
        {"total": {"tape": 1}},
        {"pools": [{"name": "a", "parent": "<root>", "surprise": 1}]},
        {"pools": [{"name": "a", "parent": "<root>", "integral": {"surprise": 1}}]},
        {"operations": [{"name": "x", "parent": "a", "demand": {}, "surprise": 1}]},
        {"steps": [{"surprise": 1}]},
        {"steps": [{"change": [{"name": "x", "surprise": 1}]}]},
        {"steps": [{"change": [{"name": "nobody", "weight": 1}]}]},
        {"expect": {"x": {"surprise": 1}}},
        {"expect": {"x": {"fair_share": {"tape": 1}}}},
        {"expect": {"nobody": {"fair_share": {}}}},
        {"expect": {"errors": {"surprise": []}}},
        {"expect": {"errors": {"present": ["surprise"]}}},
    ],
)
def test_an_unknown_key_is_an_error_of_the_runner(
    changes: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(file_of(tmp_path, case_of_one_operation(**changes))) == 2

    assert "error of the runner" in capsys.readouterr().out


def test_a_file_that_is_none_is_an_error_of_the_runner(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broken = tmp_path / "broken.json"
    broken.write_text("[]", encoding="utf-8")

    assert run(str(broken)) == 2
    assert "is no file of cases" in capsys.readouterr().err


def test_json_is_one_object_per_case(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(file_of(tmp_path, case_of_one_operation()), file_of(tmp_path, {"name": "b"}, suite="x"), "--json")

    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(line["suite"], line["name"], line["status"]) for line in lines] == [
        ("fair_share", "half", "passed"),
        ("x", "b", "unsupported"),
    ]
    assert all(set(line) == {"suite", "name", "status", "detail"} for line in lines)


def test_one_case_is_shown_with_what_was_expected_and_what_came(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = file_of(tmp_path, case_of_one_operation(), case_of_one_operation(name="other"))

    assert run(path, "--only", "half") == 0

    out = capsys.readouterr().out
    assert "half: passed" in out
    assert "expected (0.0, 0.5, 0.0, 0.0, 0.0)" in out
    assert "actual   (0.0, 0.5, 0.0, 0.0, 0.0)" in out
    assert out.splitlines()[-1] == "1 passed, 0 failed"


def test_a_case_that_is_not_there_is_not_passed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(file_of(tmp_path, case_of_one_operation()), "--only", "full") == 2
    assert "no case named full" in capsys.readouterr().err


class Bent(Production):
    """A library of functions that takes jumps from the other side."""

    def operate(self, op: str, functions: Sequence[Sequence[Point]], arguments: dict[str, float]) -> Graph:
        graph = super().operate(op, functions, arguments)

        class Turned:
            def points(self) -> list[Point]:
                return graph.points()

            def limits(self, x: float) -> tuple[float, float]:
                left, right = graph.limits(x)
                return right, left

        return Turned()


def test_a_library_that_takes_jumps_from_the_other_side_fails_the_cases_with_jumps() -> None:
    failed = {
        (case["op"], case["name"])
        for suite, case in cases_of(VECTORS / "piecewise_linear.json")
        if run_case(suite, case, Bent()).status is Status.FAILED
    }

    assert {("sum", "with-jump"), ("min", "jump-seen"), ("compose", "both"), ("identity", "segment-vertical")} <= failed


def test_the_service_is_no_twin(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main([str(VECTORS / "fair_share.json"), "--via", "service", "--engine", "twin"])

    assert stop.value.code == 2
    assert "the twin is no service" in capsys.readouterr().err
