"""The bucket of public keys: tokens, each of which lets one host join, revoked keys of nodes, and keys that are held out."""

from __future__ import annotations

import contextlib
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
#: Upper bound in seconds to which pauses grow, the factor from one pause to the next, and the seconds after a pause within which a
#: flood makes the next pause longer.
_LONGEST_PAUSE_S: Final = 3_600
_PAUSES_GROW: Final = 4
_REMEMBERED_S: Final = 3_600


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


class HeldOutKey(msgspec.Struct, frozen=True, tag="held_out"):
    """A key that is revoked for a pause, as JSON in the bucket under that key. If the key had a token, the token is lost."""

    #: Kind and name of the holder, such as `user anna`.
    party: str
    why: str
    #: Unix time in seconds at which the pause ends.
    until_s: int
    pause_s: int


def next_pause(known: RevokedKey | HeldOutKey | None, party: str, why: str, *, first_s: int, now_s: int) -> HeldOutKey:
    """Return the record of a pause that begins now: longer than the pause before, if that was not long ago."""
    pause_s = first_s
    if isinstance(known, HeldOutKey) and now_s <= known.until_s + _REMEMBERED_S:
        pause_s = max(first_s, min(_LONGEST_PAUSE_S, _PAUSES_GROW * known.pause_s))
    return HeldOutKey(party, why, now_s + pause_s, pause_s)


_Record = Token | RevokedKey | HeldOutKey


class Keys:
    """Tokens, revoked keys and keys that are held out. All methods raise `BusError`."""

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

    async def hold_out(self, key: str, record: HeldOutKey) -> None:
        """Record that a key is held out, unless it is revoked."""
        while True:
            entry = await self._bucket.get(key)
            if isinstance(_read(entry), RevokedKey):
                return
            with contextlib.suppress(WrongRevision):
                await self._bucket.update(key, msgspec.json.encode(record), entry.revision if entry else 0)
                return

    async def revoked(self) -> dict[str, RevokedKey | HeldOutKey]:
        """Return the revoked keys, and the keys that are or were held out."""
        read = {key: _read(entry) for key, entry in (await self._bucket.entries()).items()}
        return {key: record for key, record in read.items() if isinstance(record, RevokedKey | HeldOutKey)}

    async def forget_expired(self, now_ms: int) -> None:
        """Delete the tokens and revocations that are not needed any more."""
        for key, entry in (await self._bucket.entries()).items():
            if _is_over(_read(entry), now_ms):
                await self._bucket.delete(key)


def _is_over(record: _Record | None, now_ms: int) -> bool:
    match record:
        case Token(expires_at_ms=end_ms):
            return end_ms + _TOKEN_KEPT_MS < now_ms
        case RevokedKey(until_s=end_s):
            return end_s * 1000 < now_ms
        case HeldOutKey(until_s=end_s):
            return (end_s + _REMEMBERED_S) * 1000 < now_ms
        case None:
            return False


def _read(entry: Entry | None) -> _Record | None:
    if entry is None:
        return None
    try:
        record: _Record = msgspec.json.decode(entry.value, type=_Record)
    except UNREADABLE as error:
        logger().error("record of a key cannot be read", key=entry.key, error=str(error))
        return None
    return record
