"""The English text of the rules that protect allocations from a starving operation, and of what would change that."""

from __future__ import annotations

from shlex import quote
from typing import Final

from headrace.ids import ROOT_POOL, PoolName
from headrace_allocator.decision.reasons import KeptBy, PlacesProtected

_WORDS: Final = {
    KeptBy.ENDING: "their jobs end already",
    KeptBy.GRACEFUL: "their operations are graceful, and are asked only for what is above their share",
    KeptBy.PREEMPTION: "preemption is off or only observed there",
    KeptBy.ALLOW_NORMAL_PREEMPTION: "allow_normal_preemption is false there",
    KeptBy.ALLOW_PREEMPTION_FROM: "allow_preemption_from is false there",
    KeptBy.USAGE_THRESHOLD: "they are the oldest of their operations, within non_preemptible_resource_usage_threshold",
    KeptBy.OWED_EVERYTHING: "their operations are owed all that they want",
    KeptBy.FAIR_SHARE: "they are within the fair share of their operations",
    KeptBy.PART_OF_FAIR_SHARE: "they are within aggressive_preemption_satisfaction_threshold times the fair share of their operations",
    KeptBy.ALLOW_AGGRESSIVE_PREEMPTION: "allow_aggressive_preemption is false there",
    KeptBy.GANG: "they are of gangs, and allow_aggressive_preemption_for_gang_operations of the tree is false",
    KeptBy.WHOLE_GANG: "they are of gangs, each of which has more room than this one is owed, or is owed as much itself",
    KeptBy.STARVING: "their operations starve themselves",
    KeptBy.LEGACY_RULES: "by victim_rules=legacy their operations or pools starve or have too little to lose any",
    KeptBy.EXEMPT: "their jobs have not run for preemption_exempt_time",
}
_MORE_FOR_IT: Final = "more weight or a guarantee for pool {own}, so that it is owed more and they less"
_AGGRESSIVELY: Final = "aggressive starvation, `headrace pool set {own} enable_aggressive_starvation=true`"
_CURES: Final = {
    KeptBy.ENDING: "their ends, which come in any case",
    KeptBy.GRACEFUL: "ends of their jobs, or `--preemption-mode normal` for such operations",
    KeptBy.PREEMPTION: "`headrace pool set {pool} preemption=on`",
    KeptBy.ALLOW_NORMAL_PREEMPTION: "`headrace pool set {pool} allow_normal_preemption=true`, or what passes over that: "
    + _AGGRESSIVELY,
    KeptBy.ALLOW_PREEMPTION_FROM: "`headrace pool set {pool} allow_preemption_from=true`",
    KeptBy.USAGE_THRESHOLD: "a lower non_preemptible_resource_usage_threshold, of the tree, of pool {pool} or of the operations there",
    KeptBy.OWED_EVERYTHING: f"{_AGGRESSIVELY}, or {_MORE_FOR_IT}",
    KeptBy.FAIR_SHARE: f"{_MORE_FOR_IT}, or ends of their jobs: `headrace pool explain {{pool}}`",
    KeptBy.PART_OF_FAIR_SHARE: f"{_MORE_FOR_IT}, or ends of their jobs: `headrace pool explain {{pool}}`",
    KeptBy.ALLOW_AGGRESSIVE_PREEMPTION: "`headrace pool set {pool} allow_aggressive_preemption=true`",
    KeptBy.GANG: "`headrace tree set allow_aggressive_preemption_for_gang_operations=true`, or ends of these gangs",
    KeptBy.WHOLE_GANG: f"ends of these gangs, or {_MORE_FOR_IT}",
    KeptBy.STARVING: "an end of their starvation, or `headrace tree set allow_preemption_from_starving_operations=true`",
    KeptBy.LEGACY_RULES: "more for them by ends elsewhere, or `headrace tree set victim_rules=current`",
    KeptBy.EXEMPT: "that time, or a shorter preemption_exempt_time: `headrace pool set {pool}`",
}


def words_of_rule(rule: KeptBy) -> str:
    """Return a rule that protects allocations, in a few words."""
    return _WORDS[rule]


def words_of_protected(reason: PlacesProtected) -> str:
    """Return the text of why allocations of other operations are not preempted, with the pools that they are in."""
    places = "1 place" if reason.places == 1 else f"{reason.places} places"
    nodes = "1 node" if reason.nodes == 1 else f"{reason.nodes} nodes"
    shown = sum(count for _, count in reason.pools)
    pools = ", ".join(f"{count} in pool {pool}" for pool, count in reason.pools)
    more = f", {reason.places - shown} elsewhere" if shown < reason.places else ""
    return f"{places} on {nodes} looked at for it are kept ({pools}{more}): {_WORDS[reason.kept_by]}"


def cure_of_protected(reason: PlacesProtected, own: str) -> str:
    """Return the text of the change that would let these allocations be preempted for an operation of the pool `own`."""
    return _CURES[reason.kept_by].format(pool=typed(reason.pools[0][0]), own=own)


def typed(pool: PoolName) -> str:
    """Return the name of the pool so that it can be pasted into a shell, where `<Root>` would be an input redirection."""
    return "/" if pool == ROOT_POOL else quote(pool)
