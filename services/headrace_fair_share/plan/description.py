"""Reads the file of a plan: a tree in the format of `pool export`, the total resources, and operations.

    total:      {cpu: 100, memory: 400G}
    options:    {main_resource: cpu}
    pools:      research: {weight: 2, strong_guarantee_resources: {cpu: 40}, pools: {vision: {mode: fifo}}}
    operations: train: {pool: vision, job_count: 30, resources: {cpu: 1, memory: 4G}}

Pools and operations are a map by name, or a list of maps with `name`. All problems are reported together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import msgspec

from headrace.errors import BadInput
from headrace.ids import ROOT_POOL, PoolName, TreeName
from headrace.pools import (
    TREE_ATTRIBUTES,
    Defects,
    IntegralType,
    Pool,
    PoolMode,
    PoolTree,
    Record,
    Schema,
    Tree,
    TreeOptions,
)
from headrace.pools.attributes.map_kinds import ResourceAmounts
from headrace.pools.effective_options import EffectiveOptions
from headrace.resources import LARGEST_SUM, ZERO, Resources
from headrace.suggestions import hint
from headrace.tree_file.pools import ConfiguredPool, TreeFile, as_typed, named_entries, read_tree_file
from headrace.tree_file.problems import Problems
from headrace.tree_file.values import Map, parse
from headrace_fair_share.configuration.guarantee_rules import broken_integral_guarantees
from headrace_fair_share.configuration.rules import TreeBounds
from headrace_fair_share.facts.pool_inputs import effective_options_of, pool_input, tree_options
from headrace_fair_share.hdrf.model import IntegralState, OperationInput, PoolInput, TreeInput
from headrace_fair_share.plan.attributes import (
    OPERATION_ATTRIBUTES,
    PLANNED_POOL_ATTRIBUTES,
    PlannedOperation,
    PlannedPool,
)

_EXPECTED: Final = "a map with total, pools, operations"
_LARGEST_RATIO: Final = 1e6
_LONGEST_NAME: Final = 100
_MOST_SHOWN: Final = 8


@dataclass
class Description:
    """A tree that was read from a plan, checked and ready to be computed."""

    #: The tree with the configuration that a running Headrace would have, parents before children. The settings of a pool are a
    #: `PlannedPool`.
    tree: PoolTree
    #: The input of one update. If the plan gives no volume for a pool, the pool has the volume of a pool with steady demand.
    input: TreeInput
    #: Line of the file at which each pool (in `operation_lines`: each operation) stands.
    pool_lines: dict[str, int] = field(default_factory=dict)
    operation_lines: dict[str, int] = field(default_factory=dict)


def described(data: bytes, file: str = "plan", total: Resources | None = None) -> Description:
    """Read a plan. If `total` is given, it replaces the total in the plan. Raises `UnusableFile`."""
    problems = Problems(file)
    return described_root(parse(data, problems, _EXPECTED), problems, total)


def described_root(root: Map, problems: Problems, total: Resources | None = None) -> Description:
    """Read a plan that is already parsed. Raises `UnusableFile`."""
    total = _total(root, problems) if total is None else total
    if total == ZERO and not problems.found:
        problems.say("total", "nothing to share", "at least one resource with an amount above 0")
    file = read_tree_file(root, problems, ("total", "operations"))
    tree = _tree(file, problems)
    places = {name: place for place, name in enumerate(tree.preorder)}
    reader = _Operations(total, dict.fromkeys((pool.name for pool in file.pools), 0) | places, problems)
    operations = reader.read(root.get("operations"))
    in_force = effective_options_of(tree, [tree.pools[name] for name in tree.preorder])[1:]
    pools = [_pool_input(tree, name, places, each) for name, each in zip(tree.preorder, in_force, strict=True)]
    lines = {pool.name: problems.line_of(pool.place) for pool in file.pools}
    if not problems.found:
        _refuse_boundless(total, pools, {pool.name: pool.place for pool in file.pools}, problems)
    problems.refuse()
    options = tree_options(tree.options)
    savings = {pool.name: _savings(tree, pool, total, options.smooth_period_s) for pool in pools}
    integral = {name: state for name, state in savings.items() if state is not None}
    whole = TreeInput(total=total, options=options, pools=pools, operations=operations, integral=integral)
    return Description(tree, whole, lines, reader.lines)


def _total(root: Map, problems: Problems) -> Resources:
    if root.get("total") is None:
        problems.say("total", "missing", "the resources to share, such as {cpu: 100, memory: 400G}")
        return ZERO
    try:
        total, kind = root["total"], ResourceAmounts()
        return kind.read(as_typed(total, kind) if isinstance(total, Map) else total, "total").whole
    except BadInput as problem:
        problems.add(problem)
    except Defects as defects:
        problems.add(*defects.problems)
    return ZERO


def _usable(schema: Schema, values: object, place: str, problems: Problems) -> Any:
    """Read the usable attributes, and report the unusable attributes as problems."""
    changed, found = schema.usable(schema.of(), values, place)
    problems.add(*found)
    return changed.value


# --- pools ----------------------------------------------------------------------------------------------------------------


def _tree(file: TreeFile, problems: Problems) -> PoolTree:
    options: TreeOptions = _usable(TREE_ATTRIBUTES, file.options or {}, "options", problems)
    pools: list[Pool] = []
    for each in file.pools:
        settings: PlannedPool = _usable(PLANNED_POOL_ATTRIBUTES, each.attributes, each.place, problems)
        _check_savings(each, settings, problems)
        pools.append(Pool(PoolName(each.name), PoolName(each.parent), settings))
    tree = PoolTree(Tree(TreeName(file.tree or "plan"), pools, options))
    _check_places(file.pools, tree, problems)
    return tree


def _check_savings(pool: ConfiguredPool, settings: PlannedPool, problems: Problems) -> None:
    given = (settings.accumulated_resource_volume, settings.accumulated_resource_ratio_volume)
    if None not in given:
        problems.say(
            pool.place,
            "savings are given twice",
            "either accumulated_resource_volume or accumulated_resource_ratio_volume",
        )
    if given != (None, None) and settings.integral_guarantees.guarantee_type is IntegralType.NONE:
        problems.say(pool.place, "savings without integral guarantees", "guarantee_type burst or relaxed")


def _check_places(pools: list[ConfiguredPool], tree: PoolTree, problems: Problems) -> None:
    """Report missing parents, cycles, pools in fifo pools, nested integral guarantees, and too many levels."""
    by_name = {pool.name: pool for pool in pools}
    levels = {str(ROOT_POOL): 0}
    for name in tree.preorder:
        levels[name] = levels[tree.pools[name].parent] + 1
    for pool in pools:
        parent = by_name.get(pool.parent)
        if parent is None and pool.parent != ROOT_POOL:
            wrong = f"there is no pool {pool.parent!r}"
            problems.say(f"{pool.place}.parent", wrong, hint(pool.parent, by_name), pool.parent)
        if parent is not None and tree.pools[PoolName(parent.name)].settings.mode is PoolMode.FIFO:
            wrong = f"a pool in fifo pool {parent.name} (line {problems.line_of(parent.place)})"
            problems.say(pool.place, wrong, "only operations in a fifo pool")
        for broken in broken_integral_guarantees(tree, PoolName(pool.name)) if pool.name in levels else ():
            problems.say(f"{pool.place}.{broken.place}", broken.fault, "")
        if levels.get(pool.name) == TreeBounds().most_levels + 1:
            problems.say(
                pool.place, f"level {levels[pool.name]} of pools", f"at most {TreeBounds().most_levels} levels"
            )
    _tell_cycles([pool for pool in pools if pool.name not in levels], by_name, problems)


def _tell_cycles(pools: list[ConfiguredPool], by_name: dict[str, ConfiguredPool], problems: Problems) -> None:
    """Report each cycle once, at the first of its pools in the file."""
    told: set[str] = set()
    for pool in pools:
        path: list[str] = []
        name = pool.name
        while name in by_name and name not in path and name not in told:
            path.append(name)
            name = by_name[name].parent
        if name in path:
            cycle = path[path.index(name) :]
            first = min(cycle, key=lambda each: problems.line_of(by_name[each].place))
            at = cycle.index(first)
            words = [*cycle[at:], *cycle[:at], first]
            if len(words) > _MOST_SHOWN:
                words = [*words[: _MOST_SHOWN - 2], "…", words[-1]]
            wrong = f"its parents lead back to itself: {' in '.join(words)}"
            problems.say(f"{by_name[first].place}.parent", wrong, f"parents that lead to {ROOT_POOL}")
        told.update(path)


def _pool_input(tree: PoolTree, name: PoolName, places: Mapping[PoolName, int], options: EffectiveOptions) -> PoolInput:
    pool = tree.pools[name]
    assert isinstance(pool.settings, PlannedPool)
    made = pool_input(pool, places.get(pool.parent, -1), tree, memory_only=options.yarn_memory_only)
    return msgspec.structs.replace(made, historic_usage_average=pool.settings.historic_usage_average)


def _savings(tree: PoolTree, pool: PoolInput, total: Resources, smooth_period_s: float) -> IntegralState | None:
    """Return the volume of an integral pool.

    If the plan gives no volume, it is the volume that the flow of the pool adds in one smooth period, as under steady demand.
    """
    settings = tree.pools[PoolName(pool.name)].settings
    if pool.integral is IntegralType.NONE or not isinstance(settings, PlannedPool):
        return None
    if settings.accumulated_resource_volume is not None:
        user_slots, cpu, gpu, memory, network = map(float, settings.accumulated_resource_volume.whole.as_tuple())
    else:
        ratio = settings.accumulated_resource_ratio_volume
        if ratio is None:
            ratio = max(pool.resource_flow.share_of(total)) * smooth_period_s
        user_slots, cpu, gpu, memory, network = (amount * ratio for amount in total.as_tuple())
    return IntegralState((user_slots, cpu, gpu, memory, network))


def _refuse_boundless(total: Resources, pools: list[PoolInput], places: Mapping[str, str], problems: Problems) -> None:
    """Refuse guarantees that exceed the cluster by so much that their sums would be too large for the algorithm's numbers."""
    most = min(_LARGEST_RATIO, LARGEST_SUM / max(total.as_tuple()))
    settings: tuple[Literal["strong_guarantee", "resource_flow", "burst_guarantee"], ...]
    settings = ("strong_guarantee", "resource_flow", "burst_guarantee")
    for setting in settings:
        together = 0.0
        for pool in pools:
            figures = getattr(pool, setting)
            amount = figures if isinstance(figures, Resources) else Resources(*(each or 0 for each in figures))
            together += max(amount.share_of(total))
            if together > most:
                expected = f"guarantees whose sum is at most {most:g} times the cluster"
                problems.say(places[pool.name], f"too large a {setting.replace('_', ' ')}", expected)
                break


# --- operations -----------------------------------------------------------------------------------------------------------


class _Operations:
    """Reads the operations of a plan. The pools are read before, because an operation refers to the position of its pool."""

    def __init__(self, total: Resources, places: Mapping[str, int], problems: Problems) -> None:
        self.lines: dict[str, int] = {}
        self._slotted = total.user_slots > 0
        self._places = places
        self._problems = problems

    def read(self, entries: object) -> list[OperationInput]:
        made: list[OperationInput] = []
        for name, entry, place in named_entries(entries, "operations", self._problems):
            if not name.isprintable() or not 0 < len(name.strip()) <= _LONGEST_NAME:
                expected = f"1 to {_LONGEST_NAME} printable characters"
                self._problems.say(place, "not a name of an operation", expected, name)
            elif name in self.lines:
                wrong = f"operation {name} is already on line {self.lines[name]}"
                self._problems.say(place, wrong, "each name once", name)
            else:
                self.lines[name] = self._problems.line_of(place)
                made.append(self._operation(name, entry, place, len(made)))
        return made

    def _operation(self, name: str, entry: Map, place: str, started: int) -> OperationInput:
        keys = {
            key: value
            for key, value in as_typed(entry, Record(OPERATION_ATTRIBUTES)).items()
            if key not in ("name", "pool")
        }
        read: PlannedOperation = _usable(OPERATION_ATTRIBUTES, keys, place, self._problems)
        pool = self._pool(entry, f"{place}.pool")
        demand, usage, pending = self._wishes(read, place)
        return OperationInput(
            name=name,
            pool=pool,
            weight=read.weight,
            demand=demand,
            usage=usage,
            limits=read.resource_limits.as_tuple(),
            gang=read.is_gang,
            start_time_ms=started,
            pending_job_count=pending,
            historic_usage_average=read.historic_usage_average,
        )

    def _pool(self, entry: Map, place: str) -> int:
        name = entry.texts.get("pool")
        if name is None:
            self._problems.say(place, "missing", "the pool of the operation")
        elif name not in self._places:
            known = hint(name, self._places) if self._places else "a pool"
            expected = "a pool, since no operation is in the root" if name == ROOT_POOL else known
            self._problems.say(place, f"there is no pool {name}", expected, name)
        return self._places.get(name or "", 0)

    def _wishes(self, read: PlannedOperation, place: str) -> tuple[Resources, Resources, int]:
        """Return demand, usage and number of pending jobs: computed from jobs of one size, or as the file states them."""
        by_jobs = [key for key in ("resources", "job_count", "running_jobs") if getattr(read, key) is not None]
        outright = [key for key in ("resource_demand", "resource_usage") if getattr(read, key) is not None]
        if by_jobs and outright:
            expected = "either jobs and their resources, or demand and usage"
            self._problems.say(place, f"both {by_jobs[0]} and {outright[0]}", expected)
        elif outright:
            demand = read.resource_demand.whole if read.resource_demand else ZERO
            usage = read.resource_usage.whole if read.resource_usage else ZERO
            if not demand.dominates(usage):
                expected = "a usage of at most the demand"
                self._problems.say(f"{place}.resource_usage", "more than resource_demand", expected)
            return demand, usage, 0
        elif read.resources is None:
            expected = "resources of each job and job_count, or resource_demand"
            self._problems.say(place, "no resources", expected)
        else:
            return self._jobs(read, place)
        return ZERO, ZERO, 0

    def _jobs(self, read: PlannedOperation, place: str) -> tuple[Resources, Resources, int]:
        """Return demand, usage and number of pending jobs, computed from jobs of one size.

        If the file gives no number of slots for a job, the job takes one slot, or none if the total in the file has no slots.
        """
        assert read.resources is not None
        each = read.resources.whole
        if self._slotted and read.resources.user_slots is None:
            each = msgspec.structs.replace(each, user_slots=1)
        jobs, running = 1 if read.job_count is None else read.job_count, read.running_jobs or 0
        if running > jobs:
            self._problems.say(f"{place}.running_jobs", f"{running} of {jobs} jobs run", "at most job_count")
        return each * jobs, each * min(jobs, running), max(0, jobs - running)
