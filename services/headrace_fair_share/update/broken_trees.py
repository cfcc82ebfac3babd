"""Where a tree on which the algorithm broke is kept for those who mend it: as small as it gets, ready for `headrace plan`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import msgspec

from headrace_fair_share.hdrf.model import TreeInput
from headrace_fair_share.hdrf.tree_update import update
from headrace_fair_share.plan.reduction import reduced
from headrace_fair_share.plan.writing import written

__all__ = ["FAULTS", "keep_broken_tree"]

#: What an update may raise where something in the algorithm is wrong.
FAULTS: Final = (ArithmeticError, LookupError, TypeError, ValueError)
#: Trees that are kept; the oldest go first.
_MOST_KEPT: Final = 20


def keep_broken_tree(tree: TreeInput, fault: Exception, folder: Path, at_ms: int) -> Path:
    """Writes a plan file and, beside it, the exact input as JSON; returns the path of the plan file. Raises `OSError`.

    The tree is made as small as it gets while it breaks in the same way. One that does not break by itself, because it takes the
    updates before to do so, is written as it is.
    """
    smallest = reduced(tree, lambda smaller: _breaks(smaller, type(fault))) if _breaks(tree, type(fault)) else tree
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = folder / f"broken-{at_ms}.yaml"
    words = " ".join(f"{type(fault).__name__}: {fault}".split())
    told = "by itself" if smallest is not tree or _breaks(tree, type(fault)) else "only after the updates before it"
    _write(path.with_suffix(".json"), msgspec.json.encode(smallest))
    head = (
        f"# On this tree the fair share broke ({told}), which is a fault in Headrace:\n#   {words}\n"
        f"# Try it:  headrace plan {path.name}\n# The exact input stands in {path.stem}.json beside it. Please report both.\n"
    )
    _write(path, (head + written(smallest)).encode())
    for old in sorted(folder.glob("broken-*.yaml"))[:-_MOST_KEPT]:
        old.unlink(missing_ok=True)
        old.with_suffix(".json").unlink(missing_ok=True)
    return path


def _breaks(tree: TreeInput, kind: type[Exception]) -> bool:
    try:
        update(tree)
    except FAULTS as fault:
        return isinstance(fault, kind)
    return False


def _write(path: Path, data: bytes) -> None:
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(data)
