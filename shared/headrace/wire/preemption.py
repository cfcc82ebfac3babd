"""Preemption on the wire: how a job is told, and the record of why its place was taken.

The allocator decides and writes the record into its order. The agent hands it back in every report of the allocation until that is
forgotten. So the record outlives a restart of either.
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
from headrace.wire.version import Counter

#: Of one record, whatever it says.
LARGEST_RECORD_BYTES: Final = 300


class InterruptSignal(enum.StrEnum):
    """Signals by which a job may be told that its place is taken back."""

    SIGTERM = "SIGTERM"
    SIGINT = "SIGINT"
    SIGHUP = "SIGHUP"
    SIGQUIT = "SIGQUIT"
    SIGUSR1 = "SIGUSR1"
    SIGUSR2 = "SIGUSR2"


def parse_signal(text: str, *, place: str) -> InterruptSignal:
    """Reads a signal by its name, with or without SIG, or by its number. Raises `BadInput`."""
    name = text.strip().upper()
    with contextlib.suppress(ValueError):
        name = signal.Signals(int(name)).name
    try:
        return InterruptSignal("SIG" + name.removeprefix("SIG"))
    except ValueError:
        known = ", ".join(each.removeprefix("SIG") for each in InterruptSignal)
        raise BadInput(place, text, f"one of {known}, or its number") from None


class PreemptionReason(enum.StrEnum):
    """Reasons for which the allocator preempts an allocation."""

    #: For a starving operation, in the normal preemptive stage.
    PREEMPTION = "preemption"
    #: For an aggressively starving operation.
    AGGRESSIVE_PREEMPTION = "aggressive_preemption"
    #: Its operation gives back by itself what is above its fair share.
    GRACEFUL_PREEMPTION = "graceful_preemption"
    #: Its operation or a pool above it uses more than its limit.
    RESOURCE_LIMITS_VIOLATED = "resource_limits_violated"
    #: Its node uses more than it has.
    RESOURCE_OVERCOMMIT = "resource_overcommit"
    #: Under `yarn_legacy`: pools are short of what they are due, and it would be served last.
    POOL_SHORTAGE = "pool_shortage"


_NO_ROOM: Final = "its node has less than was given out there"
_WHY: Final = {
    PreemptionReason.PREEMPTION: "for {}, which starves",
    PreemptionReason.AGGRESSIVE_PREEMPTION: "for {}, which starves aggressively",
    PreemptionReason.GRACEFUL_PREEMPTION: "its operation has more than its fair share",
    PreemptionReason.RESOURCE_LIMITS_VIOLATED: "its operation or a pool above it is over its resource_limits",
    PreemptionReason.RESOURCE_OVERCOMMIT: _NO_ROOM,
    PreemptionReason.POOL_SHORTAGE: "for pools that are short of their share",
}
#: A stage takes for somebody, or repairs its node by the way.
_OF_STAGES: Final = (PreemptionReason.PREEMPTION, PreemptionReason.AGGRESSIVE_PREEMPTION)


class PreemptionRecord(msgspec.Struct, frozen=True, array_like=True):
    """Proof of one preemption: for whom, with what right, and what it left to the operation that lost the place."""

    reason: PreemptionReason
    #: The operation that gets the place; empty where there is none.
    beneficiary: Annotated[OperationId, msgspec.Meta(max_length=64)] = OperationId("")
    #: True if the beneficiary's own priority was that of the stage, not only the priority of a pool above it.
    properly: bool = True
    decided_at_ms: Annotated[int, msgspec.Meta(ge=0, le=2**53)] = 0
    #: From the signal to the kill.
    timeout_ms: Counter = 0
    #: Group of the allocation: 0 non-preemptible, 1 aggressively preemptible, 2 preemptible.
    group: Annotated[int, msgspec.Meta(ge=0, le=2)] = 2
    #: The satisfaction above which an allocation is of that group.
    threshold: Finite = 0.0
    #: Of the operation that loses the place: what it is owed, and what it uses before and after.
    fair_share: Share = ZERO_SHARE
    share_before: Share = ZERO_SHARE
    share_after: Share = ZERO_SHARE
    #: True if its pool only observes preemption: it was decided, and nothing was taken.
    observed: bool = False
    #: The time for which a job of its operation makes no room for others, 0 where none is set or it did not count; and the time
    #: that its job had run.
    exempt_time_ms: Counter = 0
    ran_ms: Counter = 0

    @property
    def words(self) -> str:
        """Says for whom and why, such as «for 69201a4f-0c1d2e3f4a5b, which starves»."""
        if self.beneficiary and not self.properly:
            return f"for {self.beneficiary}, which is in a pool that starves"
        if not self.beneficiary and self.reason in _OF_STAGES:
            return _NO_ROOM
        return _WHY[self.reason].format(self.beneficiary)


class PreemptionCount(msgspec.Struct, frozen=True):
    """The number of allocations preempted for one reason, of one group."""

    reason: PreemptionReason
    #: `non_preemptible`, `aggressively_preemptible` or `preemptible`.
    group: Annotated[str, msgspec.Meta(max_length=64)]
    count: Counter


class ObservedPreemption(msgspec.Struct, frozen=True):
    """An allocation that would have been taken back, did its pool not only observe preemption."""

    node: NodeName
    allocation: AllocationId
    #: The operation that would have lost it.
    operation: OperationId
    pool: PoolName
    record: PreemptionRecord


class ListObserved(msgspec.Struct, frozen=True):
    """person → allocator: the last that would have been taken from below a pool, empty for all."""

    pool: PoolName = PoolName("")
    limit: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 100


class ObservedPreemptions(msgspec.Struct, frozen=True, tag_field="refusal", tag="none"):
    """The newest first, and counts of what was truly taken from below the pool in this term of its allocator."""

    observed: list[ObservedPreemption]
    taken: list[PreemptionCount] = []


_records: Final[msgspec.msgpack.Decoder[PreemptionRecord | None]] = msgspec.msgpack.Decoder(PreemptionRecord | None)


def read_record(data: bytes) -> PreemptionRecord | None:
    """Reads the record that stands in the note of an interruption, or returns None where there is none."""
    try:
        return _records.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
