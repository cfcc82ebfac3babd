"""Kinds of values with parts: amounts by resource, texts by key, and maps that are stored as they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from headrace.counted import counted
from headrace.errors import BadInput, UnknownKey
from headrace.pools.amounts import PartialResources
from headrace.pools.attributes.kinds import Defects, Kind, Word, refuse_large_numbers
from headrace.resources import RESOURCE_NAMES, exact_amount, parse_amount
from headrace.suggestions import hint

#: Largest number of keys that are read as names of resources. It is bounded because each unknown name is compared with the known names.
_MOST_RESOURCES: Final = 100


class ResourceAmounts(Kind):
    """Amounts by resource. Leaving a resource out is different from an amount of 0."""

    words = "amounts by resource such as {cpu: 10, memory: 4G}, of " + ", ".join(RESOURCE_NAMES)

    def read(self, value: object, place: str) -> PartialResources:
        if not isinstance(value, Mapping):
            raise BadInput(place, value, self.words)
        if len(value) > _MOST_RESOURCES:
            raise BadInput(place, counted(len(value), "resource"), self.words)
        amounts: dict[str, int] = {}
        problems: list[BadInput] = []
        for resource, figure in value.items():
            try:
                if figure is not None:
                    amounts[resource] = self._amount(resource, figure, place)
            except BadInput as problem:
                problems.append(problem)
        if problems:
            raise Defects(problems)
        return PartialResources(**amounts)

    def write(self, value: Any) -> object:
        """Return the exact amounts: cores and counts as numbers, memory as a text with its unit."""
        written: dict[str, object] = {}
        for name, amount in value.named().items():
            cores = amount / 100
            number = (int(cores) if cores.is_integer() else cores) if name == "cpu" else amount
            written[name] = exact_amount(name, amount) if name == "memory" else number
        return written

    def changed(self, before: Any, path: Sequence[str], value: object, place: str) -> PartialResources:
        if len(path) != 1:
            raise BadInput.because(place, f"the part behind the attribute must be one of {', '.join(RESOURCE_NAMES)}")
        amounts: dict[str, int] = dict((before or PartialResources()).named())
        amounts.pop(path[0], None)
        if value is not None or path[0] not in RESOURCE_NAMES:
            amounts[path[0]] = self._amount(path[0], value, place.removesuffix(f".{path[0]}"))
        return PartialResources(**amounts)

    def _amount(self, resource: str, figure: object, place: str) -> int:
        if resource not in RESOURCE_NAMES:
            raise UnknownKey(f"{place}.{resource}", figure, hint(resource, RESOURCE_NAMES))
        if isinstance(figure, bool) or not isinstance(figure, int | float | str):
            raise BadInput(f"{place}.{resource}", figure, "an amount")
        return parse_amount(resource, figure, place=f"{place}.{resource}")


@dataclass(frozen=True)
class TextMap(Kind):
    """A map from texts to texts."""

    words: str = "a map of texts"

    def read(self, value: object, place: str) -> dict[str, str]:
        if not isinstance(value, Mapping):
            raise BadInput(place, value, self.words)
        return {Word().read(key, place): Word().read(item, f"{place}.{key}") for key, item in value.items()}

    def write(self, value: Any) -> object:
        return dict(value)

    def changed(self, before: Any, path: Sequence[str], value: object, place: str) -> dict[str, str]:
        if len(path) != 1:
            raise BadInput.because(place, f"only one key may follow the attribute, whose value is {self.words}")
        rest = {key: item for key, item in (before or {}).items() if key != path[0]}
        return rest if value is None else rest | self.read({path[0]: value}, place)


@dataclass(frozen=True)
class Data(Kind):
    """A map that is stored as it is."""

    words: str = "a map"

    def read(self, value: object, place: str) -> dict[str, Any]:
        if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
            raise BadInput(place, value, self.words)
        refuse_large_numbers(value, place)
        return dict(value)

    def changed(self, before: Any, path: Sequence[str], value: object, place: str) -> dict[str, Any]:
        whole = dict(before or {})
        head, *rest = path
        inner = whole.pop(head, None)
        if rest:
            whole[head] = self.changed(inner if isinstance(inner, Mapping) else {}, rest, value, place)
        elif value is not None:
            refuse_large_numbers(value, place)
            whole[head] = value
        return whole
