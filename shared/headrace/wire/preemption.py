"""Preemption on the wire: how a job is notified, and the record of why its allocation was preempted.

The allocator decides on the preemption and writes the record into its order to the agent. The agent returns the record in every report of
the allocation until the allocation is forgotten. So the record survives a restart of the agent or the allocator.
"""

from __future__ import annotations

import contextlib
import enum
import signal
from typing import Annotated, Final

import msgspec

from headrace.errors import BadInput
from headrace.ids import AllocationId, NodeName, OperationId, PoolName
from headrace.resources import ZERO_SHARE, Finite, Share
from headrace.wire.codec import UNREADABLE
from headrace.wire.version import Counter

#: Upper bound of the size of one record, in bytes.
LARGEST_RECORD_BYTES: Final = 300


class InterruptSignal(enum.StrEnum):
    """Signals that may notify a job of its preemption."""

    SIGTERM = "SIGTERM"
    SIGINT = "SIGINT"
    SIGHUP = "SIGHUP"
    SIGQUIT = "SIGQUIT"
    SIGUSR1 = "SIGUSR1"
    SIGUSR2 = "SIGUSR2"


def parse_signal(text: str, *, place: str) -> InterruptSignal:
    """Return the signal for a name, with or without SIG, or for a number. Raises `BadInput`."""
    name = text.strip().upper()
    with contextlib.suppress(ValueError):
        name = signal.Signals(int(name)).name
    try:
        return InterruptSignal("SIG" + name.removeprefix("SIG"))
    except ValueError:
        known = ", ".join(each.removeprefix("SIG") for each in InterruptSignal)
        raise BadInput(place, text, f"one of {known}, or the number of a signal") from None


class PreemptionReason(enum.StrEnum):
    """Reasons for which the allocator preempts an allocation."""

    #: For a starving operation, in the normal preemptive stage.
    PREEMPTION = "preemption"
    #: For an aggressively starving operation.
    AGGRESSIVE_PREEMPTION = "aggressive_preemption"
    #: The operation is above its fair share, and its allocations are asked to end.
    GRACEFUL_PREEMPTION = "graceful_preemption"
    #: The operation, or a pool above the operation, uses more than its own limit.
    RESOURCE_LIMITS_VIOLATED = "resource_limits_violated"
    #: The node uses more than it has.
    RESOURCE_OVERCOMMIT = "resource_overcommit"
    #: Under `yarn_legacy`: pools have less than they are due, and the allocation belongs to the branch of the tree that would be served
    #: last.
    POOL_SHORTAGE = "pool_shortage"


_NO_ROOM: Final = "its node has less than its allocations take"
_WHY: Final = {
    PreemptionReason.PREEMPTION: "for {}, which starves",
    PreemptionReason.AGGRESSIVE_PREEMPTION: "for {}, which starves aggressively",
    PreemptionReason.GRACEFUL_PREEMPTION: "its operation has more than its fair share",
    PreemptionReason.RESOURCE_LIMITS_VIOLATED: "its operation or a pool above it is over its resource_limits",
    PreemptionReason.RESOURCE_OVERCOMMIT: _NO_ROOM,
    PreemptionReason.POOL_SHORTAGE: "for pools that are short of their share",
}
#: Reasons of preemptive stages. If a record with such a reason has no beneficiary, the stage preempted only because the node was
#: overcommitted.
_OF_STAGES: Final = (PreemptionReason.PREEMPTION, PreemptionReason.AGGRESSIVE_PREEMPTION)


class PreemptionRecord(msgspec.Struct, frozen=True, array_like=True):
    """Proof of one preemption: for which operation, by which rule, and what remained for the operation that lost the allocation."""

    reason: PreemptionReason
    #: Operation that gets the resources; empty if there is none.
    beneficiary: Annotated[OperationId, msgspec.Meta(max_length=64)] = OperationId("")
    #: True if the beneficiary itself starved with the priority of the stage; False if only a pool above it did.
    properly: bool = True
    decided_at_ms: Annotated[int, msgspec.Meta(ge=0, le=2**53)] = 0
    #: Milliseconds from the signal to the kill.
    timeout_ms: Counter = 0
    #: Group of the allocation: 0 non-preemptible, 1 aggressively preemptible, 2 preemptible.
    group: Annotated[int, msgspec.Meta(ge=0, le=2)] = 2
    #: Satisfaction above which an allocation belongs to this group.
    threshold: Finite = 0.0
    #: Fair share of the operation that loses the allocation.
    fair_share: Share = ZERO_SHARE
    #: Usage of the operation that loses the allocation, before the preemption, as a share.
    share_before: Share = ZERO_SHARE
    #: Usage of the operation that loses the allocation, after the preemption, as a share.
    share_after: Share = ZERO_SHARE
    #: True if the pool only observes preemption: the decision was made, but nothing was preempted.
    observed: bool = False
    #: Run time in milliseconds before which jobs of the operation are not preempted; 0 if not set or not applicable.
    exempt_time_ms: Counter = 0
    #: Run time of the job at the preemption, in milliseconds.
    ran_ms: Counter = 0

    @property
    def words(self) -> str:
        """Text that says for which operation the allocation was preempted and why, such as "for 69201a4f-0c1d2e3f4a5b, which starves"."""
        if self.beneficiary and not self.properly:
            return f"for {self.beneficiary}, which is in a pool that starves"
        if not self.beneficiary and self.reason in _OF_STAGES:
            return _NO_ROOM
        return _WHY[self.reason].format(self.beneficiary)


class PreemptionCount(msgspec.Struct, frozen=True):
    """Number of allocations of one group that were preempted for one reason."""

    reason: PreemptionReason
    #: `non_preemptible`, `aggressively_preemptible` or `preemptible`.
    group: Annotated[str, msgspec.Meta(max_length=64)]
    count: Counter


class ObservedPreemption(msgspec.Struct, frozen=True):
    """An allocation that was chosen for preemption but kept, because its pool only observes preemption."""

    node: NodeName
    allocation: AllocationId
    #: Operation that would have lost the allocation.
    operation: OperationId
    pool: PoolName
    record: PreemptionRecord


class ListObserved(msgspec.Struct, frozen=True):
    """person → allocator: ask for the last observed preemptions below a pool; empty for all pools."""

    pool: PoolName = PoolName("")
    limit: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 100


class ObservedPreemptions(msgspec.Struct, frozen=True, tag_field="refusal", tag="none"):
    """Observed preemptions, the newest first, and counts of real preemptions below the pool in this term of the allocator."""

    observed: list[ObservedPreemption]
    taken: list[PreemptionCount] = []


_records: Final[msgspec.msgpack.Decoder[PreemptionRecord | None]] = msgspec.msgpack.Decoder(PreemptionRecord | None)


def read_record(data: bytes) -> PreemptionRecord | None:
    """Return the record in the note of an interruption, or None if there is none."""
    try:
        return _records.decode(data)
    except UNREADABLE:
        return None
