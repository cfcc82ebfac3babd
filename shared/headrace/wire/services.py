"""The processes of services, as people see them."""

from __future__ import annotations

import msgspec

from headrace.resources import Finite
from headrace.wire.version import Counter, Term


class ListServices(msgspec.Struct, frozen=True):
    """person → every process of every service."""


class ServiceView(msgspec.Struct, frozen=True, tag_field="refusal", tag="none"):
    """One process, at the moment of its answer."""

    service: str
    #: Such as `allocator.default`.
    role: str
    #: The name of the process, the same in all its lives.
    instance: str
    #: False: it stands by.
    leads: bool
    #: 0: it stands by.
    term: Term
    #: Since the process began.
    age_ms: Counter
    #: The length of one turn of its loop, in which everything else waits.
    lag_ms: Finite
    pid: Counter
    #: Entries of the log that it has not taken yet; null for a service that follows no log, or while the log cannot be read.
    entries_behind: Counter | None = None
    #: Why nothing can be recorded at the moment, or is kept by too few servers; empty while all is well.
    trouble: str = ""
