"""Shares of a running tree before and after supposed changes. Pure, except for `show_what_if`, which prints."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Final

from rich.table import Table
from rich.text import Text

from headrace.durations import format_duration
from headrace.resources import EPS, Resources, percent
from headrace.wire.snapshots import ElementKind
from headrace.wire.what_if import ComparedElement, ElementShares, WhatIfAnswer
from headrace_cli.show.amounts import amounts, compact, short_name
from headrace_cli.show.configuration_changes import plan_lines, say_plan
from headrace_cli.show.screen import Screen
from headrace_cli.show.tables import branches, printable, table

_NOTHING: Final = ElementShares()
#: Smallest width of a screen, in characters, at which demand and usage are shown.
_ROOM_FOR_DEMAND: Final = 120


def show_what_if(screen: Screen, answer: WhatIfAnswer) -> bool:
    """Print an answer: the changes of the configuration, then the shares. Return True unless rules are broken."""
    if screen.json:
        # Put the fields of the plan at the top level, where the JSON of a plan without shares has them too.
        sides = (answer.plan, answer)
        both = {name: getattr(side, name) for side in sides for name in side.__struct_fields__ if name != "plan"}
        screen.show(both, Text())
    else:
        if answer.plan.changes_something:
            screen.print(*plan_lines(answer.plan), "")
        screen.print(*what_if_lines(answer, screen.width))
    for note in answer.notes:
        screen.say(f"note: {note}")
    return say_plan(screen, answer.plan)


def what_if_lines(answer: WhatIfAnswer, width: int) -> Iterator[Text | Table]:
    """Yield a table of the shares that differ, and the number of shares that do not differ."""
    shown = [each for each in answer.elements if each.differs]
    if not shown:
        same = "no share changes" if answer.plan.changes_something else "nothing changes"
        yield Text(same if answer.elements else "no shares are known")
        return
    above = {each.parent for each in shown}
    # Go from the last element to the first: every pool comes before its children, so one pass finds all pools above a changed element.
    for each in reversed(answer.elements):
        if each.name in above and each.kind is not ElementKind.OPERATION:
            above.add(each.parent)
    rows = _as_a_tree(
        [each for each in answer.elements if each.differs or (each.kind is not _OPERATION and each.name in above)]
    )
    if answer.total_before != answer.total_after:
        yield Text(f"{amounts(answer.total_before)} → {amounts(answer.total_after)}")
    yield _table(answer, rows, width)
    more = f"{_counted(answer.left_out, 'element')} with smaller differences left out" if answer.left_out else ""
    pools, operations = answer.unchanged_pools, answer.unchanged_operations
    kept = [_counted(pools, "pool")] * bool(pools) + [_counted(operations, "operation")] * bool(operations)
    same = f"no share changes for {' and '.join(kept)}" if kept else ""
    if more or same:
        yield Text("; ".join(filter(None, (more, same))), style="dim")
    if any(_starves(each.before) != _starves(each.after) for each in rows):
        yield Text("starves: at these times if no job starts or ends until then", style="dim")


_OPERATION: Final = ElementKind.OPERATION


def _table(answer: WhatIfAnswer, rows: list[ComparedElement], width: int) -> Table:
    made = table("element", "fair share", right=("fair share",))
    resources = ["cpu", "memory"]
    both = (answer.total_before, answer.total_after)
    resources += [name for name in ("gpu",) if any(getattr(total, name) for total in both)]
    for name in resources:
        made.add_column("cores" if name == "cpu" else short_name(name), justify="right", no_wrap=True)
    wide = width >= _ROOM_FOR_DEMAND
    for head in ("wants", "uses") if wide else ():
        made.add_column(head, overflow="fold")
    made.add_column("starves", overflow="fold", min_width=8)
    leads = branches((_key(each), f"/{each.parent}") for each in rows)
    for lead, each in zip(leads, rows, strict=True):
        made.add_row(*_row(each, lead, resources, wide=wide))
    return made


def _as_a_tree(rows: list[ComparedElement]) -> list[ComparedElement]:
    """Return the same rows in the order of the tree: each pool followed by its children."""
    known, children = {_key(each) for each in rows}, defaultdict[str, list[ComparedElement]](list)
    for each in rows:
        children[f"/{each.parent}" if f"/{each.parent}" in known else ""].append(each)
    waiting, ordered = children[""][::-1], list[ComparedElement]()
    while waiting:
        ordered.append(waiting.pop())
        waiting += children[_key(ordered[-1])][::-1]
    return ordered


def _key(element: ComparedElement) -> str:
    return element.name if element.kind is _OPERATION else f"/{element.name}"


def _row(element: ComparedElement, lead: str, resources: list[str], *, wide: bool) -> list[Text]:
    title = Text(lead, style="dim")
    title.append(printable(element.name), style="" if element.kind is _OPERATION else "bold")
    if element.before is None or element.after is None:
        title.append(" (new)" if element.before is None else " (gone)", style="dim")
    sides = element.before, element.after
    cells = [title, _pair(*(percent(max(each.fair_share)) if each else "–" for each in sides))]
    more = _owed(element.after) - _owed(element.before)
    style = "green" if more > EPS else "red" if more < -EPS else ""
    cells[-1].stylize(style)
    for name in resources:
        pair = (compact(name, getattr(each.fair_resources, name)) if each else "–" for each in sides)
        cells.append(_pair(*pair))
    if wide:
        latest = element.after or element.before or _NOTHING
        cells += [Text(_few(latest.demand)), Text(_few(latest.usage))]
    return [*cells, _starving(element)]


def _few(resources: Resources) -> str:
    return amounts(resources, leave_out=("user_slots", "network"))


def _owed(shares: ElementShares | None) -> float:
    return max(shares.fair_share) if shares is not None else 0.0


def _pair(before: str, after: str) -> Text:
    return Text(after if before == after else f"{before} → {after}")


def _starves(shares: ElementShares | None) -> int | None:
    return shares.starves_in_ms if shares is not None else None


def _starving(element: ComparedElement) -> Text:
    before, after = _starves(element.before), _starves(element.after)
    if after is None:
        return Text("no longer" if before is not None and element.after is not None else "", style="green")
    words = "now" if after == 0 else f"in {format_duration(after)}"
    if before is not None and before != after:
        words += f", not {format_duration(before)}"
    return Text(words, style="red")


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
