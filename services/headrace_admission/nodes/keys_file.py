"""The file with the keys that only admission holds."""

from __future__ import annotations

from headrace.access.account_authority import AccountAuthority, read_account_authority
from headrace.bus.credential_files import read_secret
from headrace.errors import BadInput
from headrace_admission.settings import AdmissionSettings


def read_authority(settings: AdmissionSettings) -> AccountAuthority | None:
    """Return the keys by which hosts join, or None if there are none. Raises `BadInput`."""
    file = settings.authority_file
    if not file and settings.groups_of_login:
        expected = "False, or a file in authority_file, which `headrace cluster init --operator` writes"
        raise BadInput("groups_of_login", settings.groups_of_login, expected)
    return read_account_authority(read_secret("authority_file", file), file) if file else None
