"""Signed JWTs of the operator and of the account, in the form that a NATS server reads: they carry the permissions of each
credential.

A server in operator mode knows only the operator's public key. The operator signs accounts, and an account signs its users.
Each user holds the seed of its own key. So the server need not be notified of a new user.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from headrace.access.nkeys import KeyKind, SigningKey, is_signed
from headrace.access.permissions import Party, Permissions, permissions_of
from headrace.errors import BadInput
from headrace.ids import GroupName, group_name

_HEADER: Final = {"typ": "JWT", "alg": "ed25519-nkey"}
_VERSION: Final = 2
_NO_LIMIT: Final = -1
_LIMITS: Final = ("subs", "data", "payload", "imports", "exports", "conn", "leaf")
_JETSTREAM_LIMITS: Final = ("mem_storage", "disk_storage", "streams", "consumer")

#: Prefix of the tags in a user's JWT that each name a group of the user.
_GROUP_TAG: Final = "group:"

JwtClaims = Mapping[str, Any]


def operator_claims(operator: SigningKey, system_account: str, signing_keys: Sequence[str] = ()) -> JwtClaims:
    """Return the claims of the operator: the server's system account, and the keys that may sign in the operator's place."""
    said = {"type": "operator", "system_account": system_account, "signing_keys": list(signing_keys)}
    return _claims(operator.public, "headrace", said)


def account_claims(
    account: SigningKey,
    name: str,
    revoked: Mapping[str, int],
    *,
    has_jetstream: bool,
    signing_keys: Sequence[str] = (),
) -> JwtClaims:
    """Return the claims of an account, with the keys that may sign in its place.

    `revoked` maps a key to a Unix time in seconds: JWTs issued for the key up to that time are invalid.
    """
    limits: dict[str, Any] = dict.fromkeys(_LIMITS + (_JETSTREAM_LIMITS if has_jetstream else ()), _NO_LIMIT)
    said = {"type": "account", "limits": {**limits, "wildcards": True}, "signing_keys": list(signing_keys)}
    return with_revoked(_claims(account.public, name, said), revoked)


def with_revoked(account: JwtClaims, revoked: Mapping[str, int]) -> JwtClaims:
    """Return the claims of an account with these revocations added. If the account already revokes a key, the later time counts."""
    known = revoked_by(account)
    merged = {key: max(known.get(key, 0), revoked.get(key, 0)) for key in sorted({*known, *revoked})}
    return {**account, "nats": {**account["nats"], "revocations": merged}}


def revoked_by(account: JwtClaims) -> Mapping[str, int]:
    """Return the keys that the claims of an account revoke, each with the Unix time in seconds up to which JWTs are revoked."""
    revoked: Mapping[str, int] = account["nats"].get("revocations", {})
    return revoked


def signers_of(account: JwtClaims) -> frozenset[str]:
    """Return the public keys that may sign the JWTs of an account's users: its own key and its signing keys."""
    return frozenset({str(account["sub"]), *map(str, account["nats"].get("signing_keys", ()))})


def user_claims(public: str, name: str, party: Party) -> JwtClaims:
    """Return the claims of a party's credential with this public key, with the permissions from the table of subjects."""
    claims = _user_claims(public, name, permissions_of(party))
    tags = [f"{_GROUP_TAG}{group}" for group in party.groups]
    return {**claims, "nats": {**claims["nats"], "tags": tags}} if tags else claims


def groups_in(claims: JwtClaims) -> tuple[GroupName, ...]:
    """Return the groups that the claims of a person's credential name. Tags that name no group are left out."""
    found: dict[GroupName, None] = {}
    for tag in claims.get("nats", {}).get("tags") or ():
        with suppress(BadInput):
            if tag.startswith(_GROUP_TAG):
                found[group_name(tag.removeprefix(_GROUP_TAG))] = None
    return tuple(found)


def system_claims(public: str, name: str, publish: tuple[str, ...], inbox: str) -> JwtClaims:
    """Return the claims of a user of the server's system account that may publish on these subjects and receive the answers."""
    return _user_claims(public, name, Permissions(publish, (f"{inbox}.>",)))


def signed(issuer: SigningKey, claims: JwtClaims, now_s: int) -> str:
    """Return a JWT with these claims, signed by `issuer` and issued at `now_s` (Unix time in seconds)."""
    said = {**claims, "iat": now_s, "iss": issuer.public}
    # The JWT's id is a hash of its content.
    digest = hashlib.new("sha512_256", _json(said)).digest()
    said["jti"] = base64.b32encode(digest).decode().rstrip("=")
    body = f"{base64_of(_json(_HEADER))}.{base64_of(_json(said))}"
    return f"{body}.{base64_of(issuer.sign(body.encode()))}"


def claims_of(jwt: str) -> JwtClaims:
    """Return the claims in a JWT without checking its signature, which the server does. Raises `BadInput`."""
    try:
        middle = jwt.split(".")[1]
        claims = json.loads(unbase64(middle))
    except (IndexError, ValueError, RecursionError):
        raise BadInput("JWT", jwt[:20] + "…", "three parts in base64, the second with claims in JSON") from None
    if not isinstance(claims, dict):
        raise BadInput("JWT", jwt[:20] + "…", "claims in JSON")
    return claims


def is_signed_by(jwt: str, account: str) -> bool:
    """True if this key of an account signed the JWT. Raises `BadInput` if it is no JWT."""
    body, _, signature = jwt.rpartition(".")
    if claims_of(jwt).get("iss") != account:
        return False
    try:
        return is_signed(body.encode(), unbase64(signature), account, KeyKind.ACCOUNT)
    except ValueError:
        return False


def says(jwt: str, claims: JwtClaims, issuer: SigningKey) -> bool:
    """True if a JWT has these claims and this issuer. The time at which it was signed does not matter."""
    known = claims_of(jwt)
    return {**known, "iat": 0, "jti": ""} == {**claims, "iss": issuer.public, "iat": 0, "jti": ""}


def _user_claims(public: str, name: str, own: Permissions) -> JwtClaims:
    rights = {"pub": {"allow": list(own.publish)}, "sub": {"allow": list(own.subscribe)}}
    # The size of a message is not limited here, since the server limits it for all users alike.
    limits = {"subs": own.most_subscriptions, "data": _NO_LIMIT, "payload": _NO_LIMIT}
    return _claims(public, name, {"type": "user", **rights, **limits})


def _claims(public: str, name: str, nats: Mapping[str, Any]) -> JwtClaims:
    return {"sub": public, "name": name, "nats": {**nats, "version": _VERSION}}


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), sort_keys=True).encode()


def base64_of(data: bytes) -> str:
    """Return data as a JWT has it: in base64 for addresses, without padding."""
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def unbase64(text: str) -> bytes:
    """Return the data of a part of a JWT. Raises `ValueError` for any text that `base64_of` would not have written.

    Python's decoder ignores foreign characters and the unused bits of the last character, so several texts would have the same data.
    """
    data = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    if base64_of(data) != text:
        raise ValueError("not base64url, or not in its only form")
    return data
