"""The stream of what happens: nothing twice, each gap told, and only what somebody wants."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC
from typing import Any

import msgspec

from headrace.client.following import DecisionTail, HappeningFilter, LogTail, StarvationTail
from headrace.client.happenings import plain_happening
from headrace.client.preemptions import preemption_words
from headrace.ids import AllocationId, NodeName, OperationId, PoolName, TreeName
from headrace.wire.happenings import (
    AllocationPreempted,
    AllocationStarted,
    Decisions,
    Happening,
    JobEnded,
    Missed,
    NodeSuspected,
    OperationChanged,
    OperationStep,
    Recorded,
    StarvationChanged,
    recorded,
)
from headrace.wire.heartbeat import JobResult, JobSlot
from headrace.wire.log import Event, OperationSuspended, Published
from headrace.wire.operations import OperationState
from headrace.wire.preemption import PreemptionReason, PreemptionRecord
from headrace.wire.snapshots import ElementKind, ShareFrame, ShareItem, SharePart, StarvationStatus
from headrace.wire.start_stages import StartStage
from headrace.wire.version import Version
from headrace_cli.commands.operations.event_lines import (
    happening_words,
    history_table,
)
from tests.unit.cli.test_render import shown

TREE = TreeName("default")
OURS, THEIRS = OperationId("ours-0001"), OperationId("theirs-0001")
STARVING, FED = StarvationStatus.STARVING, StarvationStatus.NON_STARVING


def entry(sequence: int, *, events: int = 1, announced: int = 0) -> Recorded:
    suspended: list[Event] = [OperationSuspended(OURS, suspended=True, at_ms=sequence)] * events
    return recorded(Published(TREE, 1, sequence, sequence - 1 if events else sequence, suspended, announced))


def of_log(*told: Recorded) -> list[int | Missed]:
    tail = LogTail()
    return [each if isinstance(each, Missed) else each.at_ms for one in told for each in tail.new_happenings(one, 7)]  # type: ignore[union-attr]


def test_entries_that_did_not_come_are_counted_when_the_next_one_comes() -> None:
    assert of_log(entry(5), entry(6), entry(9), entry(10)) == [5, 6, Missed(7, "admission", TREE, 2), 9, 10]


def test_a_position_tells_of_the_last_entries_that_did_not_come_and_else_of_nothing() -> None:
    assert of_log(entry(5), entry(5, events=0)) == [5]
    assert of_log(entry(5), entry(8, events=0), entry(9)) == [5, Missed(7, "admission", TREE, 3), 9]


def test_an_entry_told_twice_and_the_one_that_announces_a_term_are_no_news() -> None:
    assert of_log(entry(5), entry(5), entry(7, announced=6), entry(7, events=0, announced=6)) == [5, 7]


def made(term: int, first: int, count: int) -> Decisions:
    decision = AllocationStarted(0, TREE, OURS, NodeName("n"), AllocationId("a"), [JobSlot(0)])
    return Decisions(TREE, term, first, [decision] * count)


def of_allocator(*told: Decisions) -> list[int]:
    """How many were missed (negative) and told."""
    tail = DecisionTail()
    found: list[int] = []
    for one in told:
        happenings = list(tail.new_happenings(one, 7))
        missed = [-(each.count or 0) for each in happenings if isinstance(each, Missed)]
        found += [*missed, len(happenings) - len(missed)]
    return found


def test_decisions_that_were_dropped_are_counted_and_a_later_term_counts_anew() -> None:
    assert of_allocator(made(1, 40, 2), made(1, 42, 1), made(1, 50, 3)) == [2, 1, -7, 3]
    assert of_allocator(made(1, 40, 2), made(2, 0, 1), made(1, 42, 1), made(2, 4, 1)) == [2, 1, 0, -3, 1]


def an_element(status: StarvationStatus, name: str = "p") -> ShareItem:
    return ShareItem(ElementKind.POOL, name, PoolName("<Root>"), starvation_status=status)


def part(epoch: int, *items: ShareItem, base: int | None = -1, number: int = 0, of: int = 1) -> SharePart:
    built_on = Version(1, epoch - 1) if base == -1 else base if base is None else Version(1, base)
    return SharePart(TREE, Version(1, epoch), built_on, number, of, ShareFrame(at_ms=epoch), list(items))


def of_shares(known: Sequence[ShareItem], *parts: SharePart) -> list[Any]:
    tail = StarvationTail(TREE)
    tail.know(known)
    told: list[Happening] = [each for one in parts for each in tail.new_happenings(one, 7)]
    return [(each.at_ms, each.status) if isinstance(each, StarvationChanged) else "gap" for each in told]


def test_what_starves_already_is_told_only_when_it_changes() -> None:
    parts = part(1, an_element(STARVING)), part(2, an_element(STARVING)), part(3, an_element(FED))

    assert of_shares([an_element(STARVING)], *parts) == [(3, FED)]
    assert of_shares([], *parts) == [(1, STARVING), (3, FED)]


def test_parts_that_did_not_come_are_told_and_a_whole_is_no_gap() -> None:
    assert of_shares([], part(1), part(3, an_element(STARVING))) == ["gap", (3, STARVING)]
    assert of_shares([], part(1), part(2, number=0, of=3), part(2, number=2, of=3)) == ["gap"]
    assert of_shares([], part(1), part(2, number=0, of=2), part(2, number=1, of=2), part(9, base=None)) == []


def a_step(name: OperationId, pool: str = "", cause: str = "started") -> OperationStep:
    return OperationStep(0, name, OperationState.RUNNING, cause, pool=PoolName(pool))


def an_end(name: OperationId) -> JobEnded:
    return JobEnded(0, name, JobSlot(0), NodeName("n"), AllocationId("a"), 0, JobResult.COMPLETED)


def preempted(name: OperationId, pool: str, *, observed: bool = False) -> AllocationPreempted:
    record = PreemptionRecord(PreemptionReason.PREEMPTION, OperationId("needs-it"), observed=observed)
    return AllocationPreempted(TREE, name, PoolName(pool), NodeName("n"), AllocationId("a"), JobSlot(3, 2), record)


def test_one_operation_is_followed_alone_and_gaps_always() -> None:
    wanted = HappeningFilter(operation=OURS)

    assert [wanted.wants(an_end(name)) for name in (OURS, THEIRS)] == [True, False]
    assert [wanted.wants(preempted(name, "p")) for name in (OURS, THEIRS)] == [True, False]
    assert HappeningFilter(operation="needs-it").wants(preempted(THEIRS, "p"))  # who loses a place for it
    assert [
        wanted.wants(StarvationChanged(0, TREE, ElementKind.OPERATION, name, PoolName("p"), FED))
        for name in (OURS, THEIRS)
    ] == [
        True,
        False,
    ]
    assert wanted.wants(Missed(0, "admission", TREE))


def test_a_pool_is_followed_with_the_operations_that_are_in_it_come_into_it_and_leave_it() -> None:
    wanted = HappeningFilter(pool="p", members=[OURS])

    assert wanted.wants(an_end(OURS))
    assert not wanted.wants(an_end(THEIRS))
    assert wanted.wants(a_step(OperationId("new-0001"), "p"))
    assert wanted.wants(an_end(OperationId("new-0001")))
    assert wanted.wants(OperationChanged(0, OURS, pool=PoolName("q")))
    assert not wanted.wants(an_end(OURS))
    assert wanted.wants(preempted(THEIRS, "p"))
    assert wanted.wants(StarvationChanged(0, TREE, ElementKind.POOL, "p", PoolName("<Root>"), STARVING))
    assert not wanted.wants(StarvationChanged(0, TREE, ElementKind.POOL, "q", PoolName("<Root>"), STARVING))


def test_the_history_has_a_row_for_each_run_with_where_and_how_long_it_ran() -> None:
    record = PreemptionRecord(
        PreemptionReason.PREEMPTION,
        OperationId("needs-it"),
        timeout_ms=10_000,
        group=2,
        threshold=1.0,
        fair_share=(0.0, 0.5, 0.0, 0.0, 0.0),
        share_before=(0.0, 1.0, 0.0, 0.0, 0.0),
        share_after=(0.0, 0.75, 0.0, 0.0, 0.0),
    )
    ended = JobEnded(
        9_000,
        OURS,
        JobSlot(3, 2),
        NodeName("n"),
        AllocationId("a"),
        1_000,
        JobResult.ABORTED,
        None,
        9,
        "x",
        True,
        record,
        cpu_ms=1_500,
        max_rss_bytes=3 * 2**30,
    )
    runs = AllocationStarted(9_000, TREE, OURS, NodeName("m"), AllocationId("b"), [JobSlot(4)])

    lines = shown(history_table([a_step(OURS, "p"), ended, runs]), 300)

    assert "started by  in pool p: running" in lines[1]
    assert (
        " 3.2  n      8s  1s cpu, 3 GiB  aborted, signal 9; it is retried; preempted for needs-it, which starves; "
        in lines[2]
    )
    assert lines[2].endswith(
        "cpu 100% → 75% of the cluster, owed 50%; preemptible: above 1 × fair share; 10s from the signal to the kill; "
        "started by: –"
    )
    assert lines[3].split(maxsplit=4)[2:] == ["4", "m", "runs; started by: –"]

    exempt = msgspec.structs.replace(record, exempt_time_ms=300_000, ran_ms=360_000)
    ended_later = shown(history_table([msgspec.structs.replace(ended, preemption=exempt)]), 300)
    assert "; its job had run for 6m, preemption_exempt_time 5m; 10s from" in ended_later[1]
    unrun = msgspec.structs.replace(exempt, ran_ms=0)
    assert "; its job had not begun, preemption_exempt_time 5m; " in preemption_words(unrun)

    unbegun = shown(history_table([msgspec.structs.replace(ended, started_at_ms=0, signal=None, cpu_ms=None)]), 300)
    assert " 3.2  n             –  aborted, before it began; it is retried; preempted for needs-it" in unbegun[1]


def test_each_object_says_what_happened_and_when() -> None:
    for happening in (preempted(OURS, "p"), an_end(OURS), a_step(OURS)):
        line = plain_happening(happening)
        assert (line["happened"], line["at_ms"]) == (happening.__struct_config__.tag, 0)


def test_each_line_says_on_its_own_what_happened_to_whom() -> None:
    assert happening_words(preempted(OURS, "p")).endswith(
        "ours-0001  job 3.2 on n preempted for needs-it, which starves; owed 0%; preemptible; 0ms from the signal to the kill"
    )
    over = preempted(OURS, "p")
    over = msgspec.structs.replace(over, record=PreemptionRecord(PreemptionReason.RESOURCE_LIMITS_VIOLATED))
    assert "preempted since its operation or a pool above it is over its resource_limits; " in happening_words(over)
    assert "job 3.2 on n would be preempted for needs-it" in happening_words(preempted(OURS, "p", observed=True))
    assert happening_words(Missed(0, "admission", TREE, 3)).endswith(
        "missed: 3 log entries did not arrive; `headrace op history` shows what the log has"
    )
    assert happening_words(an_end(OURS)).endswith("ours-0001  job 0 on n: completed")


def test_a_start_says_its_stage_what_was_taken_for_it_and_the_shares_at_that_moment() -> None:
    bare = AllocationStarted(9_000, TREE, OURS, NodeName("m"), AllocationId("b"), [JobSlot(4)])
    told = msgspec.structs.replace(
        bare,
        stage=StartStage.PREEMPTIVE_AGGRESSIVE,
        share_before=(0.1, 0.125, 0.0, 0.0, 0.0),
        fair_share=(0.2, 0.5, 0.0, 0.0, 0.0),
        places_taken=2,
    )

    assert happening_words(told).endswith(
        "  ours-0001  starts job 4 on m; aggressive preemptive stage, 2 allocations preempted for it; "
        "cpu 12.5% of the cluster before, owed 50%"
    )
    assert happening_words(bare).endswith("  starts job 4 on m")
    line = plain_happening(told)
    assert (line["stage"], line["places_taken"]) == ("preemptive_aggressive", 2)
    shares = line["share_before"], line["fair_share"]
    assert [share["cpu"] for share in shares if isinstance(share, dict)] == [0.125, 0.5]
    runs = shown(history_table([msgspec.structs.replace(bare, stage=StartStage.REGULAR_MEDIUM_PRIORITY)]), 300)
    assert runs[1].endswith("runs; started by: regular stage, medium priority")


def test_the_history_says_of_each_run_how_it_started_whether_it_runs_or_ended() -> None:
    started = {
        "stage": StartStage.PREEMPTIVE_NORMAL,
        "share_before": (0.1, 0.125, 0.0, 0.0, 0.0),
        "fair_share": (0.2, 0.5, 0.0, 0.0, 0.0),
        "places_taken": 1,
    }
    ended = msgspec.structs.replace(an_end(OURS), **started)
    runs = AllocationStarted(9_000, TREE, OURS, NodeName("m"), AllocationId("b"), [JobSlot(4)], **started)  # type: ignore[arg-type]

    lines = shown(history_table([ended, runs, an_end(OURS)]), 300)[1:]

    words = "; started by: normal preemptive stage, 1 allocation preempted for it; cpu 12.5% of the cluster before, owed 50%"
    assert [line.split("  ")[-1] for line in lines] == [
        f"completed{words}",
        f"runs{words}",
        "completed; started by: –",
    ]
    told, unknown = plain_happening(ended), plain_happening(an_end(OURS))
    assert (told["stage"], told["places_taken"]) == ("preemptive_normal", 1)
    assert [told[key] == plain_happening(runs)[key] for key in started] == [True] * 4
    assert [unknown[key] for key in started] == [None] * 4
    assert "started by" not in happening_words(ended), "whoever follows was told when it started"


def test_every_stage_has_words() -> None:
    starts = [AllocationStarted(0, TREE, OURS, NodeName("m"), AllocationId("b"), [], stage) for stage in StartStage]

    assert len({happening_words(one) for one in starts}) == len(StartStage)


def test_a_start_of_an_older_allocator_is_read() -> None:
    fields = {"type": "allocation_started", "at_ms": 1, "tree": "t", "operation": "op", "node": "n", "allocation": "a"}
    data = msgspec.msgpack.encode(fields | {"slots": []})

    read = msgspec.msgpack.decode(data, type=AllocationStarted)

    assert (read.stage, read.share_before, read.fair_share, read.places_taken) == (None, None, None, 0)


def test_a_suspect_node_is_told_to_followers_of_the_operations_that_failed_there() -> None:
    name = OperationId("op-1")
    suspect = NodeSuspected(7, TREE, NodeName("n"), True, "the last 4 jobs failed there", [name])
    told = Decisions(TREE, 1, 0, [], [suspect])
    assert list(DecisionTail().new_happenings(told, 0)) == [suspect]
    assert HappeningFilter().wants(suspect)
    assert HappeningFilter(operation=name).wants(suspect)
    assert not HappeningFilter(operation="op-2").wants(suspect)
    assert HappeningFilter(pool="p", members=[name]).wants(suspect)
    assert not HappeningFilter(pool="p", members=[OperationId("op-2")]).wants(suspect)
    assert happening_words(suspect, UTC).endswith("node n  suspect: the last 4 jobs failed there")
    cleared = msgspec.structs.replace(suspect, is_suspect=False, words="")
    assert happening_words(cleared, UTC).endswith("node n  suspect no more")
