"""NATS keys (ADR-14): Ed25519 keys in base32, with a leading letter for the kind and a checksum.

`SUAM…` is the seed of a user, which stays with its holder. `UA6K…` is its public key, by which the server knows the user.
"""

from __future__ import annotations

import base64
import binascii
import enum
from typing import Final, Self

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from headrace.errors import BadInput

_SEED: Final = 18 << 3
#: Bytes of the secret from which a key is made.
SECRET_BYTES: Final = 32
_PUBLIC_BYTES: Final = 32
_CHECKSUM_BYTES: Final = 2


class KeyKind(enum.Enum):
    """Kinds of keys. The value is the prefix byte, which determines the first letter of the written key."""

    OPERATOR = 14 << 3
    ACCOUNT = 0
    USER = 20 << 3


class SigningKey:
    """A private key. `repr` shows only its public key."""

    def __init__(self, kind: KeyKind, random_bytes: bytes) -> None:
        """`random_bytes` are the secret: 32 bytes from a source that cannot be predicted."""
        self.kind = kind
        self._secret = random_bytes
        self._key = Ed25519PrivateKey.from_private_bytes(random_bytes)

    @classmethod
    def from_seed(cls, seed: str) -> Self:
        """Read a written seed. Raises `BadInput`, which does not show the seed."""
        data = _unwritten(seed)
        if data is None:
            raise _no_seed()
        kinds = {kind.value: kind for kind in KeyKind}
        # The first two bytes begin with five bits that mark a seed. The next eight bits are the kind.
        kind = kinds.get((data[0] & 7) << 5 | data[1] >> 3)
        if len(data) != 2 + SECRET_BYTES or data[0] & 0xF8 != _SEED or kind is None:
            raise _no_seed()
        return cls(kind, data[2:])

    @property
    def seed(self) -> str:
        """The seed in its written form."""
        kind = self.kind.value
        return _written(bytes([_SEED | kind >> 5, (kind & 31) << 3]) + self._secret)

    @property
    def public(self) -> str:
        """The public key in its written form."""
        return _written(bytes([self.kind.value]) + self._key.public_key().public_bytes_raw())

    def sign(self, data: bytes) -> bytes:
        """Return the signature of `data`."""
        return self._key.sign(data)

    def __repr__(self) -> str:
        return f"SigningKey({self.public})"


def user_key(text: str) -> str:
    """Check the written public key of a user and return it. Raises `BadInput`."""
    if not _is_public_key(text, KeyKind.USER):
        raise BadInput("key", text[:80], "the complete public key of a NATS user")
    return text


def is_signed(data: bytes, signature: bytes, public: str, kind: KeyKind = KeyKind.USER) -> bool:
    """True if the holder of a written key signed the data. Raises `BadInput` if it is no public key of this kind."""
    written = _unwritten(public)
    if written is None or not _is_public_key(public, kind):
        raise BadInput("key", public[:80], f"the complete public key of a NATS {kind.name.lower()}")
    try:
        Ed25519PublicKey.from_public_bytes(written[1:]).verify(signature, data)
    except InvalidSignature:
        return False
    return True


def _is_public_key(text: str, kind: KeyKind) -> bool:
    data = _unwritten(text)
    return data is not None and len(data) == 1 + _PUBLIC_BYTES and data[0] == kind.value


def _written(data: bytes) -> str:
    checksum = binascii.crc_hqx(data, 0).to_bytes(_CHECKSUM_BYTES, "little")
    return base64.b32encode(data + checksum).decode().rstrip("=")


def _unwritten(text: str) -> bytes | None:
    """Decode a written key. Return None if the checksum is wrong."""
    try:
        data = base64.b32decode(text + "=" * (-len(text) % 8))
    except ValueError:
        return None
    body, checksum = data[:-_CHECKSUM_BYTES], data[-_CHECKSUM_BYTES:]
    return (
        body if len(body) >= 2 and binascii.crc_hqx(body, 0).to_bytes(_CHECKSUM_BYTES, "little") == checksum else None
    )


def _no_seed() -> BadInput:
    return BadInput.because(
        "seed",
        "this is not the complete seed of a NATS operator, account or user: its form or its checksum is wrong. Copy the whole seed again",
    )
