"""Signed words of the operator and of the account, as a NATS server reads them: the rights of each credential.

A server in operator mode knows the operator's public key alone. The operator vouches for accounts, and an account for its users.
Each user holds the seed of a key of its own. So a new user needs no word to the server.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from headrace.access.nkeys import SigningKey
from headrace.access.permissions import Party, Permissions, permissions_of
from headrace.errors import BadInput

_HEADER: Final = {"typ": "JWT", "alg": "ed25519-nkey"}
_VERSION: Final = 2
_NO_LIMIT: Final = -1
_LIMITS: Final = ("subs", "data", "payload", "imports", "exports", "conn", "leaf")
_JETSTREAM_LIMITS: Final = ("mem_storage", "disk_storage", "streams", "consumer")

Claims = Mapping[str, Any]


def operator_claims(operator: SigningKey, system_account: str, signing_keys: Sequence[str] = ()) -> Claims:
    """The claims of the operator, who names the server's own account, and keys that sign in the operator's place."""
    said = {"type": "operator", "system_account": system_account, "signing_keys": list(signing_keys)}
    return _claims(operator.public, "headrace", said)


def account_claims(
    account: SigningKey,
    name: str,
    revoked: Mapping[str, int],
    *,
    has_jetstream: bool,
    signing_keys: Sequence[str] = (),
) -> Claims:
    """The claims of an account, with keys that sign in its place.

    What was signed for a key of `revoked` by its second counts no more.
    """
    limits: dict[str, Any] = dict.fromkeys(_LIMITS + (_JETSTREAM_LIMITS if has_jetstream else ()), _NO_LIMIT)
    said = {"type": "account", "limits": {**limits, "wildcards": True}, "signing_keys": list(signing_keys)}
    return with_revoked(_claims(account.public, name, said), revoked)


def with_revoked(account: Claims, revoked: Mapping[str, int]) -> Claims:
    """The claims of an account that revoke these keys beside those which they revoke already."""
    nats = account["nats"]
    return {**account, "nats": {**nats, "revocations": dict(sorted({**revoked_by(account), **revoked}.items()))}}


def revoked_by(account: Claims) -> Mapping[str, int]:
    """The keys that the claims of an account revoke, each with the second up to which."""
    revoked: Mapping[str, int] = account["nats"].get("revocations", {})
    return revoked


def user_claims(public: str, name: str, party: Party) -> Claims:
    """The claims of the credential of a party with this key, with its rights by the table of subjects."""
    return _user_claims(public, name, permissions_of(party))


def system_claims(public: str, name: str, publish: tuple[str, ...], inbox: str) -> Claims:
    """The claims of a user of the server's own account, who may publish on these subjects and hear the answers."""
    return _user_claims(public, name, Permissions(publish, (f"{inbox}.>",)))


def signed(issuer: SigningKey, claims: Claims, now_s: int) -> str:
    """The word of an issuer, as of this second."""
    said = {**claims, "iat": now_s, "iss": issuer.public}
    # Its own name is a hash of it.
    digest = hashlib.new("sha512_256", _json(said)).digest()
    said["jti"] = base64.b32encode(digest).decode().rstrip("=")
    body = b".".join((_base64(_json(_HEADER)), _base64(_json(said))))
    return b".".join((body, _base64(issuer.sign(body)))).decode()


def claims_of(jwt: str) -> Claims:
    """The claims in a word, whose signature is the server's to check. Raises `BadInput`."""
    try:
        middle = jwt.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(middle + "=" * (-len(middle) % 4)))
    except (IndexError, ValueError):
        raise BadInput("JWT", jwt[:20] + "…", "three parts in base64, the second with claims in JSON") from None
    if not isinstance(claims, dict):
        raise BadInput("JWT", jwt[:20] + "…", "claims in JSON")
    return claims


def says(jwt: str, claims: Claims, issuer: SigningKey) -> bool:
    """True if a word has these claims by this issuer, whenever it was signed."""
    known = claims_of(jwt)
    return {**known, "iat": 0, "jti": ""} == {**claims, "iss": issuer.public, "iat": 0, "jti": ""}


def _user_claims(public: str, name: str, own: Permissions) -> Claims:
    rights = {"pub": {"allow": list(own.publish)}, "sub": {"allow": list(own.subscribe)}}
    # The size of a message is bounded by the server for all.
    limits = {"subs": own.most_subscriptions, "data": _NO_LIMIT, "payload": _NO_LIMIT}
    return _claims(public, name, {"type": "user", **rights, **limits})


def _claims(public: str, name: str, nats: Mapping[str, Any]) -> Claims:
    return {"sub": public, "name": name, "nats": {**nats, "version": _VERSION}}


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), sort_keys=True).encode()


def _base64(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")
