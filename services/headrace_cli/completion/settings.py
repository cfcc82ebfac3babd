"""Words from the tables of fields, settings and states. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.pools import POOL_ATTRIBUTES, TREE_ATTRIBUTES
from headrace.wire.operations import OperationState
from headrace_cli.commands.operations.key_values import KEYS
from headrace_cli.commands.pools.fields import FIELDS
from headrace_cli.completion.keys import assignments, attributes
from headrace_cli.completion.meaning import Meaning, meaning_of
from headrace_cli.completion.slot import Slot


def words_of_settings(slot: Slot) -> Iterator[tuple[str, str]]:
    """Yield words with a description of each. Yield nothing for other kinds of values."""
    schema = TREE_ATTRIBUTES if slot.path[0] == "tree" else POOL_ATTRIBUTES
    match meaning_of(slot):
        case Meaning.STATE:
            yield from ((state, "") for state in OperationState)
        case Meaning.FIELD:
            yield from ((field.name, field.help) for field in FIELDS)
        case Meaning.OPERATION_SETTING:
            yield from ((f"{key}=", "") for key in KEYS)
        case Meaning.ASSIGNMENT:
            yield from assignments(schema, slot.value)
        case Meaning.ATTRIBUTE:
            yield from attributes(schema, slot.value)
        case _:
            pass
