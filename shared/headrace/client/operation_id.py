"""Ids of operations, made where they are started, so that a start can be repeated."""

from __future__ import annotations

import secrets

from headrace.ids import OperationId, operation_id
from headrace.runtime.clock import Clock


def new_operation_id(clock: Clock) -> OperationId:
    """A new id: seconds of Unix time in hex, so that ids sort by age, and 48 random bits."""
    return operation_id(f"{clock.wall_ms() // 1000:08x}-{secrets.token_hex(6)}")
