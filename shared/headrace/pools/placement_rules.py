"""Placement rules, which choose the pool of an operation: their syntax, and which lists of rules are valid. Pure.

    specified existing          the pool that was asked for, if it is configured
    nested_user default people  a pool of the user's own below people
    default guests              the pool guests

The rules of a tree are tried in order. Each rule places an operation, rejects it, or passes it on to the next rule.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from headrace.errors import BadInput
from headrace.ids import PoolName, pool_name
from headrace.suggestions import hint

_NESTED: Final = "nested_user"
_EXISTING: Final = "existing"
#: The pool of the rule `default` if the rule names no pool.
_DEFAULT_POOL: Final = PoolName("default")


class RuleName(enum.StrEnum):
    """Ways in which a rule chooses the pool."""

    #: The pool that the person asked for.
    SPECIFIED = "specified"
    #: The pool with the name of the user.
    USER = "user"
    PRIMARY_GROUP = "primary_group"
    #: The pool of the first of the user's further groups that has a configured pool.
    SECONDARY_GROUP = "secondary_group"
    DEFAULT = "default"
    REJECT = "reject"


_TAKE_EXISTING: Final = (RuleName.SPECIFIED, RuleName.USER, RuleName.PRIMARY_GROUP, RuleName.DEFAULT)


class PlacementRule(msgspec.Struct, frozen=True):
    """One placement rule."""

    name: RuleName
    #: Pool of the rule `default`.
    pool: PoolName = _DEFAULT_POOL
    #: Pass the operation on if the pool that the rule chooses is not configured.
    existing: bool = False
    #: Place the operation in a pool of its user's own, below the pool that the rule chooses.
    nested_user: bool = False
    #: Pass the operation on if the user's own pool is not configured.
    nested_existing: bool = False

    @property
    def ends_list(self) -> bool:
        """True if the rule never passes an operation on."""
        return self._always_names_a_pool and not self.nested_user

    @property
    def may_be_last(self) -> bool:
        """True if a list may end with this rule.

        A rule with `nested_user` may be the last, although it passes an operation on if no pool of the user may be made below the
        chosen pool. An operation that the last rule passes on is refused, as in YARN.
        """
        return self._always_names_a_pool and not self.nested_existing

    @property
    def _always_names_a_pool(self) -> bool:
        makes_pools = self.name in (RuleName.USER, RuleName.PRIMARY_GROUP, RuleName.DEFAULT) and not self.existing
        return makes_pools or self.name is RuleName.REJECT

    def text(self) -> str:
        """Return the rule in the form that `parse_rule` reads."""
        words = [_NESTED] if self.nested_user else []
        words += [_EXISTING] if self.nested_existing else []
        words.append(self.name.value)
        words += [self.pool] if self.pool != _DEFAULT_POOL else []
        return " ".join([*words, *([_EXISTING] if self.existing else [])])


class Misplaced(NamedTuple):
    """A rule that is not valid at its position in the list."""

    at: int
    wrong: str
    expected: str


def parse_rule(text: str, place: str) -> PlacementRule:
    """Parse `[nested_user [existing]] NAME [POOL] [existing]`; POOL is allowed after `default` only. Raises `BadInput`."""
    words = text.split()
    nested = words[:1] == [_NESTED]
    words = words[nested:]
    nested_existing = nested and words[:1] == [_EXISTING]
    words = words[nested_existing:]
    if not words or words[0] not in list(RuleName):
        names = hint(words[0] if words else "", [*RuleName, *([] if nested else [_NESTED])])
        raise BadInput(place, text, f"{_NESTED} and a rule: {names}" if nested and not names.endswith("?") else names)
    name, rest = RuleName(words[0]), words[1:]
    pool = _DEFAULT_POOL
    if name is RuleName.DEFAULT and rest and rest[0] != _EXISTING:
        pool, rest = _pool(rest[0], text, place), rest[1:]
    if rest and (rest != [_EXISTING] or name not in _TAKE_EXISTING):
        behind = [f"the name of a pool, then {_EXISTING}"] if name is RuleName.DEFAULT else []
        behind = behind or ([_EXISTING] if name in _TAKE_EXISTING else ["nothing"])
        raise BadInput(place, text, f"{behind[0]} after {name}")
    return PlacementRule(name, pool, bool(rest), nested, nested_existing)


def misplaced(rules: Sequence[PlacementRule]) -> list[Misplaced]:
    """Return the rules that are never reached, and the last rule if no list may end with it."""
    found: list[Misplaced] = []
    ends = next((at for at, rule in enumerate(rules) if rule.ends_list), None)
    for at, rule in enumerate(rules):
        if ends is not None and at > ends:
            wrong = f"{rule.text()} is never reached: {rules[ends].text()} ends the list"
            found.append(Misplaced(at, wrong, "a higher position of the rule, or a list without it"))
    if ends is None and rules and not rules[-1].may_be_last:
        wrong = f"the list ends with {rules[-1].text()}, which may pass an operation on"
        found.append(Misplaced(len(rules) - 1, wrong, "default without existing, or reject, as the last rule"))
    return found


def _pool(name: str, text: str, place: str) -> PoolName:
    try:
        return pool_name(name)
    except BadInput as error:
        raise BadInput(place, text, f"the name of a pool after default: {error.expected}") from None
