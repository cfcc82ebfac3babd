"""Chooses the pool of an operation by the placement rules of a tree, whatever runs in the pools. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from headrace.ids import PoolName
from headrace.pools.placement_rules import PlacementRule, RuleName
from headrace_admission.state.rules import PoolRules


class StartFacts(msgspec.Struct, frozen=True):
    """The facts of a start that placement rules use."""

    #: The requested pool; empty: none was requested.
    pool: str
    user: str
    #: Groups of the user, the primary group first; None: not known.
    groups: Sequence[str] | None = None


class Chosen(msgspec.Struct, frozen=True):
    """The pool that a placement rule chose for an operation."""

    pool: PoolName
    rule: PlacementRule
    #: True: the operation goes to the user's own pool below this pool.
    of_user: bool = False


class Rejected(msgspec.Struct, frozen=True):
    """The placement rules give the operation no pool."""

    #: The rule that rejected the operation; None: no rule decided.
    rule: PlacementRule | None
    #: True if the rule needs a group, and the user is in no group or the groups are not known.
    lacks_groups: bool = False


def pool_by_rules(
    rules: Sequence[PlacementRule], asking: StartFacts, pools: Mapping[PoolName, PoolRules]
) -> Chosen | Rejected:
    """Apply the rules in order until one decides. `pools` are the configured pools."""
    for rule in rules:
        found = _pool(rule, asking, pools)
        if isinstance(found, Rejected):
            return found
        chosen = found and (_nested(rule, found, asking, pools) if rule.nested_user else Chosen(found, rule))
        if chosen:
            return chosen
    return Rejected(None)


def _pool(rule: PlacementRule, asking: StartFacts, pools: Mapping[PoolName, PoolRules]) -> PoolName | Rejected | None:
    """Return the pool that a rule names, or None to pass on to the next rule."""
    match rule.name:
        case RuleName.REJECT:
            return Rejected(rule)
        case RuleName.SPECIFIED:
            pool = PoolName(asking.pool)
        case RuleName.USER:
            pool = _name(asking.user)
        case RuleName.DEFAULT:
            pool = rule.pool
        case RuleName.PRIMARY_GROUP:
            if not asking.groups:
                return Rejected(rule, lacks_groups=True)
            pool = _name(asking.groups[0])
        case RuleName.SECONDARY_GROUP:
            if asking.groups is None:
                return Rejected(rule, lacks_groups=True)
            return next((name for name in map(_name, asking.groups[1:]) if name in pools), None)
    return pool if pool and (pool in pools or not rule.existing) else None


def _nested(
    rule: PlacementRule, pool: PoolName, asking: StartFacts, pools: Mapping[PoolName, PoolRules]
) -> Chosen | None:
    """Return the user's own pool below a pool, or None if there is none and none may be made."""
    user = _name(asking.user)
    for own in (user, PoolName(f"{pool}-{user}")):
        if own in pools and pools[own].parent == pool:
            return Chosen(own, rule)
    makes_pools = pool not in pools or pools[pool].create_ephemeral_subpools
    return Chosen(pool, rule, of_user=True) if makes_pools and not rule.nested_existing else None


def _name(text: str) -> PoolName:
    """Return the name of the pool of a user or a group."""
    return PoolName(text.replace(".", "_dot_"))
