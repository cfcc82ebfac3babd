"""Credential files for a server in operator mode: a JWT, and the seed of a key."""

from __future__ import annotations

from typing import Final

import msgspec

_JWT_LINES: Final = ("-----BEGIN NATS USER JWT-----", "------END NATS USER JWT------")
_SEED_LINES: Final = ("-----BEGIN USER NKEY SEED-----", "------END USER NKEY SEED------")

#: Prefix of the server login of a person; the person's name follows.
PERSON_LOGIN: Final = "person-"


class KeyCredential(msgspec.Struct, frozen=True, kw_only=True):
    """The JWT and key seed with which this process authenticates to a server in operator mode. `repr` shows no part of them."""

    jwt: str
    seed: str

    def __repr__(self) -> str:
        return "KeyCredential(...)"

    def text(self) -> str:
        """Return the content of the credential file, in the format of all NATS clients."""
        blocks = ((_JWT_LINES, self.jwt), (_SEED_LINES, self.seed))
        return "\n\n".join(f"{begin}\n{value}\n{end}" for (begin, end), value in blocks) + "\n"


def read_key_credential(text: str) -> KeyCredential | None:
    """Read the content of a NATS credential file. Return None if the JWT or the seed is missing."""
    jwt, seed = (_between(text, lines) for lines in (_JWT_LINES, _SEED_LINES))
    return KeyCredential(jwt=jwt, seed=seed) if jwt and seed else None


def _between(text: str, lines: tuple[str, str]) -> str:
    return text.partition(lines[0])[2].partition(lines[1])[0].strip()
