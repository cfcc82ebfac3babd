"""What `plan --live` is told to suppose."""

from __future__ import annotations

import pytest

from headrace.errors import BadInput
from headrace_cli.commands.plans.suppositions import supposed_changes, supposed_jobs, supposed_nodes


def test_a_refusal_names_the_pool_the_value_and_what_would_do() -> None:
    with pytest.raises(BadInput) as refused:
        supposed_changes(["adhoc.weight=2", "research.weight=-3"], [], [])

    said = "research.weight: '-3' cannot be used; expected a positive number that is not tiny, up to 67108864"
    assert str(refused.value) == said


def test_a_refusal_of_a_part_of_a_value_names_the_pool_too() -> None:
    with pytest.raises(BadInput, match=r"^research.strong_guarantee_resources: "):
        supposed_changes(["research.strong_guarantee_resources={cpu"], [], [])


@pytest.mark.parametrize("count", ["", "0", "-1", "1.5", "²", "9" * 30, "9" * 5_000])
def test_a_count_that_is_none_is_refused(count: str) -> None:
    with pytest.raises(BadInput, match="POOL:COUNT"):
        supposed_jobs([f"research:{count}"])
    with pytest.raises(BadInput, match="--nodes"):
        supposed_nodes([f"+{count},cpu=1"], [])
