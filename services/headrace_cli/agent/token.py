"""The token by which a host joins, as one string.

It has a credential for a few minutes, the server's address, and the SHA-256 of the authority that vouches for the server.
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

#: Tells what it is to whoever finds one where it does not belong.
_PREFIX: Final = "headrace-join-"


class JoinToken(msgspec.Struct, frozen=True, array_like=True):
    """The content of a token. `repr` shows nothing of it."""

    node: str
    url: str
    #: SHA-256 of the certificate of the authority by whose word the server is believed; empty: the system's authorities.
    authority_sha256: str
    credential: KeyCredential

    def text(self) -> str:
        """The token as a person hands it on."""
        return _PREFIX + base64.urlsafe_b64encode(msgspec.msgpack.encode(self)).decode().rstrip("=")

    def __repr__(self) -> str:
        return "JoinToken(...)"


def read_token(text: str) -> JoinToken:
    """Reads a token. Raises `BadInput`, which does not show it."""
    text = text.strip()
    try:
        if not text.startswith(_PREFIX):
            raise ValueError
        data = text.removeprefix(_PREFIX)
        return msgspec.msgpack.decode(base64.urlsafe_b64decode(data + "=" * (-len(data) % 4)), type=JoinToken)
    except (ValueError, binascii.Error, msgspec.DecodeError):
        raise BadInput("token", "(secret)", "what `headrace node token` printed, the whole of it") from None


def new_user_key() -> SigningKey:
    """Makes a key that nobody else has."""
    return SigningKey(KeyKind.USER, secrets.token_bytes(SECRET_BYTES))
