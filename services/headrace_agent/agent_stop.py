"""The stop of the agent: which request to stop is in force, and when the agent process may end.

Pure. A later request replaces an earlier request only if it is more urgent. In the mode `leave`, the runner keeps the jobs running
for the next agent process. In the other modes, the runner ends with the agent.
"""

from __future__ import annotations

from typing import Final

from headrace.runtime.engine import NS_PER_MS, Moment
from headrace.wire.heartbeat import NodeState
from headrace.wire.nodes import StopMode
from headrace_agent.allocations.node_allocations import NodeAllocations
from headrace_agent.heartbeat_timing import Pulse

#: Milliseconds after the kill of the jobs for which the agent still waits for admission to record the last ends.
_LAST_ENDS_MS: Final = 3_000
#: Milliseconds for which the agent waits for the runner to confirm that none of the recalled jobs is queued.
_RECALL_MS: Final = 3_000
_SEVERITY: Final = {StopMode.WAIT: 1, StopMode.LEAVE: 2, StopMode.INTERRUPT: 3, StopMode.KILL: 4}


class Stopping:
    """The request to stop that is in force, if there is one. `timeout_ms` is the time from the interruption of the jobs to their kill."""

    def __init__(self, timeout_ms: int) -> None:
        self.mode: StopMode | None = None
        #: CLOCK_BOOTTIME in nanoseconds at which the agent leaves, even if something is still unreported.
        self.deadline_ns: int | None = None
        self._timeout_ms = timeout_ms
        #: Number of the newest heartbeat when the stop began. Only a later heartbeat reports the stop to the allocator.
        self._seq = 0
        self._began_ns = 0

    @property
    def node_state(self) -> NodeState:
        """Return the state of the node for a heartbeat."""
        if self.mode is StopMode.INTERRUPT:
            return NodeState.STOPPING
        return NodeState.OPEN if self.mode is None else NodeState.DRAINING

    @property
    def with_runner(self) -> bool:
        """True if the runner ends with the agent."""
        return self.mode is not StopMode.LEAVE

    def begin(self, mode: StopMode, seq: int, now: Moment) -> bool:
        """Take a request to stop. Return False, without any effect, if it is not more urgent than the request in force."""
        if self.mode is not None and _SEVERITY[mode] <= _SEVERITY[self.mode]:
            return False
        self.mode = mode
        self._seq = seq
        self._began_ns = now.steady_ns
        timeout_ms = self.interruption_ms
        self.deadline_ns = None if timeout_ms is None else self._deadline(timeout_ms, now)
        return True

    def tell_after(self, seq: int) -> None:
        """Let the agent process end only when a heartbeat after `seq` was answered or given up, because there is news to report."""
        self._seq = max(self._seq, seq)

    @property
    def interruption_ms(self) -> int | None:
        """Return the milliseconds from the interruption of the jobs to their kill, or None if the jobs may run on."""
        match self.mode:
            case StopMode.INTERRUPT:
                return self._timeout_ms
            case StopMode.KILL:
                return 0
            case _:
                return None

    def may_leave(self, pulse: Pulse, held: NodeAllocations, now: Moment) -> bool:
        """True if the agent process may end now.

        After the last job has ended, it waits until admission has recorded all ends, but only until `deadline_ns`.
        """
        if self.mode is None:
            return False
        if self.mode is StopMode.KILL or (self.deadline_ns is not None and now.steady_ns >= self.deadline_ns):
            return True
        is_told = pulse.settled > self._seq
        if self.mode is StopMode.LEAVE:
            # The runner may still start the jobs that are being recalled, so their slots cannot be returned to the allocator yet.
            may_give_back = not held.is_recalling or now.steady_ns >= self._began_ns + _RECALL_MS * NS_PER_MS
            return (is_told and may_give_back) or not pulse.is_open
        if held.by_job or not pulse.is_open:
            return False
        if self.deadline_ns is None:
            self.deadline_ns = self._deadline(self._timeout_ms, now)
        return is_told and not held.ends

    def _deadline(self, timeout_ms: int, now: Moment) -> int:
        return now.steady_ns + (timeout_ms + _LAST_ENDS_MS) * NS_PER_MS
