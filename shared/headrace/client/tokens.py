"""Tokens of a person: credentials for programs that use the HTTP API in the name of the person."""

from __future__ import annotations

import secrets
from typing import Final, NamedTuple

from headrace.access.key_credential import KeyCredential
from headrace.bus.credential_files import read_credential
from headrace.client.asking import Asker
from headrace.client.place import Place
from headrace.durations import parse_duration_ms
from headrace.errors import BadInput
from headrace.ids import UserName
from headrace.wire.access_tokens import (
    LONGEST_MS,
    AccessToken,
    CreateToken,
    EndToken,
    ListTokens,
    RevokeToken,
    TokenCreated,
    TokenList,
    TokenRevoked,
    end_proof_of,
    proof_of,
)

_SHORTEST_MS: Final = 1_000


def token_lifetime_ms(text: str, *, place: str) -> int:
    """Return the milliseconds until a new token ends, from a text such as `30d`. Raises `BadInput`."""
    lifetime_ms = parse_duration_ms(text, place=place)
    if not _SHORTEST_MS <= lifetime_ms <= LONGEST_MS:
        raise BadInput(place, text, "a length of time from 1s to 366d")
    return lifetime_ms


class NewToken(NamedTuple):
    """A new token and its text. Headrace does not store the text, so nobody can read it again later."""

    token: AccessToken
    text: str

    def __repr__(self) -> str:
        return f"NewToken({self.token!r}, ...)"


class Tokens:
    """The tokens of the person whose client this is, in a cluster with an operator."""

    def __init__(self, asker: Asker, place: Place, user: UserName) -> None:
        self._asker = asker
        self._place = place
        self._user = user

    async def create(self, *, name: str = "", read_only: bool = False, lifetime_ms: int = 30 * 86_400_000) -> NewToken:
        """Make a token. Its secret key is made in this process and not sent to any service. Raises `Refused`, `Unanswered`, `BadInput`."""
        # The imports are here because importing cryptography takes longer than everything else in this module.
        from headrace.access.nkeys import SECRET_BYTES, KeyKind, SigningKey
        from headrace.access.token_text import token_text

        key = SigningKey(KeyKind.USER, secrets.token_bytes(SECRET_BYTES))
        proof = key.sign(proof_of(self._user, key.public))
        created = await self.create_for(key.public, proof, name=name, read_only=read_only, lifetime_ms=lifetime_ms)
        return NewToken(created.token, token_text(KeyCredential(jwt=created.jwt, seed=key.seed)))

    async def create_for(
        self, key: str, proof: bytes, *, name: str = "", read_only: bool = False, lifetime_ms: int
    ) -> TokenCreated:
        """Make a token for a key of another program, which has signed `proof_of` with that key. Only a program that has the secret part of
        the key can use the token.

        Raises `Refused`, `Unanswered`, `BadInput`.
        """
        from headrace.access.nkeys import SigningKey

        own = read_credential(self._place.credential_file)
        own_jwt, own_proof = "", b""
        if isinstance(own, KeyCredential):
            own_jwt, own_proof = own.jwt, SigningKey.from_seed(own.seed).sign(proof_of(self._user, key))
        request = CreateToken(key, proof, own_jwt, own_proof, name, read_only, lifetime_ms)
        return await self._asker.ask("token.create", request, TokenCreated)

    async def end(self, credential: KeyCredential) -> AccessToken:
        """Revoke the token with this credential. The request may be made with any credential of the person, even with the token itself.

        The server then closes all connections that use the token. So a request that was made with the token itself may get no answer.

        Raises `Refused`, `Unanswered`.
        """
        from headrace.access.nkeys import SigningKey

        key = SigningKey.from_seed(credential.seed)
        request = EndToken(key.public, key.sign(end_proof_of(self._user, key.public)))
        return (await self._asker.ask("token.end", request, TokenRevoked)).token

    async def list(self) -> TokenList:
        """Return the tokens that have not expired, the oldest first. Raises `Refused`, `Unanswered`."""
        return await self._asker.ask("token.list", ListTokens(), TokenList)

    async def revoke(self, token: str) -> AccessToken:
        """Revoke a token by its name or key. The server then closes all connections that use the token. Raises `Refused`, `Unanswered`."""
        return (await self._asker.ask("token.revoke", RevokeToken(token), TokenRevoked)).token
