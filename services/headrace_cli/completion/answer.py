"""Answer the shell at a Tab: print the candidates for the word under the cursor."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress

import msgspec

from headrace_cli.completion.bash_line import BashLine, read_line
from headrace_cli.completion.candidates import Completion, Mark, Name, candidates
from headrace_cli.completion.slot import Slot, find_slot
from headrace_cli.completion.table import read_table
from headrace_cli.completion.value_kinds import asks_headrace


def answer(shell: str, words: Sequence[str]) -> None:
    """Print the candidates for the word under the cursor, one on each line. Print nothing if anything goes wrong.

    From zsh and fish, `words` are the words after `headrace` up to the cursor; the last word is under the cursor. From
    bash, `words` are two parts of the line up to the cursor: the part that stays, and the part that is replaced.
    """
    # No error may be printed: it would appear in the middle of the line that the user is typing.
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
    # The client takes longer to import than a whole answer that does not need it.
    from headrace_cli.completion.live_names import known_names

    return known_names(slot)


def _fitting(line: BashLine, candidate: Completion) -> Completion | None:
    """Return the candidate with the text that bash inserts for it. None if the candidate does not begin with the word under the
    cursor.
    """
    if candidate.mark not in (Mark.WORD, Mark.PART):
        return candidate
    written = line.written(candidate.value)
    return msgspec.structs.replace(candidate, value=written) if written else None
