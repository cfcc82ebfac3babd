"""The keys with which admission lets hosts join and revokes their credentials.

A user's JWT is signed by a signing key of the account. The account's JWT lists the revocations, and a server accepts it only with the
signature of an operator's key. So the authority has a signing key of the operator, too. A user of the server's system account sends the
account's JWT to the server. This user may send JWTs for this one account only, and read what the servers report about this account. So even
all these keys together do not allow changing another account, or reading what the server reports about itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from headrace.access import jwt
from headrace.access.key_credential import PERSON_LOGIN, KeyCredential
from headrace.access.nkeys import SigningKey
from headrace.access.permissions import Party
from headrace.errors import BadInput
from headrace.ids import GroupName
from headrace.wire import subjects

#: Inbox prefix of the connection that sends the account's JWT.
OPERATOR_INBOX: Final = subjects.inbox("service", "operator")


class AccountAuthority(msgspec.Struct, frozen=True, kw_only=True):
    """The content of the key file that only admission holds. `repr` shows no secret."""

    #: Public key of the account.
    account: str
    #: Seed of the account's signing key.
    account_seed: str
    #: Seed of a signing key of the operator.
    operator_seed: str
    #: Credential of a user of the server's system account.
    system: KeyCredential

    def user_word(self, public: str, name: str, party: Party, *, now_s: int, lifetime_s: int) -> str:
        """Return a signed user JWT for a party that holds this public key."""
        claims = dict(jwt.user_claims(public, name, party))
        claims["nats"] = {**claims["nats"], "issuer_account": self.account}
        claims["exp"] = now_s + lifetime_s
        return jwt.signed(SigningKey.from_seed(self.account_seed), claims, now_s)

    def own_key(self, word: str, user: str, now_s: int) -> str | None:
        """Return the public key in a JWT with which this person may make tokens, or None if it is no such JWT. Raises `BadInput`."""
        claims = jwt.claims_of(word)
        allowed = claims.get("nats", {}).get("pub", {}).get("allow", ())
        may_make = {subjects.user(name, "token.create") for name in (user, "*")} & set(allowed)
        if not (may_make and jwt.is_signed_by(word, self.account) and claims.get("exp", now_s) >= now_s):
            return None
        return str(claims.get("sub"))

    def groups_in(self, word: str, user: str) -> tuple[GroupName, ...]:
        """Return the groups that a person's credential names; none if the JWT is not signed by this account for the person.

        This does not check whether the credential has expired or was revoked, because the server checks that. Raises `BadInput`.
        """
        claims = jwt.claims_of(word)
        signers = (self.account, SigningKey.from_seed(self.account_seed).public)
        is_of_person = claims.get("name") == f"{PERSON_LOGIN}{user}"
        if not (is_of_person and any(jwt.is_signed_by(word, key) for key in signers)):
            return ()
        return jwt.groups_in(claims)

    def account_jwt(self, known: str, revoked: Mapping[str, int], now_s: int) -> str | None:
        """Return a signed JWT of the account that also revokes these keys, or None if the `known` JWT needs no change.

        Revocations whose time has passed are left out. At that time all JWTs for the key have expired, or the pause for which the key was
        revoked is over.
        """
        claims = jwt.claims_of(known)
        added = jwt.with_revoked(claims, revoked)
        lasting = {key: until_s for key, until_s in jwt.revoked_by(added).items() if until_s >= now_s}
        if lasting == dict(jwt.revoked_by(claims)):
            return None
        wanted = {**claims, "nats": {**claims["nats"], "revocations": lasting}}
        return next_jwt(SigningKey.from_seed(self.operator_seed), known, wanted, now_s)

    def __repr__(self) -> str:
        return f"AccountAuthority({self.account}, ...)"


def next_jwt(operator: SigningKey, known: str, claims: jwt.JwtClaims, now_s: int) -> str:
    """Sign the JWT that replaces `known`.

    It is issued at least one second later than `known`, because the server may keep either of two JWTs of the same second.
    """
    return jwt.signed(operator, claims, max(now_s, jwt.claims_of(known)["iat"] + 1))


def read_account_authority(text: str, place: str) -> AccountAuthority:
    """Decode the content of the key file. Raises `BadInput`, which shows no secret."""
    try:
        read = msgspec.json.decode(text, type=AccountAuthority)
    except msgspec.DecodeError:
        raise BadInput.because(
            place, "the key file is damaged. Restore it as `headrace cluster init` wrote it"
        ) from None
    for seed in (read.account_seed, read.operator_seed, read.system.seed):
        SigningKey.from_seed(seed)
    return read


def jwt_update_subject(account: str) -> str:
    """Return the subject on which the server accepts a new JWT of an account."""
    return f"$SYS.REQ.ACCOUNT.{account}.CLAIMS.UPDATE"


def jwt_lookup_subject(account: str) -> str:
    """Return the subject on which the server returns the JWT of an account."""
    return f"$SYS.REQ.ACCOUNT.{account}.CLAIMS.LOOKUP"


def received_subject(account: str) -> str:
    """Return the subject on which each server returns how much it received from the connections of an account."""
    return f"$SYS.REQ.ACCOUNT.{account}.STATZ"


def connections_subject(account: str) -> str:
    """Return the subject on which each server returns the connections of an account."""
    return f"$SYS.REQ.ACCOUNT.{account}.CONNZ"
