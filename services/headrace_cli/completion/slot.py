"""The slot under the cursor: the argument, and its command, to which the word belongs. Pure.

Read from the commands themselves, so that whatever they take can be completed without being listed anywhere else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from cyclopts import App
from cyclopts.argument import Argument


@dataclass(frozen=True)
class Slot:
    """The place of the word under the cursor."""

    #: The command as far as it is written.
    app: App
    #: Its names: `("pool", "get")`.
    path: tuple[str, ...]
    #: The word, up to the cursor.
    word: str
    #: What it is a value of; None where no argument stands here.
    argument: Argument | None = None
    #: The part of the word that stands before the value: `--pool=`.
    lead: str = ""
    #: Commands may stand here.
    commands: bool = False
    #: Options may stand here.
    options: bool = False
    arguments: tuple[Argument, ...] = ()
    #: What was written before, by the name of the parameter.
    given: Mapping[str, Sequence[str]] = field(default_factory=dict)
    #: Words before the first one of `argument`, of all behind `headrace`.
    words_before: int = 0

    @property
    def value(self) -> str:
        """The word without `lead`."""
        return self.word[len(self.lead) :]


def is_repeated(argument: Argument) -> bool:
    """True if it takes several values."""
    _, takes_all = argument.token_count()
    return bool(takes_all)


def find_slot(app: App, words: Sequence[str]) -> Slot:
    """The slot of the last of `words`, which are those behind the program's name."""
    before, word = list(words[:-1]), words[-1] if words else ""
    path, apps, rest = app.parse_commands(before)
    command = apps[-1]
    if command.default_command is None:
        return Slot(command, path, word, commands=not rest, options=word.startswith("-"))
    return _Walk(command, path, word, words_of_path=len(before) - len(rest)).of(rest)


class _Walk:
    """Goes through the words behind a command as the command itself would."""

    def __init__(self, app: App, path: tuple[str, ...], word: str, words_of_path: int) -> None:
        self._app, self._path, self._word = app, path, word
        self._arguments = tuple(a for a in app.assemble_argument_collection(parse_docstring=True) if a.show)
        self._options = {name: a for a in self._arguments for name in a.names if name.startswith("-")}
        self._positional = sorted((a for a in self._arguments if a.index is not None), key=lambda a: a.index or 0)
        self._words_of_path = words_of_path
        self._given: dict[str, list[str]] = {}
        self._begins: dict[str, int] = {}

    def of(self, before: Sequence[str]) -> Slot:
        waits_for_value: Argument | None = None
        options_over = False
        count = 0
        for at, token in enumerate(before):
            if waits_for_value is not None:
                self._give(waits_for_value, token)
                waits_for_value = None
            elif options_over or not token.startswith("-") or token == "-":
                self._begin(count, self._words_of_path + at)
                self._give(self._argument_at(count), token)
                count += 1
            elif token == "--":
                options_over = True
            else:
                name, equals, value = token.partition("=")
                option = self._options.get(name)
                if option is not None and not equals and _takes_value(option):
                    waits_for_value = option
                else:
                    self._give(option, value)
        self._begin(count, self._words_of_path + len(before))
        return self._here(waits_for_value, count, options_over)

    def _here(self, waiting: Argument | None, count: int, options_over: bool) -> Slot:
        if waiting is not None:
            return self._slot(waiting)
        if self._word.startswith("-") and not options_over:
            name, equals, _ = self._word.partition("=")
            return self._slot(self._options.get(name), lead=name + "=") if equals else self._slot(None, options=True)
        argument = self._argument_at(count)
        return self._slot(argument, options=argument is None and not options_over)

    def _slot(self, argument: Argument | None, *, lead: str = "", options: bool = False) -> Slot:
        return Slot(
            app=self._app,
            path=self._path,
            word=self._word,
            argument=argument,
            lead=lead,
            options=options,
            arguments=self._arguments,
            given=self._given,
            words_before=self._begins.get(argument.field_info.name, 0) if argument is not None else 0,
        )

    def _argument_at(self, count: int) -> Argument | None:
        """The positional argument that takes the word with so many before it."""
        for place, argument in enumerate(self._positional):
            if place == count or (place < count and is_repeated(argument)):
                return argument
        return None

    def _begin(self, count: int, words_before: int) -> None:
        argument = self._argument_at(count)
        if argument is not None:
            self._begins.setdefault(argument.field_info.name, words_before)

    def _give(self, argument: Argument | None, value: str) -> None:
        if argument is not None:
            self._given.setdefault(argument.field_info.name, []).append(value)


def _takes_value(option: Argument) -> bool:
    count, _ = option.token_count()
    return bool(count)
