"""The messages of errors."""

from __future__ import annotations

import msgspec

from headrace.errors import BadInput, HeadraceError
from headrace.wire.refusals import BadRequest, Refused


class Overgrown(HeadraceError):
    """The garden cannot be entered, because the
    gate is overgrown.

    The gardener must cut the hedge first.
    """


def test_the_default_message_is_the_first_paragraph_of_the_docstring_on_one_line() -> None:
    assert str(Overgrown()) == "The garden cannot be entered, because the gate is overgrown."
    assert str(Overgrown("The hedge fell.")) == "The hedge fell."


class FormerBadRequest(msgspec.Struct, tag_field="refusal", tag="bad_request"):
    """The refusal as the release before the field `fault` reads it."""

    place: str
    value: str
    expected: str
    rule: str = ""


def test_a_wrong_value_is_shown_with_what_is_accepted() -> None:
    error = BadInput("cpu", "x", "a number of cores")

    assert str(error) == "cpu: 'x' cannot be used; expected a number of cores"
    assert str(error.at("--cpu")) == "--cpu: 'x' cannot be used; expected a number of cores"
    assert BadRequest.of(error).text() == "cpu: x cannot be used; expected a number of cores"
    assert BadRequest("member", "", "a name").text() == "member: an empty text cannot be used; expected a name"


def test_input_in_which_no_value_is_wrong_is_refused_with_a_sentence() -> None:
    error = BadInput.because("pool set", "no attribute is given. Name at least one").at("pool set lab")

    refusal = BadRequest.of(error, rule="some_rule")

    assert str(error) == "pool set lab: no attribute is given. Name at least one"
    assert str(Refused(refusal)) == str(error)
    assert refusal.rule == "some_rule"


def test_the_former_release_shows_the_sentence_of_a_refusal() -> None:
    sent = msgspec.json.encode(BadRequest.because("pool set lab", "no attribute is given"))

    former = msgspec.json.decode(sent, type=FormerBadRequest)

    assert former == FormerBadRequest(
        "pool set lab", "the request", "a request without this fault: no attribute is given"
    )
