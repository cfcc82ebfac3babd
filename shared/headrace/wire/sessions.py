"""Sessions: the conversation of a person with one process on a node, which is a job with a terminal or a command beside a job.

A session is a series of turns. Each turn is a request of the person, and its answer comes from the runner of the node. Every byte has an
offset in its stream, so a turn that arrives twice, late or out of order adds no byte twice, and output whose answer was lost is sent again.
The runner keeps only output that the person has not received yet, at most `MOST_SESSION_BYTES` of each stream. It reads no more from the
process until the person has received these bytes, so a process that writes without end waits for its reader.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from headrace.ids import OperationId
from headrace.wire.version import Counter

#: Largest number of bytes of input in one turn, and of each output stream in one answer.
MOST_SESSION_BYTES = 64 * 1024
#: Longest time in milliseconds that a turn may wait for output. It is shorter than the time for which a client waits for one answer.
LONGEST_TURN_MS = 3_000
#: Largest number of rows, and of columns, of a terminal.
_MOST_CELLS = 65_535

#: Name of a session: 128 random bits, which its client chose.
SessionId = Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{32}\Z")]


class TerminalSize(msgspec.Struct, frozen=True):
    """Size of a terminal in characters."""

    rows: Annotated[int, msgspec.Meta(ge=0, le=_MOST_CELLS)]
    columns: Annotated[int, msgspec.Meta(ge=0, le=_MOST_CELLS)]


class SessionCommand(msgspec.Struct, frozen=True):
    """A command that a session starts beside a running job: in the cgroup, environment, working folder and account of the job."""

    argv: Annotated[
        list[Annotated[str, msgspec.Meta(max_length=131_072)]], msgspec.Meta(min_length=1, max_length=10_000)
    ]
    #: True if the command gets a terminal; else pipes.
    terminal: bool = False
    #: Value of `TERM` for the command; empty: the value that the job has, if any.
    term: Annotated[str, msgspec.Meta(max_length=64)] = ""


class SessionTurn(msgspec.Struct, frozen=True):
    """person → agent: one turn of a session. The first turn begins the session."""

    session: SessionId
    operation: OperationId
    index: Annotated[int, msgspec.Meta(ge=0, lt=2**31)]
    #: Number of the turn, from 1. The runner ignores `size` if it has applied the size of a later turn.
    turn: Counter
    #: Command to start; the client sends it in each turn until the first answer. None in later turns, and in a session with the terminal of
    #: the job itself.
    command: SessionCommand | None = None
    #: Size of the person's terminal; None: unchanged.
    size: TerminalSize | None = None
    #: Offset of the first byte of `input`. The runner skips bytes that it has accepted before.
    input_offset: Counter = 0
    input: Annotated[bytes, msgspec.Meta(max_length=MOST_SESSION_BYTES)] = b""
    #: True if the input ends with these bytes.
    input_ended: bool = False
    #: Number of bytes of stdout that the person has received. The field below is the same number for stderr.
    stdout_offset: Counter = 0
    stderr_offset: Counter = 0
    #: Milliseconds to wait if there is no output yet; None: no output is wanted.
    wait_ms: Annotated[int, msgspec.Meta(ge=0, le=LONGEST_TURN_MS)] | None = None
    #: True if the person leaves: the terminal is hung up, and the process ends.
    hang_up: bool = False


class SessionState(msgspec.Struct, frozen=True, tag_field="refusal", tag="none"):
    """agent → person: the state of a session after a turn."""

    #: Number of bytes of input that the runner has accepted. The client must send all later bytes again.
    input_offset: Counter
    #: Offset of the first byte of `stdout`.
    stdout_offset: Counter = 0
    stdout: Annotated[bytes, msgspec.Meta(max_length=MOST_SESSION_BYTES)] = b""
    stderr_offset: Counter = 0
    stderr: Annotated[bytes, msgspec.Meta(max_length=MOST_SESSION_BYTES)] = b""
    #: True if the process has ended and no output follows the output in this answer.
    ended: bool = False
    #: Exit status of the process; None: it runs, was not started, or was ended by a signal.
    exit_code: int | None = None
    #: Number of the signal that ended the process; None: no signal ended it.
    signal: int | None = None
    #: Why the process was not started, or why the runner ended it; empty: neither.
    reason: Annotated[str, msgspec.Meta(max_length=4096)] = ""
    #: Milliseconds without a turn after which the runner ends the process.
    grace_ms: Counter = 0
