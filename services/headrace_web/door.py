"""The door: who may use a service for one person. Pure. `shared_door.py` is the door of a service for many persons.

The service acts for one person, with that person's credential, on an address of this machine that every account of the machine can
reach. So every request for data must show a secret that only this person has:

* A browser enters with a ticket, which is part of the printed address and works once. It gets a cookie, and a token that its page keeps for
  the service's own origin. Both are needed. The browser shows the cookie to every port of this host, so a service of another account could
  receive it. The token could be taken only by a foreign script in the page, and the page's policy forbids such scripts.
* A program sends the token of programs in the header `Authorization`.

In this header, a program may also send a token of `headrace token create`. The service then acts under the credential in that token, and
the bus decides whether the token is admitted and what it may do.

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
    #: Browsers that were admitted, in the order of admission.
    sessions: tuple[Session, ...] = ()


class Door:
    """Decides about requests to one address."""

    has_tls = False

    def __init__(
        self, port: int, new_secret: Callable[[], str], *, read_only: bool = False, known: Secrets | None = None
    ) -> None:
        """`new_secret` returns a random text that nobody can guess. `known` are the secrets of the process before this one."""
        # Requests to `localhost` are refused: this name may resolve to ::1, where another account can listen at the same port.
        self._host = f"127.0.0.1:{port}"
        self._new_secret = new_secret
        self._read_only = read_only
        #: Ticket with which one browser can enter. It works once, and each use makes a new ticket.
        self.ticket = new_secret()
        self.secrets = known or Secrets(new_secret())
        #: Name of the cookie. The port keeps the services of several trees or accounts apart.
        self.cookie_name = f"headrace-{port}"

    def enter(self, ticket: str) -> Session | None:
        """Admit a browser. Return None if the ticket is wrong or was used."""
        if not same(ticket, self.ticket):
            return None
        self.ticket = self._new_secret()
        session = Session(self._new_secret(), self._new_secret())
        self.secrets = self.secrets._replace(sessions=(*self.secrets.sessions[1 - _MOST_SESSIONS :], session))
        return session

    def leave(self, headers: Mapping[str, str], cookie: str) -> str | None:
        """Forget a browser. Return None if its request lacks the secrets of a session, else an empty text in place of a person's token."""
        if not self._is_page(headers, cookie):
            return None
        left = (each for each in self.secrets.sessions if not same(cookie, each.cookie))
        self.secrets = self.secrets._replace(sessions=tuple(left))
        return ""

    def refuses_origin(self, headers: Mapping[str, str]) -> Denied | None:
        """Return why a request is refused because of the host that it names or the page that sent it. Header names are in lower case."""
        if headers.get("host", "") != self._host:
            # Otherwise a foreign host name that resolves to this machine would give a foreign page the origin of this service.
            return Denied(421, "wrong_host", f"this service answers at {self._host} only")
        return foreign_origin(headers, f"http://{self._host}")

    def refuses(self, method: str, headers: Mapping[str, str], cookie: str) -> Denied | None:
        """Return why a request for data is refused. None: the request is admitted."""
        denied = self.refuses_origin(headers)
        if denied is not None:
            return denied
        bearer = bearer_in(headers)
        is_program = same(bearer, self.secrets.program_token) or bearer.startswith(PREFIX)
        if not (is_program or self._is_page(headers, cookie)):
            words = "open the address that `headrace web` printed, send its token of programs, or one of `headrace token create`"
            return Denied(401, "not_admitted", words)
        if self._read_only and method not in READS:
            return READ_ONLY
        return None

    def token_of(self, headers: Mapping[str, str], cookie: str) -> str:
        """Return the token of `headrace token create` with which the service acts for a request. Empty: it uses its own credential."""
        bearer = bearer_in(headers)
        return bearer if bearer.startswith(PREFIX) else ""

    def _is_page(self, headers: Mapping[str, str], cookie: str) -> bool:
        token = headers.get(TOKEN_HEADER, "")
        return any(same(cookie, each.cookie) and same(token, each.token) for each in self.secrets.sessions)


def foreign_origin(headers: Mapping[str, str], own: str, *, may_navigate: bool = False) -> Denied | None:
    """Return a refusal if a page of another origin than `own` sent the request. Header names are in lower case.

    `may_navigate`: True admits a request that follows a link on such a page. For links the browser sends no `Origin`.
    """
    site, origin = headers.get("sec-fetch-site", "same-origin"), headers.get("origin")
    is_link = may_navigate and headers.get("sec-fetch-mode") == "navigate"
    if (site in ("same-origin", "none") or is_link) and origin in (None, own):
        return None
    return Denied(403, "wrong_origin", "the request comes from a page of another origin")


def bearer_in(headers: Mapping[str, str]) -> str:
    """Return the token in the header `Authorization`. Empty if there is none."""
    scheme, _, bearer = headers.get("authorization", "").partition(" ")
    return bearer.strip() if scheme.lower() == "bearer" else ""


def cookie_in(headers: Mapping[str, str], name: str) -> str:
    """Return the value of a cookie; empty if there is none. If there are several, the last one was set for the whole host.

    The value is not unquoted. A cookie of this service has no quotes, and Python before 3.11.10 and 3.12.6 needs seconds to unquote 64 KiB
    of backslashes, which anybody may send.
    """
    pairs = (each.strip().partition("=") for each in reversed(headers.get("cookie", "").split(";")))
    return next((value for key, _, value in pairs if key == name), "")


def same(given: str, known: str) -> bool:
    """Compare two secrets. The time that this takes tells nothing about them."""
    return hmac.compare_digest(given.encode(), known.encode())
