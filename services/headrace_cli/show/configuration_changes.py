"""A change of configuration as lines: `+` made, `~` changed, `-` removed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rich.text import Text

from headrace.counted import counted
from headrace.wire.pool_changes import AttributeDifference, PoolDifference, PoolPlan
from headrace_cli.show.screen import Screen


def plan_lines(plan: PoolPlan) -> list[Text]:
    """Return the lines of a plan; one line if nothing changes."""
    lines = list(_lines(plan))
    if plan.left_out:
        lines.append(Text(f"and {counted(plan.left_out, 'more pool')}"))
    return lines or [Text("nothing changes")]


def show_plan(screen: Screen, plan: PoolPlan, done: str, *, whole: bool = False) -> bool:
    """Print a plan, or `done` if it was carried out. Return True unless rules are broken.

    With `whole`, the lines of a plan that was carried out are printed too.
    """
    if screen.json:
        screen.show(plan, Text())
    elif plan.dry_run:
        screen.print(*plan_lines(plan))
    else:
        screen.print(*(plan_lines(plan) if whole else []), Text(done))
    return say_plan(screen, plan)


def say_plan(screen: Screen, plan: PoolPlan) -> bool:
    """Print the warnings and the broken rules of a plan. Return True unless rules are broken."""
    for warning in plan.warnings:
        screen.say(f"warning: {warning}", style="yellow")
    if plan.broken:
        count = "1 rule is broken" if len(plan.broken) == 1 else f"{len(plan.broken)} rules are broken"
        screen.say(f"{count}; nothing would be changed:", style="red")
        for broken in plan.broken:
            screen.say(f"  {broken}", style="red")
    elif plan.dry_run:
        screen.say("dry run: nothing was changed")
    return not plan.broken


def _lines(plan: PoolPlan) -> Iterator[Text]:
    if plan.options:
        yield Text(f"~ options of tree {plan.tree}", style="yellow")
        yield from _attributes(plan.options)
    for pool in plan.created:
        yield Text(f"+ {pool.path_after}", style="green")
        yield from _attributes(pool.attributes)
    for pool in plan.changed:
        yield Text(f"~ {_moved(pool)}", style="yellow")
        yield from _attributes(pool.attributes)
    for pool in plan.removed:
        yield Text(f"- {pool.path_before}", style="red")


def _moved(pool: PoolDifference) -> str:
    if pool.path_before == pool.path_after:
        return pool.path_after
    return f"{pool.path_before} -> {pool.path_after}"


def _attributes(differences: Iterable[AttributeDifference]) -> Iterator[Text]:
    for each in differences:
        before, after = each.before or "not set", each.after or "not set"
        yield Text(f"    {each.name}: {after}" if not each.before else f"    {each.name}: {before} -> {after}")
