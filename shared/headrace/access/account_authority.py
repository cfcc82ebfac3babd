"""The keys by which admission lets hosts join, and shuts them out again.

A user's word is signed by a signing key of the account. A server believes the word about the account, which has the revocations, from
an operator's key alone, so there is a signing key of the operator, too. The user of the server's own account who hands that word over
may do so for this one account: with all of it nobody touches another account, nor reads what the server tells of itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from headrace.access import jwt
from headrace.access.key_credential import KeyCredential
from headrace.access.nkeys import SigningKey
from headrace.access.permissions import Party
from headrace.errors import BadInput
from headrace.wire import subjects

#: The prefix of the inboxes of whoever hands over the word about an account.
OPERATOR_INBOX: Final = subjects.inbox("service", "operator")


class AccountAuthority(msgspec.Struct, frozen=True, kw_only=True):
    """The content of the file that admission alone holds. `repr` shows no secret of it."""

    #: The public key of the account.
    account: str
    account_seed: str
    operator_seed: str
    #: Of a user of the server's own account.
    system: KeyCredential

    def user_word(self, public: str, name: str, party: Party, *, now_s: int, lifetime_s: int) -> str:
        """Signs the word about a party with this key."""
        claims = dict(jwt.user_claims(public, name, party))
        claims["nats"] = {**claims["nats"], "issuer_account": self.account}
        claims["exp"] = now_s + lifetime_s
        return jwt.signed(SigningKey.from_seed(self.account_seed), claims, now_s)

    def account_word(self, known: str, revoked: Mapping[str, int], now_s: int) -> str | None:
        """Signs the word about the account that revokes these keys, too. None if the `known` one says it already.

        A revocation is left out once its second is over: what was signed for that key has expired by then.
        """
        claims = jwt.claims_of(known)
        lasting = {key: until_s for key, until_s in jwt.revoked_by(claims).items() if until_s >= now_s}
        if lasting == {**lasting, **revoked} == dict(jwt.revoked_by(claims)):
            return None
        base = {**claims, "nats": {**claims["nats"], "revocations": lasting}}
        return next_word(SigningKey.from_seed(self.operator_seed), known, jwt.with_revoked(base, revoked), now_s)

    def __repr__(self) -> str:
        return f"AccountAuthority({self.account}, ...)"


def next_word(operator: SigningKey, known: str, claims: jwt.Claims, now_s: int) -> str:
    """Signs the word that follows a known one: of two of one second the server keeps any."""
    return jwt.signed(operator, claims, max(now_s, jwt.claims_of(known)["iat"] + 1))


def read_account_authority(text: str, place: str) -> AccountAuthority:
    """Reads the content of the file. Raises `BadInput`, which shows no secret."""
    try:
        read = msgspec.json.decode(text, type=AccountAuthority)
    except msgspec.DecodeError:
        raise BadInput(place, "(secret)", "the authority of an account, as `headrace cluster init` wrote it") from None
    for seed in (read.account_seed, read.operator_seed, read.system.seed):
        SigningKey.from_seed(seed)
    return read


def word_update(account: str) -> str:
    """The subject on which the server takes a new word about an account."""
    return f"$SYS.REQ.ACCOUNT.{account}.CLAIMS.UPDATE"


def word_lookup(account: str) -> str:
    """The subject on which the server tells the word about an account that it knows."""
    return f"$SYS.REQ.ACCOUNT.{account}.CLAIMS.LOOKUP"
