"""Logins of browsers at a service for everybody: the keys of their sessions. Pure.

The key of a session is computed from a secret of this process and from the random name of the login. So nothing needs to be kept for a
login that has begun, however many strangers begin logins. No key survives the process.
"""

from __future__ import annotations

import hmac
from typing import Final

from headrace.access import jwt
from headrace.access.key_credential import KeyCredential
from headrace.access.nkeys import KeyKind, SigningKey
from headrace.access.token_text import read_token_text, token_text
from headrace.access.web_login import FinishLogin, LoginBegun
from headrace.errors import BadInput
from headrace.ids import user_name
from headrace.wire.access_tokens import proof_of

_PURPOSE: Final = b"headrace web login "


class Logins:
    """Makes the keys of sessions, and the tokens that contain these keys."""

    def __init__(self, secret: bytes) -> None:
        """`secret` are 32 random bytes, which nobody else has."""
        self._secret = secret

    def begin(self, user: str, login: str) -> LoginBegun:
        """Return the key of a session. `login` is a random name that nobody can guess. Raises `BadInput`."""
        key = self._key(login)
        return LoginBegun(login, key.public, key.sign(proof_of(user_name(user), key.public)))

    def finish(self, request: FinishLogin) -> str:
        """Return the text of the token of a session. Raises `BadInput` if the JWT in the request is not for the key of this login.

        This does not check whether the JWT is genuine: the NATS server of the cluster does.
        """
        key = self._key(request.login)
        try:
            text = token_text(KeyCredential(jwt=request.jwt, seed=key.seed))
            read_token_text(text)
            is_own = jwt.claims_of(request.jwt).get("sub") == key.public
        except (ValueError, BadInput):
            is_own = False
        if not is_own:
            raise BadInput("jwt", "(a credential)", "the JWT of a token for the key of this login")
        return text

    def _key(self, login: str) -> SigningKey:
        return SigningKey(KeyKind.USER, hmac.digest(self._secret, _PURPOSE + login.encode(), "sha256"))
