"""The text of a token: what it says, how long it is, and what else is refused."""

from __future__ import annotations

import zlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.access import jwt
from headrace.access.key_credential import PERSON_LOGIN, KeyCredential
from headrace.access.nkeys import KeyKind, SigningKey
from headrace.access.permissions import Party
from headrace.access.routes import PartyKind, Reach
from headrace.access.token_text import LONGEST, PREFIX, _checksum, read_token_text, token_text
from headrace.errors import BadInput

ACCOUNT, USER = SigningKey(KeyKind.ACCOUNT, b"a" * 32), SigningKey(KeyKind.USER, b"u" * 32)


def a_credential(name: str = "anna") -> KeyCredential:
    party = Party(kind=PartyKind.PERSON, name=name, reach=Reach.CHANGE)
    claims = {**jwt.user_claims(USER.public, f"{PERSON_LOGIN}{name}", party), "exp": 2_000}
    return KeyCredential(jwt=jwt.signed(ACCOUNT, claims, 1_000), seed=USER.seed)


def test_a_token_says_its_credential_its_person_and_its_end() -> None:
    credential = a_credential()
    read = read_token_text(token_text(credential))
    assert (read.credential, read.user, read.expires_at_s) == (credential, "anna", 2_000)
    assert credential.seed not in repr(read)
    assert jwt.is_signed_by(read.credential.jwt, ACCOUNT.public)


def test_a_token_of_the_longest_name_fits_into_a_header() -> None:
    assert len(token_text(a_credential("a" * 63))) < LONGEST / 2


@given(st.data())
def test_a_token_with_a_changed_letter_is_told_from_a_whole_one(data: st.DataObject) -> None:
    text = token_text(a_credential())
    place = data.draw(st.integers(0, len(text) - 1) | st.just(len(text) - 1))
    letter = data.draw(st.sampled_from("Ab0_-+ ").filter(lambda letter: letter != text[place]))
    with pytest.raises(BadInput) as refused:
        read_token_text(text[:place] + letter + text[place + 1 :])
    assert USER.seed not in str(refused.value)


@pytest.mark.parametrize("foreign", [" ", "\n", "=", "+", "!"])
def test_a_token_has_one_text_only(foreign: str) -> None:
    text = token_text(a_credential())
    for other in (text + foreign, text[:40] + foreign + text[40:]):
        with pytest.raises(BadInput):
            read_token_text(other)


@pytest.mark.parametrize(
    "content",
    [
        ["seed", zlib.compress(b"{}\n{}"), b""],
        [USER.seed, b"not compressed", b""],
        # It would unpack to far more than a JWT may have.
        [USER.seed, zlib.compress(b"{}\n" + b" " * 50_000_000), b""],
        [USER.seed, zlib.compress(b'{}\n{"name": "person-anna", "exp": "never"}'), b""],
        [USER.seed, zlib.compress(b'{}\n{"name": "person-a.b", "exp": 1}'), b""],
        [USER.seed, zlib.compress(b'{}\n{"name": "person-anna", "exp": 1e999}'), b""],
        [USER.seed, zlib.compress(b"{}\n" + b"[" * 30_000), b""],
        {"seed": 1},
    ],
)
def test_what_is_no_token_is_refused_although_its_checksum_is_right(content: object) -> None:
    data = msgspec.msgpack.encode(content)
    with pytest.raises(BadInput, match="headrace token create"):
        read_token_text(PREFIX + jwt.base64_of(data + _checksum(data)))


@given(st.text(max_size=200))
def test_any_text_is_refused_by_words(text: str) -> None:
    for each in (text, PREFIX + text):
        with pytest.raises(BadInput, match="headrace token create"):
            read_token_text(each)
