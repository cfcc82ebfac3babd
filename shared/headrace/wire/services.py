"""The processes of services, as people see them."""

from __future__ import annotations

import msgspec

from headrace.resources import Finite
from headrace.wire.version import Counter, Term


class ListServices(msgspec.Struct, frozen=True):
    """person → every process of every service: ask for its state."""


class ServiceView(msgspec.Struct, frozen=True, tag_field="refusal", tag="none"):
    """The state of one process at the time of its answer."""

    service: str
    #: Role, such as `allocator.default`.
    role: str
    #: Name of the process, which stays the same when it restarts.
    instance: str
    #: True for the leader, false for a standby.
    leads: bool
    #: Term of the leader; 0 for a standby.
    term: Term
    #: Milliseconds since the process began.
    age_ms: Counter
    #: Duration of one turn of the process's event loop in milliseconds: the time for which everything else in the process has to wait.
    lag_ms: Finite
    pid: Counter
    #: Number of log entries not processed yet; null for a service that follows no log, or while the log cannot be read.
    entries_behind: Counter | None = None
    #: Why nothing can be recorded at present, or why too few servers keep what is recorded; empty if there is no trouble.
    trouble: str = ""
