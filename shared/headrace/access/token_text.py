"""The text of a token: the credential of a program, in one word.

A token begins with `headrace_`, so that scanners for secrets find it. It has a checksum, so that an incomplete token gets another error
than a token that the server does not admit. The JWT in the token is compressed, because an HTTP header may have only a few kilobytes.
"""

from __future__ import annotations

import binascii
import zlib
from typing import Final

import msgspec

from headrace.access import jwt
from headrace.access.key_credential import PERSON_LOGIN, KeyCredential
from headrace.access.nkeys import SigningKey
from headrace.errors import BadInput
from headrace.ids import UserName, user_name

PREFIX: Final = "headrace_"
#: Upper bound of the characters of a token. A token of this release has about 1,300.
LONGEST: Final = 6_000
#: Upper bound of the bytes of the JWT in a token.
_LONGEST_JWT_BYTES: Final = 32 * 1024
_CHECKSUM_BYTES: Final = 4


class PresentedToken(msgspec.Struct, frozen=True):
    """The content of a token that a caller presented. The server has not checked it yet: only the server decides whether the token is
    admitted. `repr` does not show the credential.
    """

    user: UserName
    credential: KeyCredential
    #: Unix time in seconds.
    expires_at_s: int


class _Content(msgspec.Struct, frozen=True, array_like=True):
    seed: str
    #: First two parts of the JWT: decoded from base64, joined by a line feed, then compressed.
    claims: bytes
    signature: bytes


def token_text(credential: KeyCredential) -> str:
    """Return the text of the token that contains this credential."""
    *claims, signature = map(jwt.unbase64, credential.jwt.split("."))
    content = _Content(credential.seed, zlib.compress(b"\n".join(claims), 9), signature)
    data = msgspec.msgpack.encode(content)
    return PREFIX + jwt.base64_of(data + _checksum(data))


def read_token_text(text: str) -> PresentedToken:
    """Read the text of a token. Raises `BadInput`, which does not show the text."""
    try:
        if not text.startswith(PREFIX) or len(text) > LONGEST:
            raise ValueError
        both = jwt.unbase64(text.removeprefix(PREFIX))
        data, checksum = both[:-_CHECKSUM_BYTES], both[-_CHECKSUM_BYTES:]
        if _checksum(data) != checksum:
            raise ValueError
        content = msgspec.msgpack.decode(data, type=_Content)
        unpacked = zlib.decompressobj().decompress(content.claims, _LONGEST_JWT_BYTES)
        word = ".".join(jwt.base64_of(part) for part in (*unpacked.split(b"\n"), content.signature))
        claims = jwt.claims_of(word)
        user = user_name(str(claims["name"]).removeprefix(PERSON_LOGIN))
        SigningKey.from_seed(content.seed)
        return PresentedToken(user, KeyCredential(jwt=word, seed=content.seed), int(claims["exp"]))
    except (ValueError, KeyError, TypeError, OverflowError, binascii.Error, zlib.error, msgspec.DecodeError, BadInput):
        raise BadInput("token", "(secret)", "the complete output of `headrace token create`") from None


def _checksum(data: bytes) -> bytes:
    return zlib.crc32(data).to_bytes(_CHECKSUM_BYTES, "big")
