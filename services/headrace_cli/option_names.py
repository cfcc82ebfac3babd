"""Names of the options of `run` for error messages, from the keyword or the field that an option sets."""

from __future__ import annotations

import re
from contextlib import AbstractContextManager
from typing import Final

from headrace.client.run_options import RunOptions, keyword_of
from headrace.wire.refusals import renamed_inputs

#: Keyword of `operation_spec` for each option of `run` that has another name than its keyword.
KEYWORDS: Final = {"env": "environment", "cwd": "working_directory", "each_line": "lines"}
#: Options of `run` that are not part of the operation spec.
NO_KEYWORDS: Final = frozenset({"upload", "spec", "id"})
_OPTIONS: Final = {keyword: f"--{option.replace('_', '-')}" for option, keyword in KEYWORDS.items()} | {
    "argv": "command",
    "operation": "--id",
    # Tasks have no option: only a file of `--spec` can have tasks.
    "tasks": "tasks",
}


def option_of(place: str) -> str:
    """Replace the field or keyword at the beginning of `place`, which names a value of a start request, by the option of `run`.

    A text that begins otherwise is returned unchanged.

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
    # After an option, the key of a map follows as a separate word, as in `--env MODE`.
    return option + (f" {rest[1:]}" if option.startswith("--") and rest.startswith(".") else rest)


def named_options() -> AbstractContextManager[None]:
    """In every `BadInput` and every refused request of the block, name the option of `run` in place of the field or keyword."""
    return renamed_inputs(option_of)
