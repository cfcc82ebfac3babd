"""In which trees and pools an operation would start, and what refuses it."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from headrace.ids import PoolName, TreeName
from headrace.near import hint, near
from headrace.pools import Person
from headrace.wire.operations import OperationSpec, PerTree
from headrace.wire.refusals import BadRequest, LimitBroken, NotFound, OverLimit, Refusal
from headrace_admission.decisions.limits import Asked, broken_limit, too_many_pools, unfit_pool
from headrace_admission.decisions.rights import kept_out
from headrace_admission.decisions.target_pool import Target, target_pool
from headrace_admission.state.rules import OPERATION_TYPES
from headrace_admission.state.tree_book import TreeBook

__all__ = ["StartPlan", "plan_start"]

_NOTHING_SAID = PerTree()


class StartPlan(msgspec.Struct, frozen=True):
    """Trees that take the operation, in the order in which they were named, and those that were left out for want of room."""

    targets: dict[TreeName, Target]
    erased: list[TreeName]


def plan_start(
    books: Mapping[TreeName, TreeBook], spec: OperationSpec, person: Person, *, specified_pools_only: bool
) -> StartPlan | Refusal:
    """Where an operation would start by the books of all configured trees. Changes nothing."""
    if spec.type not in OPERATION_TYPES:
        return BadRequest("spec.type", spec.type, hint(spec.type, OPERATION_TYPES))
    regular = spec.pool_trees or [spec.tree]
    refusal = _badly_named(books, spec, regular)
    if refusal is not None:
        return refusal
    tentative = [
        tree
        for tree in spec.tentative_pool_trees
        if tree in books and spec.type not in books[tree].rules.non_tentative_operation_types
    ]
    user = person.name
    targets: dict[TreeName, Target] = {}
    for tree in (*regular, *tentative):
        asked = _asked(spec, tree, user, specified_pools_only=specified_pools_only and tree in regular)
        targets[tree] = target_pool(books[tree], asked.pool, user)
        refusal = unfit_pool(books[tree], asked, targets[tree]) or kept_out(books[tree], person, targets[tree])
        if refusal is not None:
            return refusal
    return _within_limits(books, spec, user, targets)


def _badly_named(books: Mapping[TreeName, TreeBook], spec: OperationSpec, regular: list[TreeName]) -> Refusal | None:
    for tree in regular:
        if tree not in books:
            return NotFound("tree", tree, near=near(tree, books))
    if spec.tentative_pool_trees and not spec.pool_trees:
        return BadRequest("spec.pool_trees", "none", "the trees that must take it, beside the tentative ones")
    both = sorted({*regular} & {*spec.tentative_pool_trees})
    if both:
        return BadRequest("spec.tentative_pool_trees", ", ".join(both), "trees that are not in pool_trees as well")
    for tree in spec.tentative_pool_trees:
        if tree not in books and not spec.ignore_missing_tentative_trees:
            return NotFound("tree", tree, near=near(tree, books))
    named = {*regular, *spec.tentative_pool_trees}
    for tree in spec.scheduling_options_per_pool_tree:
        if tree not in named:
            place = f"spec.scheduling_options_per_pool_tree.{tree}"
            return BadRequest(place, tree, "one of its trees: " + ", ".join(sorted(named)))
    return None


def _asked(spec: OperationSpec, tree: TreeName, user: str, *, specified_pools_only: bool) -> Asked:
    said = spec.scheduling_options_per_pool_tree.get(tree, _NOTHING_SAID)
    pool = said.pool or spec.pool or PoolName(user)
    return Asked(tree, pool, user, gang=spec.is_gang, specified_pools_only=specified_pools_only)


def _within_limits(
    books: Mapping[TreeName, TreeBook], spec: OperationSpec, user: str, targets: dict[TreeName, Target]
) -> StartPlan | OverLimit:
    broken: dict[TreeName, LimitBroken] = {}
    for tree, target in targets.items():
        book = books[tree]
        limit = broken_limit(tree, book, target) or too_many_pools(tree, book, target, user)
        if limit is not None:
            broken[tree] = limit
    firm = [
        limit
        for tree, limit in broken.items()
        if tree not in spec.tentative_pool_trees and not spec.erase_trees_with_pool_limit_violations
    ]
    if firm:
        return OverLimit(firm)
    if len(broken) == len(targets):
        return OverLimit(list(broken.values()))
    return StartPlan({tree: target for tree, target in targets.items() if tree not in broken}, list(broken))
