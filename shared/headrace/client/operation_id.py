"""Ids of operations. The client makes them, so that a start can be repeated."""

from __future__ import annotations

import secrets

from headrace.ids import OperationId, operation_id
from headrace.runtime.clock import Clock


def new_operation_id(clock: Clock) -> OperationId:
    """Return a new id: the Unix time in seconds in hex, so that ids sort by age, and 48 random bits."""
    return operation_id(f"{clock.wall_ms() // 1000:08x}-{secrets.token_hex(6)}")
