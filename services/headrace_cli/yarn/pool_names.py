"""Names of pools for the queues of a file. Pure.

The name of a queue cannot always be kept: a pool's name must be unique in its tree, and some characters in names of queues are not allowed
in it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from itertools import chain, count
from typing import Final

from headrace.ids import ROOT_POOL
from headrace_cli.yarn.allocation_file import ROOT, Queue
from headrace_cli.yarn.warnings import Warnings

#: Characters that are not allowed in the name of a pool.
_UNUSABLE: Final = re.compile("[^-_a-zA-Z0-9:]+")


def pool_names(queues: Sequence[Queue], warnings: Warnings) -> dict[str, str]:
    """Return the name of each queue's pool, by path.

    A pool has the name of its queue if this name is unique in the file. Otherwise the names of the queues above are put in front of it.
    `queues` must begin with the root, and have each queue after its parent.
    """
    usable = {queue.path: [_UNUSABLE.sub("-", part) for part in queue.path.split(".")[1:]] for queue in queues[1:]}
    counts = Counter(parts[-1] for parts in usable.values())
    names: dict[str, str] = {ROOT: ROOT_POOL}
    taken, given = set(counts), set[str]()
    for queue in queues[1:]:
        parts = usable[queue.path]
        own = name = parts[-1]
        if counts[own] > 1 and (len(parts) > 1 or own in given):
            longer = ["-".join(parts[-length:]) for length in range(2, len(parts) + 1)]
            tries = chain(longer, (f"{(longer or [own])[-1]}-{number}" for number in count(2)))
            name = next(each for each in tries if each not in taken)
            words = f"another queue is named {own}, and names are unique in a tree: the pool is named {name}"
            warnings.say("W26", queue.line, queue.path, words)
        elif own != queue.name:
            words = f"the name of a pool has only letters, digits, '-', '_' and ':': the pool is named {name}"
            warnings.say("W26", queue.line, queue.path, words)
        given.add(name)
        taken.add(name)
        names[queue.path] = name
    return names
