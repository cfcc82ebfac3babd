"""docs/start/one-machine.md: its commands lead to an operation that completes, with its share and its log."""

from __future__ import annotations

import time
from pathlib import Path

from tests.support.headrace_up import Up
from tests.support.typed_pages import typed

PAGE = Path(__file__).parents[2] / "docs" / "start" / "one-machine.md"


def of_research(tree: str) -> str:
    return next(line for line in tree.splitlines() if "research" in line)


def test_the_page_leads_to_an_operation_its_share_its_log_and_its_end() -> None:
    def after(line: str) -> None:
        """On a busy machine the next command may be sooner than the next update."""
        while line.startswith("run --id first-steps") and "66.7%" not in of_research(up.run("pool", "tree").stdout):
            time.sleep(0.1)

    with Up(nodes=("laptop:cpu=4,memory=4G",)) as up:
        said = typed(up, PAGE, after)

    assert "66.7%" in of_research(said["pool tree"])
    assert said["op logs first-steps --job 7"] == "job 7 says hello\n"
    assert "first-steps completed: 40 of 40 jobs completed" in said["op wait first-steps"]
    assert said["op history first-steps"].splitlines()[-1].endswith("completed (jobs done)")
