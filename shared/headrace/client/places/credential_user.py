"""The user in a person's credential."""

from __future__ import annotations

from headrace.access.key_credential import PERSON_LOGIN, KeyCredential
from headrace.bus import Credential
from headrace.ids import user_name


def person_in(credential: Credential | KeyCredential | None) -> str:
    """Return the user in a credential, or an empty string if the credential allows any user name. Raises `BadInput`."""
    if credential is None:
        return ""
    if isinstance(credential, Credential):
        holder = credential.user
    else:
        from headrace.access import jwt  # cryptography takes longer to import than everything else here

        holder = str(jwt.claims_of(credential.jwt).get("name"))
    return user_name(holder.removeprefix(PERSON_LOGIN)) if holder.startswith(PERSON_LOGIN) else ""
