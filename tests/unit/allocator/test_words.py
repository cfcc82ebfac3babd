"""What would end a wait is told so that it can be typed."""

from __future__ import annotations

import pytest

from headrace.ids import ROOT_POOL, OperationId, PoolName
from headrace.resources import Resources
from headrace.wire.operation_spec import OperationSpec
from headrace_allocator.explain import reasons as why
from headrace_allocator.explain.words import cure_of, words_of


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


def test_what_the_emptiest_node_lacks_is_named_and_what_nobody_wants_of_it_is_not() -> None:
    one = Resources(user_slots=1, cpu=100)
    free = Resources(user_slots=3, memory=4 * 2**30)

    said = words_of(why.NoRoomOnAnyNode(one, Resources(), nodes=1, free=free))

    assert "the emptiest has cpu 0, memory 4 GiB free" in said
