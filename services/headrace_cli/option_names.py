"""The options of `run` by the keyword and the field that they set, for messages."""

from __future__ import annotations

import re
from contextlib import AbstractContextManager
from typing import Final

from headrace.client.run_options import RunOptions, keyword_of
from headrace.wire.refusals import renamed_inputs

#: Options of `run` whose keyword has another name.
KEYWORDS: Final = {"env": "environment", "cwd": "working_directory", "each_line": "lines"}
#: Options of `run` that are not part of the operation spec.
NO_KEYWORDS: Final = frozenset({"upload", "spec", "id"})
_OPTIONS: Final = {keyword: f"--{option.replace('_', '-')}" for option, keyword in KEYWORDS.items()} | {
    "argv": "command",
    "operation": "--id",
    # Only a file has tasks.
    "tasks": "tasks",
}


def option_of(place: str) -> str:
    """Return a place in a start request with the option of `run` in place of the field or keyword; other places unchanged.

    >>> option_of("spec.time_limit_ms"), option_of("environment.MODE"), option_of("pool_tree gpu: weight")
    ('--time-limit', '--env MODE', '--pool-tree gpu: weight')
    """
    place = keyword_of(place)
    keyword = re.split(r"[.\[ ]", place, maxsplit=1)[0]
    rest = place.removeprefix(keyword)
    if keyword in _OPTIONS:
        option = _OPTIONS[keyword]
    elif keyword in RunOptions.__optional_keys__:
        option = f"--{keyword.replace('_', '-')}"
    else:
        return place
    # A key of a map is a word of the option's value.
    return option + (f" {rest[1:]}" if option.startswith("--") and rest.startswith(".") else rest)


def named_options() -> AbstractContextManager[None]:
    """Name the option of `run` in place of the field or keyword in every `BadInput` and every refused request of the block."""
    return renamed_inputs(option_of)
