"""Refuses folders that another account of the host made, or into which it put files."""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path

from headrace.errors import BadInput


def refuse_foreign_folder(path: Path, place: str, owners: Collection[int] = (), *, with_files: bool = True) -> None:
    """Check that a folder, a link in its place, and the files in it belong to this account, to root, or to the accounts `owners`.

    A folder that does not exist is accepted, because the caller makes it. An account that can write to the parent folder could have made
    the folder first, with keys that it knows. `place` is the option that names the folder. Raises `BadInput`, OSError.
    """
    accepted = {os.geteuid(), 0, *owners}
    for file, status in _statuses(path, with_files=with_files):
        if status.st_uid not in accepted:
            raise BadInput.because(
                place,
                f"{file} belongs to uid {status.st_uid}, but this command runs as uid {os.geteuid()}. Remove it, choose another "
                "folder, or type the command as that account; nothing was changed",
            )


def _statuses(path: Path, *, with_files: bool) -> Iterator[tuple[Path, os.stat_result]]:
    with suppress(FileNotFoundError):
        status = os.lstat(path)
        yield path, status
        if stat.S_ISLNK(status.st_mode):
            yield path, os.stat(path)
        if with_files:
            for each in sorted(path.iterdir()):
                yield each, os.lstat(each)
