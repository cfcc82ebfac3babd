"""Facts about finished runs: what each run adds to the records of consumption. Facts are kept here until the records contain them.

The consumption of a run is the resources of its job times the duration of the run. A run is divided at midnight (UTC), and at each
move of its operation to another pool, so that each part belongs to one day and one pool. Facts are computed from the log alone, so a
process that reads the same log again gets the same facts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import msgspec

from headrace.ids import OperationId, PoolName, TreeName
from headrace.resources import MOST_OF_A_NODE, Resources
from headrace.wire.consumption import RunSums
from headrace.wire.heartbeat import EXIT_SAVED, JobEnd, JobResult
from headrace.wire.log import JobsEnded
from headrace.wire.version import Counter

DAY_MS: Final = 86_400_000
#: Upper bound of the facts in memory. Beyond it the oldest facts are dropped, and their runs are counted as lost.
MOST_FACTS: Final = 200_000
#: Number of former pools of an operation that are remembered. The part of a run before the oldest remembered pool counts for that pool.
MOST_FORMER_POOLS: Final = 16
#: Upper bound of the cores that a run is assumed to have used. More reported CPU time is cut, because one wrong report would stay in
#: the records for years.
_MOST_CORES: Final = 4_096
_FAILED: Final = (JobResult.FAILED, JobResult.TIMED_OUT, JobResult.LOST)


class PoolChain(msgspec.Struct, frozen=True, array_like=True):
    """A pool of a tree, and the pools above it at the time of the run."""

    tree: TreeName
    #: The pool, its parent, and so on. The chain may lack the topmost pools as long as the configuration of the tree is not known.
    pools: tuple[PoolName, ...]
    #: True if the chain reaches the top of the tree.
    is_whole: bool = False


class FormerPool(msgspec.Struct, frozen=True, array_like=True):
    """A pool that an operation left when it was moved to another pool."""

    chain: PoolChain
    #: Unix time in milliseconds of the move.
    until_ms: Counter


class Fact(NamedTuple):
    """The sums that one log entry adds to one row of the records."""

    #: Sequence of the log entry; 0 until the entry is durable.
    sequence: int
    #: Days since 1970-01-01 (UTC).
    day: int
    chain: PoolChain
    user: str
    operation: OperationId
    sums: RunSums


class EndedRun(NamedTuple):
    """A finished run, and the pool in which its operation was when the ledger recorded the end."""

    end: JobEnd
    #: Resources of its job.
    resources: Resources
    chain: PoolChain


class Consumer(NamedTuple):
    """The operation whose runs ended."""

    operation: OperationId
    user: str
    started_at_ms: int
    former_pools: Sequence[FormerPool]


class ConsumptionFacts:
    """The facts that are not in the records yet, in the order of the log. Changed only by `State`."""

    def __init__(self) -> None:
        self.waiting: deque[Fact] = deque()
        #: Number of runs whose facts were dropped because more than `MOST_FACTS` facts waited.
        self.lost_runs = 0
        #: Decided events that are not durable yet, with their facts.
        self._undurable: deque[tuple[JobsEnded, list[Fact]]] = deque()

    def note(self, event: JobsEnded, sequence: int, consumer: Consumer, runs: Iterable[EndedRun]) -> None:
        """Add the facts of an event. `sequence` is 0 if the event is not in the log yet; `confirm` sets it later."""
        facts = list(_facts(event, sequence, consumer, runs))
        if not sequence:
            self._undurable.append((event, facts))
        else:
            self._add(facts)

    def confirm(self, event: JobsEnded, sequence: int) -> None:
        """Record that the log holds a decided event in the entry `sequence`."""
        if self._undurable and self._undurable[0][0] is event:
            self._add(fact._replace(sequence=sequence) for fact in self._undurable.popleft()[1])

    def drop(self, until: int) -> None:
        """Drop the facts of the log entries up to `until`, because the records contain them."""
        while self.waiting and self.waiting[0].sequence <= until:
            self.waiting.popleft()

    def _add(self, facts: Iterable[Fact]) -> None:
        self.waiting.extend(facts)
        while len(self.waiting) > MOST_FACTS:
            self.lost_runs += self.waiting.popleft().sums.runs


def _facts(event: JobsEnded, sequence: int, consumer: Consumer, runs: Iterable[EndedRun]) -> Iterator[Fact]:
    sums: dict[tuple[int, PoolChain], RunSums] = {}
    for run in runs:
        for at, portion in _portions(run, event.at_ms, consumer):
            known = sums.get(at)
            sums[at] = portion if known is None else known + portion
    for (day, chain), found in sums.items():
        yield Fact(sequence, day, chain, consumer.user, consumer.operation, found)


def _portions(run: EndedRun, recorded_ms: int, consumer: Consumer) -> Iterator[tuple[tuple[int, PoolChain], RunSums]]:
    """Yield the sums of each part of a run, with the day and the pool of the part. The run itself is counted in its last part only."""
    end = run.end
    began_ms, ended_ms = _bounds(end, recorded_ms, consumer.started_at_ms)
    measured = int(end.is_measured)
    whole_ms = ended_ms - began_ms
    stays = list(_stays(began_ms, ended_ms, consumer.former_pools, run.chain))
    for place, (from_ms, until_ms, chain) in enumerate(stays, 1):
        sums = _sums(end, run.resources, until_ms - from_ms, whole_ms)
        if place == len(stays):
            sums = msgspec.structs.replace(sums, runs=1, measured_runs=measured)
        yield (from_ms // DAY_MS, chain), sums


def _bounds(end: JobEnd, recorded_ms: int, started_at_ms: int) -> tuple[int, int]:
    """Return when a run began and ended, in milliseconds of Unix time.

    The node reports both times by its own clock, which may be wrong. So both times are shifted by the same amount, until they lie between
    the start of the operation and the time at which admission recorded the end. A run that the node reports as longer than this period is
    shortened to it.
    """
    length_ms = max(0, end.ended_at_ms - end.started_at_ms) if end.started_at_ms else 0
    length_ms = min(length_ms, max(0, recorded_ms - started_at_ms))
    ended_ms = min(end.ended_at_ms or recorded_ms, recorded_ms)
    ended_ms = max(ended_ms, min(recorded_ms, started_at_ms + length_ms))
    return ended_ms - length_ms, ended_ms


def _stays(
    began_ms: int, ended_ms: int, former: Sequence[FormerPool], last: PoolChain
) -> Iterator[tuple[int, int, PoolChain]]:
    """Yield the parts of a run, each within one day and one pool. A run without length is one part."""
    moves = [
        (each.until_ms, each.chain) for each in former if each.chain.tree == last.tree and each.until_ms > began_ms
    ]
    from_ms = began_ms
    for until_ms, chain in [*((min(moved_ms, ended_ms), chain) for moved_ms, chain in moves), (ended_ms, last)]:
        while (midnight_ms := (from_ms // DAY_MS + 1) * DAY_MS) < until_ms:
            yield from_ms, midnight_ms, chain
            from_ms = midnight_ms
        if from_ms < until_ms or began_ms == ended_ms:
            yield from_ms, until_ms, chain
            from_ms = until_ms
        if from_ms == ended_ms:
            break


def _sums(end: JobEnd, given: Resources, part_ms: int, whole_ms: int) -> RunSums:
    core_s, byte_s, gpu_s = given.cpu * part_ms / 100_000, given.memory * part_ms / 1000, given.gpu * part_ms / 1000
    allotted = core_s, byte_s, gpu_s
    nothing = 0.0, 0.0, 0.0
    # A run shorter than a second has the bound of a whole second, because it may have used more CPU time than its recorded duration allows.
    cpu_ms = min(end.cpu_ms, _MOST_CORES * max(whole_ms, 1_000))
    used_core_s = cpu_ms / 1000 * (part_ms / whole_ms if whole_ms else 1.0)
    used_byte_s = min(end.max_rss_bytes, MOST_OF_A_NODE.memory) * part_ms / 1000
    has_failed = end.result in _FAILED
    was_preempted = (
        end.preemption is not None
        and not has_failed
        and end.result is not JobResult.COMPLETED
        and end.exit_code != EXIT_SAVED
    )
    preempted, failed = allotted if was_preempted else nothing, allotted if has_failed else nothing
    return RunSums(0, 0, *allotted, used_core_s, used_byte_s, *preempted, *failed)
