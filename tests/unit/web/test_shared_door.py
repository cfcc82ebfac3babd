"""The door of a web service for everybody: tickets, sessions of browsers, and their bounds."""

from __future__ import annotations

from itertools import count

import pytest

from headrace.access.nkeys import is_signed
from headrace.access.web_login import FinishLogin
from headrace.errors import BadInput
from headrace.wire.access_tokens import proof_of
from headrace_web import shared_door
from headrace_web.door import TOKEN_HEADER, Session
from headrace_web.logins import Logins
from headrace_web.shared_door import MOST_OF_A_PERSON, TICKET_S, SharedDoor, log_in

HOST = {"host": "headrace.example:8040"}
NEVER_MS = 10**15


class World:
    """A door, and the time that it reads."""

    def __init__(self, *, read_only: bool = False) -> None:
        numbers = count()
        self.now_ms = 1_000
        self.door = SharedDoor(lambda: f"secret-{next(numbers)}", lambda: self.now_ms, read_only=read_only)

    def ticket(self, user: str = "anna", credential: str = "headrace_x", expires_at_ms: int = NEVER_MS) -> str:
        expected = self.door.expect(user, credential, expires_at_ms)
        assert expected.ticket is not None
        return expected.ticket

    def entered(self, user: str = "anna", credential: str = "headrace_x") -> Session:
        session = self.door.enter(self.ticket(user, credential))
        assert session is not None
        return session

    def status(self, session: Session, method: str = "GET", **headers: str) -> int:
        given = {
            **HOST,
            TOKEN_HEADER: session.token,
            **{name.replace("_", "-"): each for name, each in headers.items()},
        }
        denied = self.door.refuses(method, given, session.cookie)
        return 200 if denied is None else denied.status


def test_a_ticket_admits_one_browser_within_its_time() -> None:
    world = World()
    ticket = world.ticket()
    world.now_ms += TICKET_S * 1000 - 1
    assert world.door.enter(ticket) is not None
    assert world.door.enter(ticket) is None
    late = world.ticket()
    world.now_ms += TICKET_S * 1000
    assert world.door.enter(late) is None
    assert world.door.enter("") is None


def test_a_session_is_of_one_token() -> None:
    world = World()
    anna, ben = world.entered("anna", "headrace_anna"), world.entered("ben", "headrace_ben")
    given = {**HOST, TOKEN_HEADER: anna.token}
    assert world.door.token_of(given, anna.cookie) == "headrace_anna"
    assert world.door.token_of(given, ben.cookie) == ""
    assert world.door.token_of(HOST, anna.cookie) == ""
    assert world.door.token_of(given, "") == ""
    # A ticket is no cookie, and a cookie is no ticket.
    ticket = world.ticket("anna", "headrace_anna")
    assert world.door.token_of({**HOST, TOKEN_HEADER: ""}, ticket) == ""
    assert world.door.enter(anna.cookie) is None
    assert world.door.token_of({**given, "authorization": "Bearer headrace_other"}, anna.cookie) == "headrace_other"


def test_a_browser_that_left_is_forgotten() -> None:
    world = World()
    session = world.entered()
    given = {**HOST, TOKEN_HEADER: session.token}
    assert world.door.leave(HOST, session.cookie) is None
    assert world.status(session) == 200
    assert world.door.leave(given, session.cookie) == "headrace_x"
    assert world.status(session) == 401
    assert world.door.leave(given, session.cookie) is None


@pytest.mark.parametrize(
    ("headers", "refused"),
    [
        ({"origin": "https://headrace.example:8040"}, 200),
        ({"origin": "https://headrace.example"}, 403),
        ({"origin": "http://headrace.example:8040"}, 403),
        ({"origin": "null"}, 403),
        ({"sec_fetch_site": "cross-site"}, 403),
        ({"sec_fetch_site": "same-site"}, 403),
        ({"sec_fetch_site": "cross-site", "sec_fetch_mode": "cors"}, 403),
        # A form of a foreign page navigates, too, but sends the origin of the page.
        ({"sec_fetch_site": "cross-site", "sec_fetch_mode": "navigate", "origin": "https://evil.example"}, 403),
    ],
)
def test_pages_of_other_origins_are_refused(headers: dict[str, str], refused: int) -> None:
    world = World()
    session = world.entered()
    assert world.status(session, "POST", **headers) == refused
    named = {name.replace("_", "-"): each for name, each in headers.items()}
    denied = world.door.refuses_origin({**HOST, **named})
    assert (200 if denied is None else denied.status) == refused


def test_a_link_leads_to_a_page() -> None:
    link = {**HOST, "sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
    assert World().door.refuses_origin(link) is None


def test_a_service_that_reads_refuses_changes() -> None:
    world = World(read_only=True)
    session = world.entered()
    assert [world.status(session, method) for method in ("GET", "POST", "DELETE")] == [200, 403, 403]


def test_the_oldest_of_too_many_sessions_of_a_person_ends() -> None:
    world = World()
    other = world.entered("ben")
    sessions = [world.entered("anna", f"headrace_{number}") for number in range(MOST_OF_A_PERSON)]
    assert world.door.expect("anna", "headrace_new", NEVER_MS).ended == ("headrace_0",)
    assert [world.status(each) for each in sessions] == [401] + [200] * (MOST_OF_A_PERSON - 1)
    assert world.status(other) == 200


def test_all_sessions_are_bounded_and_expire(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_door, "MOST_SESSIONS", 2)
    world = World()
    kept = world.entered("anna")
    world.ticket("ben")
    assert world.door.expect("carl", "headrace_x", NEVER_MS).ticket is None
    # The ticket expires, and a session with its token.
    world.now_ms += TICKET_S * 1000
    assert world.door.expect("carl", "headrace_x", world.now_ms + 5).ticket is not None
    assert world.door.expect("dora", "headrace_x", NEVER_MS).ticket is None
    world.now_ms += 5
    assert world.door.expect("dora", "headrace_x", NEVER_MS).ticket is not None
    assert world.status(kept) == 200


def test_only_a_usual_host_is_shown() -> None:
    assert log_in(HOST).startswith("type `headrace web login https://headrace.example:8040`")
    for host in ("", "a`b", "<script>", "x" * 300):
        assert log_in({"host": host}).startswith("type `headrace web login https://HOST:PORT`")


def test_the_key_of_a_login_follows_from_its_name_and_the_secret() -> None:
    logins = Logins(b"1" * 32)
    begun = logins.begin("anna", "name")
    assert is_signed(proof_of("anna", begun.key), begun.proof, begun.key)
    assert logins.begin("anna", "name") == begun
    others = (logins.begin("anna", "other"), Logins(b"2" * 32).begin("anna", "name"))
    assert begun.key not in [each.key for each in others]
    with pytest.raises(BadInput, match="user name"):
        logins.begin("Anna B", "name")


@pytest.mark.parametrize("word", ["", "x", "..", "a.b.c", "a.b", "é.é.é"])
def test_what_is_no_jwt_finishes_no_login(word: str) -> None:
    with pytest.raises(BadInput, match="JWT of a token"):
        Logins(b"1" * 32).finish(FinishLogin("name", word))
