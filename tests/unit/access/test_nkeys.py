"""Seeds of NATS as they are written, and what is said of one that is none."""

from __future__ import annotations

import pytest

from headrace.access.nkeys import KeyKind, SigningKey
from headrace.errors import BadInput

SECRET = bytes(range(32))


@pytest.mark.parametrize(("kind", "letter"), [(KeyKind.OPERATOR, "O"), (KeyKind.ACCOUNT, "A"), (KeyKind.USER, "U")])
def test_a_seed_tells_its_kind_and_makes_the_same_key(kind: KeyKind, letter: str) -> None:
    key = SigningKey(kind, SECRET)
    read = SigningKey.from_seed(key.seed)

    assert (key.seed[:2], key.public[0]) == ("S" + letter, letter)
    assert (read.kind, read.public, read.sign(b"nonce")) == (kind, key.public, key.sign(b"nonce"))


def mistyped(seed: str) -> str:
    return seed[:20] + ("A" if seed[20] != "A" else "B") + seed[21:]


@pytest.mark.parametrize("change", [mistyped, lambda seed: seed[:-3], lambda seed: "", lambda seed: "no seed!"])
def test_what_is_no_seed_is_refused_and_not_shown(change: object) -> None:
    assert callable(change)
    seed = change(SigningKey(KeyKind.USER, SECRET).seed)
    with pytest.raises(BadInput, match="checksum") as refused:
        SigningKey.from_seed(seed)
    assert not seed or seed not in str(refused.value)


def test_a_public_key_is_no_seed() -> None:
    with pytest.raises(BadInput):
        SigningKey.from_seed(SigningKey(KeyKind.USER, SECRET).public)
