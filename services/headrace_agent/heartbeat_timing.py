"""The timing of heartbeats: at most one heartbeat is in flight, and the next is sent without delay when there is a reason.

Without a reason the next heartbeat is sent when the period that the allocator asked for is over. Short pauses apply in any case, so that a
node never sends heartbeats without a break. Pure. All times are nanoseconds of CLOCK_BOOTTIME.
"""

from __future__ import annotations

from typing import Final

from headrace.runtime.engine import NS_PER_MS, Figure, counter, gauge
from headrace.wire.heartbeat import HeartbeatReason

#: Shortest time between two heartbeats, so that jobs which end one right after the other are reported together. The heartbeat that reports
#: the end of the last job on the node is sent without this wait.
_GAP_NS: Final = 10 * NS_PER_MS
#: Every heartbeat, even the heartbeat about the end of the last job, waits at least this part (1/100) of the period that the allocator
#: asked for. The allocator asks for longer periods if it has more nodes or is under load. Without this wait, a node that runs one short job
#: after another would take as much of the allocator's time as a thousand other nodes. A nudge ends the wait.
_PART_OF_PACE: Final = 100
#: Shortest time between two heartbeats if no reason to send the second heartbeat is urgent.
_TOGETHER_NS: Final = 100 * NS_PER_MS
#: Pause after the first lost heartbeat. If an eighth of the period that the allocator asked for is longer, the pause is that long. It
#: doubles with each further heartbeat lost in a row, because quick retries would make a busy allocator even busier.
_FIRST_PAUSE_NS: Final = 500 * NS_PER_MS
#: Upper bound of the pause after lost heartbeats. If the allocator asked for a longer period, the period is the upper bound. With pauses of
#: 5 s, ten thousand nodes send 2,000 heartbeats a second.
_LONGEST_PAUSE_NS: Final = 5_000 * NS_PER_MS
_PAUSE_WHILE_STOPPING_NS: Final = 500 * NS_PER_MS
#: Longest time that the first heartbeat waits for the enrolment of the node. Without the wait the allocator would often not know the node
#: yet.
_ENROLMENT_NS: Final = 300 * NS_PER_MS


class Pulse:
    """The timing of heartbeats.

    No heartbeat is sent before `open` is called: until the runner has reported its jobs, a heartbeat would lack them.
    """

    def __init__(self) -> None:
        #: Sequence number of the newest heartbeat.
        self.seq = 0
        #: Sequence number of the newest heartbeat whose answer was obeyed.
        self.applied = 0
        #: Sequence number of the newest heartbeat that is no longer in flight, because it was answered or given up.
        self.settled = 0
        self.lost_in_a_row = 0
        self._open = False
        #: Time at which the heartbeat in flight was sent; None: no heartbeat is in flight.
        self._in_flight_ns: int | None = None
        self._sent_ns = 0
        self._wanted: HeartbeatReason | None = HeartbeatReason.STARTED
        #: True if the next heartbeat may be delayed a little, so that it reports further events too.
        self._may_wait = False
        #: True if no job runs on the node since the last one ended, so that the next heartbeat need not wait for further ends.
        self._is_last = False
        #: Earliest time of the next heartbeat, even if there is a reason to send a heartbeat sooner.
        self._floor_ns = 0
        #: Earliest times of the next heartbeat, set by the newest answer; 0: no bound. `_last_gap_ns` applies if the last job on the node
        #: has ended, `_gap_ns` otherwise.
        self._gap_ns = self._last_gap_ns = 0
        self._due_ns = 0
        #: Period that the allocator asked for: the time from its newest answer to the next heartbeat.
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
        """Ask for a heartbeat: it is sent as soon as no other heartbeat is in flight and no pause holds.

        With `may_wait` the heartbeat waits up to a tenth of a second for further reasons. `is_last` says that the last job of the node has
        ended. The heartbeat then does not wait for ends of other jobs, because no other job runs on the node.
        """
        self._is_last = self._is_last or is_last
        self._may_wait = may_wait and (self._wanted is None or self._may_wait)
        if self._wanted is None or reason is HeartbeatReason.STOPPING:
            self._wanted = reason

    def end_pause(self, now_ns: int) -> None:
        """End all pauses, because a message showed that the allocator or admission can be reached, or asked for a heartbeat."""
        self._floor_ns, self._gap_ns, self._last_gap_ns = min(self._floor_ns, now_ns), 0, 0

    def begin_heartbeat(self, now_ns: int) -> HeartbeatReason | None:
        """Return the reason to send a heartbeat now, or None if it is not time yet.

        If a reason is returned, a heartbeat with a new `seq` is in flight from now on.
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
        """Record that the heartbeat in flight was answered and the answer is obeyed. Return the time at which the heartbeat was sent."""
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
        """Give up the heartbeat in flight. `unit` is a random number in [0, 1) that varies the following pause from node to node."""
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
        """Return the time from which on `begin_heartbeat` returns a reason. Return None while a heartbeat is in flight, and before
        `open`.
        """
        if not self._open or self._in_flight_ns is not None:
            return None
        floor_ns = max(self._floor_ns, self._last_gap_ns if self._is_last else self._gap_ns)
        due_ns = max(self._due_ns, floor_ns)
        if self._wanted is None:
            return due_ns
        return min(due_ns, max(floor_ns, self._sent_ns + _TOGETHER_NS)) if self._may_wait else floor_ns

    def figures(self) -> list[Figure]:
        """Return the metrics of heartbeats: sent, obeyed, and lost in a row."""
        return [
            counter("heartbeats", "heartbeats", self.seq, "Heartbeats that were sent."),
            gauge(
                "newest_heartbeat_obeyed",
                "sequence number",
                self.applied,
                "Sequence number of the newest heartbeat whose answer the agent followed.",
            ),
            gauge(
                "heartbeats_lost_in_a_row",
                "heartbeats",
                self.lost_in_a_row,
                "Heartbeats without an answer since the last heartbeat that was answered.",
            ),
        ]

    def check(self) -> list[str]:
        """Return a description of each broken invariant."""
        in_order = self.applied <= self.settled <= self.seq
        return [] if in_order else [f"heartbeats: {self.applied} obeyed, {self.settled} settled, {self.seq} sent"]
