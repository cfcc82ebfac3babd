"""The bucket of public keys: tokens, each of which lets one host join, tokens of persons, and revoked keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from headrace.bus import Entry, KeyValue, WrongRevision
from headrace.ids import NodeName, TreeName, UserName
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


class PersonToken(msgspec.Struct, frozen=True, tag="person"):
    """A token of a person, as JSON in the bucket under its public key."""

    user: UserName
    name: str
    read_only: bool
    created_at_ms: int
    expires_at_ms: int
    #: Public key of the credential with which the person made the token. When that key is revoked, so is the token.
    own_key: PublicKey


class RevokedKey(msgspec.Struct, frozen=True, tag="revoked"):
    """A revoked key of a node or of a token, as JSON in the bucket under that key."""

    #: Node that had the key; empty for the key of a token.
    node: NodeName
    #: Unix time in seconds. JWTs for the key that were signed up to this time are invalid. No JWT is signed for the key after its
    #: revocation.
    until_s: int
    #: Person who had the token; empty for the key of a node.
    user: UserName = UserName("")


Record = Token | PersonToken | RevokedKey


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

    async def records(self) -> dict[str, Record]:
        """Return all records that can be read, by their keys."""
        read = {key: _read(entry) for key, entry in (await self._bucket.entries()).items()}
        return {key: record for key, record in read.items() if record is not None}

    async def put(self, key: str, token: PersonToken) -> None:
        """Store a person's token. Raises `WrongRevision` if the key is known."""
        await self._bucket.update(key, msgspec.json.encode(token), 0)

    async def forget_expired(self, now_ms: int) -> None:
        """Delete the tokens and revocations that are not needed any more."""
        for key, entry in (await self._bucket.entries()).items():
            if _is_over(_read(entry), now_ms):
                await self._bucket.delete(key)


def revoked_in(records: Mapping[str, Record], gone: Mapping[str, int]) -> dict[str, int]:
    """Return the revoked keys, each with the Unix time in seconds up to which it is revoked.

    `gone` are the keys that the server revokes: with the key of a person's credential go the tokens that were made with it.
    """
    found = {}
    for key, record in records.items():
        match record:
            case RevokedKey(until_s=until_s):
                found[key] = until_s
            case PersonToken() if gone.get(record.own_key, 0) * 1000 >= record.created_at_ms:
                found[key] = record.expires_at_ms // 1000 + 1
            case _:
                pass
    return found


def _is_over(record: Record | None, now_ms: int) -> bool:
    match record:
        case Token(expires_at_ms=end_ms):
            return end_ms + _TOKEN_KEPT_MS < now_ms
        case PersonToken(expires_at_ms=end_ms):
            return end_ms < now_ms
        case RevokedKey(until_s=end_s):
            return end_s * 1000 < now_ms
        case None:
            return False


def _read(entry: Entry | None) -> Record | None:
    if entry is None:
        return None
    try:
        record: Record = msgspec.json.decode(entry.value, type=Record)
    except UNREADABLE as error:
        logger().error("record of a key cannot be read", key=entry.key, error=str(error))
        return None
    return record
