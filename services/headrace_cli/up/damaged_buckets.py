"""Damaged files of buckets: the nats-server is made to look for them whenever it starts.

After an orderly stop the nats-server (2.15.1, tried) trusts `index.db` and reads no message. A value with one flipped bit is then
neither read nor replaced: the next write to it ends all writes to the bucket. Without `index.db` the server reads the messages,
checks each, and leaves out what is damaged. The services write it again from its copy, or take it anew.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Final

from headrace.wire import subjects

#: Without its index the server would leave out everything behind a damaged page that nothing needs any more. Admission itself
#: begins a damaged checkpoint anew.
_KEPT: Final = f"KV_{subjects.CHECKPOINT_BUCKET}"
#: A larger bucket would hold up the start: it has archives of files, each of which is written once.
_LARGEST_BYTES: Final = 64 * 2**20


def have_buckets_checked(store: Path) -> None:
    """Removes the indexes of all small buckets in the store of a nats-server that does not run, as far as they can be removed.

    The log of operations keeps its index: without it the server would leave out whatever stands behind a damaged entry.
    """
    for messages in store.glob("jetstream/*/streams/KV_*/msgs"):
        with contextlib.suppress(OSError):
            if messages.parent.name == _KEPT:
                continue
            if sum(block.stat().st_size for block in messages.glob("*.blk")) <= _LARGEST_BYTES:
                (messages / "index.db").unlink(missing_ok=True)
