"""What would end a wait is told so that it can be typed."""

from __future__ import annotations

import pytest

from headrace.ids import ROOT_POOL, OperationId, PoolName
from headrace.resources import Resources
from headrace.wire.operation_spec import OperationSpec
from headrace_allocator.decision import reasons as why
from headrace_allocator.words import cure_of


@pytest.mark.parametrize(("pool", "typed"), [(ROOT_POOL, "/"), ("vision", "vision"), ("a&b", "'a&b'")])
def test_pools_in_commands_are_as_a_shell_takes_them(pool: str, typed: str) -> None:
    one, none = Resources(user_slots=1, cpu=100), Resources()
    spec = OperationSpec(PoolName(pool), ["true"])
    reasons: dict[why.Reason, str] = {
        why.NoRoomOnAnyNode(one, one, nodes=1, free=none): f"`headrace pool explain {typed}`",
        why.PoolLimitReached(PoolName(pool), ()): f"`headrace pool set {typed}`",
        why.NoShare(gang_wants=one): f"`headrace pool explain {typed}`",
    }

    for reason, command in reasons.items():
        assert command in cure_of(reason, spec, OperationId("operation-1"))
