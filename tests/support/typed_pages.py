"""Pages of commands that can be typed one after the other."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from tests.support.headrace_up import Up

__all__ = ["console_lines", "table_lines", "typed", "typed_lines"]

_STATUSES = {"# refused": 4, "# no usable command line": 2, "# fails": 1}


def console_lines(text: str) -> list[str]:
    """The commands of a page's blocks that are to be typed, without `headrace`."""
    blocks = re.findall(r"```console\n(.*?)```", text, re.DOTALL)
    return [
        line.removeprefix("$ headrace ") for block in blocks for line in block.splitlines() if line.startswith("$ ")
    ]


def table_lines(text: str) -> list[str]:
    """The commands that have a cell of a table for themselves, without `headrace`."""
    return re.findall(r"(?<=\| `headrace )[^`|]+(?=` \|)", text)


def typed(up: Up, page: Path, after: Callable[[str], None] = lambda _: None) -> dict[str, str]:
    """Makes the files of the page's `sh` blocks, then types its console blocks. Returns what each command said."""
    text = page.read_text()
    for script in re.findall(r"```sh\n(.*?)```", text, re.DOTALL):
        subprocess.run(["sh", "-ec", script], cwd=up.state, check=True)
    return typed_lines(up, console_lines(text), after)


def typed_lines(up: Up, lines: list[str], after: Callable[[str], None] = lambda _: None) -> dict[str, str]:
    """Types commands in their order. Those that are marked so must be refused, or fail. Returns what each said.

    `after` waits, once a command is done, for what a person would see happen before they type on.
    One that goes on until Ctrl-C has a terminal of its own, and must have said something by the end of the page.
    """
    said: dict[str, str] = {}
    with ExitStack() as terminals:
        going_on = []
        for line in lines:
            words = shlex.split(line, comments=True)
            if words[0] == "up":  # in a terminal of its own, as the test does
                continue
            if words[0] == "events":
                going_on.append(terminals.enter_context(up.begin(*words)))
                continue
            redirected = words.index(">") if ">" in words else len(words)
            expect = next((status for mark, status in _STATUSES.items() if line.endswith(mark)), 0)
            done = up.run(*words[:redirected], expect=expect)
            if redirected < len(words):
                (up.state / words[redirected + 1]).write_text(done.stdout)
            said[line] = done.stdout + done.stderr
            after(line)
        for command in going_on:
            assert command.stdout is not None
            assert command.stdout.readline(), command.args
            command.kill()
    return said
