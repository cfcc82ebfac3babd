"""The English text of the rules that protect allocations from a starving operation, and of the changes that would let these allocations be
preempted.
"""

from __future__ import annotations

from shlex import quote
from typing import Final

from headrace.ids import ROOT_POOL, PoolName
from headrace_allocator.explain.reasons import KeptBy, PlacesProtected

_WORDS: Final = {
    KeptBy.ENDING: "their jobs are already ending",
    KeptBy.GRACEFUL: "their operations are graceful, and only what is above their fair share is preempted",
    KeptBy.PREEMPTION: "preemption is off or only observed there",
    KeptBy.ALLOW_NORMAL_PREEMPTION: "allow_normal_preemption is false there",
    KeptBy.ALLOW_PREEMPTION_FROM: "allow_preemption_from is false there",
    KeptBy.USAGE_THRESHOLD: "they are the oldest allocations of their operations, within non_preemptible_resource_usage_threshold",
    KeptBy.OWED_EVERYTHING: "their operations are owed all that they want",
    KeptBy.FAIR_SHARE: "they are within the fair share of their operations",
    KeptBy.PART_OF_FAIR_SHARE: "they are within aggressive_preemption_satisfaction_threshold times the fair share of their operations",
    KeptBy.ALLOW_AGGRESSIVE_PREEMPTION: "allow_aggressive_preemption is false there",
    KeptBy.GANG: "they belong to gangs, and allow_aggressive_preemption_for_gang_operations of the tree is false",
    KeptBy.WHOLE_GANG: "they belong to gangs, each of which has more than this operation is owed, or is owed as much itself",
    KeptBy.STARVING: "their operations starve too",
    KeptBy.LEGACY_RULES: "under victim_rules=legacy, their operations or pools starve or have too little to lose an allocation",
    KeptBy.EXEMPT: "their jobs have run for less than preemption_exempt_time",
}
_MORE_FOR_IT: Final = (
    "give pool {own} more weight or a guarantee, so that it is owed more and the other pools are owed less"
)
_AGGRESSIVELY: Final = (
    "let pool {own} starve aggressively with `headrace pool set {own} enable_aggressive_starvation=true`"
)
_CURES: Final = {
    KeptBy.ENDING: "wait until these jobs have ended",
    KeptBy.GRACEFUL: "wait until their jobs end, or start such operations with `--preemption-mode normal`",
    KeptBy.PREEMPTION: "`headrace pool set {pool} preemption=on`",
    KeptBy.ALLOW_NORMAL_PREEMPTION: "`headrace pool set {pool} allow_normal_preemption=true`, or override it: "
    + _AGGRESSIVELY,
    KeptBy.ALLOW_PREEMPTION_FROM: "`headrace pool set {pool} allow_preemption_from=true`",
    KeptBy.USAGE_THRESHOLD: "lower non_preemptible_resource_usage_threshold of the tree, of pool {pool} or of the operations there",
    KeptBy.OWED_EVERYTHING: f"{_AGGRESSIVELY}, or {_MORE_FOR_IT}",
    KeptBy.FAIR_SHARE: f"{_MORE_FOR_IT}, or wait until their jobs end: `headrace pool explain {{pool}}`",
    KeptBy.PART_OF_FAIR_SHARE: f"{_MORE_FOR_IT}, or wait until their jobs end: `headrace pool explain {{pool}}`",
    KeptBy.ALLOW_AGGRESSIVE_PREEMPTION: "`headrace pool set {pool} allow_aggressive_preemption=true`",
    KeptBy.GANG: "`headrace tree set allow_aggressive_preemption_for_gang_operations=true`, or wait until these gangs end",
    KeptBy.WHOLE_GANG: f"wait until these gangs end, or {_MORE_FOR_IT}",
    KeptBy.STARVING: "wait until they no longer starve, or `headrace tree set allow_preemption_from_starving_operations=true`",
    KeptBy.LEGACY_RULES: "wait until jobs that end elsewhere give them more, or `headrace tree set victim_rules=current`",
    KeptBy.EXEMPT: "wait until the jobs have run that long, or set a shorter preemption_exempt_time with `headrace pool set {pool}`",
}


def words_of_rule(rule: KeptBy) -> str:
    """Return a rule that protects allocations, in a few words."""
    return _WORDS[rule]


def words_of_protected(reason: PlacesProtected) -> str:
    """Return a text that says why allocations of other operations are not preempted, with the pools of these allocations."""
    places = "1 allocation" if reason.places == 1 else f"{reason.places} allocations"
    nodes = "1 node" if reason.nodes == 1 else f"{reason.nodes} nodes"
    shown = sum(count for _, count in reason.pools)
    pools = ", ".join(f"{count} in pool {pool}" for pool, count in reason.pools)
    more = f", {reason.places - shown} elsewhere" if shown < reason.places else ""
    return f"{places} on {nodes} examined for it are protected ({pools}{more}): {_WORDS[reason.kept_by]}"


def cure_of_protected(reason: PlacesProtected, own: str) -> str:
    """Return a text that says which change would let these allocations be preempted for an operation of the pool `own`."""
    return _CURES[reason.kept_by].format(pool=typed(reason.pools[0][0]), own=own)


def typed(pool: PoolName) -> str:
    """Return the name of the pool so that it can be pasted into a shell, where `<Root>` would be an input redirection."""
    return "/" if pool == ROOT_POOL else quote(pool)
