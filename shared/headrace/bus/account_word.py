"""The word about an account at a running server: which keys count no more.

Whoever changes it asks for the one that the server has, and only adds to what that revokes. So of several writers none undoes another's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from headrace.access.account_authority import word_lookup, word_update
from headrace.bus.protocol import Bus, BusError

_ANSWER_S: Final = 5.0


class WordRefused(BusError):
    """The server did not take, or does not have, the word about an account."""


class _Problem(msgspec.Struct, frozen=True):
    description: str = ""


class _Answer(msgspec.Struct, frozen=True):
    error: _Problem | None = None


async def tell_account_word(bus: Bus, account: str, next_word: Callable[[str], str | None]) -> bool:
    """Hands over the word that follows the server's, for which `next_word` gives None if that says all. True if it was handed over.

    `bus` is of a user of the server's own account. Raises `BusError`.
    """
    known = (await bus.request(word_lookup(account), b"", timeout_s=_ANSWER_S)).decode(errors="replace")
    if not known:
        raise WordRefused(f"the server does not know the account {account}")
    word = next_word(known)
    if word is None:
        return False
    told = await bus.request(word_update(account), word.encode(), timeout_s=_ANSWER_S)
    try:
        error = msgspec.json.decode(told, type=_Answer).error
    except msgspec.DecodeError:
        error = _Problem("its answer cannot be read")
    if error is not None:
        raise WordRefused(f"the server does not take the word about the account: {error.description}")
    return True
