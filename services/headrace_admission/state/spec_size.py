"""Bytes that texts and specs take in memory. Pure.

Texts are counted as Python stores them: an empty argument takes one byte in a message and 72 in memory, and a non-ASCII letter
makes each letter of its text take up to four bytes. Otherwise a command of 128 KiB could take 4 MB and count as 128 KiB.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import filterfalse
from typing import Final

import msgspec

from headrace.wire.operation_spec import OperationSpec

#: Bytes of an empty text and its position in a list.
_TEXT_BYTES: Final = 72
#: Bytes of an entry in a dictionary, besides its two texts.
_ENTRY_BYTES: Final = 64
#: Characters of the program's name that stay when a command is dropped; lists and news show as many.
_WORD_CHARACTERS: Final = 200


def texts_bytes(texts: Collection[str]) -> int:
    """Return the bytes that some texts take in memory."""
    return sum(map(len, texts)) + 3 * sum(map(len, filterfalse(str.isascii, texts))) + _TEXT_BYTES * len(texts)


def spec_bytes(spec: OperationSpec) -> int:
    """Return the bytes that the command, the environment and the other texts of a spec take in memory."""
    environment = spec.environment
    texts = (spec.working_directory, spec.title, spec.scheduling_tag_filter, *(each.operation for each in spec.after))
    return (
        texts_bytes(spec.argv)
        + texts_bytes(environment)
        + texts_bytes(environment.values())
        + _ENTRY_BYTES * len(environment)
        + texts_bytes(texts)
    )


def without_command(spec: OperationSpec) -> OperationSpec:
    """Return a spec without arguments, environment, working folder and files of its jobs."""
    argv = [spec.argv[0][:_WORD_CHARACTERS]]
    return msgspec.structs.replace(spec, argv=argv, environment={}, working_directory="", files=None)
