"""The process `python -m headrace_simulator`, which runs the engines of the services for `headrace replay` and `headrace simulate`."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Final

import msgspec

from headrace_cli.show.screen import Screen

#: Steps of progress, in percent, that are reported if stderr is not a terminal.
_TOLD_EVERY: Final = 25
_PROGRESS: Final = re.compile(rb"(\d{1,3})(?: (\S+) (.+))?\s*\Z")
_ERASE_REST_OF_LINE: Final = "\x1b[K"


def answer_of(words: Sequence[str], task: msgspec.Struct, answers: Any, screen: Screen, done: str) -> Any:
    """Give a task to a new process with these arguments, and return its answer, whose type is `answers`.

    `done` is the word of the progress on stderr, such as `replayed`. Returns None if the process failed; the end of its stderr has been
    printed.
    """
    # Python iterates sets of strings by their hashes. With a fixed seed, the same task always gives the same answer.
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    argv = [sys.executable, "-P", "-m", "headrace_simulator", *words]
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as answered:
        given.write(msgspec.msgpack.encode(task))
        given.seek(0)
        with ExitStack() as stack:
            # Without holding Ctrl-C back, a Ctrl-C during the start could leave a process that nothing ends.
            with _interrupts_held():
                process = stack.enter_context(
                    subprocess.Popen(argv, stdin=given, stdout=answered, stderr=subprocess.PIPE, env=environment)
                )
                # The process keeps nothing, so it may be killed at any time.
                stack.push(lambda error, *_: process.kill() if error else None)
            assert process.stderr is not None
            said = [line for line in process.stderr if not _tell(line, screen, done)]
        answered.seek(0)
        data = answered.read()
    if not data:
        screen.say(b"".join(said[-5:]).decode(errors="replace"), style="red", whole=True)
        return None
    return msgspec.json.decode(data, type=answers)


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Hold back Ctrl-C during the block, and raise `KeyboardInterrupt` after the block."""
    came: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _frame: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if came:
        raise KeyboardInterrupt


def _tell(line: bytes, screen: Screen, done: str) -> bool:
    """Print the progress if the line is a percentage, perhaps with a time and a name. Return False for any other line."""
    found = _PROGRESS.match(line)
    if found is None:
        return False
    percent, time, name = int(found[1]), *(part and part.decode(errors="replace") for part in found.group(2, 3))
    text = f"{done} {percent} %" + (f" ({name}: {time})" if name else "")
    if screen.err.is_terminal:
        sys.stderr.write(f"\r{text}{_ERASE_REST_OF_LINE}" + ("\n" if percent == 100 else ""))
        sys.stderr.flush()
    elif percent % _TOLD_EVERY == 0:
        screen.say(text)
    return True
