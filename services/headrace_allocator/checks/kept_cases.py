"""Files of choices and of whole heartbeats in which the quick way and the plain one differed.

In a checkout `python -m tests.support.choice_case FILE` replays one of a choice, `tests.support.heartbeat_case` one of a heartbeat.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import Final

import msgspec

from headrace_allocator.checks.choices import ChoiceCase
from headrace_allocator.checks.heartbeat_cases import Case

#: Cases of each kind that are kept; the oldest go first.
_MOST_KEPT: Final = 20


def keep_case(case: Case, folder: Path, at_ms: int) -> Path:
    """Writes a case as JSON. Returns its path. Raises `OSError`."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    kind = "choice" if isinstance(case, ChoiceCase) else "heartbeat"
    path = folder / f"{kind}-{at_ms}-{secrets.token_hex(3)}.json"
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(msgspec.json.encode(case))
    for old in sorted(folder.glob(f"{kind}-*.json"))[:-_MOST_KEPT]:
        old.unlink(missing_ok=True)
    return path
