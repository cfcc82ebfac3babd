"""The bucket of public keys: tokens of hosts that may join, tokens of persons, revoked keys, and keys that are held out."""

from __future__ import annotations

import contextlib
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
#: How pauses grow: their upper bound in seconds, the factor from one pause to the next, and the number of seconds after a pause for
#: which it is remembered. After a flood in this time, the next pause is longer.
_LONGEST_PAUSE_S: Final = 3_600
_PAUSES_GROW: Final = 4
_REMEMBERED_S: Final = 3_600


class Token(msgspec.Struct, frozen=True, tag="token"):
    """A token with which one host can join, as JSON in the bucket under the public key of the token."""

    node: NodeName
    tree: TreeName
    terms: NodeTerms
    expires_at_ms: int
    #: The public key of the node that joined with the token; empty: unused.
    used_by: PublicKey = ""
    #: True if no host can join with the token any more: a host joined by a newer token of the node, or the node was shut out or removed.
    ended: bool = False


class PersonToken(msgspec.Struct, frozen=True, tag="person"):
    """A token of a person, as JSON in the bucket under the public key of the token."""

    user: UserName
    name: str
    read_only: bool
    created_at_ms: int
    expires_at_ms: int
    #: Public key of the credential with which the person made the token. When that key is revoked, so is the token.
    own_key: PublicKey

    @property
    def revoked(self) -> RevokedKey:
        """The record that replaces the token when the token is revoked. The record is kept until the token would have expired."""
        return RevokedKey(NodeName(""), self.expires_at_ms // 1000 + 1, self.user)


class RevokedKey(msgspec.Struct, frozen=True, tag="revoked"):
    """A revoked key of a node or of a token, as JSON in the bucket under that key."""

    #: Node that had the key; empty for the key of a token.
    node: NodeName
    #: Unix time in seconds. JWTs for the key that were signed up to this time are invalid. No JWT is signed for the key after its
    #: revocation.
    until_s: int
    #: Person who had the token; empty for the key of a node.
    user: UserName = UserName("")


class HeldOutKey(msgspec.Struct, frozen=True, tag="held_out"):
    """A key that is revoked for a pause, as JSON in the bucket under that key.

    If the key belonged to a host's token, this record has replaced the token for good.
    """

    #: Kind and name of the holder, such as `user anna`.
    party: str
    why: str
    #: Unix time in seconds at which the pause ends.
    until_s: int
    pause_s: int


Record = Token | PersonToken | RevokedKey | HeldOutKey


def next_pause(known: Record | None, party: str, why: str, *, first_s: int, now_s: int) -> HeldOutKey:
    """Return the record of a pause that begins now. If the key's previous pause ended only recently, the new pause is longer than it."""
    pause_s = first_s
    if isinstance(known, HeldOutKey) and now_s <= known.until_s + _REMEMBERED_S:
        pause_s = max(first_s, min(_LONGEST_PAUSE_S, _PAUSES_GROW * known.pause_s))
    return HeldOutKey(party, why, now_s + pause_s, pause_s)


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
            if token.ended:
                state = "replaced by a newer token, or ended together with its node"
                return WrongState("token", f"for {token.node}", state, "a new token (`headrace node token`)")
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

    async def end_tokens(self, node: NodeName, *, replaced_by: str = "") -> None:
        """End all tokens of a node, or those that are not newer than the token `replaced_by`, which itself stays."""
        entries = await self._bucket.entries()
        newest = _read(entries.get(replaced_by))
        for key, entry in entries.items():
            token = _read(entry)
            if not isinstance(token, Token) or token.node != node or token.ended or key == replaced_by:
                continue
            if isinstance(newest, Token) and token.expires_at_ms > newest.expires_at_ms:
                continue
            # If the record has changed meanwhile, the key is held out, or the token has expired and was deleted: it is no token any more.
            with contextlib.suppress(WrongRevision):
                ended = msgspec.structs.replace(token, ended=True)
                await self._bucket.update(key, msgspec.json.encode(ended), entry.revision)

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

    async def hold_out(self, key: str, record: HeldOutKey) -> None:
        """Record that a key is held out, unless it is revoked already.

        If the key is that of a person's token, the token is revoked for good instead.
        """
        while True:
            entry = await self._bucket.get(key)
            match _read(entry):
                case RevokedKey():
                    return
                case PersonToken() as token:
                    data = msgspec.json.encode(token.revoked)
                case _:
                    data = msgspec.json.encode(record)
            with contextlib.suppress(WrongRevision):
                await self._bucket.update(key, data, entry.revision if entry else 0)
                return

    async def forget_expired(self, now_ms: int) -> None:
        """Delete the tokens and revocations that are not needed any more."""
        for key, entry in (await self._bucket.entries()).items():
            if _is_over(_read(entry), now_ms):
                await self._bucket.delete(key)


def revoked_in(records: Mapping[str, Record], gone: Mapping[str, int]) -> dict[str, int]:
    """Return the revoked keys and the keys that are held out, each with the Unix time in seconds up to which it is revoked.

    `gone` are the keys that the server has revoked already. If the key of a person's credential is among them, the tokens that were
    made with this credential are revoked too, but not if the credential is only held out for a pause.
    """
    found = {}
    for key, record in records.items():
        match record:
            case RevokedKey(until_s=until_s) | HeldOutKey(until_s=until_s):
                found[key] = until_s
            case PersonToken():
                until_s, holder = gone.get(record.own_key, 0), records.get(record.own_key)
                is_pause = isinstance(holder, HeldOutKey) and until_s <= holder.until_s
                if not is_pause and until_s * 1000 >= record.created_at_ms:
                    found[key] = record.revoked.until_s
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
        case HeldOutKey(until_s=end_s):
            return (end_s + _REMEMBERED_S) * 1000 < now_ms
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
