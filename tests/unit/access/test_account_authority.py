"""The word about an account: what admission adds to it, and what it leaves out."""

from __future__ import annotations

import pytest

from headrace.access import jwt
from headrace.access.account_authority import AccountAuthority, read_account_authority
from headrace.access.key_credential import KeyCredential
from headrace.access.nkeys import KeyKind, SigningKey
from headrace.errors import BadInput

OPERATOR = SigningKey(KeyKind.OPERATOR, bytes(32))
ACCOUNT = SigningKey(KeyKind.ACCOUNT, bytes(range(32)))
USER = SigningKey(KeyKind.USER, bytes(32))
AUTHORITY = AccountAuthority(
    account=ACCOUNT.public,
    account_seed=ACCOUNT.seed,
    operator_seed=OPERATOR.seed,
    system=KeyCredential(jwt="", seed=USER.seed),
)
FOREVER_S = 2**33


def a_word(revoked: dict[str, int], now_s: int = 100) -> str:
    return jwt.signed(OPERATOR, jwt.account_claims(ACCOUNT, "headrace", revoked, has_jetstream=True), now_s)


def revoked_in(word: str | None) -> dict[str, int]:
    assert word is not None
    return dict(jwt.revoked_by(jwt.claims_of(word)))


def test_a_word_keeps_what_others_revoked_and_all_else_and_is_newer_whatever_the_clock_says() -> None:
    known = a_word({"old": FOREVER_S})
    word = AUTHORITY.account_jwt(known, {"new": 500}, 50)

    assert revoked_in(word) == {"old": FOREVER_S, "new": 500}
    assert word is not None
    before, after = jwt.claims_of(known), jwt.claims_of(word)
    assert after["nats"]["limits"] == before["nats"]["limits"]
    assert (after["sub"], after["iat"]) == (ACCOUNT.public, before["iat"] + 1)


def test_a_word_that_says_it_already_is_not_written_anew() -> None:
    assert AUTHORITY.account_jwt(a_word({"one": 500, "two": FOREVER_S}), {"one": 500}, 200) is None
    assert AUTHORITY.account_jwt(a_word({}), {}, 200) is None


def test_a_revocation_is_left_out_once_all_that_was_signed_before_has_expired() -> None:
    known = a_word({"one": 500, "two": FOREVER_S})

    assert AUTHORITY.account_jwt(known, {}, 500) is None
    assert revoked_in(AUTHORITY.account_jwt(known, {}, 501)) == {"two": FOREVER_S}


@pytest.mark.parametrize("text", ["", "{}", '{"account": "A", "account_seed": "x"}', AUTHORITY.account_seed])
def test_a_file_that_is_no_authority_is_named_and_not_shown(text: str) -> None:
    with pytest.raises(BadInput, match=r"authority\.json.*headrace cluster init") as refused:
        read_account_authority(text, "authority.json")
    assert not text or text not in str(refused.value)
    assert AUTHORITY.operator_seed not in repr(AUTHORITY)
