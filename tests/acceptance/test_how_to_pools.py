"""docs/how-to/pools.md: every command that it shows does what it says, typed one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.headrace_up import Up
from tests.support.typed_pages import typed

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "pools.md"


@pytest.fixture(scope="module")
def up() -> Iterator[Up]:
    with Up(nodes=("alpha:cpu=2,memory=2G",)) as running:
        yield running


@pytest.mark.long
def test_every_command_of_the_page_does_what_it_says(up: Up) -> None:
    said = typed(up, PAGE)

    assert len(said) > 15
    (both,) = [text for line, text in said.items() if "mode=fifo strong" in line]
    assert "has the child pools vision, speech" in both
    assert "more than the 0.5 of research itself" in both
    (gpu,) = [text for line, text in said.items() if "resources/gpu=1" in line]
    assert "its parent /research has no guarantee of gpu" in gpu
    assert "an amount of cpu as well" in gpu
    (imported,) = [text for line, text in said.items() if line.startswith("pool import")]
    assert "nothing changes" in imported
