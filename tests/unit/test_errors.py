"""The messages of errors."""

from __future__ import annotations

from headrace.errors import HeadraceError


class Overgrown(HeadraceError):
    """The garden cannot be entered, because the
    gate is overgrown.

    The gardener must cut the hedge first.
    """


def test_the_default_message_is_the_first_paragraph_of_the_docstring_on_one_line() -> None:
    assert str(Overgrown()) == "The garden cannot be entered, because the gate is overgrown."
    assert str(Overgrown("The hedge fell.")) == "The hedge fell."
