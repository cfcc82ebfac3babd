"""Messages of a replay, which runs a stretch of the log again under another configuration.

Only `ReadEvents` and its pages go over the bus. The rest goes from one process to another, and `headrace replay --json` prints `Replay`.
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
    """person → admission: the entries of the log behind `after`, those that are kept."""

    after: Counter = 0


class ToldEntry(msgspec.Struct, frozen=True, array_like=True):
    """An entry of the log without commands and output of jobs, which are for owners alone."""

    sequence: Counter
    term: Term
    events: list[Event]


class LogPage(msgspec.Struct, frozen=True, tag_field="refusal", tag="none"):
    """A page of the log, the oldest entry first."""

    entries: list[ToldEntry]
    #: What the request for the next page says in `after`; None: this was the last one.
    next: Counter | None = None
    #: The sequence of the oldest entry that is kept. What came before it was forgotten.
    oldest: Counter = 0


class ReplayNode(msgspec.Struct, frozen=True):
    """A node on which jobs are replayed."""

    node: NodeName
    total: Resources
    tags: list[str] = []
    isolated: bool = False


class LiveRun(msgspec.Struct, frozen=True):
    """A job that runs now, of which the log has no end."""

    operation: OperationId
    index: Counter
    attempt: Counter
    node: NodeName
    started_at_ms: Counter


class ReplayTask(msgspec.Struct, frozen=True):
    """All that a replay is made from."""

    tree: TreeName
    since_ms: Counter
    until_ms: Counter
    #: The time between two updates of the shares while all goes on changing.
    step_ms: Annotated[int, msgspec.Meta(ge=1)]
    #: What is counted, such as `cpu`.
    resource: str
    #: From the oldest entry that is kept.
    entries: list[ToldEntry]
    nodes: list[ReplayNode]
    running: list[LiveRun]
    configured: Tree
    #: Changes that make the other configuration of it.
    changes: list[PoolChange]
    volumes: list[PoolVolume] = []


class ReplayedPool(msgspec.Struct, frozen=True):
    """A pool with all below it in one of the replays. Amounts are in cores or bytes times hours, series are means over stretches."""

    usage: Finite
    fair_share: Finite
    demand: Finite
    #: Usage of runs that were taken back for others before they were done.
    preempted_usage: Finite
    preemptions: Counter
    #: Operations that came in this time, and of those the ones that had no job started at its end, or were refused.
    operations: Counter
    never_started: Counter
    refused: Counter
    #: From the start of an operation to that of its first job; of one that never started, to the end of the replay.
    median_wait_ms: Counter
    longest_wait_ms: Counter
    usage_series: list[Finite] = []
    fair_share_series: list[Finite] = []
    demand_series: list[Finite] = []


class ComparedPool(msgspec.Struct, frozen=True):
    """A pool in both replays. It is None in one that it is not in."""

    pool: PoolName
    path: str
    #: By the log: in hours, and means over stretches.
    recorded_usage: Finite
    recorded_series: list[Finite]
    before: ReplayedPool | None = None
    after: ReplayedPool | None = None
    #: Operations that are over a second or more sooner in the second replay, and those that are later or by its end not.
    sooner: Counter = 0
    later: Counter = 0


class Agreement(msgspec.Struct, frozen=True):
    """The agreement of the replay under the recorded configuration with what happened."""

    #: Of all pools, in hours of the resource.
    recorded_usage: Finite
    replayed_usage: Finite
    #: The part of the usage that fell to the same pool in the same stretch of time, from 0 to 1.
    overlap: Finite


class Replay(msgspec.Struct, frozen=True, tag_field="outcome", tag="replayed"):
    """Both replays, pools in the order of the tree, parents before children."""

    tree: TreeName
    resource: str
    since_ms: Counter
    until_ms: Counter
    step_ms: Counter
    #: Of the stretches of all series, from `since_ms` on.
    stretch_ms: Counter
    operations: Counter
    job_runs: Counter
    agreement: Agreement
    pools: list[ComparedPool]
    #: All that was assumed or left out, in words.
    notes: list[str] = []


class ReplayRefused(msgspec.Struct, frozen=True, tag_field="outcome", tag="refused"):
    """Nothing could be replayed, and why."""

    why: str
