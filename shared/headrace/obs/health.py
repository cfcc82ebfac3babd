"""The health of a process, as `/health` reports it."""

from __future__ import annotations

import msgspec


class Health(msgspec.Struct, frozen=True):
    """The health of a process, read on its event loop. A standby counts as healthy, too."""

    #: True if the process is connected to the bus.
    connected: bool
    leads: bool
    #: Term in which the process leads; 0 while it does not lead.
    term: int
