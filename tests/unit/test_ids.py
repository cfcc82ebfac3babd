"""Names and paths as people type them."""

from __future__ import annotations

import pytest

from headrace.errors import BadInput
from headrace.ids import ROOT_POOL, pool_or_path, slashed, user_name_from_login


@pytest.mark.parametrize(
    ("typed", "path"),
    [
        ("root.fair.one", "/fair/one"),
        ("Root.a", "/a"),
        ("root.users.an_na", "/users/an_na"),
        # No path of YARN.
        ("root", "root"),
        ("rooted.a", "rooted.a"),
        ("a.b", "a.b"),
        ("/root.a", "/root.a"),
        ("", ""),
    ],
)
def test_a_path_as_yarn_writes_it_is_read_as_one(typed: str, path: str) -> None:
    assert slashed(typed) == path
    if path:
        assert pool_or_path(typed) == path


def test_a_path_of_yarn_with_nothing_between_its_periods_is_refused() -> None:
    with pytest.raises(BadInput):
        pool_or_path("root.a..b")
    assert pool_or_path("root.") == ROOT_POOL


@pytest.mark.parametrize(("login", "name"), [("An.Na", "an-na"), ("x_y", "x-y"), ("a" * 70, "a" * 63), ("-a-", "a")])
def test_a_login_name_becomes_a_token(login: str, name: str) -> None:
    assert user_name_from_login(login) == name


def test_a_login_name_of_which_nothing_is_left_is_refused() -> None:
    with pytest.raises(BadInput):
        user_name_from_login("__")
