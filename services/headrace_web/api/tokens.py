"""Endpoints for the tokens of the person who asks. A token may not use them: see the decision about tokens."""

from __future__ import annotations

from typing import Final

import msgspec

from headrace.client.tokens import token_lifetime_ms
from headrace.wire.access_tokens import AccessToken, TokenList, TokenName
from headrace_web.api.context import Context
from headrace_web.api.endpoint import Endpoint


class NoFields(msgspec.Struct, frozen=True):
    """A request without fields."""


class WantedToken(msgspec.Struct, frozen=True):
    """A token to make."""

    #: Name by which the person recognises the token.
    name: TokenName = ""
    #: True: the server refuses every request with the token that changes something.
    read_only: bool = False
    #: Time until the token ends, from `1s` to `366d`.
    expires: str = "30d"


class OneToken(msgspec.Struct, frozen=True):
    """A token of the person."""

    #: `key` of the token, or its name.
    token: str


class TokenMade(msgspec.Struct, frozen=True):
    """A new token."""

    token: AccessToken
    #: Secret text that a program sends in the header `Authorization: Bearer TEXT`. Nobody can read it again.
    text: str


async def list_tokens(context: Context, request: NoFields) -> TokenList:
    """List the tokens of the person that have not ended, the first made first. A token may not ask this."""
    return await context.client.tokens.list()


async def create_token(context: Context, request: WantedToken) -> TokenMade:
    """Make a token for a program. A token may not make other tokens: the credential of a person is needed, as on the person's machine."""
    lifetime_ms = token_lifetime_ms(request.expires, place="expires")
    made = await context.client.tokens.create(name=request.name, read_only=request.read_only, lifetime_ms=lifetime_ms)
    return TokenMade(made.token, made.text)


async def revoke_token(context: Context, request: OneToken) -> AccessToken:
    """Revoke a token of the person. Its connections and streams are closed before the answer. A token may not revoke tokens."""
    return await context.client.tokens.revoke(request.token)


ENDPOINTS: Final = (
    Endpoint("GET", "/tokens", list_tokens),
    Endpoint("POST", "/tokens", create_token, status=201),
    Endpoint("DELETE", "/tokens/{token}", revoke_token),
)
