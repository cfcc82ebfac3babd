"""The plan of a start: the trees and pools that an operation would get, or the refusal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from headrace.ids import PoolName, TreeName
from headrace.pools import Person
from headrace.pools.placement_rules import RuleName
from headrace.suggestions import hint, near
from headrace.wire.operations import OperationSpec, PerTree
from headrace.wire.refusals import BadRequest, LimitBroken, NotFound, OverLimit, Refusal
from headrace_admission.decisions.job_sizes import refused_job_size
from headrace_admission.decisions.limits import (
    bytes_limit,
    ephemeral_pool_limit,
    first_exceeded_operation_count,
    global_limit,
    unfit_pool,
    user_limit,
)
from headrace_admission.decisions.pool_by_rules import Rejected, StartFacts, pool_by_rules
from headrace_admission.decisions.rights import no_use
from headrace_admission.decisions.target_pool import Target, target_pool
from headrace_admission.decisions.time_limits import TimeLimits, limits_of
from headrace_admission.state.rules import OPERATION_TYPES, TreeRules
from headrace_admission.state.state import State
from headrace_admission.state.tree_book import TreeBook

_NOTHING_SAID = PerTree()


class StartPlan(msgspec.Struct, frozen=True):
    """The plan of a start that is accepted. `targets` has the trees that accept the operation, in the order in which they were named."""

    targets: dict[TreeName, Target]
    #: Trees that were left out because a limit is reached there.
    erased: list[TreeName]
    #: Time limits of the operation, its own or those of its pools.
    limits: TimeLimits


def plan_start(state: State, spec: OperationSpec, user: str) -> StartPlan | Refusal:
    """Check names, rights and limits in every tree that the operation names, and plan the start."""
    limit = global_limit(state) or user_limit(state, user) or bytes_limit(state, spec, user)
    if limit is not None:
        return OverLimit([limit])
    if spec.type not in OPERATION_TYPES:
        return BadRequest("spec.type", spec.type, hint(spec.type, OPERATION_TYPES))
    everywhere, configured = state.configuration.everywhere, state.configuration.trees
    regular = spec.pool_trees or [spec.tree]
    refusal = _badly_named(configured, spec, regular)
    if refusal is not None:
        return refusal
    tentative = [
        tree
        for tree in spec.tentative_pool_trees
        if tree in configured
        and spec.type not in configured[tree].non_tentative_operation_types
        and not (spec.terminal and no_sessions(configured, [tree]))
    ]
    only_known = spec.require_specified_pools_existence or everywhere.require_specified_pools_existence
    person = state.configuration.person(user)
    targets: dict[TreeName, Target] = {}
    for tree in (*regular, *tentative):
        book = state.books[tree]
        said = spec.scheduling_options_per_pool_tree.get(tree, _NOTHING_SAID)
        must_exist = only_known and tree in regular
        target = _target(tree, book, said.pool or spec.pool, person, spec, must_exist=must_exist)
        if not isinstance(target, Target):
            return target
        refusal = no_use(book, person, target)
        if refusal is not None:
            return refusal
        targets[tree] = target
    return _within_limits(state, spec, user, targets)


def _target(
    tree: TreeName, book: TreeBook, asked: PoolName, person: Person, spec: OperationSpec, *, must_exist: bool
) -> Target | Refusal:
    """Return the pool chosen by the tree's placement rules, or a refusal.

    With `must_exist` a requested pool that does not exist is refused, whatever the placement rules say.
    """
    if must_exist and asked and not book.exists(asked):
        return NotFound("pool", asked, near=near(asked, book.rules.pools))
    facts = StartFacts(asked, person.name, person.groups)
    chosen = pool_by_rules(book.rules.placement_rules, facts, book.rules.pools)
    if isinstance(chosen, Rejected):
        return _rejection(tree, book, asked, chosen, person)
    target = target_pool(book, chosen.pool, person, of_user=chosen.of_user)
    refusal = unfit_pool(book, chosen.pool, target, gang=spec.has_gang, specified_pools_only=must_exist)
    is_asked_for = chosen.rule.name is RuleName.SPECIFIED and not chosen.rule.nested_user
    return refusal or (target if is_asked_for else msgspec.structs.replace(target, rule=chosen.rule.text()))


def _rejection(
    tree: TreeName, book: TreeBook, asked: PoolName, rejected: Rejected, person: Person
) -> BadRequest | NotFound:
    rules = book.rules.placement_rules
    may_ask = any(rule.name is RuleName.SPECIFIED for rule in rules)
    if asked and may_ask and not book.exists(asked) and not rejected.lacks_groups:
        return NotFound("pool", asked, near=near(asked, book.rules.pools))
    listed = f"The placement rules of tree {tree} are {', '.join(rule.text() for rule in rules)}"
    if rejected.lacks_groups and rejected.rule is not None:
        why = f"the placement rule `{rejected.rule.text()}` needs a group, but {person.name} is in no group"
        return BadRequest.because("pool", f"{why}. Name a pool that an earlier rule accepts. {listed}")
    what = f"accepts pool {asked}" if asked else "chooses a pool for this operation"
    return BadRequest.because("pool", f"no placement rule {what}. {listed}")


def no_sessions(configured: Mapping[TreeName, TreeRules], trees: Iterable[TreeName]) -> BadRequest | None:
    """Return the refusal of terminals and of commands beside jobs in these trees, or None if every tree allows them."""
    for tree in trees:
        rules = configured.get(tree)
        if rules is not None and not rules.enable_interactive:
            return BadRequest.because(
                "tree", f"tree {tree} allows no sessions with jobs: its option enable_interactive is off"
            )
    return None


def _badly_named(
    configured: Mapping[TreeName, TreeRules], spec: OperationSpec, regular: list[TreeName]
) -> Refusal | None:
    """Return the refusal of trees that are unknown, named twice, or named only in the options for trees; else None."""
    for tree in regular:
        if tree not in configured:
            return NotFound("tree", tree, near=near(tree, configured))
    if spec.tentative_pool_trees and not spec.pool_trees:
        return BadRequest.because(
            "spec.pool_trees", "only tentative trees are named. Name at least one regular tree as well"
        )
    closed = no_sessions(configured, regular) if spec.terminal else None
    if closed is not None:
        return closed
    both = sorted({*regular} & {*spec.tentative_pool_trees})
    if both:
        return BadRequest("spec.tentative_pool_trees", ", ".join(both), "trees that are not also in pool_trees")
    several = [*regular, *spec.tentative_pool_trees]
    if spec.is_gang and spec.job_count > 1 and len(several) > 1:
        return BadRequest(
            "spec.pool_trees", ", ".join(several), "one tree, because all jobs of a gang start together in one tree"
        )
    for tree in spec.tentative_pool_trees:
        if tree not in configured and not spec.ignore_missing_tentative_trees:
            return NotFound("tree", tree, near=near(tree, configured))
    named = {*regular, *spec.tentative_pool_trees}
    for tree in spec.scheduling_options_per_pool_tree:
        if tree not in named:
            place = f"spec.scheduling_options_per_pool_tree.{tree}"
            return BadRequest(place, tree, "a tree of the operation: " + ", ".join(sorted(named)))
    return None


def _within_limits(
    state: State, spec: OperationSpec, user: str, targets: dict[TreeName, Target]
) -> StartPlan | OverLimit | BadRequest:
    """Leave out trees whose limits are reached, if the operation allows that. Otherwise refuse the start."""
    broken: dict[TreeName, LimitBroken] = {}
    sizes: dict[TreeName, BadRequest] = {}
    for tree, target in targets.items():
        book = state.books[tree]
        refusal = refused_job_size(tree, book, target.nearest_existing, spec)
        if refusal is not None:
            sizes[tree] = refusal
            continue
        limit = first_exceeded_operation_count(tree, book, target) or ephemeral_pool_limit(tree, book, target, user)
        if limit is not None:
            broken[tree] = limit
    kept = {tree: target for tree, target in targets.items() if tree not in broken and tree not in sizes}
    firm = set() if spec.erase_trees_with_pool_limit_violations else targets.keys() - {*spec.tentative_pool_trees}
    refusals = [refusal for tree, refusal in sizes.items() if tree in firm or not (kept or broken)]
    if refusals:
        return refusals[0]
    limits_reached = [limit for tree, limit in broken.items() if tree in firm or not kept]
    if limits_reached:
        return OverLimit(limits_reached)
    limits = limits_of(state, spec, {tree: target.nearest_existing for tree, target in kept.items()})
    erased = [tree for tree in targets if tree not in kept]
    return limits if isinstance(limits, BadRequest) else StartPlan(kept, erased, limits)
