"""Files whose loss nobody can make good. After a loss of power each is as it was before, or as it was written."""

from __future__ import annotations

import os
from pathlib import Path


def make_folder_durably(path: Path) -> None:
    """Makes a folder with those above it, for its owner only, and returns when the disk has them. Raises OSError."""
    missing = [each for each in (path, *path.parents) if not each.exists()]
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    for each in missing:
        _keep_names(each.parent)


def replace_durably(path: Path, text: str) -> None:
    """Replaces a file as a whole, for its owner only, and returns when the disk has it. Raises OSError."""
    new = path.with_name(f"{path.name}.new")
    new.unlink(missing_ok=True)
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(descriptor)
    new.replace(path)
    _keep_names(path.parent)


def _keep_names(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
