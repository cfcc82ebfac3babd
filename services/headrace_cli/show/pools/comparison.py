"""Two pools side by side, from the lowest pool that contains both, and what makes the difference in words. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Final

from rich.table import Table
from rich.text import Text

from headrace.resources import Resources, format_amount
from headrace.wire.plan import BoundKind
from headrace.wire.pool_explanations import Division, PoolExplained, ShareStep
from headrace_cli.show.amounts import amounts
from headrace_cli.show.pools.explanation import any_limit, bound_words
from headrace_cli.show.tables import table
from headrace_cli.show.waiting_reasons import pool_words

_SLOTS: Final = ("user_slots",)
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
    """Return what makes the difference, one sentence each. Empty if there is no pool to compare with."""
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
    """Return the lowest pool that contains both pools, and the levels below it towards each of them."""
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


def _cell(amount: Resources) -> str:
    return amounts(amount, leave_out=_SLOTS)
