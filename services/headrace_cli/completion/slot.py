"""The slot under the cursor: the command that is being typed, and its argument to which the word under the cursor belongs. Pure.

The slot is found with the table of commands, so everything that commands take can be completed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from headrace.errors import BadInput
from headrace_cli.completion.synonyms import canonical
from headrace_cli.completion.table import Argument, Command


@dataclass(frozen=True)
class Slot:
    """The meaning of the word under the cursor: its command, and the argument to which it belongs."""

    #: The command, as far as it is typed.
    command: Command
    #: Words that name the command, such as `("pool", "get")`.
    path: tuple[str, ...]
    #: The word, up to the cursor.
    word: str
    #: Argument whose value is being typed; None: no argument is possible here.
    argument: Argument | None = None
    #: Part of the word before the value, such as `--pool=`.
    lead: str = ""
    #: True if commands are possible here.
    commands: bool = False
    #: True if options are possible here.
    options: bool = False
    #: Values that were typed before, by the name of the parameter.
    given: Mapping[str, Sequence[str]] = field(default_factory=dict)
    #: Number of words between `headrace` and the first word of `argument`.
    words_before: int = 0

    @property
    def value(self) -> str:
        """Return the word without `lead`."""
        return self.word[len(self.lead) :]


def find_slot(command: Command, words: Sequence[str]) -> Slot:
    """Return the slot of the last word. `words` are all words after the name of the command."""
    before, word = list(words[:-1]), words[-1] if words else ""
    with suppress(BadInput):
        before = canonical(command, before)
    depth = 0
    while depth < len(before) and before[depth] in command.commands:
        command = command.commands[before[depth]]
        depth += 1
    path, rest = tuple(before[:depth]), before[depth:]
    if command.commands:
        return Slot(command, path, word, commands=not rest, options=word.startswith("-"))
    return _Walk(command, path, word).of(rest)


class _Walk:
    """Goes through the words after a command as the command itself would parse them."""

    def __init__(self, command: Command, path: tuple[str, ...], word: str) -> None:
        self._command, self._path, self._word = command, path, word
        self._options = {name: argument for argument in command.arguments for name in argument.options}
        positional = [argument for argument in command.arguments if argument.position is not None]
        self._positional = sorted(positional, key=lambda argument: argument.position or 0)
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
                self._begin(count, len(self._path) + at)
                self._give(self._argument_at(count), token)
                count += 1
            elif token == "--":
                options_over = True
            else:
                name, equals, value = token.partition("=")
                option = self._options.get(name)
                if option is not None and not equals and option.takes_value:
                    waits_for_value = option
                else:
                    self._give(option, value)
        self._begin(count, len(self._path) + len(before))
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
            command=self._command,
            path=self._path,
            word=self._word,
            argument=argument,
            lead=lead,
            options=options,
            given=self._given,
            words_before=self._begins.get(argument.name, 0) if argument is not None else 0,
        )

    def _argument_at(self, count: int) -> Argument | None:
        """Return the positional argument for a word that has `count` positional words before it, or None."""
        for place, argument in enumerate(self._positional):
            if place == count or (place < count and argument.repeated):
                return argument
        return None

    def _begin(self, count: int, words_before: int) -> None:
        argument = self._argument_at(count)
        if argument is not None:
            self._begins.setdefault(argument.name, words_before)

    def _give(self, argument: Argument | None, value: str) -> None:
        if argument is not None:
            self._given.setdefault(argument.name, []).append(value)
