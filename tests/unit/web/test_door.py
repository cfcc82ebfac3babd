"""The door of the web service: who is let in, and which requests of others are refused."""

from __future__ import annotations

from itertools import count

import pytest

from headrace_web.door import TOKEN_HEADER, Door, Session
from headrace_web.shared_door import SharedDoor

HOST = {"host": "127.0.0.1:8040"}


def a_door(*, read_only: bool = False) -> Door:
    numbers = count()
    return Door(8040, lambda: f"secret-{next(numbers)}", read_only=read_only)


def entered(door: Door) -> Session:
    session = door.enter(door.ticket)
    assert session is not None
    return session


def status(door: Door, method: str = "GET", cookie: str = "", **headers: str) -> int:
    """The status with which a request is refused; 200 if it is admitted."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    denied = door.refuses(method, HOST | named, cookie)
    return 200 if denied is None else denied.status


def test_a_restarted_service_admits_whom_it_admitted_before() -> None:
    door = a_door()
    session = entered(door)
    restarted = Door(8040, lambda: "new", known=door.secrets)
    assert status(restarted, cookie=session.cookie, **{TOKEN_HEADER: session.token}) == 200
    assert status(restarted, authorization=f"Bearer {door.secrets.program_token}") == 200
    assert restarted.enter(door.ticket) is None


def test_a_token_passes_and_is_left_to_the_bus() -> None:
    shared = SharedDoor(lambda: "secret", lambda: 0, read_only=True)
    for door in (a_door(), shared):
        assert door.refuses("GET", HOST | {"authorization": "Bearer headrace_x"}, "") is None
    assert status(a_door(), host="evil.example", authorization="Bearer headrace_x") == 421
    assert status(a_door(read_only=True), "POST", authorization="Bearer headrace_x") == 403
    for headers, method, refused in (
        ({"authorization": "Bearer headrace_x"}, "POST", 403),
        ({"authorization": "Bearer x"}, "GET", 401),
        ({"authorization": "Basic headrace_x"}, "GET", 401),
        ({"cookie": "headrace_x"}, "GET", 401),
    ):
        denied = shared.refuses(method, headers, "headrace_x")
        assert denied is not None
        assert denied.status == refused
    assert shared.refuses_origin({"origin": "https://evil.example"}) is not None


def test_a_ticket_admits_one_browser() -> None:
    door = a_door()
    ticket = door.ticket
    assert door.enter("secret-99") is None
    assert door.enter(ticket) is not None
    assert door.enter(ticket) is None
    assert door.enter(door.ticket) is not None


def test_a_browser_needs_cookie_and_token_of_one_session() -> None:
    door = a_door()
    session, other = entered(door), entered(door)
    assert status(door, "POST", session.cookie, **{TOKEN_HEADER: session.token}) == 200
    assert status(door, "GET", session.cookie) == 401
    assert status(door, "GET", **{TOKEN_HEADER: session.token}) == 401
    assert status(door, "GET", session.cookie, **{TOKEN_HEADER: other.token}) == 401
    assert status(door, "GET", "", **{TOKEN_HEADER: ""}) == 401


def test_a_program_needs_its_token() -> None:
    door = a_door()
    assert status(door, "DELETE", authorization=f"Bearer {door.secrets.program_token}") == 200
    assert status(door, authorization=f"bearer  {door.secrets.program_token} ") == 200
    assert status(door, authorization=f"Basic {door.secrets.program_token}") == 401
    assert status(door, authorization="Bearer ") == 401
    assert status(door, authorization=f"Bearer {door.ticket}") == 401
    assert status(door, authorization="Bearer ü") == 401


@pytest.mark.parametrize(
    ("headers", "refused"),
    [
        ({"host": "evil.example:8040"}, 421),
        ({"host": "127.0.0.1"}, 421),
        ({"host": "localhost:8041"}, 421),
        ({"host": ""}, 421),
        ({"host": "localhost:8040"}, 421),
        ({"origin": "http://localhost:8040"}, 403),
        ({"origin": "http://127.0.0.1:8041"}, 403),
        ({"origin": "https://127.0.0.1:8040"}, 403),
        ({"origin": "null"}, 403),
        ({"sec-fetch-site": "same-site"}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "none"}, 200),
    ],
)
def test_pages_of_other_origins_are_refused_with_any_secret(headers: dict[str, str], refused: int) -> None:
    door = a_door()
    session = entered(door)
    secrets = {"authorization": f"Bearer {door.secrets.program_token}", TOKEN_HEADER: session.token}
    denied = door.refuses("GET", HOST | secrets | headers, session.cookie)
    assert (200 if denied is None else denied.status) == refused


def test_read_only_refuses_what_changes_something() -> None:
    door = a_door(read_only=True)
    admitted = {"authorization": f"Bearer {door.secrets.program_token}"}
    assert [status(door, method, **admitted) for method in ("GET", "HEAD")] == [200, 200]
    assert [status(door, method, **admitted) for method in ("POST", "PATCH", "DELETE", "PUT")] == [403] * 4


def test_the_first_of_too_many_browsers_is_shut_out() -> None:
    door = a_door()
    sessions = [entered(door) for _ in range(33)]
    admitted = [status(door, "GET", each.cookie, **{TOKEN_HEADER: each.token}) for each in sessions]
    assert admitted == [401] + [200] * 32
