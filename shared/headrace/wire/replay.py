"""Messages of a replay, which runs a period of the log again under another configuration.

Only `ReadEvents` and its pages go over the bus. The other messages pass directly from one process to another, and `headrace replay --json`
prints `Replay`.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from headrace.ids import NodeName, OperationId, PoolName, TreeName
from headrace.pools.stored_tree import Tree
from headrace.resources import Finite, Resources
from headrace.wire.integral import PoolVolume
from headrace.wire.log import Event
from headrace.wire.pool_changes import PoolChange
from headrace.wire.version import Counter, Term


class ReadEvents(msgspec.Struct, frozen=True):
    """person → admission: ask for the kept entries of the log after `after`, or from a time on."""

    after: Counter = 0
    #: Unix time in milliseconds; entries before this time are left out. 0: all entries are sent.
    since_ms: Counter = 0


class ToldEntry(msgspec.Struct, frozen=True, array_like=True):
    """An entry of the log without commands and output of jobs, which only owners may see."""

    sequence: Counter
    term: Term
    events: list[Event]


class LogPage(msgspec.Struct, frozen=True, tag_field="refusal", tag="none"):
    """A page of the log, the oldest entry first."""

    entries: list[ToldEntry]
    #: Value of `after` in the request for the next page; None on the last page.
    next: Counter | None = None
    #: Sequence of the oldest entry that is kept.
    oldest: Counter = 0


class ReplayNode(msgspec.Struct, frozen=True):
    """A node on which jobs are replayed."""

    node: NodeName
    total: Resources
    tags: list[str] = []
    isolated: bool = False


class LiveRun(msgspec.Struct, frozen=True):
    """A job that still runs, so that the log does not have its end."""

    operation: OperationId
    index: Counter
    attempt: Counter
    node: NodeName
    started_at_ms: Counter


class ReplayTask(msgspec.Struct, frozen=True):
    """The complete input of a replay."""

    tree: TreeName
    since_ms: Counter
    until_ms: Counter
    #: Milliseconds of simulated time between two updates of the shares.
    step_ms: Annotated[int, msgspec.Meta(ge=1)]
    #: Resource that is counted, such as `cpu`.
    resource: str
    #: Entries of the log from the oldest kept entry on.
    entries: list[ToldEntry]
    nodes: list[ReplayNode]
    running: list[LiveRun]
    configured: Tree
    #: Changes that turn the recorded configuration `configured` into the configuration of the second replay.
    changes: list[PoolChange]
    volumes: list[PoolVolume] = []


class ReplayedPool(msgspec.Struct, frozen=True):
    """The figures of a pool, including all pools below it, in one of the two replays.

    Amounts are in cores or bytes times hours. Each value of a series is a mean over one stretch of time.
    """

    usage: Finite
    fair_share: Finite
    demand: Finite
    #: Usage of runs that were preempted before they were done.
    preempted_usage: Finite
    preemptions: Counter
    #: Number of operations that arrived in the period.
    operations: Counter
    #: Number of operations that arrived in the period and had not started any job when the period ended.
    never_started: Counter
    #: Number of operations that arrived in the period and were refused.
    refused: Counter
    #: Median wait in milliseconds: from the start of an operation to its first job, or to the end of the replay if no job started.
    median_wait_ms: Counter
    #: Longest wait in milliseconds, measured as for `median_wait_ms`.
    longest_wait_ms: Counter
    usage_series: list[Finite] = []
    fair_share_series: list[Finite] = []
    demand_series: list[Finite] = []


class ComparedPool(msgspec.Struct, frozen=True):
    """A pool in both replays: `before` is the replay under the recorded configuration, `after` the replay under the changed configuration.
    A field is None if the pool does not exist in that replay.
    """

    pool: PoolName
    path: str
    #: Usage according to the log, in hours of the resource.
    recorded_usage: Finite
    #: Usage according to the log, as means over stretches.
    recorded_series: list[Finite]
    before: ReplayedPool | None = None
    after: ReplayedPool | None = None
    #: Number of operations that end at least a second sooner in the replay `after`.
    sooner: Counter = 0
    #: Number of operations that end at least a second later in the replay `after`, or do not end in it.
    later: Counter = 0


class Agreement(msgspec.Struct, frozen=True):
    """Comparison of the usage in the replay under the recorded configuration with the recorded usage."""

    #: Usage of all pools, in hours of the resource.
    recorded_usage: Finite
    replayed_usage: Finite
    #: Fraction of the usage that is in the same pool and in the same stretch of time as recorded, from 0 to 1.
    overlap: Finite


class Replay(msgspec.Struct, frozen=True, tag_field="outcome", tag="replayed"):
    """The results of both replays. Pools are in the order of the tree, parents before children."""

    tree: TreeName
    resource: str
    since_ms: Counter
    until_ms: Counter
    step_ms: Counter
    #: Length of the stretches of all series in milliseconds, from `since_ms` on.
    stretch_ms: Counter
    operations: Counter
    job_runs: Counter
    agreement: Agreement
    pools: list[ComparedPool]
    #: Everything that was assumed or left out, in words.
    notes: list[str] = []


class ReplayRefused(msgspec.Struct, frozen=True, tag_field="outcome", tag="refused"):
    """Nothing could be replayed. `why` says the reason."""

    why: str
