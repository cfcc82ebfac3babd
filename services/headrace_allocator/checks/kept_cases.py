"""Files of choices and of whole heartbeats that the quick way and the plain way decided differently.

In a checkout, `python -m tests.support.choice_case FILE` replays a choice, and `tests.support.heartbeat_case` replays a heartbeat.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import Final

import msgspec

from headrace_allocator.checks.choices import ChoiceCase
from headrace_allocator.checks.heartbeat_cases import Case

#: Upper bound of the cases kept of each kind. The oldest are deleted first.
_MOST_KEPT: Final = 20


def keep_case(case: Case, folder: Path, at_ms: int) -> Path:
    """Write a case as JSON and return the file's path. Raises `OSError`."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    kind = "choice" if isinstance(case, ChoiceCase) else "heartbeat"
    path = folder / f"{kind}-{at_ms}-{secrets.token_hex(3)}.json"
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(msgspec.json.encode(case))
    for old in sorted(folder.glob(f"{kind}-*.json"))[:-_MOST_KEPT]:
        old.unlink(missing_ok=True)
    return path
