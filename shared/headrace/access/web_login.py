"""Requests by which the command line logs a browser in at a web service, as JSON over HTTPS.

1. `BeginLogin`: the web service makes a key for the session, and answers with the public key and its proof.
2. The command line has admission sign a token for this key.
3. `FinishLogin`: the command line hands the JWT of the token over, and gets a ticket, which lets one browser in.

The secret of the key stays in the web service.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from headrace.wire.access_tokens import Signature
from headrace.wire.joining import CredentialText
from headrace.wire.nodes import PublicKey

#: Paths of the two requests.
BEGIN_PATH: Final = "/login"
FINISH_PATH: Final = "/login/finish"

LoginName = Annotated[str, msgspec.Meta(min_length=1, max_length=64)]


class BeginLogin(msgspec.Struct, frozen=True):
    """Make a key for a session of this person."""

    #: User name of the person. The key signs that its token is for this person.
    user: Annotated[str, msgspec.Meta(max_length=64)]


class LoginBegun(msgspec.Struct, frozen=True):
    """The key of a session."""

    #: Name of this login, a secret between the command line and the web service.
    login: LoginName
    #: Public key of the session.
    key: PublicKey
    #: Signature of `headrace.wire.access_tokens.proof_of` by that key.
    proof: Signature


class FinishLogin(msgspec.Struct, frozen=True):
    """Begin the session."""

    login: LoginName
    #: JWT that admission signed for the key of this login.
    jwt: CredentialText


class LoginFinished(msgspec.Struct, frozen=True):
    """The way in for one browser."""

    #: Works once, within `lifetime_s`.
    ticket: str
    #: Seconds until the ticket expires.
    lifetime_s: int
