"""The kind of thing that an argument names: a pool, an operation, a field and so on. Pure.

All commands use the same argument name for the same kind of thing. An argument called `name` names a thing of the kind
that the command is about: in `pool get NAME` a pool.
"""

from __future__ import annotations

import enum
from typing import Final

from headrace_cli.completion.slot import Slot


class ValueKind(enum.Enum):
    """The kind of values that an argument takes."""

    #: A pool in which operations run.
    POOL = enum.auto()
    #: A pool in which operations run, or the root.
    POOL_OR_ROOT = enum.auto()
    OPERATION = enum.auto()
    #: An operation that is not over.
    LIVE_OPERATION = enum.auto()
    NODE = enum.auto()
    TREE = enum.auto()
    GROUP = enum.auto()
    USER = enum.auto()
    STATE = enum.auto()
    #: A field of the pool that an earlier argument names.
    FIELD = enum.auto()
    #: `key=value` for a setting of a pool or, in the commands of trees, of a tree.
    ASSIGNMENT = enum.auto()
    #: `key=value` for a setting that `op set` changes.
    OPERATION_SETTING = enum.auto()
    #: The key of a setting, without a value.
    ATTRIBUTE = enum.auto()
    FILE = enum.auto()
    #: A program and its arguments.
    COMMAND = enum.auto()


#: Kinds whose names only a running Headrace knows.
_LIVE: Final = frozenset(
    {
        ValueKind.POOL,
        ValueKind.POOL_OR_ROOT,
        ValueKind.OPERATION,
        ValueKind.LIVE_OPERATION,
        ValueKind.NODE,
        ValueKind.TREE,
        ValueKind.GROUP,
        ValueKind.USER,
    }
)
#: Kinds whose words come from tables in the code.
WORDS_OF_SETTINGS: Final = frozenset(
    {ValueKind.STATE, ValueKind.FIELD, ValueKind.ASSIGNMENT, ValueKind.OPERATION_SETTING, ValueKind.ATTRIBUTE}
)

_BY_NAME: Final = {
    "against": ValueKind.POOL,
    "assigned": ValueKind.ASSIGNMENT,
    "command": ValueKind.COMMAND,
    "destination": ValueKind.POOL_OR_ROOT,
    "fields": ValueKind.FIELD,
    "file": ValueKind.FILE,
    "node": ValueKind.NODE,
    "nodes": ValueKind.NODE,
    "op": ValueKind.OPERATION,
    "in_state": ValueKind.STATE,
    "operation": ValueKind.OPERATION,
    "operations": ValueKind.OPERATION,
    "parent": ValueKind.POOL_OR_ROOT,
    "plot": ValueKind.FILE,
    "pool": ValueKind.POOL,
    "pools": ValueKind.POOL,
    "settings": ValueKind.OPERATION_SETTING,
    "source": ValueKind.POOL_OR_ROOT,
    "to_tree": ValueKind.TREE,
    "tree": ValueKind.TREE,
    "trees": ValueKind.TREE,
    "unset": ValueKind.ATTRIBUTE,
    "user": ValueKind.USER,
    "users": ValueKind.USER,
}
_BY_NOUN: Final = {"group": ValueKind.GROUP, "node": ValueKind.NODE, "pool": ValueKind.POOL, "tree": ValueKind.TREE}
#: Arguments that name something new, each with its command. Existing names are no candidates for them.
_NEW: Final = frozenset({("create", "name"), ("up", "node")})
#: Commands about settings themselves. Their argument `name` is the name of a setting.
_VERBS_OF_SETTINGS: Final = frozenset({"attributes", "options"})
#: Verbs that are useless for an operation that is over.
_VERBS_OF_LIVE: Final = frozenset({"abort", "complete", "resume", "set", "suspend", "wait"})
#: Verbs that show a pool. They accept the root as well.
_VERBS_OF_LOOKING: Final = frozenset({"explain", "get", "volume"})


def value_kind(slot: Slot) -> ValueKind | None:
    """Return the kind of values of a slot, or None if the kind is unknown."""
    argument = slot.argument
    if argument is None:
        return None
    name = argument.name
    noun, verb = slot.path[0] if len(slot.path) > 1 else "", slot.path[-1]
    if (verb, name) in _NEW:
        return None
    if argument.is_path:
        return ValueKind.FILE
    if name == "name":
        return ValueKind.ATTRIBUTE if verb in _VERBS_OF_SETTINGS else _specific(_BY_NOUN.get(noun), verb)
    return _specific(_BY_NAME.get(name), verb)


def _specific(kind: ValueKind | None, verb: str) -> ValueKind | None:
    if kind is ValueKind.OPERATION and verb in _VERBS_OF_LIVE:
        return ValueKind.LIVE_OPERATION
    if kind is ValueKind.POOL and verb in _VERBS_OF_LOOKING:
        return ValueKind.POOL_OR_ROOT
    return kind


def asks_headrace(slot: Slot) -> bool:
    """True if only a running Headrace knows names for the slot."""
    match value_kind(slot):
        case ValueKind.FIELD:
            return any(separator in slot.value for separator in "/.")
        case ValueKind.OPERATION_SETTING:
            return slot.value.startswith("pool=")
        case kind:
            return kind in _LIVE
