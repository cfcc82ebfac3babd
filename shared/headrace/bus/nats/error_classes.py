"""Classification of the errors that nats-py reports."""

from __future__ import annotations

import re

import msgspec

#: Pattern of a refusal. It also matches `subscription to "x" using queue "q"` and `publish with reply of "x"`.
_PERMISSION = re.compile(r'permissions violation for (?P<what>publish|subscription)[^"]*"(?P<subject>[^"]*)"')
#: Pattern of a refused credential. It does not match `authentication timeout`: this error means that a machine is slow,
#: and trying again helps.
_CREDENTIAL = re.compile(r"authorization violation|authentication (expired|revoked)|credentials? (expired|revoked)")


class PermissionViolation(msgspec.Struct, frozen=True):
    """The server refused one publication or subscription. The connection continues."""

    publish: bool
    #: Subject of the publication or subscription in lower case, as nats-py reports it.
    subject: str


class CredentialLost(msgspec.Struct, frozen=True):
    """The server does not accept this process's credential, or no longer accepts it."""

    text: str


class ConnectionTrouble(msgspec.Struct, frozen=True):
    """Any other error: a connection that broke, a server that is away."""

    text: str


def understand(error: Exception) -> PermissionViolation | CredentialLost | ConnectionTrouble:
    """Classify an error of the connection."""
    text = str(error) or type(error).__name__
    refused = _PERMISSION.search(text.lower())
    if refused is not None:
        return PermissionViolation(publish=refused["what"] == "publish", subject=refused["subject"])
    if _CREDENTIAL.search(text.lower()):
        return CredentialLost(text)
    return ConnectionTrouble(text)
