"""Lines that draw a tree beside the names of its elements, and the few marks that figures are shown with. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from headrace.resources import EPS, RESOURCE_NAMES, Share, format_amount

__all__ = ["bar", "branches", "compact", "component", "percent"]

_EIGHTHS: Final = " ▏▎▍▌▋▊▉█"


def branches(elements: Iterable[tuple[str, str]]) -> list[str]:
    """What stands before each element's name, from (key, key of its parent); parents stand before children, siblings in their order.

    An element whose parent is not there is a top.
    """
    keys = list(elements)
    children: dict[str, list[str]] = {}
    known = {key for key, _ in keys}
    for key, parent in keys:
        children.setdefault(parent, []).append(key)
    leads: dict[str, str] = {}
    waiting = [(key, "", "") for key, parent in reversed(keys) if parent not in known]
    while waiting:
        key, lead, below = waiting.pop()
        leads[key] = lead
        following = children.get(key, [])
        for child in reversed(following):
            last = child == following[-1]
            waiting.append((child, below + ("└─ " if last else "├─ "), below + ("   " if last else "│  ")))
    return [leads[key] for key, _ in keys]


def component(share: Share, resource: str) -> float:
    """One resource of a share."""
    return share[RESOURCE_NAMES.index(resource)]


def percent(share: float) -> str:
    """Such as `33.3%`; `<0.1%` for what would look like nothing."""
    figure = share * 100
    if abs(share) <= EPS:
        return "0%"
    if figure < 0.05:
        return "<0.1%"
    return f"{figure:.1f}".removesuffix(".0") + "%" if figure < 1000 else f"{figure:.0f}%"


def compact(resource: str, amount: int) -> str:
    """An amount as short as people write it: `4G` for memory, cores for cpu."""
    text = format_amount(resource, amount)
    return text.replace(" ", "").removesuffix("iB").removesuffix("B") if resource == "memory" else text


def bar(share: float, width: int, *, ascii_only: bool) -> str:
    """A bar of `width` for a whole; what is more than the whole is cut and ends in an arrow."""
    if share > 1.0 + 1e-9:
        return ("#" if ascii_only else "█") * (width - 1) + (">" if ascii_only else "▶")
    eighths = round(max(0.0, share) * width * 8)
    if share > 0.0:
        eighths = max(eighths, 1)
    if ascii_only:
        return ("#" * ((eighths + 7) // 8)).ljust(width, ".")
    whole, rest = divmod(eighths, 8)
    return ("█" * whole + (_EIGHTHS[rest] if rest else "")).ljust(width)
