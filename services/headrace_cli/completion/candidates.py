"""Candidates for the slot under the cursor. Pure."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence

import msgspec

from headrace_cli.completion.slot import Slot
from headrace_cli.completion.table import Argument, short
from headrace_cli.completion.value_kinds import WORDS_OF_SETTINGS, ValueKind, value_kind


class Mark(enum.StrEnum):
    """How the shell inserts a candidate. The scripts for the shells use the same letters."""

    #: A whole word; a blank follows.
    WORD = "w"
    #: The beginning of a word; no blank follows it.
    PART = "p"
    #: No word: the shell completes file names.
    FILES = "f"
    #: No word: the shell completes a separate command line. `value` is the number of words before it.
    COMMAND = "c"


class Name(msgspec.Struct, frozen=True):
    """A name that a running Headrace knows, with a short description."""

    name: str
    about: str = ""


class Completion(msgspec.Struct, frozen=True):
    """One candidate for the word under the cursor."""

    mark: Mark
    value: str
    description: str = ""

    def line(self) -> str:
        """Return the line that the scripts read: three columns separated by tabs. Only the last column may be empty."""
        return f"{self.mark}\t{self.value}\t{self.description}"


def candidates(slot: Slot, known: Sequence[Name]) -> list[Completion]:
    """Return all candidates for the slot, each once. They need not begin with the part of the word that is already typed.

    `known` are the names of the kind that the slot asks for, if only a running Headrace knows names of this kind.
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
        yield from _values(slot, slot.argument, known)


def _commands(slot: Slot) -> Iterator[Completion]:
    for name, command in slot.command.commands.items():
        yield Completion(Mark.WORD, name, command.help)


def _options(slot: Slot) -> Iterator[Completion]:
    for argument in slot.command.arguments:
        if argument.repeated or argument.name not in slot.given:
            yield from (Completion(Mark.WORD, name, argument.help) for name in argument.options)
    for flag, about in slot.command.flags:
        yield Completion(Mark.WORD, flag, about)


def _values(slot: Slot, argument: Argument, known: Sequence[Name]) -> Iterator[Completion]:
    match value_kind(slot):
        case _ if argument.choices:
            yield from (Completion(Mark.WORD, slot.lead + choice) for choice in argument.choices)
        case ValueKind.FILE:
            yield Completion(Mark.FILES, "files")
        case ValueKind.COMMAND:
            yield Completion(Mark.COMMAND, str(slot.words_before))
        case kind if kind in WORDS_OF_SETTINGS:
            # The tables of settings are large, so they are imported only for a slot that takes their words.
            from headrace_cli.completion.setting_words import words_of_settings

            for word, about in words_of_settings(slot):
                mark = Mark.PART if word.endswith(("=", "/", ".")) else Mark.WORD
                yield Completion(mark, slot.lead + word, short(about))
            yield from _names(slot, argument, known)
        case _:
            yield from _names(slot, argument, known)


def _names(slot: Slot, argument: Argument, known: Sequence[Name]) -> Iterator[Completion]:
    given = slot.given.get(argument.name, ())
    for name in known:
        if name.name not in given:
            yield Completion(Mark.WORD, slot.lead + name.name, short(name.about))
