"""The times of heartbeats: one is in flight at most, and one goes at once when something calls for it.

Otherwise one goes when the allocator said, and never in a tight loop. Pure. Moments are nanoseconds of CLOCK_BOOTTIME.
"""

from __future__ import annotations

from typing import Final

from headrace.runtime.engine import NS_PER_MS, Figure, counter, gauge
from headrace.wire.heartbeat import HeartbeatReason

#: Between two heartbeats at least, so that jobs which end one right after the other are told together. The end of the last job that
#: ran here does not wait for that.
_GAP_NS: Final = 10 * NS_PER_MS
#: Both wait for this part of the time until the next heartbeat that the allocator asked for. It asks for longer times with more nodes
#: and under load: a node of one short job would else take as much of its time as a thousand others. A nudge ends all of that.
_PART_OF_PACE: Final = 100
#: Between two heartbeats where all that calls for one may wait.
_TOGETHER_NS: Final = 100 * NS_PER_MS
#: Before the next heartbeat when one was lost; doubled with each further one, so far that ten thousand nodes are 2,000 a second.
#: Of the time that the allocator gave itself until the next one, the first pause is an eighth at least, and the longest all of it:
#: an allocator that has no time for more would have none for any, were each that it misses told again at once.
_FIRST_PAUSE_NS: Final = 500 * NS_PER_MS
_LONGEST_PAUSE_NS: Final = 5_000 * NS_PER_MS
_PAUSE_WHILE_STOPPING_NS: Final = 500 * NS_PER_MS
#: The first heartbeat waits so long to be told of the enrolment, so that it does not come from an unknown node.
_ENROLMENT_NS: Final = 300 * NS_PER_MS


class Pulse:
    """The rhythm. It beats only when opened: before the picture of the runner is known, a heartbeat would be a lie."""

    def __init__(self) -> None:
        #: Of the newest heartbeat.
        self.seq = 0
        #: Of the newest heartbeat whose answer was obeyed.
        self.applied = 0
        #: Of the newest heartbeat that was answered or given up.
        self.settled = 0
        self.lost_in_a_row = 0
        self._open = False
        #: When the one in flight was sent.
        self._in_flight_ns: int | None = None
        self._sent_ns = 0
        self._wanted: HeartbeatReason | None = HeartbeatReason.STARTED
        #: True if all that calls for a heartbeat may wait for more of its kind.
        self._may_wait = False
        #: True if no job is left whose end could go with what calls for a heartbeat.
        self._is_last = False
        #: Not before this, whatever calls for it.
        self._floor_ns = 0
        #: The end of the gap, 0 if none holds; and of that before the end of the last job.
        self._gap_ns = self._last_gap_ns = 0
        self._due_ns = 0
        #: From the newest answer to the heartbeat that it asked for.
        self._told_ns = 0

    @property
    def is_open(self) -> bool:
        return self._open

    @property
    def in_flight(self) -> bool:
        return self._in_flight_ns is not None

    def started(self, now_ns: int) -> None:
        self._floor_ns = self._due_ns = now_ns + _ENROLMENT_NS

    def open(self) -> None:
        self._open = True

    def want(self, reason: HeartbeatReason, *, may_wait: bool = False, is_last: bool = False) -> None:
        """Something calls for a heartbeat: one goes as soon as none is in flight and no pause holds.

        What may wait goes with what follows within a tenth of a second. Nothing follows the end of the last job, and a node that
        runs nothing has no reason to wait.
        """
        self._is_last = self._is_last or is_last
        self._may_wait = may_wait and (self._wanted is None or self._may_wait)
        if self._wanted is None or reason is HeartbeatReason.STOPPING:
            self._wanted = reason

    def end_pause(self, now_ns: int) -> None:
        """Somebody spoke to us: there is no reason to wait longer for an allocator."""
        self._floor_ns, self._gap_ns, self._last_gap_ns = min(self._floor_ns, now_ns), 0, 0

    def take(self, now_ns: int) -> HeartbeatReason | None:
        """Returns the reason to send a heartbeat now, or None if it is not the time.

        The heartbeat is then in flight with a new `seq`.
        """
        next_ns = self.next_ns()
        if next_ns is None or now_ns < next_ns:
            return None
        reason = self._wanted or HeartbeatReason.PERIOD
        self._wanted, self._may_wait, self._is_last = None, False, False
        self.seq += 1
        self._in_flight_ns = self._sent_ns = now_ns
        return reason

    def answered(self, next_ms: int, now_ns: int) -> int:
        """The heartbeat in flight was answered and is obeyed. Returns when it was sent."""
        assert self._in_flight_ns is not None
        sent_ns = self._in_flight_ns
        self._in_flight_ns = None
        self.applied = self.settled = self.seq
        self.lost_in_a_row = 0
        self._told_ns = next_ms * NS_PER_MS
        asked_ns = self._told_ns // _PART_OF_PACE
        self._floor_ns = sent_ns
        self._gap_ns, self._last_gap_ns = sent_ns + max(_GAP_NS, asked_ns), sent_ns + asked_ns
        self._due_ns = now_ns + self._told_ns
        return sent_ns

    def lost(self, unit: float, now_ns: int, *, stopping: bool) -> None:
        """Gives up the heartbeat in flight. `unit` in [0, 1) spreads the pauses of many nodes."""
        self._in_flight_ns = None
        self.settled = self.seq
        first_ns, longest_ns = max(_FIRST_PAUSE_NS, self._told_ns // 8), max(_LONGEST_PAUSE_NS, self._told_ns)
        pause_ns = min(longest_ns, first_ns << min(self.lost_in_a_row, 16))
        self.lost_in_a_row += 1
        pause_ns = int(pause_ns * (0.5 + unit))
        if stopping:
            pause_ns = min(pause_ns, _PAUSE_WHILE_STOPPING_NS)
        self._floor_ns = self._due_ns = now_ns + pause_ns

    def next_ns(self) -> int | None:
        """The time at which `take` will give one, or None while one is in flight."""
        if not self._open or self._in_flight_ns is not None:
            return None
        floor_ns = max(self._floor_ns, self._last_gap_ns if self._is_last else self._gap_ns)
        due_ns = max(self._due_ns, floor_ns)
        if self._wanted is None:
            return due_ns
        return min(due_ns, max(floor_ns, self._sent_ns + _TOGETHER_NS)) if self._may_wait else floor_ns

    def figures(self) -> list[Figure]:
        """Heartbeats sent, and how they fared."""
        return [
            counter("heartbeats", "heartbeats", self.seq, "Heartbeats that were sent."),
            gauge(
                "newest_heartbeat_obeyed",
                "sequence number",
                self.applied,
                "The newest heartbeat whose answer was obeyed.",
            ),
            gauge(
                "heartbeats_lost_in_a_row",
                "heartbeats",
                self.lost_in_a_row,
                "Heartbeats without an answer since the last that had one.",
            ),
        ]

    def check(self) -> list[str]:
        """Broken invariants in words."""
        in_order = self.applied <= self.settled <= self.seq
        return [] if in_order else [f"heartbeats: {self.applied} obeyed, {self.settled} settled, {self.seq} sent"]
