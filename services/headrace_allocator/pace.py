"""The time between two heartbeats of a node that has nothing to tell, longer with more nodes and under load.

Agents whose heartbeat is not answered in time come back after seconds. Were those that are answered to come back each second all the
same, few nodes would take all the time there is, and the others would seem to be gone.

Each node has a moment of its own in every pace. Were it only so long from one answer to the next heartbeat, nodes that were answered
one right after the other would come so for ever, and wait behind one another each time.
"""

from __future__ import annotations

import zlib
from typing import Final

from headrace.ids import NodeName
from headrace.runtime.engine import NS_PER_MS, Figure, Moment, Outcome, gauge
from headrace.wire.heartbeat import HeartbeatReason
from headrace_allocator.effects import Effect
from headrace_allocator.facts.nodes import LastHeard, Timing

#: For its turn a heartbeat may wait so long on average. Above it the pace grows; far below it the pace shrinks again.
#: Other processes on a busy machine cost tens of milliseconds, and a longer pace would not help against that.
_LONG_WAIT_MS: Final = 200.0
_SHORT_WAIT_MS: Final = 50.0
#: Nodes hear of another pace only with their next answer.
_GROWTH: Final = 1.2
_SHRINKAGE: Final = 0.95
_MOST_STRETCH: Final = 15.0
#: So many heartbeats may be lost before a node counts as offline.
_HEARTBEATS_IN_TIMEOUT: Final = 4
#: The next moment of a node that came at its own is not nearer than this part of the pace, so that an answer may come late.
_SOONEST_PART: Final = 0.5
#: Looked up once: the lookup of a member in its enumeration costs as much as ten comparisons.
_PERIOD: Final = HeartbeatReason.PERIOD


class Pace:
    """The pace of heartbeats, longer under load, and a word that nodes live whose heartbeats found no time."""

    def __init__(self, last_heard: LastHeard) -> None:
        self.stretch = 1.0
        self._waited_ms = 0.0
        self._last_heard = last_heard

    def ms(self, nodes: int, timing: Timing) -> int:
        """Milliseconds until the next heartbeat of one of so many nodes.

        Example: 10,000 nodes and 2,000 heartbeats a second: 5,000 ms, and 7,500 ms while the stretch is 1.5.
        """
        base_ms = max(timing.shortest_pace_ms, nodes * 1000 // timing.heartbeats_per_s)
        if self.stretch == 1.0:
            return base_ms
        longest_ms = int(timing.node_heartbeat_timeout_s * 1000) // _HEARTBEATS_IN_TIMEOUT
        return max(base_ms, min(int(base_ms * self.stretch), longest_ms))

    @property
    def is_late(self) -> bool:
        """True if heartbeats waited for their turn of late, so that more of them would only wait longer."""
        return self._waited_ms > _SHORT_WAIT_MS

    def next_ms(self, node: NodeName, why: HeartbeatReason, pace_ms: int, moment: Moment, timing: Timing) -> int:
        """Milliseconds until the next moment that is not too near of a node that came for this reason.

        Where the pace is long, as there are many nodes, a heartbeat between two moments of its node takes the place of the next one.
        Else those of ends would come on top of all that there is time for.

        Example: of 1,000 nodes with a pace of 1,000 ms that are answered at once, one comes each millisecond from 500 ms on. With a
        pace of 5,000 ms a node whose moment would be in 1,000 ms comes in 6,000 ms if it told of an end now.
        """
        own_ms = pace_ms * zlib.crc32(node.encode()) >> 32
        takes_place = why is not _PERIOD and pace_ms > timing.shortest_pace_ms
        soonest_ms = pace_ms if takes_place else int(pace_ms * _SOONEST_PART)
        return soonest_ms + (own_ms - moment.steady_ns // NS_PER_MS - soonest_ms) % pace_ms

    def on_load(self, waited_ms: float, moment: Moment) -> Outcome[None, Effect]:
        """Since the last word heartbeats have waited so long on average before their turn came."""
        self._waited_ms = waited_ms
        if waited_ms > _LONG_WAIT_MS:
            self.stretch = min(_MOST_STRETCH, self.stretch * _GROWTH)
        elif waited_ms < _SHORT_WAIT_MS:
            self.stretch = max(1.0, self.stretch * _SHRINKAGE)
        return Outcome(None)

    def on_late(self, node: NodeName, moment: Moment) -> Outcome[None, Effect]:
        """A heartbeat of this node waited so long that nobody awaits its answer. It shows no more than that the node lives.

        Else nodes went offline and came back while there is much to do, and all shares with them, which is more to do.
        """
        self._last_heard.note_late(node, moment)
        return Outcome(None)

    def figures(self) -> list[Figure]:
        """The stretch, and the waiting that decides on it."""
        return [
            gauge("pace_stretch", "times", self.stretch, "How much longer than usual nodes wait between heartbeats."),
            gauge(
                "heartbeat_wait",
                "ms",
                self._waited_ms,
                "How long heartbeats waited for their turn of late, on average.",
            ),
        ]
