"""The kind of thing that an argument names: a pool, an operation, a field and so on. Pure.

All commands use the same argument name for the same kind of thing. An argument called `name` names a thing of the kind
that the command is about: in `pool get NAME` a pool.
"""

from __future__ import annotations

import enum
from typing import Final

from headrace_cli.completion.slot import Slot


class Meaning(enum.Enum):
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
    USER = enum.auto()
    STATE = enum.auto()
    #: A field of the pool that an earlier argument names.
    FIELD = enum.auto()
    #: `key=value` for a setting of the kind of thing that the command is about.
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
        Meaning.POOL,
        Meaning.POOL_OR_ROOT,
        Meaning.OPERATION,
        Meaning.LIVE_OPERATION,
        Meaning.NODE,
        Meaning.TREE,
        Meaning.USER,
    }
)
#: Kinds whose words come from tables in the code.
WORDS_OF_SETTINGS: Final = frozenset(
    {Meaning.STATE, Meaning.FIELD, Meaning.ASSIGNMENT, Meaning.OPERATION_SETTING, Meaning.ATTRIBUTE}
)

_BY_NAME: Final = {
    "against": Meaning.POOL,
    "assigned": Meaning.ASSIGNMENT,
    "command": Meaning.COMMAND,
    "destination": Meaning.POOL_OR_ROOT,
    "fields": Meaning.FIELD,
    "file": Meaning.FILE,
    "node": Meaning.NODE,
    "nodes": Meaning.NODE,
    "op": Meaning.OPERATION,
    "op_state": Meaning.STATE,
    "operation": Meaning.OPERATION,
    "operations": Meaning.OPERATION,
    "parent": Meaning.POOL_OR_ROOT,
    "plot": Meaning.FILE,
    "pool": Meaning.POOL,
    "pools": Meaning.POOL,
    "settings": Meaning.OPERATION_SETTING,
    "source": Meaning.POOL_OR_ROOT,
    "to_tree": Meaning.TREE,
    "tree": Meaning.TREE,
    "trees": Meaning.TREE,
    "unset": Meaning.ATTRIBUTE,
    "user": Meaning.USER,
}
_BY_NOUN: Final = {"node": Meaning.NODE, "pool": Meaning.POOL, "tree": Meaning.TREE}
#: Commands and their arguments that name something new.
_NEW: Final = frozenset({("create", "name"), ("up", "node")})
#: Commands about settings themselves. Their argument `name` is the name of a setting.
_VERBS_OF_SETTINGS: Final = frozenset({"attributes", "options"})
#: Verbs that are useless for an operation that is over.
_VERBS_OF_LIVE: Final = frozenset({"abort", "complete", "resume", "set", "suspend", "wait"})
#: Verbs that show a pool. They accept the root as well.
_VERBS_OF_LOOKING: Final = frozenset({"explain", "get", "volume"})


def meaning_of(slot: Slot) -> Meaning | None:
    """Return the kind of values of a slot, or None if the kind is unknown."""
    argument = slot.argument
    if argument is None:
        return None
    name = argument.name
    noun, verb = slot.path[0] if len(slot.path) > 1 else "", slot.path[-1]
    if (verb, name) in _NEW:
        return None
    if argument.is_path:
        return Meaning.FILE
    if name == "name":
        return Meaning.ATTRIBUTE if verb in _VERBS_OF_SETTINGS else _specific(_BY_NOUN.get(noun), verb)
    return _specific(_BY_NAME.get(name), verb)


def _specific(meaning: Meaning | None, verb: str) -> Meaning | None:
    if meaning is Meaning.OPERATION and verb in _VERBS_OF_LIVE:
        return Meaning.LIVE_OPERATION
    if meaning is Meaning.POOL and verb in _VERBS_OF_LOOKING:
        return Meaning.POOL_OR_ROOT
    return meaning


def asks_headrace(slot: Slot) -> bool:
    """True if only a running Headrace knows names for the slot."""
    match meaning_of(slot):
        case Meaning.FIELD:
            return any(separator in slot.value for separator in "/.")
        case Meaning.OPERATION_SETTING:
            return slot.value.startswith("pool=")
        case meaning:
            return meaning in _LIVE
