"""The token with which a host joins, as one string.

It contains a credential that expires after a few minutes, the server's address, and the SHA-256 of the server's
certificate authority.
"""

from __future__ import annotations

import base64
import binascii
import secrets
from typing import Final

import msgspec

from headrace.access.key_credential import KeyCredential
from headrace.access.nkeys import SECRET_BYTES, KeyKind, SigningKey
from headrace.errors import BadInput

#: Prefix of every token. Anyone who finds a token in the wrong place can see what it is.
_PREFIX: Final = "headrace-join-"


class JoinToken(msgspec.Struct, frozen=True, array_like=True):
    """The content of a token. `repr` shows none of it."""

    node: str
    url: str
    #: SHA-256 of the certificate of the server's authority; empty: the system's authorities are used.
    authority_sha256: str
    credential: KeyCredential

    def text(self) -> str:
        """Return the token as the string that is given to the host."""
        return _PREFIX + base64.urlsafe_b64encode(msgspec.msgpack.encode(self)).decode().rstrip("=")

    def __repr__(self) -> str:
        return "JoinToken(...)"


def read_token(text: str) -> JoinToken:
    """Parse a token. Raises `BadInput`, without the token in its message."""
    text = text.strip()
    try:
        if not text.startswith(_PREFIX):
            raise ValueError
        data = text.removeprefix(_PREFIX)
        return msgspec.msgpack.decode(base64.urlsafe_b64decode(data + "=" * (-len(data) % 4)), type=JoinToken)
    except (ValueError, binascii.Error, msgspec.DecodeError):
        raise BadInput.because(
            "token", "the token is incomplete or damaged. Pass the complete output of `headrace node token`"
        ) from None


def new_user_key() -> SigningKey:
    """Make a new random user key."""
    return SigningKey(KeyKind.USER, secrets.token_bytes(SECRET_BYTES))
