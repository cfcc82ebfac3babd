"""The page of `headrace pool explain`. Pure.

It shows the levels from the root down, what holds the resources that the pool lacks, and with `--against` two pools
side by side.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Final

from rich.table import Table
from rich.text import Text

from headrace.client.share_words import bound_words, more_words, resource_of
from headrace.durations import exact_duration, format_duration
from headrace.resources import Resources, format_amount, percent
from headrace.wire.plan import BoundKind
from headrace.wire.pool_explanations import Division, Holder, Holders, PoolExplained, ShareStep
from headrace.wire.snapshots import StarvationStatus
from headrace_cli.show.amounts import amounts, pool_words
from headrace_cli.show.tables import facts_table, printable, table

_SLOTS: Final = ("user_slots",)


def explanation(told: PoolExplained) -> list[Table | Text | str]:
    """Return the page: the pool in a sentence, all levels from the root, facts about the pool, and what holds the missing resources."""
    own = told.steps[-1]
    facts = facts_table()
    for label, words in _facts(own):
        facts.add_row(label, Text(words))
    return [
        Text(f"{pool_words(own.pool)} {_outcome(own, told.total)}: {bound_words(own)}", style="bold"),
        "",
        _way(told),
        "",
        facts,
        "",
        *_lacking(told),
    ]


def _outcome(step: ShareStep, total: Resources) -> str:
    name = resource_of(step)
    owed, wants = getattr(step.fair_resources, name), getattr(step.demand, name)
    part = percent(owed / getattr(total, name)) if getattr(total, name) else "0%"
    return f"is owed {name} {format_amount(name, owed)} ({part}) of {format_amount(name, wants)} that it wants"


def _way(told: PoolExplained) -> Table:
    made = table("pool", "is owed", "share", "has", "wants", "guarantee", "limit", "weight", "why", right=("share",))
    for depth, step in enumerate(told.steps):
        name, total = resource_of(step), told.total
        whole = getattr(total, name)
        made.add_row(
            Text("  " * depth + printable(pool_words(step.pool))),
            _cell(step.fair_resources),
            percent(getattr(step.fair_resources, name) / whole) if whole else "–",
            _cell(step.usage),
            _cell(step.demand),
            _cell(step.guarantee) if depth else "",
            _cell(step.limits.whole) if any_limit(step) else "–",
            f"{step.weight:g}" if depth else "",
            Text(bound_words(step)),
        )
    return made


def any_limit(step: ShareStep) -> bool:
    """True if a limit below the cluster's total is in force."""
    return any(amount is not None for amount in step.limits.as_tuple())


def _cell(amount: Resources) -> str:
    return amounts(amount, leave_out=_SLOTS)


def _facts(step: ShareStep) -> Iterator[tuple[str, str]]:
    parts = {
        "guarantee": step.by_strong_guarantee,
        "savings": step.by_integral_guarantee,
        "weight": step.by_weight,
    }
    made_of = "; ".join(f"by {name} {_cell(part)}" for name, part in parts.items() if _cell(part) != "–")
    yield "consists of", made_of or "nothing"
    beyond = _cell((step.usage - step.fair_resources).within_wire())
    if beyond != "–":
        yield "beyond", f"it has {beyond} beyond that, which may be preempted"
    if step.starvation_status is not StarvationStatus.NON_STARVING:
        yield "starves", f"headrace pool get {step.pool} shows since when, and for which share"
    yield from _guarantee_facts(step)
    label = "siblings"
    for each in step.siblings:
        figures = f"is owed {_cell(each.fair_resources)}, has {_cell(each.usage)}, wants {_cell(each.demand)}"
        yield label, f"{each.name}: weight {each.weight:g}, {figures}"
        label = ""
    more = more_words(step)
    if more:
        yield "more by", more


def _guarantee_facts(step: ShareStep) -> Iterator[tuple[str, str]]:
    for name, configured in step.configured_guarantee.named().items():
        in_force = getattr(step.guarantee, name)
        if configured > in_force + 1:
            was, now = format_amount(name, configured), format_amount(name, in_force)
            yield (
                "guarantee",
                f"{name} {was} as configured, {now} in force: the cluster or a pool above it holds no more",
            )
    if step.savings is not None:
        saved = step.savings
        most = saved.burst_ratio or saved.flow_ratio
        gave = f"gave {percent(saved.granted_ratio)} of the cluster, at most {percent(most)} at full burst"
        yield "savings", f"{gave}; {saved.accumulated_ratio_volume:.3g} cluster-seconds are saved"


def _lacking(told: PoolExplained) -> list[Table | Text | str]:
    holders, name = told.holders, told.holders.resource
    owed, wanted, free = (getattr(amount, name) for amount in (holders.owed, holders.wanted, holders.free))
    if not wanted and not owed:
        return [Text(f"it lacks nothing: it has all {name} that it wants")]
    lacks = "is owed and does not have" if owed else "wants and is not owed"
    head = f"it lacks {name} {format_amount(name, owed or wanted)} that it {lacks}"
    nobody = f"; {name} {format_amount(name, free)} of the cluster is unused" if free else ""
    if free >= (owed or wanted):
        nobody += ": `headrace op explain ID` shows why jobs do not start there"
    lines: list[Table | Text | str] = [Text(f"{head}{nobody}", style="bold")]
    if not holders.operations:
        return [*lines, "no other operation runs"]
    exempt = [
        f"{pool_words(one.pool)} {exact_duration(one.exempt_time_ms)}" for one in holders.pools if one.exempt_time_ms
    ]
    words = f"their jobs can be preempted once they have run for preemption_exempt_time: {', '.join(exempt)}"
    return [*lines, _holders(holders, told.at_ms), *([words] if exempt else [])]


def _holders(holders: Holders, now_ms: int) -> Table:
    made = table("held by", "", "in pool", "of", "has", "beyond its fair share", "for")
    groups = (
        ("pools", holders.pools, holders.pool_count),
        ("operations", holders.operations, holders.operation_count),
        ("people", holders.people, holders.people_count),
    )
    for kind, group, count in groups:
        label = f"{kind} ({count})"
        for each in group:
            name = each.operation or each.pool or each.user
            made.add_row(
                Text(label, style="bold"),
                Text(printable(name or "–")),
                each.pool if each.operation else "",
                each.user if each.operation else "",
                _cell(each.usage),
                _cell(each.beyond),
                _age(each, now_ms),
            )
            label = ""
    return made


def _age(holder: Holder, now_ms: int) -> str:
    return "" if holder.started_at_ms is None else format_duration(max(0, now_ms - holder.started_at_ms))


_FIGURES: Final[tuple[tuple[str, Callable[[ShareStep], str]], ...]] = (
    ("is owed", lambda step: _cell(step.fair_resources)),
    ("  by guarantee", lambda step: _cell(step.by_strong_guarantee)),
    ("  by savings", lambda step: _cell(step.by_integral_guarantee)),
    ("  by weight", lambda step: _cell(step.by_weight)),
    ("has", lambda step: _cell(step.usage)),
    ("wants", lambda step: _cell(step.demand)),
    ("guarantee", lambda step: _cell(step.guarantee)),
    ("limit", lambda step: _cell(step.limits.whole) if any_limit(step) else "–"),
    ("weight", lambda step: f"{step.weight:g}"),
    ("why", bound_words),
)


def side_by_side(told: PoolExplained) -> list[Table | Text | str]:
    """Return a table with a column for each level of both pools below their lowest common pool, and the differences in words."""
    common, one, other = _parted(told)
    made = table("", *(pool_words(step.pool) for step in (*one, *other)))
    for label, figure in _FIGURES:
        cells = [figure(step) for step in (*one, *other)]
        if any(cell != "–" for cell in cells):
            made.add_row(label, *map(Text, cells))
    head = f"{told.steps[-1].pool} beside {told.against[-1].pool}, in {pool_words(common.pool)}"
    return [Text(head, style="bold"), made, "", *map(Text, differences(told))]


def differences(told: PoolExplained) -> list[str]:
    """Return what makes the difference between the two pools, one sentence each. Empty if there is no pool to compare with."""
    if not told.against:
        return []
    common, one, other = _parted(told)
    name = told.holders.resource
    if not one or not other:
        inner, outer = (told.against, told.steps) if not one else (told.steps, told.against)
        rest = other or one
        words = [f"{inner[-1].pool} is in {outer[-1].pool}, and gets a part of that pool's fair share"]
        return [*words, *(_of_level(above, step, name) for above, step in pairwise([common, *rest]))]
    return [
        *_of_siblings(one[0], other[0], name),
        *(_of_level(above, step, name) for way in (one, other) for above, step in pairwise(way)),
    ]


def _parted(told: PoolExplained) -> tuple[ShareStep, Sequence[ShareStep], Sequence[ShareStep]]:
    """Return the lowest pool that contains the explained pool and the pool to compare with, and the levels from there to each."""
    same = 0
    for one, other in zip(told.steps, told.against, strict=False):
        if one.pool != other.pool:
            break
        same += 1
    return told.steps[same - 1], told.steps[same:], told.against[same:]


def _of_siblings(one: ShareStep, other: ShareStep, name: str) -> Iterator[str]:
    owed, others = _amount(one.fair_resources, name), _amount(other.fair_resources, name)
    if getattr(one.fair_resources, name) == getattr(other.fair_resources, name):
        yield f"{one.pool} and {other.pool} are owed the same: {name} {owed}"
    else:
        yield f"{one.pool} is owed {name} {owed}, {other.pool} {others}"
    for words, part in (("its guarantee", "by_strong_guarantee"), ("its savings", "by_integral_guarantee")):
        here, there = getattr(getattr(one, part), name), getattr(getattr(other, part), name)
        if here != there:
            more, less = (one, other) if here > there else (other, one)
            figures = f"{format_amount(name, max(here, there))}, {less.pool} {format_amount(name, min(here, there))}"
            yield f"by {words} {more.pool} has {name} {figures}"
    here, there = getattr(one.by_weight, name), getattr(other.by_weight, name)
    if one.weight != other.weight and (here or there):
        yield f"the weight of {one.pool} is {one.weight:g}, the weight of {other.pool} is {other.weight:g}"
    for step in (one, other):
        if step.division is not Division.WEIGHT or step.bound_by is BoundKind.LIMIT:
            yield f"{step.pool}: {bound_words(step)}"


def _of_level(above: ShareStep, step: ShareStep, name: str) -> str:
    owed, whole = _amount(step.fair_resources, name), _amount(above.fair_resources, name)
    return f"{step.pool} is owed {name} {owed} of the {whole} of {pool_words(above.pool)}: {bound_words(step)}"


def _amount(amount: Resources, name: str) -> str:
    return format_amount(name, getattr(amount, name))
