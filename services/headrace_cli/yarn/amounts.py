"""Amounts of resources in YARN's three spellings: `1024 mb, 1 vcores`, `50%`, and `memory-mb=1024, vcores=1`."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from headrace.errors import BadInput
from headrace.pools import PartialResources
from headrace.resources import LARGEST_AMOUNT, Resources

_MIB: Final = 2**20
#: Headrace's names of resources, by YARN's names.
_NAMES: Final = {"memory-mb": "memory", "memory": "memory", "vcores": "cpu", "gpu": "gpu", "yarn.io/gpu": "gpu"}
#: Number of Headrace's units in one unit of YARN, by resource.
_UNITS: Final = {"memory": _MIB, "cpu": 100, "gpu": 1}
_OLD: Final = {"memory": re.compile(r"(-?[0-9.]+)\s*mb"), "cpu": re.compile(r"(-?[0-9.]+)\s*vcores")}
_PARTS: Final = {"memory": re.compile(r"(-?[0-9.]+)\s*%\s*memory"), "cpu": re.compile(r"(-?[0-9.]+)\s*%\s*cpu")}
_ONE_PART: Final = re.compile(r"(-?[0-9.]+)\s*%\Z")
_JAVA_NUMBER: Final = re.compile(r"[-+]?([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(e[-+]?[0-9]+)?[fd]?\Z", re.IGNORECASE)
_LONGEST: Final = 200
EXPECTED: Final = "X mb, Y vcores, or P%, or P% memory, Q% cpu, or memory-mb=X, vcores=Y; no negative numbers"


@dataclass(frozen=True)
class Amounts:
    """Amounts by resource: MiB of memory, cores, GPUs, or percentages of the cluster."""

    figures: Mapping[str, float]
    is_percentage: bool = False
    #: Parts of the text that were ignored, as YARN ignores them. `read` contains the parts that were read.
    unread: str = ""
    read: tuple[str, ...] = ()

    def of(self, total: Resources) -> dict[str, int]:
        """Return the amounts in units of `Resources`. Percentages are of `total`; resources that `total` lacks are left out."""
        if not self.is_percentage:
            return {name: int(figure) * _UNITS[name] for name, figure in self.figures.items()}
        there = PartialResources.of(total).named()
        return {
            name: min(int(there[name] // _size(name) * figure / 100) * _size(name), LARGEST_AMOUNT)
            for name, figure in self.figures.items()
            if name in there
        }


def read_amounts(text: str, place: str) -> Amounts:
    """Parse an amount in any of the three spellings. Raises `BadInput`."""
    low = text.strip().lower()
    if len(low) > _LONGEST:
        raise BadInput(place, text, EXPECTED)
    if "=" in low:
        return _new_style(low, place)
    if one := _ONE_PART.match(low):
        return Amounts(dict.fromkeys(_UNITS, _number(one[1], low, place)), is_percentage=True)
    is_percentage = "%" in low
    matches = {name: pattern.search(low) for name, pattern in (_PARTS if is_percentage else _OLD).items()}
    found = [match for match in matches.values() if match is not None]
    figures: dict[str, float] = {}
    for name, match in matches.items():
        figure = match[1] if match is not None else ""
        figures[name] = _number(figure, low, place) if is_percentage else _figure(figure, low, place, name)
    return Amounts(figures, is_percentage, _beside(found, low), tuple(match[0] for match in found))


def _beside(matches: Iterable[re.Match[str]], text: str) -> str:
    """Return the parts of the text outside the matches, without the commas and blanks around the matches."""
    for match in sorted(matches, key=re.Match.start, reverse=True):
        text = f"{text[: match.start()]}\n{text[match.end() :]}"
    return ", ".join(part for each in text.split("\n") if (part := each.strip(" ,;")))


def whole_number(text: str) -> int | None:
    """Parse a whole number of decimal digits. Return `LARGEST_AMOUNT` for any larger number, and None for any other text."""
    if not (text.isascii() and text.isdigit()):
        return None
    # Do not convert a long number: Python raises an error for thousands of digits.
    digits = text.lstrip("0") or "0"
    return min(int(digits[:20]), LARGEST_AMOUNT)


def java_number(text: str, place: str) -> float:
    """Parse a number as Java does, with an optional f or d at its end. Raises `BadInput`, also for a number that is not finite."""
    number = float(text.rstrip("fFdD")) if _JAVA_NUMBER.match(text) else math.nan
    if not math.isfinite(number):
        raise BadInput(place, text, "a number")
    return number


def _new_style(text: str, place: str) -> Amounts:
    given: dict[str, str] = {}
    for piece in text.split(","):
        key, _, figure = (part.strip() for part in piece.partition("="))
        name = _NAMES.get(key)
        if name is None or name in given:
            raise BadInput(place, piece.strip(), f"each of {', '.join(_NAMES)} once, such as memory-mb=1024, vcores=1")
        given[name] = figure
    if all(figure.endswith("%") for figure in given.values()):
        figures = {name: _number(figure[:-1].strip(), text, place) for name, figure in given.items()}
        return Amounts(figures, is_percentage=True)
    if not all(re.fullmatch(r"[0-9]+", figure) for figure in given.values()):
        raise BadInput(
            place,
            text,
            "either whole numbers without units, such as memory-mb=1024, vcores=1, or percentages, such as memory-mb=50%, vcores=50%",
        )
    return Amounts({name: _figure(figure, text, place, name) for name, figure in given.items()})


def _figure(figure: str, text: str, place: str, name: str) -> float:
    """Return a figure as a number without its fraction: YARN cuts fractions off, too. Raises `BadInput`."""
    whole = int(_number(figure, text, place))
    if whole * _UNITS[name] > LARGEST_AMOUNT:
        raise BadInput(place, text, f"at most {LARGEST_AMOUNT // _UNITS[name]}")
    return whole


def _number(figure: str, text: str, place: str) -> float:
    try:
        number = float(figure)
    except ValueError:
        raise BadInput(place, text, EXPECTED) from None
    if not (math.isfinite(number) and number >= 0):
        raise BadInput(place, text, EXPECTED)
    return number


def _size(name: str) -> int:
    """Return the step to which amounts are rounded down, in units of `Resources`.

    The step is one MiB for memory, which is the file's unit, and one unit of `Resources` for all other resources (for cpu, a hundredth of a
    core).
    """
    return _MIB if name == "memory" else 1
