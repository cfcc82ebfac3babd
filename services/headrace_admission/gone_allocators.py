"""Trees whose allocator does not come back: what they have of operations of several trees can run in the others.

After the lease of its nodes nothing runs there any more: without answers to heartbeats the runners end their jobs before.
"""

from __future__ import annotations

from typing import Final

import msgspec

from headrace.bus import Bus, BusError, NoResponders, RequestTimeout
from headrace.ids import NodeName, TreeName
from headrace.runtime.clock import Clock
from headrace.runtime.role import LEASE_S, role_of
from headrace.wire import subjects
from headrace.wire.codec import encode
from headrace.wire.nodes import GiveUpNode, LongestLeaseRecord

#: An allocator may still have answered a heartbeat so long after its last renewal.
_MARGIN_S: Final = 2 * LEASE_S
_ANSWER_S: Final = 1.0
#: No node has such a name, so that nothing follows from the question.
_NO_NODE: Final = NodeName("")


class Silence:
    """The time for which the allocator of each tree has not renewed its lease while this process looked. Pure."""

    def __init__(self) -> None:
        #: By tree: the revision of its lease, and when it was seen first.
        self._seen: dict[TreeName, tuple[int, float]] = {}

    def is_longer(self, tree: TreeName, revision: int, than_s: float, now_s: float) -> bool:
        """True if the lease has stood at this revision for longer than so many seconds."""
        seen = self._seen.get(tree)
        if seen is None or seen[0] != revision:
            seen = self._seen[tree] = (revision, now_s)
        return now_s - seen[1] > than_s

    def end(self, tree: TreeName) -> None:
        """The allocator was heard, or nobody can tell: the time counts anew."""
        self._seen.pop(tree, None)


async def is_gone(bus: Bus, tree: TreeName, silence: Silence, clock: Clock) -> bool:
    """True if nothing was heard of a tree's allocator for the longest lease of its nodes. To be asked every few seconds."""
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
        # One that cannot reach the bucket serves its nodes all the same. No node can answer in its place: they do not hear the question.
        await bus.request(subjects.give_up_node(tree), encode(GiveUpNode(_NO_NODE)), timeout_s=_ANSWER_S)
    except NoResponders:
        silence.end(tree)
        return True
    except RequestTimeout:
        # The server still has its connection, so it may serve its nodes. It is asked again the next time.
        return False
    except (BusError, msgspec.DecodeError):
        silence.end(tree)
        return False
    silence.end(tree)
    return False
