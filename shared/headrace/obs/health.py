"""The health of a process, as it tells it."""

from __future__ import annotations

import msgspec


class Health(msgspec.Struct, frozen=True):
    """Told by a loop that turns. Whoever stands by is as healthy as who leads."""

    #: To the bus.
    connected: bool
    leads: bool
    #: In which it leads; 0 while it does not.
    term: int
