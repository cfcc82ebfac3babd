"""Command lines of Slurm's commands, read by a table of options. Pure."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from headrace.errors import BadInput, HeadraceError
from headrace.suggestions import near


class NoCounterpart(HeadraceError):
    """An option or a value of Slurm that Headrace has no counterpart for. The message names what to use instead."""

    def __init__(self, what: str, instead: str) -> None:
        super().__init__(f"{what} has no counterpart in Headrace; use {instead}")


class Takes(enum.Enum):
    """Says if an option has a value: never, always, or if the user gives one."""

    NOTHING = enum.auto()
    VALUE = enum.auto()
    #: The value may be left out. It is given after `=`, or directly after the letter of the option.
    MAYBE = enum.auto()


class Option(NamedTuple):
    """An option of a command of Slurm."""

    name: str
    letter: str = ""
    takes: Takes = Takes.NOTHING
    #: Advice to a person whose option is refused. Empty if the option is accepted.
    refusal: str = ""
    #: Why the option has no effect, if it is ignored; empty: it has its effect.
    ignored: str = ""


def options(words: str, *, refusal: str = "", ignored: str = "") -> list[Option]:
    """Return the options of a list such as `account=,A wait,W nice?`: `=` marks a value, `?` a value that may be left out.

    >>> options("account=,A")
    [Option(name='account', letter='A', takes=<Takes.VALUE: 2>, refusal='', ignored='')]
    """
    takes = {"=": Takes.VALUE, "?": Takes.MAYBE}
    found = []
    for word in words.split():
        name, _, letter = word.partition(",")
        found.append(Option(name.rstrip("=?"), letter, takes.get(name[-1], Takes.NOTHING), refusal, ignored))
    return found


@dataclass
class Given:
    """The options and words of one command line."""

    values: dict[str, list[str]] = field(default_factory=dict)
    words: list[str] = field(default_factory=list)
    #: Remarks for the user about options that are ignored.
    remarks: list[str] = field(default_factory=list)

    def one(self, name: str) -> str | None:
        """Return the value that was given last; None if the option was not given."""
        found = self.values.get(name)
        return found[-1] if found else None

    def listed(self, name: str) -> list[str]:
        """Return the values of an option that may be repeated, each a list separated by commas."""
        return [part.strip() for text in self.values.get(name, []) for part in text.split(",") if part.strip()]

    def has(self, name: str) -> bool:
        return name in self.values

    def over(self, weaker: Given) -> Given:
        """Return these options together with `weaker`. If both give an option, the value in `weaker` is dropped."""
        return Given({**weaker.values, **self.values}, self.words, [*dict.fromkeys(weaker.remarks + self.remarks)])


class Table:
    """The options of one command."""

    def __init__(self, options: Iterable[Option], *, anywhere: bool = True) -> None:
        self.by_name: Final[Mapping[str, Option]] = {each.name: each for each in options}
        self._by_letter = {each.letter: each for each in self.by_name.values() if each.letter}
        #: False: the first word ends the options, because it begins a command of the user.
        self._anywhere = anywhere

    def read(self, words: Sequence[str], where: str = "") -> Given:
        """Read the words after a command. `where` names the line of a script. Raises `BadInput`, `NoCounterpart`."""
        given, rest = Given(), list(words)
        while rest:
            word = rest.pop(0)
            if word == "--":
                given.words += rest
                break
            if word.startswith("--"):
                self._read_long(word, rest, given, where)
            elif word.startswith("-") and len(word) > 1:
                self._read_short(word, rest, given, where)
            elif self._anywhere:
                given.words.append(word)
            else:
                given.words += [word, *rest]
                break
        return given

    def note(self, name: str, value: str | None, given: Given, place: str) -> None:
        """Add one option to `given`. Raises `NoCounterpart` if the option is refused."""
        option = self.by_name[name]
        if option.refusal:
            raise NoCounterpart(f"{place}={value}" if value else place, option.refusal)
        if option.ignored:
            given.remarks.append(f"--{name} is ignored: {option.ignored}")
        given.values.setdefault(name, []).append(value or "")

    def _read_long(self, word: str, rest: list[str], given: Given, where: str) -> None:
        name, equals, value = word[2:].partition("=")
        option = self.by_name.get(name) or self._beginning(name)
        place = f"{where}--{option.name if option else name}"
        if option is None:
            found = near(name, self.by_name)
            raise BadInput(place, word, f"did you mean --{found[0]}?" if found else "an option of Slurm's command")
        if option.takes is Takes.NOTHING and equals:
            raise BadInput(place, value, "no value")
        if option.takes is Takes.VALUE and not equals:
            value = self._next(rest, place, option)
        self.note(option.name, value, given, place)

    def _read_short(self, word: str, rest: list[str], given: Given, where: str) -> None:
        letters = word[1:]
        while letters:
            letter, letters = letters[0], letters[1:]
            option, place = self._by_letter.get(letter), f"{where}-{letter}"
            if option is None:
                raise BadInput(place, word, "an option of Slurm's command")
            value = ""
            if option.takes is not Takes.NOTHING:
                value, letters = letters.removeprefix("="), ""
                if option.takes is Takes.VALUE and not value:
                    value = self._next(rest, place, option)
            self.note(option.name, value, given, place)

    def _beginning(self, name: str) -> Option | None:
        """Return the option whose name begins with `name`, as `getopt_long` does. None if no option or several options do."""
        found = [each for known, each in self.by_name.items() if known.startswith(name)]
        return found[0] if len(found) == 1 else None

    @staticmethod
    def _next(rest: list[str], place: str, option: Option) -> str:
        # An option that Headrace refuses needs no value here: the refusal is a better answer than a missing value.
        if not rest and not option.refusal:
            raise BadInput.because(place, "the value is missing")
        return rest.pop(0) if rest else ""
