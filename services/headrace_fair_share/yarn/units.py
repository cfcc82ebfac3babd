"""The whole units of YARN: MiB, and cores."""

from __future__ import annotations

from typing import Final

from headrace.resources import RESOURCE_NAMES

#: Amount of each resource in one unit of YARN.
AMOUNTS_IN_UNIT: Final = tuple({"cpu": 100, "memory": 2**20}.get(name, 1) for name in RESOURCE_NAMES)
