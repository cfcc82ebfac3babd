"""Updating the JWT of an account at a running server. The JWT lists the revoked keys.

A process that changes the JWT first asks the server for the account's current JWT, and only adds revoked keys to it. So no process undoes a
revocation that another process made.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from headrace.access.account_authority import jwt_lookup_subject, jwt_update_subject
from headrace.bus.protocol import Bus, BusError

_ANSWER_S: Final = 5.0


class JwtRefused(BusError):
    """The server does not accept the JWT of an account, or does not have it."""


class _Problem(msgspec.Struct, frozen=True):
    description: str = ""


class _Answer(msgspec.Struct, frozen=True):
    error: _Problem | None = None


async def push_account_jwt(bus: Bus, account: str, next_jwt: Callable[[str], str | None]) -> bool:
    """Send the server a new JWT of an account, if `next_jwt` returns one. Return True if a JWT was sent.

    `next_jwt` receives the server's current JWT. It returns the new JWT, or None if nothing changes. `bus` must be
    connected as a user of the server's system account. Raises `BusError`.
    """
    known = (await bus.request(jwt_lookup_subject(account), b"", timeout_s=_ANSWER_S)).decode(errors="replace")
    if not known:
        raise JwtRefused(f"the server does not know the account {account}")
    word = next_jwt(known)
    if word is None:
        return False
    told = await bus.request(jwt_update_subject(account), word.encode(), timeout_s=_ANSWER_S)
    try:
        error = msgspec.json.decode(told, type=_Answer).error
    except msgspec.DecodeError:
        error = _Problem("its answer cannot be read")
    if error is not None:
        raise JwtRefused(f"the server refuses the JWT of the account: {error.description}")
    return True
