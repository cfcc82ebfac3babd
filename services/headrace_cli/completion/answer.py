"""The answer to a Tab."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress

import msgspec

from headrace_cli.completion.bash_line import BashLine, read_line
from headrace_cli.completion.candidates import Completion, Mark, Name, candidates
from headrace_cli.completion.meaning import asks_headrace
from headrace_cli.completion.slot import Slot, find_slot
from headrace_cli.completion.table import read_table


def answer(shell: str, words: Sequence[str]) -> None:
    """Prints what can stand at the cursor, a candidate a line, and nothing where anything is wrong.

    `words` are those behind `headrace` up to the cursor, the last one under it, or from bash the line up to the cursor in two parts, the
    one that stays and the one that is replaced.
    """
    # Whatever went wrong would appear amid the line that somebody is typing.
    with suppress(Exception):
        line = read_line(*words) if shell == "bash" else None
        slot = find_slot(read_table(), line.words if line is not None else words)
        for candidate in candidates(slot, _known_names(slot)):
            fitting = candidate if line is None else _fitting(line, candidate)
            if fitting is not None:
                sys.stdout.write(fitting.line() + "\n")


def _known_names(slot: Slot) -> Sequence[Name]:
    if not asks_headrace(slot):
        return ()
    # The client takes longer to load than all of a Tab that needs none.
    from headrace_cli.completion.names import known_names

    return known_names(slot)


def _fitting(line: BashLine, candidate: Completion) -> Completion | None:
    """The text that bash inserts. None for one that the word under the cursor does not lead to."""
    if candidate.mark not in (Mark.WORD, Mark.PART):
        return candidate
    written = line.written(candidate.value)
    return msgspec.structs.replace(candidate, value=written) if written else None
