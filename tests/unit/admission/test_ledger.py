"""The ledger of one operation's jobs."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from headrace.ids import AllocationId, OperationId
from headrace.resources import LARGEST_SUM
from headrace.wire.heartbeat import JobEnd, JobResult, Retry
from headrace.wire.operations import RunUsage
from headrace_admission.state.ledger import KEPT_FAILURES, Ledger, LedgerRecord, Verdict


def an_end(index: int, attempt: int = 1, result: JobResult = JobResult.COMPLETED, exit_code: int | None = 0) -> JobEnd:
    return JobEnd(OperationId("operation-1"), index, attempt, AllocationId("1-1"), result, exit_code=exit_code)


def decoded(record: LedgerRecord) -> LedgerRecord:
    return msgspec.msgpack.decode(msgspec.msgpack.encode(record), type=LedgerRecord)


def a_ledger(jobs: int = 10, block: int = 8) -> Ledger:
    ledger = Ledger(jobs)
    ledger.draw(block, 1)
    return ledger


def test_a_job_that_was_never_let_out_cannot_end() -> None:
    assert a_ledger().judge(an_end(8)) is Verdict.NEVER_OUT
    assert a_ledger().judge(an_end(3, attempt=2)) is Verdict.NEVER_OUT


def test_an_end_counts_once() -> None:
    ledger = a_ledger()
    assert ledger.judge(an_end(3)) is Verdict.NEW
    ledger.record(an_end(3), "n1", None)

    assert ledger.judge(an_end(3)) is Verdict.KNOWN
    assert (ledger.done_count, ledger.done_bits()[0]) == (1, 1 << 3)
    assert ledger.check() == []


def test_the_end_of_an_attempt_that_was_given_up_does_not_count() -> None:
    ledger = a_ledger()
    ledger.record(an_end(3, result=JobResult.LOST), "n1", Retry(3, 2))

    assert ledger.judge(an_end(3)) is Verdict.KNOWN
    assert ledger.judge(an_end(3, attempt=2)) is Verdict.NEW


def test_a_lower_border_or_term_takes_nothing_back() -> None:
    ledger = a_ledger()
    ledger.draw(4, 9)
    ledger.draw(100, 2)

    assert (ledger.block, ledger.block_term) == (10, 9)


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        ({"done": b"\0\2", "counts": {JobResult.COMPLETED: 1}}, "1 jobs outside of the block"),
        ({"not_retried_bits": b"\0\2"}, "1 jobs outside of the block"),
        ({"pausing": {3: 5}}, "job 3 waits for its retry"),
        ({"done": b"\x08\0", "counts": {JobResult.COMPLETED: 1}, "pausing": {3: 5}}, "job 3 waits for its retry"),
        ({"not_started": 1}, "1 failures were not started"),
        ({"given_up": 1}, "1 jobs are given up"),
    ],
)
def test_the_check_finds_what_no_sequence_of_ends_can_bring_about(damage: dict[str, Any], told: str) -> None:
    record = a_ledger(16, block=9).to_record()
    assert Ledger.from_record(16, record).check() == []

    [broken] = Ledger.from_record(16, msgspec.structs.replace(record, **damage)).check()

    assert broken.startswith(told)


def test_rows_tell_the_newest_attempt_that_ended_and_where() -> None:
    ledger = a_ledger()
    ledger.record(an_end(0), "n1", None)
    ledger.record(an_end(1, result=JobResult.FAILED, exit_code=3), "n2", Retry(1, 2))

    rows = ledger.rows(0, 3)

    assert [(row.slot.attempt, row.result, row.node, row.exit_code) for row in rows] == [
        (1, JobResult.COMPLETED, "n1", 0),
        (1, JobResult.FAILED, "n2", 3),
        (1, None, "", None),
    ]


def test_rows_tell_the_last_attempt_of_a_job_that_is_not_retried() -> None:
    ledger = a_ledger()
    ledger.record(an_end(0, 1, JobResult.FAILED, 1), "n1", Retry(0, 2))
    ledger.record(an_end(0, 2, JobResult.FAILED, 3), "n2", None)

    (row,) = ledger.rows(0, 1)

    assert (row.slot.attempt, row.result, row.node, row.exit_code) == (2, JobResult.FAILED, "n2", 3)
    assert ledger.judge(an_end(0, 2, JobResult.FAILED, 3)) is Verdict.KNOWN
    assert Ledger.from_record(10, ledger.to_record()).judge(an_end(0, 2)) is Verdict.KNOWN


@pytest.mark.parametrize("jobs", [1, 7, 8, 9, 1000])
def test_a_record_brings_everything_back(jobs: int) -> None:
    ledger = Ledger(jobs)
    ledger.draw(jobs, 4)
    for index in range(0, jobs, 2):
        ledger.record(an_end(index), f"n{index % 3}", None)
    for index in range(1, jobs, 2):
        ledger.record(an_end(index, result=JobResult.FAILED, exit_code=2), "n9", Retry(index, 2))

    again = Ledger.from_record(jobs, ledger.to_record())

    assert again.to_record() == ledger.to_record()
    assert again.check() == []
    assert again.rows(0, jobs) == ledger.rows(0, jobs)


def test_jobs_that_are_over_are_packed_and_their_rows_stay() -> None:
    """Each once cost three bytes for as long as its operation was remembered, in memory and in every checkpoint."""
    ledger = a_ledger(20_000, block=20_000)
    for index in range(20_000):
        if index % 100:
            ledger.record(an_end(index), f"node-{index // 64}", None)
        else:
            ledger.record(an_end(index, result=JobResult.FAILED, exit_code=7), "bad", Retry(index, 2))
            ledger.record(an_end(index, attempt=2, result=JobResult.ABORTED, exit_code=None), "last", None)

    restored = Ledger.from_record(20_000, decoded(ledger.to_record()))

    assert sum(len(page.data) for page in ledger.to_record().pages) < 20_000
    assert restored.rows(0, 20_000) == ledger.rows(0, 20_000)
    for index in (0, 1, 4_095, 4_096, 8_200, 19_900, 19_999):
        [row] = ledger.rows(index, 1)
        expected = (
            (2, JobResult.ABORTED, "last") if index % 100 == 0 else (1, JobResult.COMPLETED, f"node-{index // 64}")
        )
        assert (row.slot.index, row.slot.attempt, row.result, row.node) == (index, *expected)


def test_a_record_from_before_results_were_packed_is_read() -> None:
    ledger = a_ledger(3, block=3)
    ledger.record(an_end(0), "n1", None)
    ledger.record(an_end(1, result=JobResult.FAILED, exit_code=3), "n2", Retry(1, 2))
    old = msgspec.structs.replace(ledger.to_record(), pages=[], results=b"\1\2\0", nodes=b"\1\0\2\0\0\0")

    assert Ledger.from_record(3, decoded(old)).rows(0, 3) == ledger.rows(0, 3)


def test_only_the_last_failures_are_kept() -> None:
    ledger = a_ledger(jobs=1, block=1)
    for attempt in range(1, 2 * KEPT_FAILURES):
        ledger.record(an_end(0, attempt, JobResult.FAILED, 1), "n1", Retry(0, attempt + 1))

    assert [end.attempt for end in ledger.failures] == list(range(KEPT_FAILURES, 2 * KEPT_FAILURES))


def a_run(index: int, result: JobResult = JobResult.COMPLETED, *, ran_s: float = 10, **used: Any) -> JobEnd:
    timed = msgspec.structs.replace(an_end(index, result=result), started_at_ms=1_000)
    return msgspec.structs.replace(timed, ended_at_ms=1_000 + int(ran_s * 1000), **used)


def test_what_runs_used_is_summed_for_each_result_and_survives_a_checkpoint() -> None:
    ledger = a_ledger()
    ledger.record(a_run(0, cpu_ms=20_000, max_rss_bytes=7, from_cgroup=True), "n1", None)
    ledger.record(a_run(1, cpu_ms=5_000, max_rss_bytes=9), "n1", None)
    ledger.record(a_run(2, JobResult.ABORTED, cpu_ms=1_000, max_rss_bytes=50), "n1", Retry(2, 2))

    again = Ledger.from_record(10, decoded(ledger.to_record()))

    for each in (ledger, again):
        assert each.used == {
            JobResult.COMPLETED: RunUsage(2, 20_000, 25_000, 9, most_cpu=200, runs_in_cgroups=1),
            JobResult.ABORTED: RunUsage(1, 10_000, 1_000, 50, most_cpu=10),
        }
        assert each.check() == []


def test_runs_that_were_not_measured_do_not_count_as_using_nothing() -> None:
    ledger = a_ledger()
    ledger.record(a_run(0, JobResult.LOST), "n1", Retry(0, 2))

    assert ledger.used == {}


def test_the_mean_use_of_cores_of_a_short_run_is_no_peak() -> None:
    ledger = a_ledger()
    ledger.record(a_run(0, ran_s=0.01, cpu_ms=100, max_rss_bytes=1), "n1", None)

    assert ledger.used[JobResult.COMPLETED].most_cpu == 0


def test_a_run_whose_start_is_not_known_has_no_run_time() -> None:
    ledger = a_ledger()
    end = msgspec.structs.replace(a_run(0, cpu_ms=100), started_at_ms=0)
    ledger.record(end, "n1", None)

    assert ledger.used[JobResult.COMPLETED] == RunUsage(1, 0, 100)


def test_sums_of_usage_stay_within_a_message() -> None:
    ledger = a_ledger()
    for index in (0, 1):
        ledger.record(a_run(index, cpu_ms=LARGEST_SUM, max_rss_bytes=LARGEST_SUM), "n1", None)

    assert ledger.used[JobResult.COMPLETED].cpu_ms == LARGEST_SUM
    assert decoded(ledger.to_record()) == ledger.to_record()


def test_a_record_of_a_former_version_has_no_usage() -> None:
    ledger = a_ledger()
    ledger.record(a_run(0, cpu_ms=1), "n1", None)
    fields = msgspec.to_builtins(ledger.to_record())
    before = fields[: LedgerRecord.__struct_fields__.index("used")]

    assert Ledger.from_record(10, msgspec.convert(before, LedgerRecord)).used == {}


def test_the_check_finds_more_measured_runs_than_ends() -> None:
    record = msgspec.structs.replace(a_ledger().to_record(), used={JobResult.LOST: RunUsage(1)})

    assert Ledger.from_record(10, record).check() == ["1 lost runs were measured, but 0 are counted"]


@pytest.mark.parametrize("jobs", [9, 9_000])
def test_rows_of_one_result_are_those_of_all_rows(jobs: int) -> None:
    """Of 9,000 jobs the first two pages of results are full, and so are compressed."""
    ledger = a_ledger(jobs, jobs)
    for index in range(jobs):
        result = JobResult.FAILED if index % 4 == 3 else JobResult.COMPLETED
        if index < jobs - 5:
            ledger.record(an_end(index, result=result, exit_code=index % 3), f"n{index % 7}", None)

    for results in ([JobResult.FAILED], [JobResult.COMPLETED, JobResult.LOST]):
        wanted = [row for row in ledger.rows(0, jobs) if row.result in results]
        assert wanted
        assert ledger.rows(0, jobs, results) == wanted
        assert ledger.rows(2, 2, results) == [row for row in wanted if row.slot.index >= 2][:2]
    assert ledger.rows(0, jobs, [JobResult.LOST]) == []
