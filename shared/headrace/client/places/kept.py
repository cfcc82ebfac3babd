"""Servers that a person has logged in to. Each has a name and a folder like that of `headrace up`, readable by its owner only.

The folders are in `headrace/places` of the person's configuration folder.
The file `current` beside them names the server in use.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from headrace.client.places.endpoint import AUTHORITY_FILE, CREDENTIAL_FILE, ENDPOINT_FILE, Endpoint
from headrace.errors import BadInput
from headrace.suggestions import hint

_NAME: Final = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,61}[a-z0-9])?\Z")
_CURRENT: Final = "current"


class SavedServers:
    """The servers that one person has logged in to."""

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        base = environment.get("XDG_CONFIG_HOME", "")
        # A relative path is ignored: the XDG rules call it invalid.
        self._folder = (Path(base) if base.startswith("/") else Path.home() / ".config") / "headrace" / "places"
        self._chosen = environment.get("HEADRACE_PLACE", "")

    def names(self) -> list[str]:
        """Return the names of all servers that the person has logged in to."""
        return sorted(path.parent.name for path in self._folder.glob(f"[!.]*/{ENDPOINT_FILE}"))

    def current(self) -> str:
        """Return the name of the server in use: the name in `$HEADRACE_PLACE`, else the server of the last login. Empty for none. Raises
        `BadInput` for an unknown name.
        """
        if self._chosen:
            if self._chosen not in self.names():
                raise BadInput("HEADRACE_PLACE", self._chosen, hint(self._chosen, self.names()))
            return self._chosen
        try:
            name = (self._folder / _CURRENT).read_text(encoding="utf-8").strip()
        except OSError:
            return ""
        return name if name in self.names() else ""

    def folder(self, name: str) -> Path:
        """Return the folder of a server, whether or not it exists. Raises `BadInput` for an invalid name."""
        if not _NAME.match(name):
            raise BadInput("name of a server", name, "1 to 63 characters of a-z, 0-9, '.' and '-'")
        return self._folder / name

    def keep(self, name: str, endpoint: Endpoint, credential_file: str, ca_file: str) -> Path:
        """Store the endpoint, credential and authority of a server, replacing a former server of that name. Make it the current server.

        Raises `OSError`.
        """
        kept = self.folder(name)
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        new = Path(tempfile.mkdtemp(prefix=".new-", dir=self._folder))
        try:
            _write(new / ENDPOINT_FILE, msgspec.json.encode(endpoint) + b"\n")
            for source, file in ((credential_file, CREDENTIAL_FILE), (ca_file, AUTHORITY_FILE)):
                if source:
                    _write(new / file, Path(source).read_bytes())
            if kept.exists():
                shutil.rmtree(kept)
            new.rename(kept)
        except BaseException:
            shutil.rmtree(new, ignore_errors=True)
            raise
        _write(self._folder / _CURRENT, f"{name}\n".encode())
        return kept

    def forget(self, name: str) -> None:
        """Remove a server. Raises `BadInput` for an unknown name."""
        if name not in self.names():
            raise BadInput("name of a server", name, hint(name, self.names()))
        shutil.rmtree(self.folder(name))


def _write(path: Path, data: bytes) -> None:
    """Replace a file. The new file is readable only by its owner from its creation on."""
    new = path.with_name(f".{path.name}.new")
    with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), "wb") as file:
        os.fchmod(file.fileno(), 0o600)
        file.write(data)
    new.replace(path)
