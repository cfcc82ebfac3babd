"""The door: who may use the service. Pure.

The service acts for one person, with that person's credential, on an address of this machine that every account of the machine can
reach. So every request for data must show a secret that only this person has:

* A browser enters with a ticket, which is part of the printed address and works once. It gets a cookie, and a token that its page keeps for
  the service's own origin. Both are needed. The browser shows the cookie to every port of this host, so a service of another account could
  receive it. The token could be taken only by a foreign script in the page, and the page's policy forbids such scripts.
* A program sends the token of programs in the header `Authorization`.

A program may also send a token of `headrace token create` there. The service then acts under the credential in that token, and the bus
decides whether the token is admitted and what it may do.

A page of another origin cannot use the browser's secrets: it cannot read the token, and its requests are refused by their headers.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from headrace.access.token_text import PREFIX

#: Header in which a page sends its token.
TOKEN_HEADER: Final = "x-headrace-token"
#: Upper bound of the browsers that are admitted at a time. One more browser shuts out the browser that was admitted first.
_MOST_SESSIONS: Final = 32
#: Methods that change nothing.
READS: Final = frozenset({"GET", "HEAD"})


class Denied(NamedTuple):
    """The refusal of a request: an HTTP status, the kind of the problem, and a text."""

    status: int
    #: Kind of the problem, as in `urn:headrace:not_admitted`.
    name: str
    detail: str


READ_ONLY: Final = Denied(403, "read_only", "this service was started with --read-only")


class Session(NamedTuple):
    """The secrets that an admitted browser must show with every request for data."""

    cookie: str
    token: str


class Secrets(NamedTuple):
    """The secrets that admit programs and browsers. A restarted service that has them admits the same programs and browsers."""

    program_token: str
    #: Browsers that were admitted, the first first.
    sessions: tuple[Session, ...] = ()


class Door:
    """Decides about requests to one address."""

    def __init__(
        self, port: int, new_secret: Callable[[], str], *, read_only: bool = False, known: Secrets | None = None
    ) -> None:
        """`new_secret` returns a random text that nobody can guess. `known` are the secrets of the process before this one."""
        # Requests to `localhost` are refused: this name may resolve to ::1, where another account can listen at the same port.
        self._host = f"127.0.0.1:{port}"
        self._new_secret = new_secret
        self._read_only = read_only
        #: Works once. After each use there is a new ticket.
        self.ticket = new_secret()
        self.secrets = known or Secrets(new_secret())
        #: Name of the cookie. The port keeps the services of several trees or accounts apart.
        self.cookie_name = f"headrace-{port}"

    def enter(self, ticket: str) -> Session | None:
        """Admit a browser. Return None if the ticket is wrong or was used."""
        if not _same(ticket, self.ticket):
            return None
        self.ticket = self._new_secret()
        session = Session(self._new_secret(), self._new_secret())
        self.secrets = self.secrets._replace(sessions=(*self.secrets.sessions[1 - _MOST_SESSIONS :], session))
        return session

    def refuses_origin(self, headers: Mapping[str, str]) -> Denied | None:
        """Return why a request is refused because of the host that it names or the page that sent it. Header names are in lower case."""
        if headers.get("host", "") != self._host:
            # Otherwise a foreign host name that resolves to this machine would give a foreign page the origin of this service.
            return Denied(421, "wrong_host", f"this service answers at {self._host} only")
        site, origin = headers.get("sec-fetch-site", "same-origin"), headers.get("origin")
        if site not in ("same-origin", "none") or (origin is not None and origin != f"http://{self._host}"):
            return Denied(403, "wrong_origin", "the request comes from a page of another origin")
        return None

    def refuses(self, method: str, headers: Mapping[str, str], cookie: str) -> Denied | None:
        """Return why a request for data is refused; None: it is admitted."""
        denied = self.refuses_origin(headers)
        if denied is not None:
            return denied
        bearer, token = bearer_in(headers), headers.get(TOKEN_HEADER, "")
        is_program = _same(bearer, self.secrets.program_token) or bearer.startswith(PREFIX)
        is_page = any(_same(cookie, each.cookie) and _same(token, each.token) for each in self.secrets.sessions)
        if not (is_program or is_page):
            words = "open the address that `headrace web` printed, send its token of programs, or one of `headrace token create`"
            return Denied(401, "not_admitted", words)
        if self._read_only and method not in READS:
            return READ_ONLY
        return None


class SharedDoor:
    """The door of a service for many persons, which has no credential: every request brings a token. Cookies admit nobody."""

    cookie_name = ""

    def __init__(self, *, read_only: bool = False) -> None:
        self._read_only = read_only

    def refuses_origin(self, headers: Mapping[str, str]) -> Denied | None:
        """Return the refusal of a request for a page: only a program that has a token can use the service."""
        return Denied(
            404,
            "not_found",
            "this service has no page: send requests to /api/v1 with a token of `headrace token create`",
        )

    def refuses(self, method: str, headers: Mapping[str, str], cookie: str) -> Denied | None:
        """Return why a request for data is refused. None: the bus decides by its token."""
        if not bearer_in(headers).startswith(PREFIX):
            return Denied(
                401,
                "not_admitted",
                "send a token of `headrace token create` in the header `Authorization: Bearer TOKEN`",
            )
        return READ_ONLY if self._read_only and method not in READS else None


def bearer_in(headers: Mapping[str, str]) -> str:
    """Return the token in the header `Authorization`. Empty if there is none."""
    scheme, _, bearer = headers.get("authorization", "").partition(" ")
    return bearer.strip() if scheme.lower() == "bearer" else ""


def _same(given: str, known: str) -> bool:
    return hmac.compare_digest(given.encode(), known.encode())
