"""The pace: the time between two heartbeats of a node that has nothing to report. It grows with the number of nodes and under load.

Under load the pace must grow for all nodes. An agent whose heartbeat is not answered in time waits for seconds before it tries again. If
agents that got an answer sent the next heartbeat after one second, a few nodes would take up the allocator, and all others would seem dead.

Each node has its own point in time within every pace. If a heartbeat simply came one pace after the last answer, nodes that were answered
one right after another would always come together and wait behind one another.

YTsaurus limits how many heartbeats are processed at the same time. Here heartbeats are decided one by one, and the pace takes the place of
such limits.
"""

from __future__ import annotations

import zlib
from typing import Final

from headrace.ids import NodeName
from headrace.runtime.engine import NS_PER_MS, Figure, Moment, Outcome, gauge
from headrace.wire.heartbeat import HeartbeatReason
from headrace_allocator.effects import Alarm, Effect
from headrace_allocator.facts.nodes import LastHeard, Timing

#: Average wait of heartbeats for their turn, in milliseconds, above which the pace grows. Other processes on a busy machine add tens of
#: milliseconds to the wait, and a longer pace would not help against that.
_LONG_WAIT_MS: Final = 200.0
#: Average wait of heartbeats for their turn, in milliseconds, below which the pace shrinks.
_SHORT_WAIT_MS: Final = 50.0
#: Factor by which the pace grows at a time. Nodes learn a new pace only with their next answer.
_GROWTH: Final = 1.2
#: Factor by which the pace shrinks at a time.
_SHRINKAGE: Final = 0.95
#: Upper bound of the stretch: the factor by which load makes the pace longer.
_MOST_STRETCH: Final = 15.0
#: The pace is at most this part (1/4) of the node heartbeat timeout, so that a node which loses two heartbeats in a row stays online. The
#: time from one answered heartbeat to the next is at most two paces (`next_ms`). After two lost heartbeats an agent pauses for at most 9/8
#: of a pace more (`headrace_agent.heartbeat_timing.Pulse.lost`), and waits twice for the answer. With the usual timeouts of 60 s for nodes
#: and 2 s for answers, the third heartbeat comes after 51 s at the latest.
_PACES_IN_TIMEOUT: Final = 4
#: Shortest time until a node's next heartbeat, as a fraction of the pace. After a late answer, the node's next point in time may be nearer
#: than that. Then this point in time is skipped.
_SOONEST_PART: Final = 0.5
#: A constant, because looking up an enumeration member costs as much as ten comparisons.
_PERIOD: Final = HeartbeatReason.PERIOD


class Pace:
    """The pace of heartbeats. Also records that a node is alive although its heartbeat was not processed in time."""

    def __init__(self, last_heard: LastHeard) -> None:
        self.stretch = 1.0
        self._waited_ms = 0.0
        self._last_heard = last_heard
        #: Number by which the scheduled heartbeats per second of all nodes exceed `heartbeats_per_s`, as of the last tick.
        self._above_rate = 0
        #: The text about a rate that the node heartbeat timeout does not allow to keep; empty if the rate is kept.
        self.trouble = ""

    def ms(self, nodes: int, timing: Timing) -> int:
        """Return the milliseconds until the next heartbeat of a node, in a tree with this number of nodes.

        For example, 10,000 nodes that send 2,000 heartbeats a second get 5,000 ms. If load makes the pace 1.5 times as long (`stretch`),
        they get 7,500 ms. With a node heartbeat timeout of 60 s, the result is at most 15,000 ms, however many nodes there are.
        """
        return min(int(_unbounded_ms(nodes, timing) * self.stretch), _longest_ms(timing))

    @property
    def is_late(self) -> bool:
        """True if heartbeats had to wait for their turn lately, so that more heartbeats would only wait longer."""
        return self._waited_ms > _SHORT_WAIT_MS

    def next_ms(self, node: NodeName, why: HeartbeatReason, pace_ms: int, now: Moment, timing: Timing) -> int:
        """Return the milliseconds until the node's next heartbeat, after a heartbeat that was sent for the reason `why`.

        Each node has a point in time of its own within every pace, at which its heartbeat is due. A point in time is skipped if it is less
        than half a pace away. If the pace is longer than the shortest pace, an unscheduled heartbeat replaces the next scheduled one: then
        a point in time is skipped if it is less than a whole pace away. Otherwise the heartbeats that report ends would come on top of the
        scheduled heartbeats and exceed the capacity.

        Example: 1,000 nodes with a pace of 1,000 ms are all answered at once. From 500 ms after the answers, one node sends its
        heartbeat in each millisecond. With a pace of 5,000 ms, a node that reports an end 1,000 ms before its point in time is due in 6,000
        ms.
        """
        own_ms = pace_ms * zlib.crc32(node.encode()) >> 32
        takes_place = why is not _PERIOD and pace_ms > timing.shortest_pace_ms
        soonest_ms = pace_ms if takes_place else int(pace_ms * _SOONEST_PART)
        return soonest_ms + (own_ms - now.steady_ns // NS_PER_MS - soonest_ms) % pace_ms

    def on_load(self, waited_ms: float, now: Moment) -> Outcome[None, Effect]:
        """Adjust the pace to the average milliseconds that heartbeats have waited for their turn since the last call."""
        self._waited_ms = waited_ms
        if waited_ms > _LONG_WAIT_MS:
            self.stretch = min(_MOST_STRETCH, self.stretch * _GROWTH)
        elif waited_ms < _SHORT_WAIT_MS:
            self.stretch = max(1.0, self.stretch * _SHRINKAGE)
        return Outcome(None)

    def on_tick(self, nodes: int, timing: Timing) -> list[Alarm]:
        """Compare the scheduled heartbeats per second of this number of nodes with `heartbeats_per_s`.

        Return an alarm if they became more, because the node heartbeat timeout does not allow a longer pace.
        """
        longest_ms, rate = _longest_ms(timing), timing.heartbeats_per_s
        needed_ms = _unbounded_ms(nodes, timing)
        per_s = -(-nodes * 1000 // min(longest_ms, needed_ms))
        was_above, self._above_rate = self._above_rate > 0, max(0, per_s - rate)
        if not self._above_rate:
            self.trouble = ""
            return []
        self.trouble = (
            f"{nodes:,} nodes send {per_s:,} heartbeats per second, more than heartbeats_per_s = {rate:,}, because"
            f" node_heartbeat_timeout_ms = {timing.node_heartbeat_timeout_s * 1000:.0f} allows {longest_ms:,} ms between two heartbeats of"
            f" a node: set heartbeats_per_s to {per_s} if this allocator has time for them, or node_heartbeat_timeout_ms to"
            f" {needed_ms * _PACES_IN_TIMEOUT}"
        )
        about = {"nodes": nodes, "heartbeats_per_s": rate, "scheduled_per_s": per_s}
        return [] if was_above else [Alarm("nodes send more heartbeats than heartbeats_per_s", about)]

    def on_late(self, node: NodeName, now: Moment) -> Outcome[None, Effect]:
        """Record that a node is alive, from a heartbeat that waited so long that the agent no longer expects the answer, or that was
        dropped because too many heartbeats waited.

        Nothing else of the heartbeat counts. Without this record, nodes would go offline and come back under load, and all shares would
        change with them, which adds to the load.
        """
        self._last_heard.note_late(node, now)
        return Outcome(None)

    def figures(self) -> list[Figure]:
        """Return three metrics: the heartbeats above the rate, the stretch, which is the factor by which load makes the pace longer, and
        the waiting time that controls the stretch.
        """
        return [
            gauge(
                "heartbeats_above_rate",
                "heartbeats/s",
                self._above_rate,
                "Scheduled heartbeats per second of all nodes above heartbeats_per_s. The node heartbeat timeout is too short for the"
                " number of nodes.",
            ),
            gauge(
                "pace_stretch",
                "times",
                self.stretch,
                "Factor by which nodes wait longer than usual between heartbeats.",
            ),
            gauge(
                "heartbeat_wait",
                "ms",
                self._waited_ms,
                "Recent average time that heartbeats waited for their turn.",
            ),
        ]


def _unbounded_ms(nodes: int, timing: Timing) -> int:
    """Return the pace in milliseconds without load at which this number of nodes keeps within `heartbeats_per_s`."""
    return max(timing.shortest_pace_ms, -(-nodes * 1000 // timing.heartbeats_per_s))


def _longest_ms(timing: Timing) -> int:
    """Return the upper bound of the pace in milliseconds, with and without load."""
    return max(1, int(timing.node_heartbeat_timeout_s * 1000) // _PACES_IN_TIMEOUT)
