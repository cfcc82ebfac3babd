"""The stored configuration of one tree, and the decisions on changes of it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from headrace.ids import ROOT_POOL, PoolName, TreeName
from headrace.pools import (
    Person,
    PoolMode,
    PoolTree,
    PreemptionPolicy,
    Tree,
    problems_of_preset,
)
from headrace.pools.placement_rules import RuleName, parse_rule
from headrace.pools.tree_conflicts import fifo_above_ephemeral
from headrace.resources import Resources
from headrace.suggestions import some, some_lines
from headrace.wire.pool_changes import ChangePools, Move, PoolPlan, Remove, SetOptions, Transfer
from headrace.wire.refusals import BadRequest, BrokenRules, NotFound, Refusal, WrongState
from headrace_fair_share.configuration.differences import planned
from headrace_fair_share.configuration.draft import Draft
from headrace_fair_share.configuration.guarantee_rules import guarantee_warnings, overcommitted, saves_nothing
from headrace_fair_share.configuration.idle_settings import idle_settings, in_words
from headrace_fair_share.configuration.rules import (
    TreeBounds,
    broken_options,
    broken_rules,
    invalid_values,
    misplaced,
)
from headrace_fair_share.facts.pool_inputs import sharing_of
from headrace_fair_share.hdrf.model import Sharing

#: After this many problems, the rest of a request is not checked. Any user may request changes of all pools, the text of one problem takes
#: up to 100 ms to make, and the process decides nothing else in that time.
_MOST_PROBLEMS: Final = 100
#: After this many different unknown keys, the remaining changes of a request are not applied: to suggest names, each unknown key is
#: compared with all options, which takes time.
_MOST_UNKNOWN: Final = 200
#: Largest number of problems that are reported of a stored configuration.
_MOST_TOLD: Final = 3
#: Largest size in bytes of all texts in one list. A list contains the problems of a change, its warnings, or messages about settings that
#: are not in force.
_MOST_WORDS_BYTES: Final = 48 * 1024


class StoredTree(msgspec.Struct, frozen=True):
    """The value of a tree's key in the bucket: a tree, or the reason why the value is not a tree."""

    revision: int
    tree: Tree | None
    defect: str = ""


class Change(msgspec.Struct, frozen=True):
    """An allowed change: the resulting pools, which keep all rules, and the plan. The pools are written unless only the plan was
    requested.
    """

    pools: PoolTree
    plan: PoolPlan
    #: The configuration on which the decision is based.
    decided_on: PoolTree

    @property
    def tree(self) -> Tree:
        """The value to write."""
        return self.pools.tree


class TreeConfiguration:
    """The stored configuration, its revision, and the configuration in force. They change when a change is written, not when it is
    decided.
    """

    def __init__(self, tree: TreeName, bounds: TreeBounds | None = None) -> None:
        self._tree = tree
        self._bounds = bounds or TreeBounds()
        self.pools = self.in_force = PoolTree(Tree(tree=tree))
        #: Reason why the configuration `pools` is not in force yet; empty if it is in force.
        self.held_back = ""
        self.revision = 0
        #: Reason why the stored configuration cannot be used; empty if it can be used. While it cannot be used, the previous configuration
        #: stays in force.
        self.trouble = ""
        #: False until a usable configuration has been read.
        self.is_known = False
        self._alerts: tuple[PoolTree, list[str]] | None = None

    def on_stored(self, stored: StoredTree) -> bool:
        """Take over the stored value. Return True if anything changed.

        An older revision changes nothing. If the stored tree is unusable, the previous tree stays in force, and `trouble` says what is
        wrong with the stored tree.
        """
        if stored.revision <= self.revision:
            return False
        tree, defect = stored.tree, stored.defect
        pools = None if tree is None else PoolTree(tree)
        if pools is not None:
            problems = self._problems(pools)
            if pools.name != self._tree:
                problems = [NotFound(what="tree", name=pools.name, near=[self._tree])]
            defect = "; ".join(problem.text() for problem in problems[:_MOST_TOLD])
        self.revision = stored.revision
        if pools is None or defect:
            self.trouble = f"the stored configuration (revision {stored.revision}) cannot be used: {defect}"
            return True
        different = pools.tree != self.pools.tree or bool(self.trouble)
        self.trouble, self.is_known = "", True
        if different:
            self.pools = pools
        return different

    def put_in_force(self, ephemeral: Mapping[PoolName, Collection[PoolName]]) -> bool:
        """Put the stored configuration in force, or hold it back. Return True if anything changed.

        The configuration is held back while ephemeral pools exist below a pool that it would make a fifo pool. `ephemeral` gives the
        ephemeral pools by parent.
        """
        before = self.in_force, self.held_back
        self.held_back = self.holds_back(self.pools, ephemeral)
        if not self.held_back:
            self.in_force = self.pools
        return before != (self.in_force, self.held_back)

    def holds_back(self, pools: PoolTree, ephemeral: Mapping[PoolName, Collection[PoolName]]) -> str:
        """Return the reason why the configuration `pools` cannot be put in force now; empty if it can."""
        in_force = self.in_force
        return fifo_above_ephemeral(
            ephemeral,
            is_fifo=lambda pool: pool in in_force.pools and in_force.mode(pool) is PoolMode.FIFO,
            becomes_fifo=lambda pool: pool in pools.pools and pools.mode(pool) is PoolMode.FIFO,
        )

    def alerts(self) -> list[str]:
        """Return messages about configuration that is not in force."""
        if self._alerts is None or self._alerts[0] is not self.pools:
            # The warnings are computed only once for each configuration, because every update calls this method.
            self._alerts = (self.pools, configuration_warnings(self.pools))
        if self.trouble:
            return [self.trouble]
        return [f"the newest configuration is held back: {self.held_back}"] if self.held_back else self._alerts[1]

    def decide(
        self,
        request: ChangePools,
        in_use: Mapping[PoolName, int],
        person: Person,
        total: Resources,
        warn: Callable[[PoolTree], Iterable[str]] = lambda _: (),
        base: PoolTree | None = None,
    ) -> Change | PoolPlan | Refusal:
        """Decide on a request: return a change or a refusal. The answer to a dry run is a plan, even if the plan breaks rules.

        `in_use` counts the operations in each pool. `total` is compared with the guarantees of the top pools. `warn` returns further
        warnings about the resulting pools. `base` contains the pools to change, if other changes will be written together with this change:
        it is the result of these other changes. If `base` is None, the newest known pools are changed.
        """
        before = self.pools if base is None else base
        if self.trouble:
            return WrongState("tree", self._tree, "unusable", f"a usable configuration; {self.trouble}")
        if request.expected_revision not in (0, self.revision):
            state = f"at revision {self.revision}"
            return WrongState(
                "tree",
                self._tree,
                state,
                f"revision {request.expected_revision}; read the tree again and repeat the change",
            )
        draft = Draft(before, self._bounds, person, in_use)
        for place, change in enumerate(request.changes):
            if draft.problem_count >= _MOST_PROBLEMS:
                fault = f"the first {place} of {len(request.changes)} changes have {draft.problem_count} problems; the rest was not checked"
                draft.problems.append(BadRequest.because("changes", fault))
                break
            if len(draft.unknown) > _MOST_UNKNOWN:
                unknown = f"{len(draft.unknown)} different unknown keys"
                draft.problems.append(
                    BadRequest.because("changes", f"the changes have {unknown}; at most {_MOST_UNKNOWN} are allowed")
                )
                break
            draft.make(change)
        draft.check()
        if draft.problems and not request.dry_run:
            return _told(draft.problems)
        plan = msgspec.structs.replace(
            planned(before, draft.tree),
            dry_run=request.dry_run,
            broken=some_lines((problem.text() for problem in draft.problems), _MOST_WORDS_BYTES),
            warnings=some_lines(
                [
                    *overcommitted(draft.tree, total),
                    *warn(draft.tree),
                    *draft.warnings,
                    *_warnings(draft, total),
                ],
                _MOST_WORDS_BYTES,
            ),
        )
        return plan if plan.broken else Change(draft.tree, plan, before)

    def on_written(self, changes: Sequence[Change], revision: int) -> list[PoolPlan]:
        """Take over changes that were written together and are durable at `revision`. Each change was decided on the result of the change
        before it. Return the plan of each change.

        Nothing is taken over if a later change by another process is already known.
        """
        # Comparing revisions is not enough: if a bucket lost writes, its revisions continue from a lower number.
        if revision > self.revision or self.pools is changes[0].decided_on:
            self.pools, self.revision, self.trouble, self.is_known = changes[-1].pools, revision, "", True
        return [msgspec.structs.replace(change.plan, revision=revision) for change in changes]

    def check(self) -> list[str]:
        """Return an error for each pool with a duplicate name, and each pool that does not come after its parent."""
        return [problem.text() for problem in misplaced(self.pools)]

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


def takes_away(request: ChangePools) -> bool:
    """Return True if the request may remove a pool that operations use."""
    return any(isinstance(change, Remove | Move) for change in request.changes)


def pools_of(request: ChangePools) -> list[PoolName]:
    """Return the pool that each change of a request concerns.

    For a change that names two pools, it is the first of them. For a change that sets options of the tree, it is the root.
    """
    return [
        change.source if isinstance(change, Transfer) else ROOT_POOL if isinstance(change, SetOptions) else change.name
        for change in request.changes
    ]


def configuration_warnings(tree: PoolTree) -> list[str]:
    """Return warnings about settings of a tree and its pools that act in an unexpected way."""
    return some_lines(_option_warnings(tree) + in_words(idle_settings(tree)), _MOST_WORDS_BYTES)


def _option_warnings(tree: PoolTree) -> list[str]:
    """Return warnings about options of a tree that act in an unexpected way."""
    options = tree.options
    found = options.pauses()
    wanted = [("default_parent_pool", options.default_parent_pool)]
    wanted += [(f"user_to_default_pool of {user}", pool) for user, pool in options.user_to_default_pool.items()]
    for place, name in wanted:
        pool = tree.pools.get(PoolName(name))
        if name != ROOT_POOL and (pool is None or pool.settings.mode is PoolMode.FIFO):
            why = "there is no such pool" if pool is None else "it is a fifo pool"
            found.append(f"{place} {name} is not used: {why}; the next candidate is used, and the root in the end")
    found += [f"placement_rules: {words}" for text in options.placement_rules for words in _rule_warnings(text, tree)]
    for name in options.pool_config_presets:
        found.extend(f"preset {name} cannot be used: {problem}" for problem in problems_of_preset(name, options))
    of_memory = [f"yarn_memory_only of {pool.name}" for pool in tree.pools.values() if pool.settings.yarn_memory_only]
    of_memory = ["yarn/memory_only", *of_memory] if options.yarn.memory_only else of_memory
    if of_memory and sharing_of(options) is not Sharing.YARN:
        found.append(
            f"{some(of_memory)} has no effect: it acts on shares that are divided as in YARN, and this tree divides them natively"
        )
    if options.preemption_policy is not PreemptionPolicy.YTSAURUS and not options.yarn.enabled:
        policy = options.preemption_policy
        found.append(f"preemption_policy {policy}: nothing is preempted until yarn/enabled is true")
    return found


def _rule_warnings(text: str, tree: PoolTree) -> Iterator[str]:
    rule = parse_rule(text, "placement_rules")
    if rule.name is RuleName.DEFAULT and rule.pool not in tree.pools:
        then = (
            "the next rule is tried"
            if rule.existing
            else "it is made as an ephemeral pool for the first operation there"
        )
        yield f"there is no pool {rule.pool} for {text}; {then}"
    elif rule.name is RuleName.DEFAULT and rule.nested_user and not tree.is_hub(rule.pool):
        yield f"{text} places no user without a configured pool: {rule.pool} does not set create_ephemeral_subpools"


def _warnings(draft: Draft, total: Resources) -> list[str]:
    tree = draft.tree
    warnings = [warning for name in draft.touched for warning in guarantee_warnings(tree, name)]
    warnings += [warning for name in draft.touched for warning in saves_nothing(tree, name, total)]
    warnings += _alike_names(draft)
    known = _option_warnings(draft.before)
    warnings += [warning for warning in _option_warnings(tree) if warning not in known]
    # If the options are unchanged, only pools that a change touched can have new warnings.
    asked = {*draft.touched} if tree.options is draft.before.options else None
    # Of the settings without effect, two kinds are reported: settings that the request sets, and settings that lose their effect by the
    # request.
    before = {*idle_settings(draft.before, asked)}
    idle = [each for each in idle_settings(tree, asked) if each not in before or draft.names(each.pool, each.attribute)]
    return warnings + in_words(idle)


def _alike_names(draft: Draft) -> Iterator[str]:
    """Yield a warning for each new pool whose name differs from that of another pool only in capital letters."""
    made = [name for name in draft.touched if name not in draft.before.pools]
    if not made:
        return
    by_letters: dict[str, list[PoolName]] = {}
    for name in draft.tree.pools:
        by_letters.setdefault(name.casefold(), []).append(name)
    for name in made:
        for other in by_letters[name.casefold()]:
            if other != name:
                yield f"pools {name} and {other} differ only in capital letters, and are two pools"


def _told(problems: list[Refusal]) -> Refusal:
    """Return a single problem unchanged. Return several problems as one refusal with a list of their texts."""
    if len(problems) == 1:
        return problems[0]
    return BrokenRules(some_lines((problem.text() for problem in problems), _MOST_WORDS_BYTES))
