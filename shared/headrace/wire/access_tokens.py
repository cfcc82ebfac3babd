"""Messages about tokens: credentials that a person makes for programs. Each token has a key of its own and expires.

The messages carry public keys and signed JWTs only. The secret key of a token stays where it was made.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from headrace.wire.joining import CredentialText
from headrace.wire.nodes import PublicKey
from headrace.wire.version import Counter

#: Largest number of tokens that a person may have, not counting expired and revoked tokens.
MOST_TOKENS: Final = 32
#: Milliseconds for which a token may last.
LONGEST_MS: Final = 366 * 86_400_000

#: Name of a token, for people.
TokenName = Annotated[str, msgspec.Meta(max_length=60, pattern=r"\A[^\x00-\x1f\x7f]*\Z")]
Signature = Annotated[bytes, msgspec.Meta(max_length=64)]


def proof_of(user: str, token: str) -> bytes:
    """Return the bytes that the key of a new token and the key of its person sign, to show that both want a token with this public key."""
    return f"headrace token {user} {token}".encode()


def end_proof_of(user: str, token: str) -> bytes:
    """Return the bytes that the key of a token signs, to show that the holder of the token wants to give the token back."""
    return f"headrace token-end {user} {token}".encode()


class CreateToken(msgspec.Struct, frozen=True):
    """person → admission: sign a credential of this person for the key of a token."""

    #: Public key of the token.
    key: PublicKey
    #: Signature of `proof_of` by that key. Without it, a person could name the key of another party, and have it revoked.
    proof: Signature
    #: JWT of the credential with which the person asks. When this credential is revoked, so is the token.
    jwt: CredentialText
    #: Signature of `proof_of` by the key of that credential.
    own_proof: Signature
    name: TokenName = ""
    #: True if the token allows only requests that change nothing.
    read_only: bool = False
    lifetime_ms: Annotated[int, msgspec.Meta(ge=1_000, le=LONGEST_MS)] = 30 * 86_400_000


class AccessToken(msgspec.Struct, frozen=True):
    """A token as its person sees it."""

    #: Public key of the token. It is no secret.
    key: PublicKey
    name: TokenName
    read_only: bool
    created_at_ms: Counter
    expires_at_ms: Counter


class TokenCreated(msgspec.Struct, frozen=True, tag_field="refusal", tag="none"):
    """The credential of a new token."""

    jwt: CredentialText
    token: AccessToken


class ListTokens(msgspec.Struct, frozen=True):
    """person → admission: the tokens of this person."""


class TokenList(msgspec.Struct, frozen=True, tag_field="refusal", tag="none"):
    """The tokens of a person that have not expired, the first made first."""

    tokens: Annotated[list[AccessToken], msgspec.Meta(max_length=MOST_TOKENS)]


class RevokeToken(msgspec.Struct, frozen=True):
    """person → admission: revoke a token of this person, and close its connections."""

    #: Public key of the token, or its name if only one token of the person has this name.
    token: Annotated[str, msgspec.Meta(max_length=60)]


class EndToken(msgspec.Struct, frozen=True):
    """holder of a token → admission: revoke the token of this key, and close its connections."""

    #: Public key of the token.
    key: PublicKey
    #: Signature of `end_proof_of` by that key.
    proof: Signature


class TokenRevoked(msgspec.Struct, frozen=True, tag_field="refusal", tag="none"):
    """The token was revoked; its connections are closed."""

    token: AccessToken
