"""A disk as it is after a loss of power: of what this process wrote it has what was synced, and nothing else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


class Disk:
    """Sees what this process syncs: the bytes of a file, and the names in a folder."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._bytes: dict[int, bytes] = {}
        self._names: dict[Path, dict[str, int]] = {}
        self._sync = os.fsync
        monkeypatch.setattr(os, "fsync", self._on_sync)

    def after_loss(self, path: Path) -> bytes | None:
        """The bytes that a file has then, None where its name is not there. Those of former processes are all there."""
        known = self._names.get(path.parent, {})
        return self._bytes.get(known[path.name], b"") if path.name in known else None

    def has_folder(self, path: Path) -> bool:
        """True if a folder that this process made is there then."""
        return path.name in self._names.get(path.parent, {})

    def _on_sync(self, descriptor: int) -> None:
        self._sync(descriptor)
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        if path.is_dir():
            self._names[path] = {entry.name: entry.inode() for entry in os.scandir(path)}
        else:
            self._bytes[path.stat().st_ino] = path.read_bytes()
