"""The configuration of one tree as it is written, and the decisions on changes of it; pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, assert_never

import msgspec

from headrace.errors import BadInput
from headrace.ids import ROOT_POOL, PoolName, TreeName
from headrace.pools import (
    POOL_ATTRIBUTES,
    Person,
    PoolConfig,
    PoolMode,
    PoolTree,
    PreemptionPolicy,
    Tree,
    problems_of_preset,
)
from headrace.resources import Resources
from headrace.wire.pool_changes import (
    ChangePools,
    Create,
    Move,
    PoolChange,
    PoolPlan,
    Remove,
    Set,
    SetOptions,
    Transfer,
)
from headrace.wire.pools import CreatePool, PoolChanged, RemovePool, SetPool
from headrace.wire.refusals import BrokenRules, NotFound, Refusal, WrongState
from headrace_fair_share.configuration.changes import Draft
from headrace_fair_share.configuration.differences import planned
from headrace_fair_share.configuration.guarantee_rules import guarantee_warnings, overcommitted, saves_nothing
from headrace_fair_share.configuration.rules import (
    Bounds,
    as_refusal,
    broken_options,
    broken_rules,
    invalid_values,
    misplaced,
)

__all__ = ["Change", "ChangeRequest", "PoolBook", "option_warnings", "pools_of", "takes_away"]

ChangeRequest = CreatePool | SetPool | RemovePool | ChangePools
#: So many problems of what is stored are told.
_MOST_TOLD: Final = 3


class Change(msgspec.Struct, frozen=True):
    """A tree that keeps all the rules, ready to be written."""

    tree: Tree
    plan: PoolPlan
    #: The pool that was asked for, where it was one.
    name: PoolName | None = None


class PoolBook:
    """What is configured, at which revision. A decision changes nothing; only what is written does."""

    def __init__(self, tree: TreeName, bounds: Bounds | None = None) -> None:
        self._tree = tree
        self._bounds = bounds or Bounds()
        self.pools = PoolTree(Tree(tree=tree))
        self.revision = 0
        #: Why what is stored cannot be used; empty while it can. What was known before stays in force.
        self.trouble = ""
        #: False until a usable configuration was seen.
        self.known = False
        self._decided_on = self.pools
        self._alerts: tuple[PoolTree, list[str]] | None = None

    def on_tree(self, tree: Tree, revision: int) -> bool:
        """Takes what is stored at `revision`; true when something is different. An older revision, or a broken tree, changes nothing."""
        if revision <= self.revision:
            return False
        pools = PoolTree(tree)
        problems = self._problems(pools)
        if tree.tree != self._tree:
            problems = [NotFound(what="tree", name=tree.tree, near=[self._tree])]
        if problems:
            return self.on_unusable(revision, "; ".join(problem.text() for problem in problems[:_MOST_TOLD]))
        different = tree != self.pools.tree or bool(self.trouble)
        self.revision, self.trouble, self.known = revision, "", True
        if different:
            self.pools = pools
        return different

    def on_unusable(self, revision: int, why: str) -> bool:
        """What is stored at `revision` is no tree."""
        if revision <= self.revision:
            return False
        self.revision = revision
        self.trouble = f"the stored configuration (revision {revision}) cannot be used: {why}"
        return True

    def alerts(self) -> list[str]:
        """What of the configuration is not in force."""
        if self._alerts is None or self._alerts[0] is not self.pools:
            # Asked for at every update; worked out once for each configuration.
            self._alerts = (self.pools, option_warnings(self.pools))
        return [self.trouble] if self.trouble else self._alerts[1]

    def decide(
        self, request: ChangeRequest, in_use: Mapping[PoolName, int], person: Person, total: Resources
    ) -> Change | PoolPlan | Refusal:
        """The tree as it would be, or what speaks against it; a plan where only that was asked for.

        `in_use` counts the operations that name a pool; `total` is what guarantees of the top pools are compared with.
        """
        if self.trouble:
            return WrongState("tree", self._tree, "unusable", f"a usable configuration; {self.trouble}")
        if isinstance(request, ChangePools) and request.expected_revision not in (0, self.revision):
            state = f"at revision {self.revision}"
            return WrongState("tree", self._tree, state, f"revision {request.expected_revision}; look at it anew")
        self._decided_on = self.pools
        draft = Draft(self.pools, self._bounds, person, in_use)
        try:
            changes = _changes(request)
        except BadInput as problem:
            return as_refusal(problem)
        for change in changes:
            draft.make(change)
        draft.check()
        dry_run = isinstance(request, ChangePools) and request.dry_run
        if draft.problems and not dry_run:
            return _told(draft.problems)
        plan = msgspec.structs.replace(
            planned(self.pools, draft.tree),
            dry_run=dry_run,
            broken=[problem.text() for problem in draft.problems],
            warnings=[*overcommitted(draft.tree, total), *draft.warnings, *_warnings(draft, total)],
        )
        if dry_run:
            return plan
        return Change(draft.tree.tree, plan, None if isinstance(request, ChangePools) else request.name)

    def on_written(self, change: Change, revision: int) -> PoolChanged | PoolPlan:
        """The change that was decided last is durable at `revision`; what somebody wrote after it stays in force."""
        # Revisions alone do not tell: they begin anew where a bucket lost writes.
        if revision > self.revision or self.pools is self._decided_on:
            self.pools, self.revision, self.trouble, self.known = PoolTree(change.tree), revision, "", True
        if change.name is not None:
            return PoolChanged(change.name, self._tree, revision, change.plan.warnings)
        return msgspec.structs.replace(change.plan, revision=revision)

    def _problems(self, pools: PoolTree) -> list[Refusal]:
        found = misplaced(pools)
        if found:
            return found
        news = [name for name, pool in pools.pools.items() if self.pools.pools.get(name) != pool]
        return [
            *invalid_values(pools, news),
            *broken_options(pools.options),
            *broken_rules(pools, self._bounds),
        ]


def takes_away(request: ChangeRequest) -> bool:
    """Whether operations may be in a pool that would be gone."""
    if isinstance(request, ChangePools):
        return any(isinstance(change, Remove | Move) for change in request.changes)
    return isinstance(request, RemovePool)


def pools_of(request: ChangeRequest) -> list[PoolName]:
    """The pools that a request names first."""
    if not isinstance(request, ChangePools):
        return [request.name]
    return [
        change.source if isinstance(change, Transfer) else ROOT_POOL if isinstance(change, SetOptions) else change.name
        for change in request.changes
    ]


def option_warnings(tree: PoolTree) -> list[str]:
    """What in a tree's options is not in force as one may think."""
    options, found = tree.options, []
    wanted = [("default_parent_pool", options.default_parent_pool)]
    wanted += [(f"user_to_default_pool of {user}", pool) for user, pool in options.user_to_default_pool.items()]
    for place, name in wanted:
        pool = tree.pools.get(PoolName(name))
        if name != ROOT_POOL and (pool is None or pool.settings.mode is PoolMode.FIFO):
            why = "there is no such pool" if pool is None else "it is a fifo pool"
            found.append(f"{place} {name} is not used: {why}; the next candidate is taken, at last the root")
    for name, preset in options.pool_config_presets.items():
        found.extend(f"preset {name} is of no use: {problem}" for problem in problems_of_preset(name, preset))
    if options.preemption_policy is not PreemptionPolicy.YTSAURUS and not options.yarn.enabled:
        found.append(
            f"preemption_policy is {options.preemption_policy}, but yarn/enabled is false: nothing is taken back"
        )
    return found


def _warnings(draft: Draft, total: Resources) -> list[str]:
    tree = draft.tree
    warnings = [warning for name in draft.touched for warning in guarantee_warnings(tree, name)]
    warnings += [warning for name in draft.touched for warning in saves_nothing(tree, name, total)]
    return warnings + [warning for warning in option_warnings(tree) if warning not in option_warnings(draft.before)]


def _changes(request: ChangeRequest) -> list[PoolChange]:
    match request:
        case CreatePool():
            return [Create(request.name, request.parent, _as_written(request.name, request.settings))]
        case SetPool():
            return [Set(request.name, request.settings)]
        case RemovePool():
            return [Remove(request.name)]
        case ChangePools():
            return list(request.changes)
        case _:
            assert_never(request)


def _as_written(name: PoolName, settings: PoolConfig) -> bytes:
    """The settings as a person writes them. Raises `BadInput` for data that no JSON can hold, which the wire can."""
    try:
        return msgspec.json.encode(POOL_ATTRIBUTES.written(settings))
    except (TypeError, RecursionError) as error:
        raise BadInput(f"pools.{name}", str(error), "data that JSON can hold") from None


def _told(problems: list[Refusal]) -> Refusal:
    """One as it is; several as a list of what they say."""
    return problems[0] if len(problems) == 1 else BrokenRules([problem.text() for problem in problems])
