"""Errors as problems of the HTTP API."""

from __future__ import annotations

import pytest

from headrace.client import Refused
from headrace.errors import BadInput, HeadraceError
from headrace.wire.refusals import BadRequest
from headrace_web.api.problems import problem_of

_FAULT = "no attribute is given. Name at least one"


@pytest.mark.parametrize(
    "error",
    [BadInput.because("changes", _FAULT), Refused(BadRequest.because("changes", _FAULT))],
    ids=["own", "refused"],
)
def test_a_problem_without_a_wrong_value_has_its_place_and_the_sentence(error: HeadraceError) -> None:
    problem = problem_of(error)

    assert (problem.status, problem.place, problem.expected) == (400, "changes", "")
    assert problem.detail == f"changes: {_FAULT}"
