"""Amounts of resources: five integers in a fixed order, exact, compared component by component.

cpu is in hundredths of a core, memory in bytes, and the other resources in whole units. Shares are fractions of a tree's
total: floats in the same order.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping
from typing import Annotated, Final

import msgspec

from headrace.errors import BadInput

RESOURCE_NAMES: Final = ("user_slots", "cpu", "gpu", "memory", "network")
#: Shares that differ by less than this are equal. No other module defines this tolerance.
EPS: Final = 1e-9
#: Largest amount that a person may write, so that a guarantee of the memory of ten thousand nodes is possible.
LARGEST_AMOUNT: Final = 2**60
#: Largest amount in a message. Messages also carry sums, such as the resources that a million pending jobs need together.
LARGEST_SUM: Final = 2**62

#: A float that is neither NaN nor infinite. Because it has both bounds, msgspec refuses such values while decoding, so messages
#: need no second pass.
Finite = Annotated[float, msgspec.Meta(ge=-sys.float_info.max, le=sys.float_info.max)]
Amount = Annotated[int, msgspec.Meta(ge=0, le=LARGEST_SUM)]
#: Fractions of the tree's total, in the order of `RESOURCE_NAMES`.
Share = tuple[Finite, Finite, Finite, Finite, Finite]
ZERO_SHARE: Share = (0.0, 0.0, 0.0, 0.0, 0.0)


class Resources(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An amount of every resource. Decoding checks 0 <= amount <= `LARGEST_SUM`; results of arithmetic may exceed these bounds."""

    user_slots: Amount = 0
    #: Hundredths of a core.
    cpu: Amount = 0
    gpu: Amount = 0
    #: Bytes.
    memory: Amount = 0
    network: Amount = 0

    def __add__(self, other: Resources) -> Resources:
        return Resources(
            self.user_slots + other.user_slots,
            self.cpu + other.cpu,
            self.gpu + other.gpu,
            self.memory + other.memory,
            self.network + other.network,
        )

    def __sub__(self, other: Resources) -> Resources:
        return Resources(
            self.user_slots - other.user_slots,
            self.cpu - other.cpu,
            self.gpu - other.gpu,
            self.memory - other.memory,
            self.network - other.network,
        )

    def __mul__(self, count: int) -> Resources:
        """Multiply every component. A product above `LARGEST_SUM` becomes `LARGEST_SUM`."""
        return Resources(
            u if (u := self.user_slots * count) < LARGEST_SUM else LARGEST_SUM,
            c if (c := self.cpu * count) < LARGEST_SUM else LARGEST_SUM,
            g if (g := self.gpu * count) < LARGEST_SUM else LARGEST_SUM,
            m if (m := self.memory * count) < LARGEST_SUM else LARGEST_SUM,
            n if (n := self.network * count) < LARGEST_SUM else LARGEST_SUM,
        )

    def name_above(self, most: Resources) -> str:
        """Return the name of the first resource with a larger amount than in `most`, or "" if there is none."""
        if most.dominates(self):
            return ""
        amounts = zip(RESOURCE_NAMES, self.as_tuple(), most.as_tuple(), strict=True)
        return next((name for name, amount, limit in amounts if amount > limit), "")

    def within_wire(self) -> Resources:
        """Return the amounts, each limited to the bounds that decoding checks."""
        amounts = self.as_tuple()
        if min(amounts) >= 0 and max(amounts) <= LARGEST_SUM:
            return self
        u, c, g, m, n = (min(max(amount, 0), LARGEST_SUM) for amount in amounts)
        return Resources(u, c, g, m, n)

    def or_more(self, least: Resources) -> Resources:
        """Return the larger amount of each resource."""
        u, c, g, m, n = map(max, self.as_tuple(), least.as_tuple())
        return Resources(u, c, g, m, n)

    def within(self, most: Resources) -> Resources:
        """Return the smaller amount of each resource."""
        u, c, g, m, n = map(min, self.as_tuple(), most.as_tuple())
        return Resources(u, c, g, m, n)

    def dominates(self, other: Resources) -> bool:
        """True if every component is at least the other's, so that `other` fits into `self`."""
        return (
            self.user_slots >= other.user_slots
            and self.cpu >= other.cpu
            and self.memory >= other.memory
            and self.gpu >= other.gpu
            and self.network >= other.network
        )

    def as_tuple(self) -> tuple[int, int, int, int, int]:
        return (self.user_slots, self.cpu, self.gpu, self.memory, self.network)

    def share_of(self, total: Resources) -> Share:
        """Return each amount divided by the total's amount, or 0 for a resource that the total lacks."""
        # The components are written out for speed, like the sums above: each heartbeat calls this method for every
        # operation that it touches.
        return (
            self.user_slots / total.user_slots if total.user_slots > 0 else 0.0,
            self.cpu / total.cpu if total.cpu > 0 else 0.0,
            self.gpu / total.gpu if total.gpu > 0 else 0.0,
            self.memory / total.memory if total.memory > 0 else 0.0,
            self.network / total.network if total.network > 0 else 0.0,
        )

    def part(self, share: Share) -> Resources:
        """Return this share of every component, rounded to the nearest whole number and limited to the bounds of a message."""
        # The components are written out for speed, like the sums above: this method is called for each operation whose
        # share changed.
        u, c, g, m, n = share
        return Resources(
            int(u * self.user_slots + 0.5),
            int(c * self.cpu + 0.5),
            int(g * self.gpu + 0.5),
            int(m * self.memory + 0.5),
            int(n * self.network + 0.5),
        ).within_wire()

    def times_that_fit(self, room: Resources) -> int:
        """Return how many times these amounts fit into `room`, or 0 if all amounts are 0."""
        # The components are written out for speed, like the sums above.
        u, c, g, m, n = self.user_slots, self.cpu, self.gpu, self.memory, self.network
        fits = LARGEST_SUM
        if u > 0:
            fits = room.user_slots // u
        if c > 0 and (times := room.cpu // c) < fits:
            fits = times
        if m > 0 and (times := room.memory // m) < fits:
            fits = times
        if g > 0 and (times := room.gpu // g) < fits:
            fits = times
        if n > 0 and (times := room.network // n) < fits:
            fits = times
        return max(0, fits) if fits < LARGEST_SUM else 0

    @staticmethod
    def sum(amounts: Iterable[Resources]) -> Resources:
        # The components are written out for speed, like the sums above.
        u = c = g = m = n = 0
        for amount in amounts:
            u += amount.user_slots
            c += amount.cpu
            g += amount.gpu
            m += amount.memory
            n += amount.network
        return Resources(u, c, g, m, n)


ZERO = Resources()
#: Largest amounts that a node may report for itself or for one of its allocations: 1 PiB of memory, and 2^40 hundredths of
#: cores, GPUs or slots. The owner of the fleet defines what a network unit is. The amounts of 100,000 ordinary nodes
#: together stay below `LARGEST_SUM`.
MOST_OF_A_NODE: Final = Resources(user_slots=2**40, cpu=2**40, gpu=2**40, memory=2**50, network=2**50)

_NUMBER = re.compile(r"(?P<figure>[0-9]{1,40}(?:\.[0-9]{1,40})?)\s*(?P<unit>[A-Za-z]*)\Z")
_BYTES = {
    "": 1,
    "b": 1,
    "k": 1024,
    "kb": 1000,
    "kib": 1024,
    "m": 1024**2,
    "mb": 1000**2,
    "mib": 1024**2,
    "g": 1024**3,
    "gb": 1000**3,
    "gib": 1024**3,
    "t": 1024**4,
    "tb": 1000**4,
    "tib": 1024**4,
}


def parse_amount(resource: str, text: str | int | float, *, place: str | None = None) -> int:
    """Read an amount as people write it: cpu in cores (`0.5`), memory with a unit (`512M`, `2GiB`), other resources as
    whole numbers.

    For memory, a number is an amount in bytes. A text without a unit is refused, unless it is `0`. K, M, G, T are
    powers of 1024, and KB, MB, GB, TB powers of 1000. Raises `BadInput`.
    """
    place = place or resource
    match = _NUMBER.match(str(text).strip())
    expected = {
        "cpu": "a number of cores such as 1, 0.5 or 12.25",
        "memory": "a number with a unit, such as 512M, 2GiB or 1000B",
    }.get(resource, "a whole number, 0 or more")
    if match is None or (match["unit"] and resource != "memory"):
        raise BadInput(place, text, expected)
    unit = _BYTES.get(match["unit"].lower()) if resource == "memory" else (100 if resource == "cpu" else 1)
    lacks_unit = resource == "memory" and isinstance(text, str) and not match["unit"] and float(match["figure"]) > 0
    if unit is None or lacks_unit:
        raise BadInput(place, text, expected)
    whole, _, fraction = match["figure"].partition(".")
    scaled, rest = divmod(int(whole + fraction) * unit, int(10 ** len(fraction)))
    if rest and resource == "memory":
        rest = 0  # a fraction of a byte is rounded down
    if rest:
        raise BadInput(place, text, expected + (" (at most two decimal places)" if resource == "cpu" else ""))
    if scaled > LARGEST_AMOUNT:
        raise BadInput(place, text, f"at most {format_amount(resource, LARGEST_AMOUNT)}")
    return scaled


def parse_resources(figures: Mapping[str, str | int | float], *, place: str) -> Resources:
    """Read a mapping of resource names to amounts in the form of `parse_amount`. Raises `BadInput`, which names the key."""
    unknown = sorted(set(figures) - set(RESOURCE_NAMES))
    if unknown:
        raise BadInput(f"{place}.{unknown[0]}", figures[unknown[0]], "one of " + ", ".join(RESOURCE_NAMES))
    return Resources(**{name: parse_amount(name, text, place=f"{place}.{name}") for name, text in figures.items()})


def exact_amount(resource: str, amount: int) -> str:
    """Write an amount so that `parse_amount` reads the same value back: memory in the largest unit that needs no fraction."""
    if resource != "memory":
        return format_amount(resource, amount)
    units = (("TiB", 1024**4), ("GiB", 1024**3), ("MiB", 1024**2), ("KiB", 1024))
    unit, size = next(((unit, size) for unit, size in units if amount and amount % size == 0), ("B", 1))
    return f"{amount // size}{unit}"


def format_amount(resource: str, amount: int) -> str:
    """Return an amount as text for people: cores for cpu, binary units for memory, a plain number otherwise."""
    if resource == "cpu":
        cores, hundredths = divmod(abs(amount), 100)
        figure = f"{cores}.{hundredths:02}".rstrip("0").rstrip(".") if hundredths else str(cores)
        return f"-{figure}" if amount < 0 else figure
    if resource != "memory":
        return str(amount)
    for unit, size in (("PiB", 1024**5), ("TiB", 1024**4), ("GiB", 1024**3), ("MiB", 1024**2), ("KiB", 1024)):
        if abs(amount) >= size:
            return f"{amount / size:.4g} {unit}"
    return f"{amount} B"


def percent(share: float) -> str:
    """Return the share as a percentage such as `33.3%`, or `<0.1%` if it would round to zero."""
    figure = share * 100
    if abs(share) <= EPS:
        return "0%"
    if figure < 0.05:
        return "<0.1%"
    return f"{figure:.1f}".removesuffix(".0") + "%" if figure < 1000 else f"{figure:.0f}%"
