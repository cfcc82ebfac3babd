"""docs/start/one-machine.md: its commands lead to an operation that completes, with its share and its log."""

from __future__ import annotations

from pathlib import Path

from tests.support.headrace_up import Up
from tests.support.typed_pages import typed

PAGE = Path(__file__).parents[2] / "docs" / "start" / "one-machine.md"


def test_the_page_leads_to_an_operation_its_share_its_log_and_its_end() -> None:
    with Up(nodes=("laptop:cpu=4,memory=4G",)) as up:
        said = typed(up, PAGE)

    tree = next(line for line in said["pool tree"].splitlines() if "research" in line)
    assert "66.7%" in tree
    assert said["op logs first-steps --job 7"] == "job 7 says hello\n"
    assert "first-steps completed: 40 of 40 jobs completed" in said["op wait first-steps"]
    assert said["op history first-steps"].splitlines()[-1].endswith("completed (jobs done)")
