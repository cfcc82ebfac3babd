"""Reading of credential files, which must be readable by their owner only."""

from __future__ import annotations

import os

from headrace.access.key_credential import KeyCredential, read_key_credential
from headrace.bus.nats.connecting import Credential
from headrace.errors import BadInput
from headrace.files.bounded import SMALL_FILE_BYTES, read_bounded


def read_credential(path: str) -> Credential | KeyCredential | None:
    """Read a file that holds `user:password`, or a user JWT of a NATS account with its key. Return None if `path` is empty.

    Raises `BadInput` if the file is missing, is readable by others, or holds anything else.
    """
    if not path:
        return None
    text = read_secret("credential_file", path)
    with_key = read_key_credential(text)
    if with_key is not None:
        return with_key
    user, colon, password = text.partition(":")
    if not (user and colon and password) or "\n" in text:
        raise BadInput("credential_file", path, "one line, user:password, or a credential of NATS with its key")
    return Credential(user=user, password=password)


def read_secret(setting: str, path: str) -> str:
    """Read the file that a setting names. Raises `BadInput` if it is missing or readable by others."""
    try:
        status = os.stat(path)
        text = read_bounded(path, SMALL_FILE_BYTES, setting).decode().strip()
    except OSError as error:
        raise BadInput(setting, path, f"a readable file ({error.strerror})") from None
    except UnicodeDecodeError:
        raise BadInput(setting, path, "text in UTF-8; restore the file or have it created again") from None
    if status.st_mode & 0o077:
        raise BadInput(setting, path, "a file that only its owner can read (chmod 600)")
    return text
