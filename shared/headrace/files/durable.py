"""Files whose content cannot be restored if it is lost. After a power failure each file has its old content or its new content."""

from __future__ import annotations

import os
from pathlib import Path


def make_folder_durably(path: Path) -> None:
    """Create a folder and its missing parents, for the owner only, and return when they are on disk. Raises `OSError`."""
    missing = [each for each in (path, *path.parents) if not each.exists()]
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    for each in missing:
        keep_names(each.parent)


def replace_durably(path: Path, text: str, mode: int = 0o600) -> None:
    """Replace a whole file, by default readable by its owner only, and return when it is on disk. Raises `OSError`."""
    new = path.with_name(f"{path.name}.new")
    descriptor = open_new(new, 0o600)
    with open(descriptor, "w", encoding="utf-8") as file:
        os.fchmod(descriptor, mode)
        file.write(text)
        file.flush()
        os.fsync(descriptor)
    new.replace(path)
    keep_names(path.parent)


def open_new(path: Path, mode: int = 0o666) -> int:
    """Make a new file and return its descriptor. A file with this name is removed first.

    So nothing is written through a link that another account has made in a folder where it can write. Raises `OSError`.
    """
    path.unlink(missing_ok=True)
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)


def keep_names(folder: Path) -> None:
    """Make the names of a folder's files durable: return when they are on disk. Raises `OSError`."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
