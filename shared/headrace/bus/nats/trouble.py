"""Errors that nats-py reports, told apart."""

from __future__ import annotations

import re

import msgspec

#: Also `subscription to "x" using queue "q"` and `publish with reply of "x"`.
_PERMISSION = re.compile(r'permissions violation for (?P<what>publish|subscription)[^"]*"(?P<subject>[^"]*)"')
#: Not `authentication timeout`: that is a slow machine, and trying again helps.
_CREDENTIAL = re.compile(r"authorization violation|authentication (expired|revoked)|credentials? (expired|revoked)")


class PermissionViolation(msgspec.Struct, frozen=True):
    """The server refused one publication or subscription, and the connection goes on."""

    publish: bool
    #: nats-py gives it in lower case.
    subject: str


class CredentialLost(msgspec.Struct, frozen=True):
    """The server does not take our credential, or no longer."""

    text: str


class ConnectionTrouble(msgspec.Struct, frozen=True):
    """Anything else: a connection that broke, a server that is away."""

    text: str


def understand(error: Exception) -> PermissionViolation | CredentialLost | ConnectionTrouble:
    """Tells what an error of the connection means."""
    text = str(error) or type(error).__name__
    refused = _PERMISSION.search(text.lower())
    if refused is not None:
        return PermissionViolation(publish=refused["what"] == "publish", subject=refused["subject"])
    if _CREDENTIAL.search(text.lower()):
        return CredentialLost(text)
    return ConnectionTrouble(text)
