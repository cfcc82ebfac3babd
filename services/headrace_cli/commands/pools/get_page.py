"""The page of `headrace pool get`: shares, integral guarantee, preemptions, and the options in force. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from rich.table import Table
from rich.text import Text

from headrace.client.preemptions import observes
from headrace.durations import format_duration
from headrace.ids import ROOT_POOL
from headrace.pools import POOL_ATTRIBUTES, TREE_ATTRIBUTES, IntegralType, PreemptionPolicy, TreeOptions
from headrace.pools.effective_options import EffectiveOptions, of_tree
from headrace.pools.presets import with_presets
from headrace.resources import RESOURCE_NAMES, Resources, format_amount, percent
from headrace.wire.lost_work import LostWork
from headrace.wire.pools import PoolView, ResourceDistribution, StarvationOutlook
from headrace.wire.preemption import ObservedPreemption, ObservedPreemptions
from headrace.wire.snapshots import ElementKind, ShareFrame
from headrace_cli.commands.pools.attributes import value_words
from headrace_cli.show.shares import share_facts, share_table
from headrace_cli.show.starvation import starvation_facts
from headrace_cli.show.tables import resource_table, table

#: Upper bound of the observed preemptions that are shown one by one.
_MOST_TOLD: Final = 5
#: Seconds in an hour. Volumes of at least 10 unit-hours (of memory: 10 MiB-hours) are shown in hours, smaller volumes in seconds.
_SECONDS_PER_HOUR: Final = 3_600
#: Options that pools may set, followed by options that only trees have.
_OPTIONS: Final = (
    "preemption",
    "fair_share_starvation_tolerance",
    "fair_share_starvation_timeout",
    "min_share_preemption_timeout",
    "enable_aggressive_starvation",
    "allow_normal_preemption",
    "allow_aggressive_preemption",
    "allow_preemption_from",
    "preemption_exempt_time",
    "non_preemptible_resource_usage_threshold",
    "waiting_for_resources_on_node_timeout",
    "fair_share_aggressive_starvation_timeout",
    "allocation_preemption_timeout",
    "allocation_graceful_preemption_timeout",
)
_OF_YARN: Final = "allow_preemption_from"
_DEFAULTS: Final = of_tree(TreeOptions())


def pool_facts(
    pool: PoolView,
    frame: ShareFrame,
    width: int,
    preemptions: ObservedPreemptions | None = None,
    lost: Sequence[LostWork] = (),
    outlooks: Sequence[StarvationOutlook] = (),
) -> list[Table | Text]:
    """Return all tables about one pool.

    `preemptions` is None if no allocator reports them. `lost` is the work that preemption cost the pool in one day.
    `outlooks` are forecasts of starvation of the pool and of the pools above it.
    """
    total = frame.total
    title = Text(f"{pool.path}{' (ephemeral)' if pool.ephemeral else ''}", style="bold")
    facts = share_facts(pool.share, frame.complaints)
    for label, words in starvation_facts(pool.share, outlooks, frame.at_ms):
        facts.add_row(label, words)
    for label, words in preemption_facts(pool, preemptions, frame.at_ms) if preemptions is not None else ():
        facts.add_row(label, words)
    if lost:
        from headrace_cli.commands.pools.volume.fairness import lost_words

        facts.add_row("lost work", lost_words(lost, pool.share.dominant_resource))
    lightweight = pool.lightweight_running_operation_count
    counted = f", {lightweight} of them lightweight" if lightweight else ""
    facts.add_row("operations", f"{pool.running_count} running of {pool.operation_count}{counted}")
    for label, words in integral_facts(pool):
        facts.add_row(label, words)
    configured = pool.settings.strong_guarantee_resources.whole if pool.share.kind is ElementKind.POOL else None
    shares = share_table(pool.share, total, configured, width)
    return [title, shares, Text(), *integral_tables(pool, total), facts]


def preemption_facts(pool: PoolView, told: ObservedPreemptions, now_ms: int) -> list[tuple[str, str]]:
    """Return facts of a pool: what was preempted in the pool, and, if it only observes preemption, what would have been preempted."""
    facts = []
    if told.taken:
        reasons, groups = Counter[str](), Counter[str]()
        for one in told.taken:
            reasons[one.reason.value] += one.count
            groups[one.group] += one.count
        words = "; ".join(
            ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in each.items()) for each in (reasons, groups)
        )
        facts.append(("preempted", f"{_places(reasons.total())} in this term of the allocator: {words}"))
    return [*facts, *_observed_facts(told.observed, now_ms)] if observes(pool) else facts


def _observed_facts(observed: Sequence[ObservedPreemption], now_ms: int) -> list[tuple[str, str]]:
    """Return facts of a pool that only observes preemption: what would have been preempted, the newest first."""
    facts = [("preemption", "is only observed: nothing is preempted, and nothing would have been so far")]
    if observed:
        facts = [("preemption", f"is only observed: nothing is preempted; last recorded: {_places(len(observed))}")]
    for one in observed[:_MOST_TOLD]:
        age = format_duration(max(0, now_ms - one.record.decided_at_ms))
        facts.append(
            ("would preempt", f"an allocation of {one.operation} on {one.node}, {age} ago: {one.record.words}")
        )
    return facts


def _places(count: int) -> str:
    return "1 allocation" if count == 1 else f"{count} allocations"


def integral_tables(pool: PoolView, total: Resources) -> list[Table | Text]:
    """Return a table of an integral pool's flow, burst, savings and capacity, and for the root a table of the promised guarantees."""
    made: list[Table | Text] = []
    there = [name for name in RESOURCE_NAMES if getattr(total, name)]
    if pool.specified_resource_flow is not None:
        rows = [
            ("flow", pool.specified_resource_flow, False),
            ("burst guarantee", pool.specified_burst_guarantee_resources, False),
            ("saved", pool.accumulated_resource_volume, True),
            ("capacity", pool.integral_pool_capacity, True),
        ]
        if pool.settings.integral_guarantees.guarantee_type is not IntegralType.BURST:
            del rows[1]
        made += [_integral_table("integral", rows, there), Text()]
    promised = pool.resource_distribution_info
    if promised is not None and any(any(amounts.values()) for _, amounts in _promised_parts(promised)[:3]):
        made += [
            _integral_table(
                "promised", [(label, amounts, False) for label, amounts in _promised_parts(promised)], there
            ),
            Text(),
        ]
    return made


def _promised_parts(promised: ResourceDistribution) -> list[tuple[str, dict[str, float]]]:
    return [
        ("strong guarantees", promised.distributed_strong_guarantee_resources),
        ("flows", promised.distributed_resource_flow),
        ("bursts", promised.distributed_burst_guarantee_resources),
        ("together", promised.distributed_resources),
        ("not promised", promised.undistributed_resources),
        ("bursts beyond flows", promised.undistributed_resource_flow),
        ("flows beyond bursts", promised.undistributed_burst_guarantee_resources),
    ]


def _integral_table(head: str, rows: list[tuple[str, dict[str, float] | None, bool]], there: list[str]) -> Table:
    made = resource_table(head, there)
    for label, amounts, times_time in rows:
        if amounts is not None:
            made.add_row(label, *(_amount_words(name, amounts.get(name, 0.0), times_time=times_time) for name in there))
    return made


def _amount_words(resource: str, amount: float, *, times_time: bool) -> str:
    """Return an amount, or with `times_time` an amount times seconds, in words; cpu is in cores."""
    unit = ""
    if times_time:
        hours = amount >= 10 * _SECONDS_PER_HOUR * (2**20 if resource == "memory" else 1)
        amount, unit = (amount / _SECONDS_PER_HOUR, "·h") if hours else (amount, "·s")
    if resource == "memory":
        sign = "-" if amount < 0 else ""
        return sign + format_amount(resource, round(abs(amount))) + unit
    figure = f"{amount:,.2f}".rstrip("0").rstrip(".")
    return f"{figure}{unit}"


def integral_facts(pool: PoolView) -> list[tuple[str, str]]:
    """Return facts about an integral pool: ratios, savings, how long the savings last, and for how long nothing was saved or spent."""
    kind = pool.settings.integral_guarantees.guarantee_type
    if kind is IntegralType.NONE:
        return []
    flow, burst = pool.specified_resource_flow_ratio or 0.0, pool.specified_burst_ratio or 0.0
    rows = [("integral guarantee", kind.value), ("resource flow", f"{percent(flow)} of the cluster")]
    if kind is IntegralType.BURST:
        rows.append(("burst guarantee", f"{percent(burst)} of the cluster"))
    saved, most = pool.accumulated_resource_ratio_volume, pool.integral_pool_capacity_ratio
    if saved is not None:
        full = f", {percent(saved / most)} of {most:,.4g}" if most else ""
        rows.append(("saved", f"{saved:,.4g} cluster-seconds{full}"))
    seconds = pool.estimated_burst_usage_duration_seconds
    if seconds is not None:
        rows.append(("lasts at full burst", format_duration(round(seconds * 1000))))
    if pool.downtime is not None and pool.downtime.gaps:
        times = "once" if pool.downtime.gaps == 1 else f"{pool.downtime.gaps} times"
        rows.append(("neither saved nor spent", f"{times}, {format_duration(pool.downtime.together_ms)} together"))
    return rows


class OptionInForce(NamedTuple):
    """One option in force for a pool."""

    name: str
    value: str
    #: Source of the value: `own`, a pool above, `tree`, or `default`.
    source: str


def options_in_force(way: Sequence[PoolView], tree: TreeOptions) -> Iterator[OptionInForce]:
    """Yield the options in force for a pool, the last one in `way`, which is the path of pools from the root.

    Nothing is yielded before the first update that contains the pool, because the options are not known yet.
    """
    options = way[-1].share.options
    if options is None:
        return
    for name in _OPTIONS:
        if name != _OF_YARN or tree.preemption_policy is not PreemptionPolicy.YTSAURUS:
            value = _option_value(options, tree, name)
            yield OptionInForce(name, _option_words(name, value), _option_source(way, tree, name, value))


def options_table(options: Iterable[OptionInForce]) -> Table:
    """Return a table with one line for each option."""
    made = table("option in force", "value", "from")
    for each in options:
        made.add_row(*each)
    return made


def _option_value(options: EffectiveOptions, tree: TreeOptions, name: str) -> Any:
    found = getattr(options, name, None)
    return getattr(options, f"{name}_ms", getattr(tree, name, None)) if found is None else found


def _option_words(name: str, value: Any) -> str:
    attribute = TREE_ATTRIBUTES.attributes.get(name) or POOL_ATTRIBUTES.attributes[name]
    return attribute.default if value is None else value_words(attribute, value)


def _option_source(way: Sequence[PoolView], tree: TreeOptions, name: str, value: Any) -> str:
    """Return the source of the value in force: the nearest pool on the path that sets this value, else the tree or the default.

    A pool may set another value that is not in force, because a pool cannot allow what a pool above it forbids. Such pools are skipped.
    """
    for pool in reversed(way):
        own = getattr(with_presets(pool.settings, tree), name, None)
        if pool.name != ROOT_POOL and own is not None and own == value:
            return "own" if pool is way[-1] else f"pool {pool.name}"
    is_set = name in TREE_ATTRIBUTES.attributes and TREE_ATTRIBUTES.is_set(tree, name)
    return "tree" if is_set or value != _option_value(_DEFAULTS, TreeOptions(), name) else "default"
