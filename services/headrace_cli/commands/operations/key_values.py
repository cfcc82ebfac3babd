"""Parse settings of an operation: `weight=2 pool=research` of `headrace op set`, and `NAME=VALUE` of `headrace run --env`. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from headrace.errors import BadInput
from headrace.suggestions import hint

#: The settings that `op set` changes. Completion offers them without importing the command.
KEYS: Final = ("weight", "pool", "operation_time_limit")
_ACCEPTED: Final = "weight=NUMBER, pool=NAME or operation_time_limit=TIME"


def parse_settings(words: Sequence[str]) -> dict[str, str]:
    """Return the value of each setting as it was written. Raises `BadInput`."""
    given: dict[str, str] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not value:
            raise BadInput("settings", word, _ACCEPTED)
        if key == "time_limit":
            fault = "jobs keep the time limit with which they were started. Use operation_time_limit to limit the whole operation"
            raise BadInput.because(f"settings: {key}", fault)
        if key not in KEYS:
            raise BadInput("settings", key, hint(key, KEYS))
        if key in given:
            raise BadInput.because("settings", f"{key} is given twice")
        given[key] = value
    if not given:
        raise BadInput.because("settings", f"no setting is given. Use {_ACCEPTED}")
    return given


def parse_environment(items: Sequence[str], own: Mapping[str, str]) -> dict[str, str]:
    """Parse `NAME=VALUE` and `NAME`; the latter takes its value from `own`. Raises `BadInput`."""
    environment: dict[str, str] = {}
    for item in items:
        name, equals, value = item.partition("=")
        if not name or any(letter.isspace() for letter in name):
            raise BadInput("--env", item, "NAME=VALUE or NAME, without blanks in the name")
        if not equals:
            if name not in own:
                raise BadInput("--env", name, "the name of a variable that is set in this shell, or NAME=VALUE")
            value = own[name]
        environment[name] = value
    return environment
