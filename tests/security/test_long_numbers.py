"""Very long numbers in files and arguments from others are refused at once, with an error in words."""

from __future__ import annotations

import pytest

from headrace.errors import BadInput
from headrace_cli.slurm.values import parse_hosts
from headrace_cli.yarn.amounts import java_number


@pytest.mark.timeout(20)
def test_a_number_of_a_million_digits_in_a_file_of_yarn_is_refused() -> None:
    with pytest.raises(BadInput):
        java_number("0" * 1_000_000 + "!", "here")


@pytest.mark.parametrize("text", [f"node[1-{'9' * 5_000}]", "node[1-9999]," * 100 + "node", "node[9-1]"])
def test_ranges_of_too_many_hosts_are_refused(text: str) -> None:
    with pytest.raises(BadInput, match="expected"):
        parse_hosts(text, "--nodelist")
