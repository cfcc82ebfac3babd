"""Amounts of resources in YARN's three spellings: `1024 mb, 1 vcores`, `50%`, and `memory-mb=1024, vcores=1`."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from headrace.errors import BadInput
from headrace.pools import PartialResources
from headrace.resources import LARGEST_AMOUNT, Resources

_MIB: Final = 2**20
#: Resources by the names that YARN gives them.
_NAMES: Final = {"memory-mb": "memory", "memory": "memory", "vcores": "cpu", "gpu": "gpu", "yarn.io/gpu": "gpu"}
#: Units of a resource here in one of YARN's.
_UNITS: Final = {"memory": _MIB, "cpu": 100, "gpu": 1}
_OLD: Final = {"memory": re.compile(r"(-?[0-9.]+)\s*mb"), "cpu": re.compile(r"(-?[0-9.]+)\s*vcores")}
_PARTS: Final = {"memory": re.compile(r"(-?[0-9.]+)\s*%\s*memory"), "cpu": re.compile(r"(-?[0-9.]+)\s*%\s*cpu")}
_ONE_PART: Final = re.compile(r"(-?[0-9.]+)\s*%\Z")
_LONGEST: Final = 200
EXPECTED: Final = "X mb, Y vcores, or P%, or P% memory, Q% cpu, or memory-mb=X, vcores=Y; nothing negative"


@dataclass(frozen=True)
class Amounts:
    """Figures by resource: MiB of memory, cores, gpus, or percents of the cluster."""

    figures: Mapping[str, float]
    is_percentage: bool = False

    def of(self, total: Resources) -> dict[str, int]:
        """The amounts in units of `Resources`. Percents are of `total`, and of what it has none of there are none."""
        if not self.is_percentage:
            return {name: int(figure) * _UNITS[name] for name, figure in self.figures.items()}
        there = PartialResources.of(total).named()
        return {
            name: min(int(there[name] // _size(name) * figure / 100) * _size(name), LARGEST_AMOUNT)
            for name, figure in self.figures.items()
            if name in there
        }


def read_amounts(text: str, place: str) -> Amounts:
    """Reads any of the three spellings. Raises `BadInput`."""
    low = text.strip().lower()
    if len(low) > _LONGEST:
        raise BadInput(place, text, EXPECTED)
    if "=" in low:
        return _new_style(low, place)
    if "%" in low:
        return Amounts(_percents(low, place), is_percentage=True)
    found = {name: pattern.search(low) for name, pattern in _OLD.items()}
    return Amounts({name: _figure(match[1] if match else "", low, place, name) for name, match in found.items()})


def _percents(text: str, place: str) -> dict[str, float]:
    if one := _ONE_PART.match(text):
        return dict.fromkeys(_UNITS, _number(one[1], text, place))
    found = {name: pattern.search(text) for name, pattern in _PARTS.items()}
    return {name: _number(match[1] if match else "", text, place) for name, match in found.items()}


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
        raise BadInput(place, text, "whole numbers without units, or percents of each: memory-mb=1024, vcores=1")
    return Amounts({name: _figure(figure, text, place, name) for name, figure in given.items()})


def _figure(figure: str, text: str, place: str, name: str) -> float:
    """Cuts a fraction, as YARN does."""
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
    """Rounds memory to MiB, as the file does, and cores to hundredths."""
    return _MIB if name == "memory" else 1
