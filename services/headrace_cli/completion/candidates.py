"""Candidates for the slot under the cursor. Pure."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from headrace.pools import POOL_ATTRIBUTES, TREE_ATTRIBUTES, Schema
from headrace.wire.operations import OperationState
from headrace_cli.commands.operations.changes import KEYS
from headrace_cli.completion.keys import assignments, attributes
from headrace_cli.completion.meaning import LIVE, Meaning, meaning_of
from headrace_cli.completion.slot import Slot, is_repeated
from headrace_cli.pools.fields import FIELDS

_LONGEST_DESCRIPTION = 80


class Mark(enum.StrEnum):
    """The way in which the shell inserts a candidate. The letters stand in the scripts as well."""

    #: A whole word; a blank follows.
    WORD = "w"
    #: The beginning of one; no blank follows.
    PART = "p"
    #: Not a word: the shell completes files.
    FILES = "f"
    #: Not a word: a command line of its own begins after so many words.
    COMMAND = "c"


class Name(msgspec.Struct, frozen=True):
    """A name that a running Headrace knows, with a few words about it."""

    name: str
    about: str = ""


class Completion(msgspec.Struct, frozen=True):
    """One thing that can stand there."""

    mark: Mark
    value: str
    description: str = ""

    def line(self) -> str:
        """The line that the scripts read: three columns with tabs between, none of them empty but the last."""
        return f"{self.mark}\t{self.value}\t{self.description}"


def candidates(slot: Slot, known: Sequence[Name]) -> list[Completion]:
    """All that can stand in the slot, each once, whatever its word begins with.

    `known` are the names of the kind that the slot asks for, where that is one which only a running Headrace knows.
    """
    unique: dict[str, Completion] = {}
    for candidate in _all(slot, known):
        if candidate.value.isprintable():
            unique.setdefault(candidate.value, candidate)
    return list(unique.values())


def _all(slot: Slot, known: Sequence[Name]) -> Iterator[Completion]:
    if slot.commands and not slot.options:
        yield from _commands(slot)
    if slot.options:
        yield from _options(slot)
    if slot.argument is not None:
        yield from _values(slot, known)


def _commands(slot: Slot) -> Iterator[Completion]:
    for name in slot.app:
        if not name.startswith("-") and slot.app[name].show:
            yield Completion(Mark.WORD, name, _short(slot.app[name].help))


def _options(slot: Slot) -> Iterator[Completion]:
    for argument in slot.arguments:
        if argument.field_info.name in slot.given and not is_repeated(argument):
            continue
        for name in argument.names:
            if name.startswith("-"):
                yield Completion(Mark.WORD, name, _short(argument.parameter.help or ""))
    flags = [*slot.app.help_flags, *(() if slot.path else slot.app.version_flags)]
    for flag in flags:
        yield Completion(Mark.WORD, flag, _short(slot.app[flag].help))


def _values(slot: Slot, known: Sequence[Name]) -> Iterator[Completion]:
    assert slot.argument is not None
    choices = slot.argument.get_choices(force=True)
    if choices:
        yield from (Completion(Mark.WORD, slot.lead + choice) for choice in choices)
        return
    match meaning_of(slot):
        case Meaning.FILE:
            yield Completion(Mark.FILES, "files")
        case Meaning.COMMAND:
            yield Completion(Mark.COMMAND, str(slot.words_before))
        case Meaning.STATE:
            yield from (Completion(Mark.WORD, slot.lead + state) for state in OperationState)
        case Meaning.ASSIGNMENT:
            yield from _keys(slot, assignments(_schema(slot), slot.value))
        case Meaning.ATTRIBUTE:
            yield from _keys(slot, attributes(_schema(slot), slot.value))
        case Meaning.OPERATION_SETTING:
            yield from _keys(slot, ((f"{key}=", "") for key in KEYS))
            yield from _names(slot, known)
        case Meaning.FIELD:
            yield from _names(slot, known)
            yield from (Completion(Mark.WORD, field.name, _short(field.help)) for field in FIELDS)
        case meaning if meaning in LIVE:
            yield from _names(slot, known)
        case _:
            pass


def _names(slot: Slot, known: Sequence[Name]) -> Iterator[Completion]:
    assert slot.argument is not None
    given = slot.given.get(slot.argument.field_info.name, ())
    for name in known:
        if name.name not in given:
            yield Completion(Mark.WORD, slot.lead + name.name, _short(name.about))


def _keys(slot: Slot, keys: Iterable[tuple[str, str]]) -> Iterator[Completion]:
    for key, about in keys:
        mark = Mark.PART if key.endswith(("=", "/", ".")) else Mark.WORD
        yield Completion(mark, slot.lead + key, _short(about))


def _schema(slot: Slot) -> Schema:
    return TREE_ATTRIBUTES if slot.path[0] == "tree" else POOL_ATTRIBUTES


def _short(text: str) -> str:
    """The first sentence without its marks, cut where a list of candidates would become hard to read."""
    line = text.strip().partition("\n")[0].partition(". ")[0].removesuffix(".").replace("`", "").replace("**", "")
    line = "".join(character if character.isprintable() else " " for character in line)
    return line if len(line) <= _LONGEST_DESCRIPTION else line[: _LONGEST_DESCRIPTION - 1] + "…"
