"""`python -m headrace_simulator`: read a `ReplayTask` as msgpack from standard input, and print JSON of `headrace.wire.replay`."""

from __future__ import annotations

import gc
import sys

import msgspec

from headrace.wire.replay import ReplayRefused, ReplayTask
from headrace_simulator.comparison import replayed
from headrace_simulator.simulated_node import BrokenReplay

_BROKEN = 1
_USAGE = 2
_INTERRUPTED = 130


def main() -> int:
    """Run the process. Status 0 comes with a replay, 2 with a refusal, 1 with a fault, 130 after Ctrl-C."""
    task = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=ReplayTask)
    # The garbage collector need not look at the task, which is large and stays in memory until the end.
    gc.freeze()
    told = 0

    def say(done: float) -> None:
        nonlocal told
        if int(done * 100) > told:
            told = int(done * 100)
            sys.stderr.write(f"{told}\n")
            sys.stderr.flush()

    try:
        answer = replayed(task, say)
    except BrokenReplay as error:
        sys.stdout.buffer.write(msgspec.json.encode(ReplayRefused(f"a fault in Headrace; please report it: {error}")))
        return _BROKEN
    except KeyboardInterrupt:
        return _INTERRUPTED
    sys.stdout.buffer.write(msgspec.json.encode(answer))
    return _USAGE if isinstance(answer, ReplayRefused) else 0


if __name__ == "__main__":
    sys.exit(main())
