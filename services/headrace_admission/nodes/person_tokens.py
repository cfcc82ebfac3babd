"""Tokens of persons: credentials that admission signs for keys of programs, in the name of the person who asks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import anyio

from headrace.access.account_authority import AccountAuthority
from headrace.access.jwt import claims_of
from headrace.access.key_credential import PERSON_LOGIN
from headrace.access.nkeys import is_signed, user_key
from headrace.access.permissions import Party
from headrace.access.routes import PartyKind, Reach
from headrace.bus import WrongRevision
from headrace.errors import BadInput
from headrace.ids import UserName
from headrace.obs.logging import logger
from headrace.runtime.engine import Moment
from headrace.suggestions import near
from headrace.wire.access_tokens import (
    MOST_TOKENS,
    AccessToken,
    CreateToken,
    EndToken,
    RevokeToken,
    TokenCreated,
    TokenList,
    TokenRevoked,
    end_proof_of,
    proof_of,
)
from headrace.wire.refusals import BadRequest, Exists, NotFound, Refusal, WrongState
from headrace_admission.nodes.join_tokens import Keys, PersonToken, Record, RevokedKey
from headrace_admission.nodes.revocation import Revocations

#: Upper bounds of the tokens of one person, and of the tokens of all persons. Revoked tokens count until they would have ended,
#: because until then the server's list of revoked keys contains their keys, and the list must fit into a message.
_MOST_KEYS: Final = 2 * MOST_TOKENS
_MOST_KEYS_OF_ALL: Final = 5_000


class PersonTokens:
    """Makes, lists and revokes tokens of persons. All methods raise `BusError`."""

    def __init__(self, keys: Keys, revocations: Revocations, authority: AccountAuthority) -> None:
        self._keys = keys
        self._revocations = revocations
        self._authority = authority
        #: Held while a token is made, so that the number of existing tokens is right.
        self._making = anyio.Lock()

    async def create(self, request: CreateToken, user: UserName, now: Moment) -> TokenCreated | Refusal:
        """Sign a credential for the key of a new token.

        The token is revoked together with the credential with which the person asks for it, and has the groups of that credential. The
        credential in the request need not be the one of the connection: a person may have kept a credential that was revoked.
        """
        proof, now_s = proof_of(user, request.key), now.wall_ms // 1000
        try:
            key, own = user_key(request.key), self._authority.own_key(request.jwt, user, now_s)
            is_proven = is_signed(proof, request.proof, key)
            is_own = own is not None and is_signed(proof, request.own_proof, own)
        except BadInput as error:
            return BadRequest(error.place, str(error.value), error.expected)
        if not is_proven:
            return BadRequest.because(
                "proof", f"it is not signed with the key {key}; use `headrace token create` of admission's release"
            )
        if own is None or not is_own:
            return BadRequest("jwt", "(a credential)", f"the credential that {user} was given, which is not a token")
        if await self._revocations.is_revoked(own, int(claims_of(request.jwt)["iat"])):
            return BadRequest("jwt", "(a revoked credential)", f"the newest credential that {user} was given")
        end_ms = now.wall_ms + request.lifetime_ms
        wanted = PersonToken(user, request.name, request.read_only, now.wall_ms, end_ms, own)
        async with self._making:
            await self._keys.forget_expired(now.wall_ms)
            records = await self._keys.records()
            known = records.get(key)
            if isinstance(known, PersonToken) and (known.user, known.own_key) == (user, own):
                wanted = known  # its first answer was lost
            else:
                refusal = _too_many(records, user) or await self._stored(key, wanted)
                if refusal is not None:
                    return refusal
        reach, groups = Reach.READ if wanted.read_only else Reach.CHANGE, self._authority.groups_in(request.jwt, user)
        party = Party(kind=PartyKind.PERSON, name=user, reach=reach, groups=groups)
        lifetime_s = max(0, wanted.expires_at_ms // 1000 - now_s)
        word = self._authority.user_word(key, f"{PERSON_LOGIN}{user}", party, now_s=now_s, lifetime_s=lifetime_s)
        logger().info("token of a person made", user=user, key=key, read_only=wanted.read_only)
        return TokenCreated(word, _seen(key, wanted))

    async def list(self, user: UserName, now: Moment) -> TokenList:
        """Return the tokens of a person that have not expired."""
        found = [_seen(key, token) for key, token in (await self._of(user)).items()]
        live = [token for token in found if token.expires_at_ms > now.wall_ms]
        return TokenList(sorted(live, key=lambda token: (token.created_at_ms, token.key)))

    async def revoke(self, request: RevokeToken, user: UserName) -> TokenRevoked | Refusal:
        """Revoke a token of a person. When this returns, the server has closed the connections that used the token."""
        tokens = await self._of(user)
        named = [key for key, token in tokens.items() if request.token in (key, token.name)]
        if not named:
            return NotFound(
                "token", request.token, near(request.token, [each.name or key for key, each in tokens.items()])
            )
        if len(named) > 1:
            return BadRequest(
                "token", request.token, f"the key of one of the tokens with this name: {', '.join(named)}"
            )
        (key,) = named
        await self._revocations.revoke_token(key, tokens[key])
        return TokenRevoked(_seen(key, tokens[key]))

    async def end(self, request: EndToken, user: UserName) -> TokenRevoked | Refusal:
        """Revoke a token for the holder of its key. When this returns, the server has closed its connections."""
        try:
            is_proven = is_signed(end_proof_of(user, request.key), request.proof, user_key(request.key))
        except BadInput as error:
            return BadRequest(error.place, str(error.value), error.expected)
        if not is_proven:
            return BadRequest.because("proof", f"it is not signed with the key {request.key}")
        token = (await self._of(user)).get(request.key)
        if token is None:
            return NotFound("token", request.key, [])
        await self._revocations.revoke_token(request.key, token)
        return TokenRevoked(_seen(request.key, token))

    async def _of(self, user: UserName) -> dict[str, PersonToken]:
        records = await self._keys.records()
        return {key: each for key, each in records.items() if isinstance(each, PersonToken) and each.user == user}

    async def _stored(self, key: str, token: PersonToken) -> Refusal | None:
        try:
            await self._keys.put(key, token)
        except WrongRevision:
            return Exists("key", key)
        return None


def _too_many(records: Mapping[str, Record], user: UserName) -> WrongState | None:
    """Return the refusal of a further token, or None."""
    kept = [each for each in records.values() if isinstance(each, PersonToken | RevokedKey) and each.user]
    own = [each for each in kept if each.user == user]
    live = sum(isinstance(each, PersonToken) for each in own)
    if live >= MOST_TOKENS:
        expected = f"fewer than {MOST_TOKENS}: revoke tokens that are not needed (`headrace token revoke`)"
        return WrongState("number of tokens of", user, str(live), expected)
    if len(own) >= _MOST_KEYS or len(kept) >= _MOST_KEYS_OF_ALL:
        state = f"{len(own)}, and {len(kept)} of all persons, with revoked tokens"
        expected = (
            f"fewer than {_MOST_KEYS} and {_MOST_KEYS_OF_ALL}: a revoked token counts until it would have expired"
        )
        return WrongState("number of tokens of", user, state, expected)
    return None


def _seen(key: str, token: PersonToken) -> AccessToken:
    return AccessToken(key, token.name, token.read_only, token.created_at_ms, token.expires_at_ms)
