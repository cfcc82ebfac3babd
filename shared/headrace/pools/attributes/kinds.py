"""Kinds of values that a person can set: how each kind is parsed from what was written, and written back.

Pure. `read` takes the value from JSON or YAML, including texts (`"4G"`, `"30s"`, `"true"`). It raises `BadInput` with the
location, the value and what is accepted, or `Defects` if several values are wrong. `write` is its inverse. `changed` sets a part
of a value.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Generic, TypeVar

import msgspec

from headrace.durations import LONGEST_MS, exact_duration, parse_duration_ms
from headrace.errors import BadInput, HeadraceError
from headrace.pools.node_filter import parse_formula

E = TypeVar("E", bound=enum.StrEnum)
_LARGEST_WHOLE = 2**53
#: Lower bounds below this number are not shown, because people would take the digits of such a number to be exact.
_TINY = 1e-6
_LONGEST_WORD = 1_000
#: Largest number of maps and lists inside each other, and of parts of a key below its first part.
DEEPEST = 40
_FLAGS: Final = {"true": True, "false": False}


class Defects(HeadraceError):
    """One or more values cannot be used. Has the error of each value."""

    def __init__(self, problems: Sequence[BadInput]) -> None:
        self.problems = list(problems)
        told = [str(problem) for problem in problems]
        super().__init__(told[0] if len(told) == 1 else "\n".join([f"{len(told)} values cannot be used", *told]))


class Kind:
    """One kind of value."""

    #: The kind and its range in words, for the reference pages and for error messages: "a number from 0 to 1".
    words: str

    def read(self, value: object, place: str) -> Any:
        """Return the value as it is stored. Raises `BadInput`, `Defects`."""
        raise NotImplementedError

    def write(self, value: Any) -> object:
        """Return the stored value as a person writes it."""
        return value

    def changed(self, before: Any, path: Sequence[str], value: object, place: str) -> Any:
        """Return the value with the part at `path` set; None removes the part. Raises `BadInput`, `Defects`."""
        raise BadInput.because(
            place, f"this attribute has no parts. Set the whole attribute; its value is {self.words}"
        )

    def converted(self, value: object, place: str, into: Any) -> Any:
        """Return the value converted to a type by msgspec. Raises `BadInput` with the words of this kind."""
        try:
            return msgspec.convert(value.strip() if isinstance(value, str) else value, into, strict=False)
        except msgspec.ValidationError:
            raise BadInput(place, value, self.words) from None

    def read_each(self, value: object, place: str, kind: Kind) -> tuple[Any, ...]:
        """Return the items of a list in which no item occurs twice. Raises `BadInput`."""
        if not isinstance(value, list | tuple):
            raise BadInput(place, value, self.words)
        items = tuple(kind.read(item, f"{place}[{at}]") for at, item in enumerate(value))
        if len(set(items)) != len(items):
            raise BadInput(place, value, self.words)
        return items


@dataclass(frozen=True)
class Number(Kind):
    """A finite number within bounds."""

    least: float = 0.0
    most: float = 1e9
    #: True if the bound `least` itself is refused.
    above: bool = False

    @property
    def words(self) -> str:  # type: ignore[override]
        if 0 < self.least < _TINY:
            return f"a positive number that is not tiny, up to {self.most:.10g}"
        return f"a number {'above' if self.above else 'from'} {self.least:.10g} to {self.most:.10g}"

    def read(self, value: object, place: str) -> Any:
        bounds = msgspec.Meta(gt=self.least) if self.above else msgspec.Meta(ge=self.least)
        return self.converted(value, place, Annotated[float, bounds, msgspec.Meta(le=self.most)])


@dataclass(frozen=True)
class Whole(Kind):
    """A whole number within bounds."""

    least: int = 0
    most: int = _LARGEST_WHOLE

    @property
    def words(self) -> str:  # type: ignore[override]
        return (
            f"a whole number, {self.least} or more"
            if self.most == _LARGEST_WHOLE
            else f"a whole number from {self.least} to {self.most}"
        )

    def read(self, value: object, place: str) -> Any:
        return self.converted(value, place, Annotated[int, msgspec.Meta(ge=self.least, le=self.most)])


class Flag(Kind):
    """True or false."""

    words = "true or false"

    def read(self, value: object, place: str) -> bool:
        said = _FLAGS.get(value.strip().lower().removeprefix("%")) if isinstance(value, str) else value
        if not isinstance(said, bool):
            raise BadInput(place, value, self.words)
        return said


@dataclass(frozen=True)
class Duration(Kind):
    """A duration, stored in milliseconds."""

    least_ms: int = 0
    most_ms: int = LONGEST_MS

    @property
    def words(self) -> str:  # type: ignore[override]
        bounds = [f"{exact_duration(self.least_ms)} or more"] if self.least_ms else []
        bounds += [f"{exact_duration(self.most_ms)} at most"] if self.most_ms != LONGEST_MS else []
        return ", ".join(["a length of time with a unit, such as 30s or 500ms", *bounds])

    def read(self, value: object, place: str) -> int:
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            raise BadInput(place, value, self.words)
        ms = parse_duration_ms(int(value) if isinstance(value, float) else value, place=place)
        if not self.least_ms <= ms <= self.most_ms:
            raise BadInput(place, value, self.words)
        return ms

    def write(self, value: Any) -> object:
        return exact_duration(value)


@dataclass(frozen=True)
class Choice(Kind, Generic[E]):
    """One of a few words."""

    of: type[E]
    #: Alternative words, each with the word of the list that it stands for.
    also: tuple[tuple[str, str], ...] = ()

    @property
    def words(self) -> str:  # type: ignore[override]
        return " or ".join(self.of)

    def read(self, value: object, place: str) -> Any:
        return self.converted(dict(self.also).get(str(value), value), place, self.of)

    def write(self, value: Any) -> object:
        return str(value)


@dataclass(frozen=True)
class Choices(Kind, Generic[E]):
    """A list of a few words, each at most once. The order in which a person writes the words is kept."""

    of: Choice[E]

    @property
    def words(self) -> str:  # type: ignore[override]
        return f"a list that is not empty, each value once, of {self.of.words}"

    def read(self, value: object, place: str) -> tuple[E, ...]:
        chosen = self.read_each(value, place, self.of)
        if not chosen:
            raise BadInput(place, value, self.words)
        return chosen

    def write(self, value: Any) -> object:
        return [str(item) for item in value]


@dataclass(frozen=True)
class Word(Kind):
    """A text."""

    words: str = "a text"

    def read(self, value: object, place: str) -> str:
        if not isinstance(value, str) or not value.strip() or len(value) > _LONGEST_WORD or not value.isprintable():
            raise BadInput(place, value, f"{self.words} of 1 to {_LONGEST_WORD} characters that can be printed")
        return value


class Formula(Word):
    """A formula over tags of nodes."""

    def __init__(self) -> None:
        super().__init__("a formula over tags of nodes such as ssd & (fast | !old)")

    def read(self, value: object, place: str) -> str:
        text = super().read(value, place)
        try:
            parse_formula(text)
        except BadInput as problem:
            raise BadInput(place, value, problem.expected) from None
        return text


@dataclass(frozen=True)
class Words(Kind):
    """A list of texts, each at most once."""

    most: int = 1_000
    what: str = "texts"

    @property
    def words(self) -> str:  # type: ignore[override]
        return f"a list of at most {self.most} {self.what}, each once"

    def read(self, value: object, place: str) -> tuple[str, ...]:
        if isinstance(value, list | tuple) and len(value) > self.most:
            raise BadInput(place, f"{len(value)} entries", self.words)
        return self.read_each(value, place, Word())

    def write(self, value: Any) -> object:
        return list(value)


def refuse_too_deep(value: object, place: str) -> None:
    """Raise `BadInput` for a value with more than 40 nested maps and lists, because reading it would fail halfway."""
    level = [(place, value)]
    for _ in range(DEEPEST):
        level = [item for where, each in level for item in _items_of(where, each)]
        if not level:
            return
    raise BadInput.because(
        place, f"the value is nested too deep; at most {DEEPEST} levels of maps and lists are allowed"
    )


def refuse_large_numbers(value: object, place: str) -> None:
    """Raise `BadInput` for a value with a whole number of more than 64 bits, because no message can carry it."""
    left = [(place, value)]
    while left:
        where, each = left.pop()
        if isinstance(each, int) and not -(2**63) <= each < 2**64:
            bits = f"a whole number of {each.bit_length()} bits cannot be stored"
            raise BadInput.because(
                where, f"{bits}; expected a number from -2**63 to 2**64 - 1. Write the number as a text"
            )
        left += _items_of(where, each)


def _items_of(place: str, value: object) -> Iterator[tuple[str, object]]:
    """Yield the values in a map or a list, each with its place."""
    if isinstance(value, Mapping):
        yield from ((f"{place}.{key}", each) for key, each in value.items())
    elif isinstance(value, list | tuple):
        yield from ((f"{place}[{index}]", each) for index, each in enumerate(value))
