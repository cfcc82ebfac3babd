"""Other ways to write a command: words of kubectl and git, plurals, and the beginning of a command's name. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from headrace.errors import BadInput
from headrace_cli.completion.table import Command

#: Other words for commands, each with the commands that it may mean. The first of these commands that exists is taken.
SYNONYMS: Final[dict[str, tuple[str, ...]]] = {
    "add": ("create",),
    "cancel": ("abort",),
    "del": ("remove", "abort"),
    "delete": ("remove", "abort"),
    "describe": ("get",),
    "edit": ("set",),
    "info": ("get",),
    "kill": ("abort",),
    "log": ("logs",),
    "ls": ("list",),
    "make": ("create",),
    "mv": ("move",),
    "new": ("create",),
    "operation": ("op",),
    "operations": ("op",),
    "ps": ("list",),
    "rm": ("remove", "abort"),
    "show": ("get",),
    "status": ("get",),
    "stop": ("abort",),
    "update": ("set",),
    "why": ("explain",),
}
#: The noun for a verb that is typed without a noun.
_NOUN_OF_LONE_VERBS: Final = "op"


def canonical(table: Command, words: Sequence[str]) -> list[str]:
    """Return the words with the commands' own names in front. Raises `BadInput` for an ambiguous beginning of a name.

    >>> canonical(read_table(), ["pools", "ls"])
    ['pool', 'list']
    >>> canonical(read_table(), ["kill", "69201a4f"])
    ['op', 'abort', '69201a4f']
    """
    if words[:1] == ["help"]:
        words = [*words[1:], "--help"]
    said: list[str] = []
    for place, word in enumerate(words):
        names = () if word.startswith("-") else _meant(table, word, top=not place)
        if not names:
            return [*said, *words[place:]]
        for name in names:
            table = table.commands[name]
        said += names
    return said


def _meant(table: Command, word: str, *, top: bool) -> tuple[str, ...]:
    """Return the names of the commands that a word stands for, from the outer to the inner. Empty if it stands for none."""
    names = table.commands
    if found := _exactly(table, word):
        return (found,)
    if top and (verb := _exactly(names[_NOUN_OF_LONE_VERBS], word)):
        return (_NOUN_OF_LONE_VERBS, verb)
    beginning_so = [name for name in names if word and name.startswith(word)]
    if len(beginning_so) > 1:
        raise BadInput("command", word, f"did you mean {' or '.join(beginning_so)}?")
    return tuple(beginning_so)


def _exactly(table: Command, word: str) -> str:
    meant = (word, word.removesuffix("s"), *SYNONYMS.get(word, ()))
    return next((name for name in meant if name in table.commands), "")
