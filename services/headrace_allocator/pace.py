"""The time between two heartbeats of a node that has nothing to tell, longer with more nodes and under load.

Agents whose heartbeat is not answered in time come back after seconds. Were those that are answered to come back each second all the
same, few nodes would take all the time there is, and the others would seem to be gone.
"""

from __future__ import annotations

from typing import Final

from headrace.runtime.engine import Moment, Outcome
from headrace_allocator.effects import Effect
from headrace_allocator.facts.nodes import Timing

__all__ = ["Pace"]

#: The part of its time that the allocator may spend on heartbeats. The rest is for what it reads, and for shares.
_MOST_BUSY: Final = 0.7
#: In one step: nodes hear of a longer pace only with their next answer.
_FASTEST_STRETCH: Final = 1.2
_FASTEST_EASE: Final = 0.9
_MOST_STRETCH: Final = 100.0
#: So many heartbeats may be lost before a node counts as offline.
_HEARTBEATS_IN_TIMEOUT: Final = 4


class Pace:
    """How much longer the pace is than without load."""

    def __init__(self) -> None:
        self.stretch = 1.0

    def ms(self, nodes: int, timing: Timing) -> int:
        """Milliseconds until the next heartbeat of one of so many nodes.

        Example: 10,000 nodes and 2,000 heartbeats a second: 5,000 ms, and 7,500 ms while the stretch is 1.5.
        """
        base_ms = max(timing.shortest_pace_ms, nodes * 1000 // timing.heartbeats_per_s)
        longest_ms = int(timing.node_heartbeat_timeout_s * 1000) // _HEARTBEATS_IN_TIMEOUT
        return max(base_ms, min(int(base_ms * self.stretch), longest_ms))

    def on_load(self, busy: float, moment: Moment) -> Outcome[None, Effect]:
        """Heartbeats took the part `busy` of the time since the last word. The pace grows or shrinks until that is enough."""
        change = min(_FASTEST_STRETCH, max(_FASTEST_EASE, busy / _MOST_BUSY))
        self.stretch = min(_MOST_STRETCH, max(1.0, self.stretch * change))
        return Outcome(None)
