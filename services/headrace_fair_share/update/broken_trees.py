"""Files of trees on which the algorithm failed, in a form that `headrace plan` reads.

In a checkout, `python -m tests.support.reduction FILE` reduces such a tree to a small one.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Final

import msgspec

from headrace_fair_share.hdrf.model import TreeInput

#: Number of trees that are kept; the oldest are deleted first.
_MOST_KEPT: Final = 20


def keep_broken_tree(tree: TreeInput, fault: Exception, folder: Path, at_ms: int) -> Path:
    """Write a plan file and, next to it, the exact input as JSON. Return the path of the plan file. Raises `OSError`."""
    from headrace_fair_share.plan.writing import written  # imported here: YAML would take a twentieth of every start

    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if folder.lstat().st_uid not in (0, os.geteuid()):
        # If the parent folder is one like /tmp, another account can make this folder first, or a link in its place.
        raise PermissionError(errno.EPERM, "another account made it", str(folder))
    path = folder / f"broken-{at_ms}.yaml"
    words = " ".join(f"{type(fault).__name__}: {fault}".split())
    exact = path.with_suffix(".json")
    _write(exact, msgspec.json.encode(tree))
    head = (
        f"# The update of fair shares failed on this tree, which is a fault in Headrace:\n#   {words}\n"
        f"# Try it:         headrace plan {path.name}\n"
        f"# Reduce it, in a checkout of Headrace:  python -m tests.support.reduction {exact.name}\n"
        f"# The exact input is in {exact.name} in the same folder. Please report both files.\n"
    )
    _write(path, (head + written(tree)).encode())
    for old in sorted(folder.glob("broken-*.yaml"))[:-_MOST_KEPT]:
        old.unlink(missing_ok=True)
        old.with_suffix(".json").unlink(missing_ok=True)
    return path


def _write(path: Path, data: bytes) -> None:
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(data)
