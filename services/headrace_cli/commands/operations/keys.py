"""Settings that `headrace op set` changes."""

from __future__ import annotations

from typing import Final

#: They stand alone, so that a Tab can offer them without loading the command.
KEYS: Final = ("weight", "pool")
