"""Make the nats-server look for damaged files of buckets whenever it starts.

When the nats-server (tested with 2.15.1) starts after an orderly stop, it trusts `index.db` and reads no message. A value with one flipped
bit can then be neither read nor replaced: after an attempt to write this value, the server refuses all writes to the bucket. Without
`index.db` the server reads and checks every message, and leaves out damaged messages. The services then write the value again from their
copy, or make a new value.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Final

from headrace.wire import subjects

#: The bucket that keeps its index. Without the index the server would leave out everything behind a damaged page, even if that page is no
#: longer needed. A damaged checkpoint need not be found here: admission itself replaces it.
_KEPT: Final = f"KV_{subjects.CHECKPOINT_BUCKET}"
#: Largest size in bytes of a bucket whose index is removed. Checking a larger bucket would delay the start, and is less useful: such
#: buckets contain archives of files, and each archive is written only once.
_LARGEST_BYTES: Final = 64 * 2**20


def have_buckets_checked(store: Path) -> None:
    """Remove the indexes of all small buckets in the store of a stopped nats-server, as far as possible.

    The log of operations keeps its index: without it the server would leave out everything behind a damaged entry.
    """
    for messages in store.glob("jetstream/*/streams/KV_*/msgs"):
        with contextlib.suppress(OSError):
            if messages.parent.name == _KEPT:
                continue
            if sum(block.stat().st_size for block in messages.glob("*.blk")) <= _LARGEST_BYTES:
                (messages / "index.db").unlink(missing_ok=True)
