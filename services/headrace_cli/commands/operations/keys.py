"""The settings that `headrace op set` changes."""

from __future__ import annotations

from typing import Final

#: In a module of their own, so that completion can offer them without importing the command.
KEYS: Final = ("weight", "pool")
