"""The bucket of public keys: tokens, each of which lets one host join, and revoked keys of nodes."""

from __future__ import annotations

from typing import Final

import msgspec

from headrace.bus import Entry, KeyValue, WrongRevision
from headrace.ids import NodeName, TreeName
from headrace.obs.logging import logger
from headrace.wire.codec import UNREADABLE
from headrace.wire.nodes import NodeTerms, PublicKey
from headrace.wire.refusals import Exists, NotFound, WrongState

#: Milliseconds for which a token is kept after its expiry, so that an expired token can be distinguished from an unknown token.
_TOKEN_KEPT_MS: Final = 86_400_000


class Token(msgspec.Struct, frozen=True, tag="token"):
    """A token, as JSON in the bucket under its public key."""

    node: NodeName
    tree: TreeName
    terms: NodeTerms
    expires_at_ms: int
    #: The public key of the node that joined with the token; empty: unused.
    used_by: PublicKey = ""


class RevokedKey(msgspec.Struct, frozen=True, tag="revoked"):
    """A revoked key of a node, as JSON in the bucket under that key."""

    node: NodeName
    #: Unix time in seconds. JWTs for the key that were signed up to this time are invalid. No JWT is signed for the key after its
    #: revocation.
    until_s: int


class Keys:
    """Tokens and revoked keys. All methods raise `BusError`."""

    def __init__(self, bucket: KeyValue) -> None:
        self._bucket = bucket

    async def add(self, key: str, token: Token) -> Token | Exists:
        """Store a new token. If the same token was requested before, the stored token is returned."""
        try:
            await self._bucket.update(key, msgspec.json.encode(token), 0)
        except WrongRevision:
            known = _read(await self._bucket.get(key))
            is_same = isinstance(known, Token) and known == msgspec.structs.replace(
                token, expires_at_ms=known.expires_at_ms
            )
            return known if isinstance(known, Token) and is_same else Exists("key", key)
        return token

    async def use(self, key: str, by: str, now_ms: int) -> Token | NotFound | WrongState:
        """Use a token for a node's key. Afterwards no other key can use the token."""
        while True:
            entry = await self._bucket.get(key)
            token = _read(entry)
            if entry is None or not isinstance(token, Token):
                return NotFound("token", key)
            if token.used_by not in ("", by):
                return WrongState(
                    "token", f"for {token.node}", "used already", "a new token for each host (`headrace node token`)"
                )
            if now_ms > token.expires_at_ms:
                return WrongState("token", f"for {token.node}", "expired", "a new token (`headrace node token`)")
            if await self._bucket.get(by) is not None:
                return WrongState("key", by, "known already", "a new key, made for this node alone")
            used = msgspec.structs.replace(token, used_by=by)
            try:
                await self._bucket.update(key, msgspec.json.encode(used), entry.revision)
            except WrongRevision:
                continue
            return used

    async def revoke(self, key: str, revoked: RevokedKey) -> None:
        """Record that a key is revoked."""
        await self._bucket.put(key, msgspec.json.encode(revoked))

    async def revoked(self) -> dict[str, int]:
        """Return the revoked keys, each with the Unix time in seconds up to which it is revoked."""
        read = {key: _read(entry) for key, entry in (await self._bucket.entries()).items()}
        return {key: record.until_s for key, record in read.items() if isinstance(record, RevokedKey)}

    async def forget_expired(self, now_ms: int) -> None:
        """Delete the tokens and revocations that are not needed any more."""
        for key, entry in (await self._bucket.entries()).items():
            if _is_over(_read(entry), now_ms):
                await self._bucket.delete(key)


def _is_over(record: Token | RevokedKey | None, now_ms: int) -> bool:
    match record:
        case Token(expires_at_ms=end_ms):
            return end_ms + _TOKEN_KEPT_MS < now_ms
        case RevokedKey(until_s=end_s):
            return end_s * 1000 < now_ms
        case None:
            return False


def _read(entry: Entry | None) -> Token | RevokedKey | None:
    if entry is None:
        return None
    try:
        record: Token | RevokedKey = msgspec.json.decode(entry.value, type=Token | RevokedKey)
    except UNREADABLE as error:
        logger().error("record of a key cannot be read", key=entry.key, error=str(error))
        return None
    return record
