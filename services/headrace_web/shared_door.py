"""The door of a service for many persons, which has no credential of its own. Pure.

Each request brings a token, or the secrets of a browser's session, to which a token belongs. The bus decides what the token may do. The
secrets of a session are a cookie and a token of the page, as in `door.py`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from headrace.access.token_text import PREFIX
from headrace_web.door import READ_ONLY, READS, TOKEN_HEADER, Denied, Session, bearer_in, foreign_origin, same

#: Seconds for which a ticket lets a browser in.
TICKET_S: Final = 60
#: Upper bound of the sessions and unused tickets of a person. One more session ends the oldest session of the person.
MOST_OF_A_PERSON: Final = 8
#: Upper bound of the sessions and unused tickets of all persons together.
MOST_SESSIONS: Final = 1_000
#: Hosts that may be shown in a message. Browsers send no other forms of hosts.
_HOST: Final = re.compile(r"\A[A-Za-z0-9.\[\]:-]{1,260}\Z")


class _Browser(NamedTuple):
    """A browser that has entered, or will enter with a ticket."""

    user: str
    #: Text of the token with which the service acts for the browser.
    credential: str
    #: Unix time in milliseconds at which the ticket or the session ends.
    until_ms: int
    #: Unix time in milliseconds at which the token ends.
    expires_at_ms: int
    #: Token of the page; empty before the browser has entered.
    page_token: str = ""


class Expected(NamedTuple):
    """The answer to a login."""

    #: Ticket that lets one browser in; None: there are too many sessions.
    ticket: str | None
    #: Tokens (as texts) of older sessions of the same person, which were ended to make this session possible.
    ended: tuple[str, ...]


class SharedDoor:
    """Decides about requests of programs and browsers of many persons."""

    #: A browser accepts a cookie of this name only from this host, over TLS, and for all its paths.
    cookie_name = "__Host-headrace"
    has_tls = True

    def __init__(self, new_secret: Callable[[], str], now_ms: Callable[[], int], *, read_only: bool = False) -> None:
        """`new_secret` returns a random text that nobody can guess, `now_ms` Unix time in milliseconds."""
        self._new_secret = new_secret
        self._now_ms = now_ms
        self._read_only = read_only
        #: Browsers by the SHA-256 of their ticket or their cookie, the oldest first.
        self._browsers: dict[bytes, _Browser] = {}

    def expect(self, user: str, credential: str, expires_at_ms: int) -> Expected:
        """Return a ticket, which lets one browser in. The person's oldest session ends if the person has too many.

        The browser acts with the token `credential`, which the server has admitted.
        """
        now_ms = self._now_ms()
        self._browsers = {key: each for key, each in self._browsers.items() if each.until_ms > now_ms}
        own = [key for key, each in self._browsers.items() if each.user == user]
        over = own[: max(0, len(own) + 1 - MOST_OF_A_PERSON)]
        gone = tuple(self._browsers.pop(key).credential for key in over)
        if len(self._browsers) >= MOST_SESSIONS:
            return Expected(None, gone)
        ticket = self._new_secret()
        until_ms = min(now_ms + TICKET_S * 1000, expires_at_ms)
        self._browsers[_key(ticket)] = _Browser(user, credential, until_ms, expires_at_ms)
        return Expected(ticket, gone)

    def enter(self, ticket: str) -> Session | None:
        """Admit a browser. Return None if the ticket is wrong, was used, or has expired."""
        expected = self._browsers.get(_key(ticket))
        if expected is None or expected.page_token:
            return None
        del self._browsers[_key(ticket)]
        if expected.until_ms <= self._now_ms():
            return None
        session = Session(self._new_secret(), self._new_secret())
        entered = expected._replace(until_ms=expected.expires_at_ms, page_token=session.token)
        self._browsers[_key(session.cookie)] = entered
        return session

    def leave(self, headers: Mapping[str, str], cookie: str) -> str | None:
        """Forget a browser. Return the text of its token, or None if the request does not have the secrets of a session."""
        credential = self._credential(headers, cookie)
        if credential:
            del self._browsers[_key(cookie)]
        return credential or None

    def refuses_origin(self, headers: Mapping[str, str]) -> Denied | None:
        """Return why a request is refused because of the page that sent it. A link on any page may lead to a page of this service."""
        return foreign_origin(headers, f"https://{headers.get('host', '')}", may_navigate=True)

    def refuses(self, method: str, headers: Mapping[str, str], cookie: str) -> Denied | None:
        """Return why a request for data is refused. None: the bus decides by the token of the request."""
        denied = self.refuses_origin(headers)
        if denied is not None:
            return denied
        if not self.token_of(headers, cookie):
            words = f"{log_in(headers)}; a program sends a token of `headrace token create` in the header `Authorization: Bearer TOKEN`"
            return Denied(401, "not_admitted", f"you are not logged in: {words}")
        return READ_ONLY if self._read_only and method not in READS else None

    def token_of(self, headers: Mapping[str, str], cookie: str) -> str:
        """Return the text of the token with which the service acts for a request. Empty if there is none."""
        bearer = bearer_in(headers)
        return bearer if bearer.startswith(PREFIX) else self._credential(headers, cookie)

    def _credential(self, headers: Mapping[str, str], cookie: str) -> str:
        browser = self._browsers.get(_key(cookie))
        if browser is None or not browser.page_token or not same(headers.get(TOKEN_HEADER, ""), browser.page_token):
            return ""
        return browser.credential


def ended(headers: Mapping[str, str]) -> Denied:
    """Return the refusal of a request whose session the server does not admit any more."""
    words = f"the session has ended: it expired, or its token was revoked; {log_in(headers)}"
    return Denied(401, "not_admitted", words)


def log_in(headers: Mapping[str, str]) -> str:
    """Return what a person does to log in at the host to which a request was sent."""
    host = headers.get("host", "")
    return f"type `headrace web login https://{host if _HOST.match(host) else 'HOST:PORT'}` where your command line is logged in"


def _key(secret: str) -> bytes:
    return hashlib.sha256(secret.encode(errors="replace")).digest()
