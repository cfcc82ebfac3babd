"""The ledger of one operation's jobs: those that may be out, those done, and their attempts.

Every end counts once: of each index the ledger knows the newest attempt, and whether that attempt has ended. Invariants (`check`):
jobs that are done or ended lie below `block`, no job is both done and not retried, jobs that pause are not retried yet, and the counts
add up.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

import msgspec

from headrace.ids import TreeName
from headrace.wire.heartbeat import JobEnd, JobResult, JobSlot
from headrace.wire.log import IndexRun
from headrace.wire.operations import MOST_ACCOUNTS, JobRow
from headrace_admission.state.index_owners import IndexOwners, OwnersRecord
from headrace_admission.state.indexed_numbers import IndexedNumbers
from headrace_admission.state.job_results import JobResults, ResultPage
from headrace_admission.state.spec_size import texts_bytes

#: Jobs that may wait until they run again, so that a record of them stays small. Any more of them run again at once.
MOST_PAUSING: Final = 4_096
#: Last failures of an operation that are kept, and those of them that are kept with the last words of the job, which people are shown.
KEPT_FAILURES: Final = 10
KEPT_STDERR_TAILS: Final = 3
#: Bytes in memory of a number in a dictionary, and of the name of a node.
_NUMBER_BYTES: Final = 100
_NODE_BYTES: Final = 160

_RESULT_CODE: Final = {JobResult.COMPLETED: 1, JobResult.FAILED: 2, JobResult.ABORTED: 3, JobResult.LOST: 4}
_CODE_RESULT: Final = {code: result for result, code in _RESULT_CODE.items()}


class Verdict(enum.Enum):
    """The meaning of a reported end to the ledger."""

    #: To be recorded.
    NEW = "new"
    #: Recorded before, or of an older attempt: nothing changes.
    KNOWN = "known"
    #: Of a job that was never out: nothing changes, and its reporter is wrong.
    NEVER_OUT = "never_out"


class LedgerRecord(msgspec.Struct, frozen=True, array_like=True):
    """The ledger as a checkpoint keeps it."""

    block: int
    block_term: int
    done: bytes
    #: Those too large for `attempt_pages`; all of them in older records. So it is with exit codes.
    attempts: dict[int, int]
    #: Of records from before there were pages.
    results: bytes
    nodes: bytes
    node_names: list[str]
    exit_codes: dict[int, int]
    counts: dict[JobResult, int]
    failures: list[JobEnd]
    #: Of older records, as `results`.
    not_retried: list[int] = []
    #: Missing in older records, as all that follow.
    pages: list[ResultPage] = []
    #: Of operations of several trees.
    owners: OwnersRecord | None = None
    not_retried_bits: bytes = b""
    attempt_pages: dict[int, bytes] = {}
    exit_code_pages: dict[int, bytes] = {}
    #: Numbers of failed runs, as `attempts` and `attempt_pages`; and when jobs that failed run again.
    failed_runs: dict[int, int] = {}
    failed_run_pages: dict[int, bytes] = {}
    pausing: dict[int, int] = {}


class Ledger:
    """The jobs of one operation. Changed only by `State`."""

    def __init__(self, job_count: int, owners: IndexOwners | None = None) -> None:
        self.job_count = job_count
        #: The tree of each index, where several trees run them.
        self.owners = owners
        #: Indexes below may be out, drawn by the allocator of `block_term` or of an earlier term.
        self.block = 0
        self.block_term = 0
        self.done_count = 0
        #: Newest attempt of each index that is past its first.
        self.attempts = IndexedNumbers()
        #: How many attempts ended with each result.
        self.counts: dict[JobResult, int] = dict.fromkeys(JobResult, 0)
        self.failures: list[JobEnd] = []
        self._failures_bytes = 0
        #: How many runs of each job failed; and of jobs that failed and run again later, when.
        self.failed_runs = IndexedNumbers()
        self.pausing: dict[int, int] = {}
        #: One bit per index: it is done; its newest attempt ended without success and is followed by no other.
        self._done = bytearray()
        self._not_retried = bytearray()
        self._results = JobResults(job_count)
        #: Nodes where jobs ended, each with its account behind a blank where that is not its agent's.
        self._node_names: list[str] = [""]
        self._node_numbers: dict[str, int] = {"": 0}
        self._exit_codes = IndexedNumbers()

    @property
    def size_bytes(self) -> int:
        """Bytes that it takes in memory. To ask costs the same for any number of jobs."""
        bits = len(self._done) + len(self._not_retried)
        owners = self.block if self.owners is not None else 0
        numbers = self.attempts.size_bytes + self._exit_codes.size_bytes + self.failed_runs.size_bytes
        names = _NODE_BYTES * len(self._node_names)
        pausing = _NUMBER_BYTES * len(self.pausing)
        return self._results.size_bytes + bits + owners + numbers + names + pausing + self._failures_bytes

    @property
    def all_done(self) -> bool:
        return self.done_count == self.job_count

    def nodes_without_start(self) -> list[str]:
        """Nodes on which no job could be started, as long as every run that ended was of that kind."""
        ended_otherwise = self.done_count + self.counts[JobResult.ABORTED] + self.counts[JobResult.LOST]
        if ended_otherwise or not all(end.not_started for end in self.failures):
            return []
        return sorted({end.node for end in self.failures})

    def accounts(self) -> list[str]:
        """The accounts as which jobs that ended were run, empty for that of the node's agent. The first by name are told."""
        return sorted({name.partition(" ")[2] for name in self._node_names[1:]})[:MOST_ACCOUNTS]

    def done_bits(self) -> bytes:
        """One bit per index below `block`, lowest first in each byte: the job is done, or it pauses."""
        done = bytearray(self._done)
        for index in self.pausing:
            done[index >> 3] |= _bit(index)
        return bytes(done)

    @property
    def next_retry_at_ms(self) -> int:
        """When the first of the jobs that pause may run again, or 0 if none does."""
        return min(self.pausing.values(), default=0)

    def due_retries(self, now_ms: int, longest_ms: int) -> list[JobSlot]:
        """Returns the next attempts of jobs that have waited for long enough.

        Times of retries are of the wall clock, so that they outlive the process. One that lies further ahead than `longest_ms`, the
        longest back-off of the operation, is due too: the clock was set back since it was written.
        """
        due = sorted(index for index, at_ms in self.pausing.items() if not 0 < at_ms - now_ms <= longest_ms)
        return [JobSlot(index, (self.attempts[index] or 1) + 1) for index in due]

    def draw_in(self, tree: TreeName, runs: Sequence[IndexRun], below: int, term: int) -> None:
        """Lets indexes out to a tree: those of `runs` where several trees run them, or else every one under `below`."""
        if self.owners is not None:
            # Former versions named no indexes of such operations: one tree had all.
            self.owners.give(tree, runs or [IndexRun(self.block, below)])
        self.draw(below, term)

    def draw(self, below: int, term: int) -> None:
        """Lets every index under `below` out. A lower border than before changes nothing."""
        below = min(below, self.job_count)
        if below > self.block:
            self.block = below
            for bits in (self._done, self._not_retried):
                bits.extend(bytes((below + 7) // 8 - len(bits)))
            self._results.extend(below)
        self.block_term = max(self.block_term, term)

    def share_out(self, tree: TreeName) -> None:
        """Lets several trees run the jobs from now on. What may be out is out in `tree`."""
        self.owners = IndexOwners(self.job_count)
        self.owners.give(tree, [IndexRun(0, self.block)])
        for index in range(self.block):
            if self._has_ended(index):
                self.owners.end(index, runs_again=False)

    def judge(self, end: JobEnd) -> Verdict:
        """Judges a reported end by the newest attempt of its index."""
        newest = self.attempts[end.index] or 1
        if end.index >= self.block or end.attempt > newest:
            return Verdict.NEVER_OUT
        return Verdict.KNOWN if end.attempt < newest or self._has_ended(end.index) else Verdict.NEW

    def record(self, end: JobEnd, node: str, retry: JobSlot | None, retry_at_ms: int = 0) -> None:
        """Records a new end. `retry` names the attempt that follows it at once, `retry_at_ms` when one does later."""
        index = end.index
        self.counts[end.result] += 1
        runs_again = retry is not None and end.result is not JobResult.COMPLETED
        is_over = not runs_again and not retry_at_ms
        where = f"{node} {end.account}" if end.account else node
        self._results.record(index, _RESULT_CODE[end.result], self._number(where), is_over=is_over)
        self._exit_codes[index] = end.exit_code or 0
        if end.result is JobResult.FAILED:
            self.failed_runs[index] += 1
            self._keep_failure(msgspec.structs.replace(end, node=node))
        if end.result is JobResult.COMPLETED:
            self._done[index >> 3] |= _bit(index)
            self.done_count += 1
        elif retry is not None:
            self.attempts[index] = retry.attempt
        else:
            self._not_retried[index >> 3] |= _bit(index)
            if retry_at_ms:
                self.pausing[index] = retry_at_ms
        if self.owners is not None:
            self.owners.end(index, runs_again=runs_again)

    def retry(self, slot: JobSlot) -> None:
        """Lets the next attempt of a job out that waited for it. Of any other nothing changes."""
        if self.pausing.pop(slot.index, None) is None:
            return
        self.attempts[slot.index] = slot.attempt
        self._not_retried[slot.index >> 3] &= ~_bit(slot.index)
        if self.owners is not None:
            self.owners.end(slot.index, runs_again=True)

    def rows(self, first: int, limit: int) -> list[JobRow]:
        """Jobs from index `first` on, each with its newest ended attempt, else with its first."""
        return list(self._rows(first, min(first + limit, self.job_count)))

    def attempt_slots(self, first: int, most: int) -> list[JobSlot]:
        """Indexes past their first attempt, with the attempt that counts: so many from `first` on, in their order."""
        return [JobSlot(index, attempt) for index, attempt in islice(self.attempts.items(first), most)]

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
            counts=dict(self.counts),
            failures=list(self.failures),
            pages=JobResults(self.job_count, self._results.pages).pages,
            owners=self.owners.to_record() if self.owners is not None else None,
            not_retried_bits=bytes(self._not_retried),
            attempt_pages=self.attempts.pages,
            exit_code_pages=self._exit_codes.pages,
            failed_runs=dict(self.failed_runs.large),
            failed_run_pages=self.failed_runs.pages,
            pausing=dict(self.pausing),
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
        ledger._take_failures(list(record.failures))
        ledger.failed_runs = IndexedNumbers(record.failed_run_pages, record.failed_runs)
        ledger.pausing = dict(record.pausing)
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
        """The broken invariants in words."""
        broken = []
        done, not_retried = int.from_bytes(self._done), int.from_bytes(self._not_retried)
        if self.done_count != done.bit_count():
            broken.append(f"done_count {self.done_count} differs from the bits set")
        if self.done_count != self.counts[JobResult.COMPLETED]:
            broken.append(f"{self.done_count} jobs done, {self.counts[JobResult.COMPLETED]} completions counted")
        if self.block > self.job_count:
            broken.append(f"block {self.block} beyond the {self.job_count} jobs")
        broken += [f"attempt {number} of index {i} beyond block" for i, number in self.attempts.items(self.block)]
        if done & not_retried:
            broken.append(f"{(done & not_retried).bit_count()} jobs are done, and ended without a retry")
        broken += [f"job {i} pauses, and its last run has not ended" for i in self.pausing if not self._has_ended(i)]
        if self.owners is not None:
            broken += self.owners.check(self.block, over=self.done_count + not_retried.bit_count())
        return broken

    def _has_ended(self, index: int) -> bool:
        """True if the newest attempt of the index has ended."""
        return index < self.block and bool((self._done[index >> 3] | self._not_retried[index >> 3]) & _bit(index))

    def _rows(self, first: int, end: int) -> Iterator[JobRow]:
        results = self._results.read(first, end)
        for index in range(first, end):
            attempt = self.attempts[index] or 1
            code, node = next(results, (0, 0))
            if code == 0:
                yield JobRow(JobSlot(index, attempt), None, "")
                continue
            result = _CODE_RESULT[code]
            ended = attempt if self._has_ended(index) or attempt == 1 else attempt - 1
            exit_code = 0 if result is JobResult.COMPLETED else self._exit_codes[index] or None
            name, _, account = self._node_names[node].partition(" ")
            yield JobRow(JobSlot(index, ended), result, name, exit_code, account, self.pausing.get(index, 0))

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
    """The bit of an index in its byte, the lowest first."""
    return 1 << (index & 7)
