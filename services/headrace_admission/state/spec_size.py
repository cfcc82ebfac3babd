"""Bytes that texts and specs take in memory. Pure.

Texts are counted as Python stores them, not as a message encodes them. An empty argument takes one byte in a message, but 72 in
memory; and if a text has one non-ASCII letter, each letter of the text can take four bytes. So a command of 128 KiB in a message can
take 4 MB in memory.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import filterfalse
from typing import Final

import msgspec

from headrace.wire.operation_spec import OperationSpec
from headrace.wire.tasks import Task

#: Bytes of memory that an empty text in a list takes: the object, and the reference to it.
_TEXT_BYTES: Final = 72
#: Bytes of an entry in a dictionary, besides its two texts.
_ENTRY_BYTES: Final = 64
#: Bytes of the options of one tree, or of one task, without their dictionary entries and texts, which are counted separately.
_OPTIONS_BYTES: Final = 64
#: Upper bound of the characters of a program's name that remain when a command is dropped. Lists and published views show as many
#: characters.
_WORD_CHARACTERS: Final = 200


def texts_bytes(texts: Collection[str]) -> int:
    """Return the bytes that some texts take in memory."""
    return sum(map(len, texts)) + 3 * sum(map(len, filterfalse(str.isascii, texts))) + _TEXT_BYTES * len(texts)


def spec_bytes(spec: OperationSpec) -> int:
    """Return the bytes that a spec takes in memory: its command, its environment and everything else of variable length."""
    environment, per_tree = spec.environment, spec.scheduling_options_per_pool_tree
    texts = (
        spec.working_directory,
        spec.title,
        spec.scheduling_tag_filter,
        spec.indexes,
        spec.output,
        spec.error,
        spec.stdin,
        spec.image,
        spec.rerun_of,
        spec.retry_on,
        spec.no_retry_on,
        spec.memory_on_oom,
        *(each.operation for each in spec.after),
    )
    return (
        texts_bytes(spec.argv)
        + texts_bytes(spec.lines)
        + texts_bytes(environment)
        + texts_bytes(environment.values())
        + texts_bytes((*spec.pool_trees, *spec.tentative_pool_trees, *per_tree))
        + texts_bytes([options.pool for options in per_tree.values()])
        + _ENTRY_BYTES * (len(environment) + len(per_tree))
        + _OPTIONS_BYTES * len(per_tree)
        + texts_bytes(texts)
        + sum(map(_task_bytes, spec.tasks))
    )


def _task_bytes(task: Task) -> int:
    environment = task.environment
    texts = texts_bytes((task.name, *task.argv)) + texts_bytes(environment) + texts_bytes(environment.values())
    return texts + _ENTRY_BYTES * len(environment) + _OPTIONS_BYTES


def without_command(spec: OperationSpec) -> OperationSpec:
    """Return a spec without its command; only the first characters of the program's name stay.

    The spec also lacks the environment, lines, folder, files and image of its jobs, its tentative trees, and its options for single trees.
    """
    argv = [spec.argv[0][:_WORD_CHARACTERS]]
    tasks = [
        msgspec.structs.replace(task, argv=[task.argv[0][:_WORD_CHARACTERS]], environment={}) for task in spec.tasks
    ]
    return msgspec.structs.replace(
        spec,
        argv=argv,
        environment={},
        lines=[],
        working_directory="",
        output="",
        error="",
        stdin="",
        image="",
        files=None,
        tasks=tasks,
        tentative_pool_trees=[],
        scheduling_options_per_pool_tree={},
    )
