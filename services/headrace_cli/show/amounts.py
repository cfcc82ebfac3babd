"""Amounts, shares, and the names of resources and pools, in words. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.ids import ROOT_POOL
from headrace.resources import RESOURCE_NAMES, Resources, Share, format_amount


def short_name(resource: str) -> str:
    """Return the name of a resource for the head of a column."""
    return "slots" if resource == "user_slots" else resource


def pool_words(pool: str) -> str:
    """Return the name of a pool, or "the tree" for the root."""
    return "the tree" if pool == ROOT_POOL else pool


def amounts(resources: Resources, *, leave_out: Sequence[str] = ()) -> str:
    """Return the amounts in words, such as `cpu 1.5, memory 512 MiB`. Zeros are left out; if all are zero the result is a dash."""
    pairs = zip(RESOURCE_NAMES, resources.as_tuple(), strict=True)
    words = [
        f"{short_name(name)} {format_amount(name, amount)}"
        for name, amount in pairs
        if amount and name not in leave_out
    ]
    return ", ".join(words) or "–"


def component(share: Share, resource: str) -> float:
    """Return the component of a share for one resource."""
    return share[RESOURCE_NAMES.index(resource)]


def compact(resource: str, amount: int) -> str:
    """Return an amount in its shortest usual form: `4G` for memory, cores for cpu."""
    text = format_amount(resource, amount)
    return text.replace(" ", "").removesuffix("iB").removesuffix("B") if resource == "memory" else text
