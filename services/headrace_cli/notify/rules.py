"""Rules of notifications: what is notified, to which targets, and in which words. Pure."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from string import Formatter
from typing import Final

import msgspec

from headrace.client.finished import FinishedOperation
from headrace.durations import format_duration
from headrace_cli.show.times import timestamp

#: Facts of an occurrence, by the name of the fact.
About = Mapping[str, str | int | float | bool]


class RuleKind(enum.StrEnum):
    """The kind of occurrence that a rule notifies."""

    OPERATION_ENDED = "operation_ended"
    POOL_STARVES = "pool_starves"
    NODE_LOST = "node_lost"


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """One rule. Each list of patterns must match: at least one of its patterns does, or the list is empty."""

    name: str
    when: RuleKind
    to: Sequence[str]
    states: Sequence[str] = ()
    users: Sequence[str] = ()
    pools: Sequence[str] = ()
    trees: Sequence[str] = ()
    nodes: Sequence[str] = ()
    #: Milliseconds for which a pool must starve, or a node must be lost.
    for_ms: int = 0
    #: Text with names of facts in braces; empty: the text of its kind.
    text: str = ""


class Webhook(msgspec.Struct, frozen=True, kw_only=True):
    """An HTTP endpoint that gets JSON."""

    url: str
    headers: Mapping[str, str] = {}


class Mail(msgspec.Struct, frozen=True, kw_only=True):
    """A mail server, and the addresses that get mail; `{user}` in an address stands for the owner of an operation."""

    recipients: Sequence[str]
    sender: str
    host: str
    port: int
    #: `starttls`, `tls` or `none`.
    security: str
    user: str = ""
    password: str = ""


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """Where notifications are sent."""

    name: str
    to: Webhook | Mail
    #: Milliseconds between two messages. Occurrences in the meantime are in the next message.
    pause_ms: int
    #: Milliseconds after which a message that could not be delivered is dropped.
    give_up_after_ms: int


class Rules(msgspec.Struct, frozen=True):
    """All rules and targets of a file."""

    rules: Sequence[Rule]
    targets: Mapping[str, Target]


#: Facts of each kind of occurrence, for filters and texts.
FACTS: Final[Mapping[RuleKind, Sequence[str]]] = {
    RuleKind.OPERATION_ENDED: (*FinishedOperation.__struct_fields__, "ended", "ran"),
    RuleKind.POOL_STARVES: ("pool", "path", "tree", "status", "short_of", "since", "lasts"),
    RuleKind.NODE_LOST: ("node", "tree", "state", "jobs", "since", "lasts"),
}
#: Filters that a rule of each kind may have.
FILTERS: Final[Mapping[RuleKind, Sequence[str]]] = {
    RuleKind.OPERATION_ENDED: ("states", "users", "pools", "trees"),
    RuleKind.POOL_STARVES: ("pools", "trees"),
    RuleKind.NODE_LOST: ("nodes", "trees"),
}
_TEXTS: Final[Mapping[RuleKind, str]] = {
    RuleKind.OPERATION_ENDED: "operation {operation} of {user} in pool {pool} {ended}",
    RuleKind.POOL_STARVES: "pool {path} of tree {tree} starves since {since} ({lasts}), short of its {short_of}",
    RuleKind.NODE_LOST: "node {node} of tree {tree} is {state} since {since} ({lasts}); {jobs} jobs ran there",
}


def unknown_facts(text: str, kind: RuleKind) -> list[str]:
    """Return the parts in braces that are not facts of this kind. Raises `ValueError` for braces without a partner."""
    parts = [part for part in Formatter().parse(text) if part[1] is not None]
    return [str(name) for _, name, spec, how in parts if name not in FACTS[kind] or spec or how]


def words_of(rule: Rule, about: About) -> str:
    """Return the text of an occurrence."""
    return (rule.text or _TEXTS[rule.when]).format_map(dict(about))


def matches(rule: Rule, about: About) -> bool:
    """True if the facts match the filters of a rule. A pattern of pools may name the pool or its path."""
    for filter_ in FILTERS[rule.when]:
        patterns, fact = getattr(rule, filter_), filter_.removesuffix("s")
        values = [str(about[name]) for name in (fact, "path") if name in about and (name != "path" or fact == "pool")]
        if patterns and not any(fnmatchcase(value, pattern) for value in values for pattern in patterns):
            return False
    return True


def facts_of_operation(operation: FinishedOperation) -> dict[str, str | int | float | bool]:
    """Return the facts of a finished operation."""
    reason = f": {operation.reason}" if operation.reason else ""
    title = f" ({operation.title})" if operation.title else ""
    ended = f"{operation.state} at {timestamp(operation.ended_at_ms / 1000)}{title}{reason}"
    return {**msgspec.structs.asdict(operation), "ended": ended, "ran": format_duration(operation.ran_ms)}


def facts_of_duration(since_ms: int, now_ms: int) -> dict[str, str | int | float | bool]:
    """Return the facts about the time for which a pool has starved or a node has been lost."""
    return {"since": timestamp(since_ms / 1000), "lasts": format_duration(max(0, now_ms - since_ms) // 1000 * 1000)}
