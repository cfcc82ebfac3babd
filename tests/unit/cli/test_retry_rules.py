"""Retry rules, ends by out of memory and the suspension at the first failure, as people write and read them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from headrace.errors import BadInput
from headrace.ids import NodeName
from headrace.wire.happenings import OperationChanged
from headrace.wire.heartbeat import JobResult, JobSlot
from headrace.wire.operations import JobRow, OperationExplanation
from headrace_cli.commands.operations.event_lines import happening_words
from headrace_cli.commands.operations.explain_page import explanation
from headrace_cli.commands.operations.run import JobOptions, spec_of_options
from headrace_cli.commands.operations.tables import job_table, operation_facts, retry_rule_words
from tests.unit.cli.test_render import OPERATION, a_view, shown


@pytest.mark.parametrize("option", ["retry_on", "no_retry_on"])
def test_a_rule_that_cannot_be_read_is_refused_with_its_option_and_the_word(option: str) -> None:
    wishes: dict[str, Any] = {option: "75,SIGNOPE"}
    with pytest.raises(BadInput, match="SIGNOPE") as raised:
        spec_of_options(["true"], None, JobOptions(**wishes))

    assert raised.value.place == f"--{option.replace('_', '-')}"


def test_options_of_run_become_rules_of_the_spec() -> None:
    rule = spec_of_options(["true"], None, JobOptions(retry_on="75", suspend_on_failure=True))
    with pytest.raises(BadInput, match="cannot be combined") as raised:
        spec_of_options(["true"], None, JobOptions(retry_on="75", no_retry_on="1"))

    assert (rule.retry_on, rule.no_retry_on, rule.suspend_on_failure) == ("75", "", True)
    assert raised.value.place == "--no-retry-on"


def test_the_rules_also_hold_with_only_a_number_of_failed_runs() -> None:
    rule = spec_of_options(["true"], None, JobOptions(no_retry_on="75", max_failed_job_count=4))

    assert (rule.tries, rule.no_retry_on) == (0, "75")


def test_an_operation_is_shown_with_its_rules_and_what_suspended_it() -> None:
    view = a_view()
    spec = msgspec.structs.replace(view.spec, retry_on="75,TERM", suspend_on_failure=True)
    view = msgspec.structs.replace(view, spec=spec, suspended=True, suspended_for="its first failure, job 3")
    page = "\n".join(shown(operation_facts(view, None, 0), 200))

    assert "retried only after 75,TERM, suspended after the first failure" in page
    assert "its first failure, job 3" in page
    said = str(explanation(OperationExplanation(view, []), {}, 0)[0])
    assert "is running, suspended by its first failure, job 3:" in said
    assert retry_rule_words(a_view().spec) == ""


def test_runs_out_of_memory_are_counted_and_marked() -> None:
    view = msgspec.structs.replace(a_view(), out_of_memory_runs=1)
    rows = [JobRow(JobSlot(0), JobResult.FAILED, NodeName("n1"), retry_at_ms=1, out_of_memory=True)]

    assert "2 runs failed (1 out of memory)" in "\n".join(shown(operation_facts(view, None, 0), 200))
    assert "failed, out of memory, to be retried" in "\n".join(shown(job_table(rows, None), 200))
    parts = [str(part) for part in explanation(OperationExplanation(view, []), {}, 0)]
    assert "out of memory: 1 of 2 failed runs; each job has 512 MiB (run --memory)" in parts


def test_an_event_says_what_suspended_the_operation() -> None:
    by_user = OperationChanged(0, OPERATION, suspended=True)
    by_failure = OperationChanged(0, OPERATION, suspended=True, reason="its first failure, job 3")

    assert happening_words(by_user).endswith("suspended")
    assert happening_words(by_failure).endswith("suspended by its first failure, job 3")
