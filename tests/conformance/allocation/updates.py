"""Updates of a scenario: everything that fair share does, but for shares that a case prescribes.

`update` makes a cut of the scenario and hands it to the parts of the service: the algorithm's input, its results and the items that the
allocator is told. Only prescribed fair shares are put in place of computed ones.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np

from headrace.ids import OperationId
from headrace.pools import PartialResources, PoolTree
from headrace.pools.effective_options import EffectiveOptions, of_operation
from headrace.pools.tree_options import PriorityScope
from headrace.resources import RESOURCE_NAMES, Share
from headrace.satisfaction import INFINITE_SATISFACTION
from headrace.starvation import lowest_starving_ancestor
from headrace.wire.operations import OperationState
from headrace.wire.snapshots import ElementKind, PreemptionPriority, ShareFrame, ShareItem, UsageItem
from headrace_fair_share.facts.operations import KnownOperation
from headrace_fair_share.hdrf.arrays import RESOURCES, Floats
from headrace_fair_share.hdrf.tree_update import TreeShares, TreeUpdater
from headrace_fair_share.starvation.clocks import STARVATION, Clocks
from headrace_fair_share.starvation.rules import PREEMPTION_PRIORITY, preemption_priorities
from headrace_fair_share.update.algorithm_input import InputMaker, UpdateInput
from headrace_fair_share.update.results import items_of
from headrace_fair_share.update.update_facts import UpdateFacts
from headrace_fair_share.update.updater import frame_of, results_of
from tests.conformance.allocation.scenario import Scenario, Work, pool_name_of
from tests.conformance.reporting import Comparison, Problem

__all__ = ["KEYS", "ShareSnapshot", "agree", "compared", "update", "with_tolerances"]


class ShareSnapshot(NamedTuple):
    """A snapshot of shares, as the allocator gets it."""

    frame: ShareFrame
    #: By `ShareItem.key`: a pool's name behind a slash, an operation's name alone.
    items: dict[str, ShareItem]
    #: To go on from in the next update.
    clocks: Clocks


def update(scenario: Scenario, event: Mapping[str, Any], before: ShareSnapshot | None) -> ShareSnapshot:
    """An update at the scenario's moment. `event` says the fair share, `before` is the last update since a restart."""
    cut = UpdateFacts(
        pools=PoolTree(scenario.tree()),
        operations={OperationId(name): _known(name, work) for name, work in scenario.operations.items()},
        usage={OperationId(name): _usage(name, work) for name, work in scenario.operations.items()},
        total=scenario.total,
        rooms=scenario.resources_by_tags(),
        now_ms=scenario.now_ms,
        clock_ms=scenario.now_ms,
        usage_counts=True,
        clocks=before.clocks if before is not None else Clocks.none(),
    )
    given = InputMaker().make(cut)
    shares = _prescribed(TreeUpdater().update(given.tree), given, event)
    results, judged = results_of(cut, given, shares)
    items = items_of(given.elements, results, np.arange(len(given.elements.names)))
    return ShareSnapshot(frame_of(cut, shares.fixed.errors), {item.key: item for item in items}, judged.clocks)


def with_tolerances(cut: ShareSnapshot, scenario: Scenario) -> ShareSnapshot:
    """The snapshot with the tolerances of limits as they are now: a heartbeat looks them up where they are kept."""
    items = dict(cut.items)
    for pool in scenario.tree().pools:
        item = items[f"/{pool.name}"]
        assert item.options is not None
        tolerance = pool.settings.resource_limits_overcommit_tolerance
        options = msgspec.structs.replace(item.options, resource_limits_overcommit_tolerance=tolerance)
        items[item.key] = msgspec.structs.replace(item, options=options)
    return cut._replace(items=items)


def _known(name: str, work: Work) -> KnownOperation:
    return KnownOperation.of(
        work.spec(),
        0,
        operation=OperationId(name),
        state=OperationState.RUNNING,
        suspended=work.given.get("suspended", False),
        started_at_ms=work.order,
    )


def _usage(name: str, work: Work) -> UsageItem:
    return UsageItem(
        OperationId(name),
        usage=work.usage,
        precommit=work.precommit,
        pending_jobs=max(sum(task.pending for task in work.tasks), int(work.is_pending())),
        pending=work.pending(),
        min_needed=work.min_needed(),
    )


# Fair shares that a case prescribes.


def _prescribed(shares: TreeShares, given: UpdateInput, event: Mapping[str, Any]) -> TreeShares:
    """Shares with those of the event in place of computed ones."""
    if event["fair_share"] != "auto":
        shares = dataclasses.replace(shares, fair_share=_laid_out(shares, given, event["fair_share"]))
    if "promised_fair_share" in event:
        shares = dataclasses.replace(shares, promised=_laid_out(shares, given, event["promised_fair_share"]))
    return shares


def _laid_out(shares: TreeShares, given: UpdateInput, prescribed: Mapping[str, Any]) -> Floats:
    """Shares by number of the layout; those of pools are sums."""
    laid = np.zeros((RESOURCES, shares.layout.size))
    elements, layout = given.elements, shares.layout
    unknown = set(prescribed) - set(elements.names)
    if unknown:
        raise Problem(f"fair shares of {', '.join(sorted(unknown))}, which there are not")
    for name, number in zip(elements.names[elements.pools :], layout.of_operation.tolist(), strict=True):
        share = prescribed.get(name, 0.0)
        usage, demand = shares.usage_share[:, number], shares.demand_share[:, number]
        laid[:, number] = _vector(share) if isinstance(share, dict) else _on_the_way(share, usage, demand)
    for number in range(layout.size - 1, 0, -1):
        laid[:, layout.parent[number]] += laid[:, number]
    for name, number in zip(elements.names[1 : elements.pools], layout.of_pool.tolist(), strict=True):
        if name in prescribed:
            laid[:, number] = _vector(prescribed[name])
    return laid


def _vector(share: Mapping[str, float]) -> Floats:
    return np.array([share.get(name, 0.0) for name in RESOURCE_NAMES])


def _on_the_way(largest: float, usage: Floats, demand: Floats) -> Floats:
    """The share of which the largest component is given: usage is covered first, then the way to the demand is gone."""
    if largest <= usage.max():
        return np.minimum(usage, largest)
    way = demand - usage
    with np.errstate(divide="ignore", invalid="ignore"):
        parts = np.where(way > 0, (largest - usage) / way, np.inf)
    return np.asarray(usage + way * min(1.0, float(parts.min())))


# The expectations of an update.


def compared(
    expect: Mapping[str, Any], scenario: Scenario, cut: ShareSnapshot, tolerance: float
) -> Iterator[Comparison]:
    """Comparisons of those expectations that an update answers."""
    for key in KEYS & expect.keys():
        for name, expected in expect[key].items():
            actual = _FIGURES[key](name, scenario, cut)
            if isinstance(expected, int | float) and isinstance(actual, Mapping):
                actual = max(actual.values())
            if isinstance(expected, Mapping) and isinstance(actual, Mapping):
                actual = {part: actual[part] for part in expected}
            yield Comparison(f"{key} of {name}", str(expected), str(actual), agree(expected, actual, tolerance))


def agree(expected: object, actual: object, tolerance: float) -> bool:
    """True if figures are equal but for the tolerance, in every part of both."""
    if isinstance(expected, Mapping) and isinstance(actual, Mapping):
        return all(agree(value, actual[name], tolerance) for name, value in expected.items())
    if isinstance(expected, int | float) and isinstance(actual, int | float):
        return abs(expected - actual) <= tolerance * max(1.0, abs(expected))
    return expected == actual


def _item(name: str, cut: ShareSnapshot) -> ShareItem:
    found = cut.items.get(f"/{pool_name_of(name)}") or cut.items.get(name)
    if found is None:
        raise Problem(f"no element is named {name}")
    return found


def _since(name: str, scenario: Scenario, cut: ShareSnapshot) -> float | None:
    since_ms = _item(name, cut).below_fair_share_since_ms
    return None if since_ms is None else since_ms / 1000


def _satisfaction(name: str, scenario: Scenario, cut: ShareSnapshot) -> object:
    ratio = _item(name, cut).local_satisfaction_ratio
    return "infinite" if ratio >= INFINITE_SATISFACTION else ratio


def _effective(name: str, scenario: Scenario, cut: ShareSnapshot) -> dict[str, object]:
    """Options in force by their names in cases, lengths of time in seconds."""
    item = _item(name, cut)
    found: dict[str, object] = {}
    for option, value in _options_of(item, scenario, cut).items():
        if option.endswith("_ms"):
            found[option.removesuffix("_ms")] = None if value is None else value / 1000
        elif isinstance(value, PartialResources):
            found[option] = {
                resource: amount / 100 if resource == "cpu" else amount for resource, amount in value.named().items()
            }
        else:
            found[option] = value
    return found


def _options_of(item: ShareItem, scenario: Scenario, cut: ShareSnapshot) -> dict[str, Any]:
    options = item.options
    if item.kind is ElementKind.OPERATION:
        above = cut.items[f"/{item.parent}"].options
        assert above is not None
        options = of_operation(above, scenario.operations[item.name].spec(), cut.frame.options)
    assert options is not None
    return {name: getattr(options, name) for name in EffectiveOptions.__struct_fields__}


def _ancestor(name: str, cut: ShareSnapshot, *, aggressively: bool) -> str | None:
    found = lowest_starving_ancestor(cut.items, _item(name, cut), aggressively=aggressively)
    return None if found is None else found.name


def _counts_by_scope(scope: str, scenario: Scenario, cut: ShareSnapshot) -> dict[str, int]:
    """How many operations have each priority under a scope, the tree's own or another."""
    keys = list(cut.items)
    pools = [cut.items[key].kind is not ElementKind.OPERATION for key in keys].count(True)
    place = {key: at for at, key in enumerate(keys)}
    items = [cut.items[key] for key in keys]
    codes = preemption_priorities(
        np.array([STARVATION.index(item.starvation_status) for item in items]),
        np.array([item.schedulable for item in items]),
        np.array([place.get(f"/{item.parent}", -1) for item in items]),
        pools,
        PriorityScope(scope),
    )
    counts = Counter(PREEMPTION_PRIORITY[code] for code in codes[pools:].tolist())
    return {priority.value: counts[priority] for priority in PreemptionPriority}


def _count_of_priority(priority: str, scenario: Scenario, cut: ShareSnapshot) -> int:
    operations = [item for item in cut.items.values() if item.kind is ElementKind.OPERATION]
    return sum(item.preemption_priority == priority for item in operations)


def _share(share: Share) -> dict[str, float]:
    return dict(zip(RESOURCE_NAMES, share, strict=True))


_Figure = Callable[[str, Scenario, ShareSnapshot], object]
_FIGURES: Final[dict[str, _Figure]] = {
    "status": lambda name, scenario, cut: _item(name, cut).scheduling_status.value,
    "starvation": lambda name, scenario, cut: _item(name, cut).starvation_status.value,
    "below_fair_share_since": _since,
    "lowest_starving_ancestor": lambda name, scenario, cut: _ancestor(name, cut, aggressively=False),
    "lowest_aggressively_starving_ancestor": lambda name, scenario, cut: _ancestor(name, cut, aggressively=True),
    "effective": _effective,
    "demand_share": lambda name, scenario, cut: _share(_item(name, cut).demand_share),
    "fair_share": lambda name, scenario, cut: _share(_item(name, cut).fair_share.total),
    "local_satisfaction_at_update": _satisfaction,
    "operation_count_by_preemption_priority": _count_of_priority,
    "operation_count_by_scope": _counts_by_scope,
}
#: Expectations that an update answers.
KEYS: Final = frozenset(_FIGURES)
