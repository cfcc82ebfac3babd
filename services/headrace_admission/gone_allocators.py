"""Find trees whose allocator does not come back.

The jobs that such a tree holds can then run in the other trees of their operations. No job runs twice: if no allocator answers the
heartbeats of a node, the node's runner ends its jobs before the lease of the node is over. So once the leases of all nodes are over,
nothing runs in the tree any more.
"""

from __future__ import annotations

from typing import Final

import msgspec

from headrace.bus import Bus, BusError, NoResponders, RequestTimeout
from headrace.ids import NodeName, TreeName
from headrace.runtime.clock import Clock
from headrace.runtime.role import LEASE_S, role_of
from headrace.wire import subjects
from headrace.wire.codec import UNREADABLE, encode
from headrace.wire.nodes import GiveUpNode, LongestLeaseRecord

#: Seconds after its last renewal during which an allocator may still have answered a heartbeat.
_MARGIN_S: Final = 2 * LEASE_S
_ANSWER_S: Final = 1.0
#: Name that no node has. A request to give up this node changes nothing; the answer shows that the allocator is there.
_NO_NODE: Final = NodeName("")


class LeaseSilence:
    """How long the allocator of each tree has not renewed its lease, as far as this process has seen. Pure."""

    def __init__(self) -> None:
        #: By tree: the revision of its lease, and the time in seconds at which that revision was first seen.
        self._seen: dict[TreeName, tuple[int, float]] = {}

    def is_longer(self, tree: TreeName, revision: int, than_s: float, now_s: float) -> bool:
        """Return True if the lease has had this revision for longer than `than_s` seconds."""
        seen = self._seen.get(tree)
        if seen is None or seen[0] != revision:
            seen = self._seen[tree] = (revision, now_s)
        return now_s - seen[1] > than_s

    def end(self, tree: TreeName) -> None:
        """Restart the count for a tree, because its allocator answered or its lease could not be read."""
        self._seen.pop(tree, None)


async def is_gone(bus: Bus, tree: TreeName, silence: LeaseSilence, clock: Clock) -> bool:
    """Return True if a tree's allocator is not connected, and has not renewed its own lease for longer than the longest lease of its nodes.

    To be called every few seconds.
    """
    role = role_of("allocator", tree)
    try:
        lease = await (await bus.key_value(subjects.LEASES_BUCKET)).get(role)
        longest = await (await bus.key_value(subjects.NODE_LEASES_BUCKET)).get(tree)
        if longest is None:
            return False
        longest_s = msgspec.json.decode(longest.value, type=LongestLeaseRecord).lease_ms / 1000
        revision = lease.revision if lease is not None else 0
        if not silence.is_longer(tree, revision, longest_s + _MARGIN_S, clock.steady_s()):
            return False
        # An allocator that cannot reach the bucket of leases may still serve its nodes, so the allocator is asked directly. Nodes
        # cannot forge its answer, because they do not receive requests on this subject.
        await bus.request(subjects.give_up_node(tree), encode(GiveUpNode(_NO_NODE)), timeout_s=_ANSWER_S)
    except NoResponders:
        silence.end(tree)
        return True
    except RequestTimeout:
        # The server still has a connection of the allocator, so the allocator may still serve its nodes. The next call asks again.
        return False
    except (BusError, *UNREADABLE):
        silence.end(tree)
        return False
    silence.end(tree)
    return False
