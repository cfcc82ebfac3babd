"""The ledger of one operation's jobs: which indexes are leased, which jobs are completed, and their attempts.

Every end counts once: for each index the ledger knows the newest attempt, and whether that attempt has ended. Invariants
(`check`): completed or ended jobs lie below `block`; no job is both completed and marked as not retried; pausing jobs are
marked as not retried; and the counts add up.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

import msgspec

from headrace.ids import TreeName
from headrace.wire.heartbeat import JobEnd, JobResult, JobSlot, Retry
from headrace.wire.log import IndexRun
from headrace.wire.operations import MOST_ACCOUNTS, JobRow, RunUsage, TaskEnds
from headrace_admission.state.index_owners import IndexOwners, OwnersRecord
from headrace_admission.state.indexed_numbers import IndexedNumbers
from headrace_admission.state.job_results import JobResults, ResultPage
from headrace_admission.state.spec_size import texts_bytes

#: Upper bound of failed jobs of an operation that wait for their retry, so that their record stays small. Further jobs are
#: retried at once.
MOST_PAUSING: Final = 4_096
#: Number of an operation's newest failures that are kept for users.
KEPT_FAILURES: Final = 10
#: Number of an operation's newest failures for which the last stderr output of the job is kept too.
KEPT_STDERR_TAILS: Final = 3
#: Bytes of memory of a number in a dictionary.
_NUMBER_BYTES: Final = 100
#: Bytes of memory of the name of a node.
_NODE_BYTES: Final = 160
#: Bytes of memory of the ends of one task: for each of the five results, a count and the usage.
_TASK_BYTES: Final = 2_000

_RESULT_CODE: Final = {
    JobResult.COMPLETED: 1,
    JobResult.FAILED: 2,
    JobResult.ABORTED: 3,
    JobResult.LOST: 4,
    JobResult.TIMED_OUT: 5,
}
#: Results of jobs that are given up unless they are retried.
_GIVEN_UP: Final = (JobResult.FAILED, JobResult.TIMED_OUT)
_CODE_RESULT: Final = {code: result for result, code in _RESULT_CODE.items()}


class Verdict(enum.Enum):
    """The meaning of a reported end of a job for the ledger."""

    #: The end must be recorded.
    NEW = "new"
    #: The end was recorded before, or it is the end of an older attempt: nothing changes.
    KNOWN = "known"
    #: The job was never leased: nothing changes, and the reporter is wrong.
    NEVER_OUT = "never_out"


class LedgerRecord(msgspec.Struct, frozen=True, array_like=True):
    """The ledger as a checkpoint stores it."""

    block: int
    block_term: int
    done: bytes
    #: Attempts too large for a page in `attempt_pages`; older records have all attempts here. Exit codes are divided between two
    #: fields in the same way.
    attempts: dict[int, int]
    #: Results of jobs; only in older records, which have no pages.
    results: bytes
    #: Nodes of jobs; only in older records, which have no pages.
    nodes: bytes
    node_names: list[str]
    exit_codes: dict[int, int]
    counts: dict[JobResult, int]
    failures: list[JobEnd]
    #: Indexes of the jobs that are not retried; only in older records, which have no pages.
    not_retried: list[int] = []
    #: Results and nodes of jobs, in pages. Missing in older records, like all fields that follow.
    pages: list[ResultPage] = []
    #: The owners of the indexes; None for an operation in one tree whose jobs follow no other jobs.
    owners: OwnersRecord | None = None
    not_retried_bits: bytes = b""
    attempt_pages: dict[int, bytes] = {}
    exit_code_pages: dict[int, bytes] = {}
    #: Number of failed attempts of each job for which the number is too large for a page in `failed_run_pages`.
    failed_runs: dict[int, int] = {}
    #: Number of failed attempts of each job, in pages of `IndexedNumbers`.
    failed_run_pages: dict[int, bytes] = {}
    #: By index of a failed job that waits for its retry: Unix time in milliseconds of the retry.
    pausing: dict[int, int] = {}
    #: Number of failed attempts whose command could not be started. None in older records: then only the attempts in `failures` can
    #: be counted.
    not_started: int | None = None
    given_up: int = 0
    used: dict[JobResult, RunUsage] = {}
    #: 1 for each job whose newest ended attempt ran out of memory, in pages of `IndexedNumbers`.
    out_of_memory_pages: dict[int, bytes] = {}
    #: Number of all attempts that ran out of memory.
    out_of_memory_runs: int = 0
    task_ends: dict[int, TaskEnds] = {}
    #: Number of times that the memory of each job was raised, in pages of `IndexedNumbers`.
    memory_step_pages: dict[int, bytes] = {}


class Ledger:
    """The jobs of one operation. Changed only by `State`."""

    def __init__(self, job_count: int, owners: IndexOwners | None = None) -> None:
        self.job_count = job_count
        #: The tree that holds each index; None for an operation in one tree whose jobs follow no other jobs.
        self.owners = owners
        #: One more than the highest index that was ever leased.
        self.block = 0
        #: Highest term of an allocator that leased any index.
        self.block_term = 0
        self.done_count = 0
        #: Number of the newest attempt of each job that has got more than one attempt.
        self.attempts = IndexedNumbers()
        #: Number of attempts that ended with each result.
        self.counts: dict[JobResult, int] = dict.fromkeys(JobResult, 0)
        #: Usage of the measured runs, by their result.
        self.used: dict[JobResult, RunUsage] = {}
        self.failures: list[JobEnd] = []
        self._failures_bytes = 0
        #: Number of failed attempts whose command could not be started.
        self._not_started = 0
        #: Number of jobs that failed or timed out and are not retried.
        self.given_up = 0
        #: Number of failed attempts of each job.
        self.failed_runs = IndexedNumbers()
        #: By index of a failed job that waits for its retry: Unix time in milliseconds of the retry.
        self.pausing: dict[int, int] = {}
        #: One bit for each index: 1 if the job is completed.
        self._done = bytearray()
        #: One bit for each index: 1 if the newest attempt of the index ended without success and no attempt follows it yet.
        self._not_retried = bytearray()
        self._results = JobResults(job_count)
        #: Names of the nodes on which jobs ended. For jobs that ran under another account than that of the agent, the entry is the
        #: name of the node, a blank and the account.
        self._node_names: list[str] = [""]
        self._node_numbers: dict[str, int] = {"": 0}
        self._exit_codes = IndexedNumbers()
        #: 1 for each job whose newest ended attempt ran out of memory.
        self._out_of_memory = IndexedNumbers()
        #: Number of all attempts that ran out of memory.
        self.out_of_memory_runs = 0
        #: Number of times that the memory of each job was raised, up to its newest attempt.
        self.memory_steps = IndexedNumbers()
        #: Ends of the jobs of each task, by the number of the task.
        self.task_ends: dict[int, TaskEnds] = {}

    @property
    def size_bytes(self) -> int:
        """Bytes that the ledger takes in memory. Computing it takes the same time for any number of jobs."""
        bits = len(self._done) + len(self._not_retried)
        owners = self.owners.size_bytes if self.owners is not None else 0
        by_index = (self.attempts, self._exit_codes, self.failed_runs, self._out_of_memory, self.memory_steps)
        numbers = sum(each.size_bytes for each in by_index)
        names = _NODE_BYTES * len(self._node_names)
        tasks = _TASK_BYTES * len(self.task_ends)
        pausing = _NUMBER_BYTES * len(self.pausing)
        return self._results.size_bytes + bits + owners + numbers + names + tasks + pausing + self._failures_bytes

    @property
    def all_done(self) -> bool:
        return self.done_count == self.job_count

    @property
    def are_all_over(self) -> bool:
        """True if every job is completed or given up."""
        return self.done_count + self.given_up == self.job_count

    def nodes_without_start(self) -> list[str]:
        """If none of the attempts that ended could be started, return the nodes in the kept failures; else an empty list."""
        if self._not_started < sum(self.counts.values()):
            return []
        return sorted({end.node for end in self.failures})

    def accounts(self) -> list[str]:
        """Return the accounts that ended jobs ran as, sorted, at most `MOST_ACCOUNTS`.

        An empty text stands for the account of the node's agent.
        """
        return sorted({name.partition(" ")[2] for name in self._node_names[1:]})[:MOST_ACCOUNTS]

    def completed_bits(self) -> bytes:
        """Return one bit for each index below `block`, lowest first in each byte: 1 if the job is completed."""
        return bytes(self._done)

    def done_bits(self) -> bytes:
        """Return one bit for each index below `block`, lowest first in each byte: 1 if the job is completed, given up, or waits
        for its retry.
        """
        both = int.from_bytes(self._done) | int.from_bytes(self._not_retried)
        return both.to_bytes(len(self._done))

    @property
    def next_retry_at_ms(self) -> int:
        """Return the Unix time in milliseconds of the earliest retry of a failed job, or 0 if no job waits for its retry."""
        return min(self.pausing.values(), default=0)

    def due_retries(self, now_ms: int, longest_ms: int, last_step: int) -> list[Retry]:
        """Return the next attempts of failed jobs whose waiting time is over.

        Times of retries are wall-clock times, so that they outlive the process. `longest_ms` is the longest back-off of the
        operation. A retry that is further ahead than that is due too, because the clock was set back after the time was written.
        """
        due = sorted(index for index, at_ms in self.pausing.items() if not 0 < at_ms - now_ms <= longest_ms)
        return [retry_of(self, each, last_step, out_of_memory=bool(self._out_of_memory[each])) for each in due]

    def draw_in(self, tree: TreeName, runs: Sequence[IndexRun], below: int, term: int) -> None:
        """Lease indexes to a tree: the indexes in `runs` if the ledger has owners, else all indexes below `below`."""
        if self.owners is not None:
            # Entries of older versions have no `runs`, because one tree held all indexes of an operation.
            self.owners.give(tree, runs or [IndexRun(self.block, below)])
        self.draw(below, term)

    def draw(self, below: int, term: int) -> None:
        """Lease every index below `below`. If these are leased already, nothing changes."""
        below = min(below, self.job_count)
        if below > self.block:
            self.block = below
            for bits in (self._done, self._not_retried):
                bits.extend(bytes((below + 7) // 8 - len(bits)))
            self._results.extend(below)
        self.block_term = max(self.block_term, term)

    def share_out(self, tree: TreeName) -> None:
        """Let several trees run the jobs from now on. Indexes that are leased already belong to `tree`."""
        self.owners = IndexOwners(self.job_count)
        self.owners.give(tree, [IndexRun(0, self.block)])
        for index in range(self.block):
            if self._has_ended(index):
                self.owners.end(index, runs_again=False)

    def judge(self, end: JobEnd) -> Verdict:
        """Judge a reported end of an attempt by the newest attempt of the same job."""
        newest = self.attempts[end.index] or 1
        if end.index >= self.block or end.attempt > newest:
            return Verdict.NEVER_OUT
        return Verdict.KNOWN if end.attempt < newest or self._has_ended(end.index) else Verdict.NEW

    def record(
        self, end: JobEnd, node: str, retry: Retry | None, retry_at_ms: int = 0, task: int | None = None
    ) -> None:
        """Record a new end.

        `retry` is the attempt that follows at once. If the job is retried later, `retry_at_ms` is the time of the retry. `task` is
        the number of the job's task, if the operation has tasks.
        """
        index = end.index
        if task is not None:
            self.task_ends[task] = self.task_ends.get(task, TaskEnds()).plus(end)
        self.counts[end.result] += 1
        if end.is_measured:
            self.used[end.result] = self.used.get(end.result, RunUsage()).plus(end)
        runs_again = retry is not None and end.result is not JobResult.COMPLETED
        is_over = not runs_again and not retry_at_ms
        where = f"{node} {end.account}" if end.account else node
        self._results.record(index, _RESULT_CODE[end.result], self._number(where), is_over=is_over)
        self._exit_codes[index] = end.exit_code or 0
        is_out_of_memory = end.out_of_memory and end.result is JobResult.FAILED
        self._out_of_memory[index] = int(is_out_of_memory)
        self.out_of_memory_runs += is_out_of_memory
        if end.result is JobResult.FAILED:
            self.failed_runs[index] += 1
            self._not_started += end.not_started
        if end.result in _GIVEN_UP:
            self._keep_failure(msgspec.structs.replace(end, node=node))
        if end.result is JobResult.COMPLETED:
            self._done[index >> 3] |= _bit(index)
            self.done_count += 1
        elif retry is not None:
            self._begin(retry)
        else:
            self._not_retried[index >> 3] |= _bit(index)
            if retry_at_ms:
                self.pausing[index] = retry_at_ms
            else:
                self.given_up += end.result in _GIVEN_UP
        if self.owners is not None:
            self.owners.end(index, runs_again=runs_again)

    def retry(self, slot: Retry) -> None:
        """Allow the next attempt of a job that waits for its retry. Nothing changes for any other job."""
        if self.pausing.pop(slot.index, None) is None:
            return
        self._begin(slot)
        self._not_retried[slot.index >> 3] &= ~_bit(slot.index)
        if self.owners is not None:
            self.owners.end(slot.index, runs_again=True)

    def _begin(self, slot: Retry) -> None:
        self.attempts[slot.index] = slot.attempt
        if slot.memory_step or self.memory_steps[slot.index]:
            self.memory_steps[slot.index] = slot.memory_step

    def rows(self, first: int, limit: int, results: Sequence[JobResult] = ()) -> list[JobRow]:
        """Return jobs from index `first` on, each with its newest attempt that has ended, or its first attempt if no attempt has ended.

        With `results`, return only jobs whose newest ended attempt has one of these results.
        """
        if not results:
            return list(self._rows(first, min(first + limit, self.job_count)))
        found = self._results.find(first, [_RESULT_CODE[result] for result in results])
        return [self._row(*each) for each in islice(found, limit)]

    def attempt_slots(self, first: int, most: int) -> list[Retry]:
        """Return the newest attempts of up to `most` jobs, in order of index.

        Jobs before index `first`, and jobs that are at their first attempt, are left out.
        """
        found = islice(self.attempts.items(first), most)
        # All memory steps are read at once, because one look-up for each of up to a million jobs would take long. Jobs whose memory
        # was never raised have none.
        steps = dict(self.memory_steps.items(first))
        return [Retry(index, attempt, steps.get(index, 0)) for index, attempt in found]

    def to_record(self) -> LedgerRecord:
        return LedgerRecord(
            block=self.block,
            block_term=self.block_term,
            done=bytes(self._done),
            attempts=dict(self.attempts.large),
            results=b"",
            nodes=b"",
            node_names=list(self._node_names),
            exit_codes=dict(self._exit_codes.large),
            # Counts of 0 are left out, because releases without time limits do not know the result of jobs that timed out.
            counts={result: count for result, count in self.counts.items() if count},
            failures=list(self.failures),
            pages=JobResults(self.job_count, self._results.pages).pages,
            owners=self.owners.to_record() if self.owners is not None else None,
            not_retried_bits=bytes(self._not_retried),
            attempt_pages=self.attempts.pages,
            exit_code_pages=self._exit_codes.pages,
            failed_runs=dict(self.failed_runs.large),
            failed_run_pages=self.failed_runs.pages,
            pausing=dict(self.pausing),
            not_started=self._not_started,
            given_up=self.given_up,
            used=dict(self.used),
            out_of_memory_pages=self._out_of_memory.pages,
            out_of_memory_runs=self.out_of_memory_runs,
            task_ends=dict(self.task_ends),
            memory_step_pages=self.memory_steps.pages,
        )

    @classmethod
    def from_record(cls, job_count: int, record: LedgerRecord) -> Ledger:
        ledger = cls(job_count)
        ledger.draw(record.block, record.block_term)
        if record.owners is not None:
            ledger.owners = IndexOwners.from_record(job_count, record.owners)
        ledger._done[:] = record.done
        ledger._node_names = list(record.node_names)
        ledger._node_numbers = {name: number for number, name in enumerate(ledger._node_names)}
        ledger._exit_codes = IndexedNumbers(record.exit_code_pages, record.exit_codes)
        ledger.attempts = IndexedNumbers(record.attempt_pages, record.attempts)
        ledger.counts = {result: record.counts.get(result, 0) for result in JobResult}
        ledger.used = dict(record.used)
        ledger._take_failures(list(record.failures))
        ledger.failed_runs = IndexedNumbers(record.failed_run_pages, record.failed_runs)
        ledger.pausing = dict(record.pausing)
        known = sum(end.not_started for end in record.failures)
        ledger._not_started = known if record.not_started is None else record.not_started
        ledger.given_up = record.given_up
        ledger._out_of_memory = IndexedNumbers(record.out_of_memory_pages)
        ledger.out_of_memory_runs = record.out_of_memory_runs
        ledger.task_ends = dict(record.task_ends)
        ledger.memory_steps = IndexedNumbers(record.memory_step_pages)
        ledger._not_retried[: len(record.not_retried_bits)] = record.not_retried_bits
        for index in record.not_retried:
            ledger._not_retried[index >> 3] |= _bit(index)
        ledger.done_count = int.from_bytes(ledger._done).bit_count()
        if record.pages:
            ledger._results = JobResults(job_count, record.pages)
        for index, code in enumerate(record.results):
            if code:
                node = int.from_bytes(record.nodes[2 * index : 2 * index + 2], "little")
                ledger._results.record(index, code, node, is_over=ledger._has_ended(index))
        return ledger

    def check(self) -> list[str]:
        """Return a description of each broken invariant."""
        broken = []
        done, not_retried = int.from_bytes(self._done, "little"), int.from_bytes(self._not_retried, "little")
        if self.done_count != done.bit_count():
            broken.append(f"done_count {self.done_count} differs from the bits set")
        if self.done_count != self.counts[JobResult.COMPLETED]:
            broken.append(
                f"{self.done_count} jobs are done, but {self.counts[JobResult.COMPLETED]} completions are counted"
            )
        if self.block > self.job_count:
            broken.append(f"block {self.block} is larger than the number of jobs, {self.job_count}")
        broken += [
            f"attempt {number} is of index {i}, outside of the block" for i, number in self.attempts.items(self.block)
        ]
        outside = (done | not_retried) >> self.block
        if outside:
            broken.append(f"{outside.bit_count()} jobs outside of the block are recorded as completed or ended")
        if self._not_started > self.counts[JobResult.FAILED]:
            broken.append(
                f"{self._not_started} failures were not started, but {self.counts[JobResult.FAILED]} failures are counted"
            )
        if self.out_of_memory_runs > self.counts[JobResult.FAILED]:
            failed = self.counts[JobResult.FAILED]
            broken.append(f"{self.out_of_memory_runs} runs are out of memory, but {failed} failures are counted")
        if self.given_up > max(0, not_retried.bit_count() - len(self.pausing)):
            broken.append(f"{self.given_up} jobs are given up, but fewer are recorded as ended without a retry")
        if self.counts[JobResult.TIMED_OUT] > self.given_up:
            broken.append(f"{self.counts[JobResult.TIMED_OUT]} jobs timed out, but {self.given_up} are given up")
        broken += [
            f"{used.runs} {result} runs were measured, but {self.counts[result]} are counted"
            for result, used in self.used.items()
            if used.runs > self.counts[result]
        ]
        if done & not_retried:
            broken.append(
                f"{(done & not_retried).bit_count()} jobs are completed, but are also recorded as ended without a retry"
            )
        broken += [
            f"job {i} waits for its retry, but is not recorded as ended without a retry"
            for i in self.pausing
            if i >= self.block or not self._not_retried[i >> 3] & _bit(i)
        ]
        if self.owners is not None:
            broken += self.owners.check(self.block, over=self.done_count + not_retried.bit_count())
        return broken

    def _has_ended(self, index: int) -> bool:
        """True if the newest attempt of the index has ended."""
        return index < self.block and bool((self._done[index >> 3] | self._not_retried[index >> 3]) & _bit(index))

    def _rows(self, first: int, end: int) -> Iterator[JobRow]:
        results = self._results.read(first, end)
        for index in range(first, end):
            yield self._row(index, *next(results, (0, 0)))

    def _row(self, index: int, code: int, node: int) -> JobRow:
        attempt = self.attempts[index] or 1
        if code == 0:
            return JobRow(JobSlot(index, attempt), None, "")
        result = _CODE_RESULT[code]
        ended = attempt if self._has_ended(index) or attempt == 1 else attempt - 1
        exit_code = 0 if result is JobResult.COMPLETED else self._exit_codes[index] or None
        name, _, account = self._node_names[node].partition(" ")
        retry_at_ms, out_of_memory = self.pausing.get(index, 0), bool(self._out_of_memory[index])
        step = self.memory_steps[index]
        return JobRow(JobSlot(index, ended), result, name, exit_code, account, retry_at_ms, out_of_memory, step)

    def _keep_failure(self, end: JobEnd) -> None:
        failures = [*self.failures[1 - KEPT_FAILURES :], end]
        if len(failures) > KEPT_STDERR_TAILS:
            shown = -1 - KEPT_STDERR_TAILS
            failures[shown] = msgspec.structs.replace(failures[shown], stderr_tail="")
        self._take_failures(failures)

    def _take_failures(self, failures: list[JobEnd]) -> None:
        self.failures = failures
        self._failures_bytes = sum(texts_bytes((end.stderr_tail, end.reason)) for end in failures)

    def _number(self, node: str) -> int:
        number = self._node_numbers.get(node)
        if number is None:
            if len(self._node_names) > 65_535:
                return 0
            number = self._node_numbers[node] = len(self._node_names)
            self._node_names.append(node)
        return number


def _bit(index: int) -> int:
    """Return the bit of an index in its byte, lowest first."""
    return 1 << (index & 7)


def retry_of(ledger: Ledger, index: int, last_step: int, *, out_of_memory: bool) -> Retry:
    """Return the next attempt of a job.

    If its last attempt ran out of memory, its memory is raised again, at most `last_step` times in all.
    """
    step = min(ledger.memory_steps[index] + out_of_memory, last_step)
    return Retry(index, (ledger.attempts[index] or 1) + 1, step)
