"""Pages of commands that can be typed one after the other."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path

from tests.support.headrace_up import Up

__all__ = ["typed"]

_STATUSES = {"# refused": 4, "# no usable command line": 2}


def typed(up: Up, page: Path, after: Callable[[str], None] = lambda _: None) -> dict[str, str]:
    """Types what stands behind `$ headrace` in the page; what each command said. Those that are marked so must be refused.

    `after` waits, once a command is done, for what a person would see happen before they type on.
    """
    blocks = re.findall(r"```console\n(.*?)```", page.read_text(), re.DOTALL)
    said: dict[str, str] = {}
    for line in [line.removeprefix("$ headrace ") for block in blocks for line in block.splitlines()]:
        words = shlex.split(line.partition("#")[0])
        redirected = words.index(">") if ">" in words else len(words)
        expect = next((status for mark, status in _STATUSES.items() if line.endswith(mark)), 0)
        done = up.run(*words[:redirected], expect=expect)
        if redirected < len(words):
            (up.state / words[redirected + 1]).write_text(done.stdout)
        said[line] = done.stdout + done.stderr
        after(line)
    return said
