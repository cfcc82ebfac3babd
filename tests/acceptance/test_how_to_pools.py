"""docs/how-to/pools.md: every command that it shows does what it says, typed one after the other."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.headrace_up import Up

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "pools.md"


@pytest.fixture(scope="module")
def up() -> Iterator[Up]:
    with Up(nodes=("alpha:cpu=2,memory=2G",)) as running:
        yield running


def commands() -> list[str]:
    """What stands behind `$ headrace` in the page."""
    blocks = re.findall(r"```console\n(.*?)```", PAGE.read_text(), re.DOTALL)
    return [line.removeprefix("$ headrace ") for block in blocks for line in block.splitlines()]


def test_every_command_of_the_page_does_what_it_says(up: Up) -> None:
    typed = commands()
    said: dict[str, str] = {}
    for line in typed:
        words = shlex.split(line.partition("#")[0])
        redirected = words.index(">") if ">" in words else len(words)
        done = up.run(*words[:redirected], expect=4 if line.endswith("# refused") else 0)
        if redirected < len(words):
            (up.state / words[redirected + 1]).write_text(done.stdout)
        said[line] = done.stdout + done.stderr

    assert len(typed) > 15
    (both,) = [text for line, text in said.items() if "mode=fifo strong" in line]
    assert "the parent of vision, speech" in both
    assert "at most the 0.5 of research itself" in both
    (gpu,) = [text for line, text in said.items() if "resources/gpu=1" in line]
    assert "/research has none of gpu" in gpu
    assert "a figure of cpu too" in gpu
    (imported,) = [text for line, text in said.items() if line.startswith("pool import")]
    assert "nothing changes" in imported
