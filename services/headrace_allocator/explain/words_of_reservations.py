"""The English text of reservations of nodes."""

from __future__ import annotations

from typing import Final

from headrace.runtime.engine import Moment
from headrace_allocator.explain.reasons import NodeReserved, RoomReserved
from headrace_allocator.facts.nodes import Node

_LENT: Final = "; a job whose time limit ends before they fit may start (run --time-limit)"


def words_of_reserved(reason: NodeReserved | RoomReserved) -> str:
    """Return the text of a reason why jobs wait: nodes are reserved, for this operation or for another operation."""
    if isinstance(reason, NodeReserved):
        return (
            f"node {reason.node} is reserved for it: its job is expected to fit there in {_seconds(reason.expected_s)}, "
            f"and the reservation ends in {_seconds(reason.left_s)}"
        )
    if reason.nodes == 1:
        return f"1 node has free resources for a job of it, and is reserved for {reason.operation}, whose job does not fit there yet{_LENT}"
    nodes = f"{reason.nodes} nodes have free resources for a job of it"
    return (
        f"{nodes}, and are reserved for operations whose jobs do not fit there yet, such as {reason.operation}{_LENT}"
    )


def words_of_reservation(node: Node, now: Moment) -> str:
    """Return the text of the reservation of a node; empty if there is none."""
    reservation = node.reserved
    if reservation is None:
        return ""
    expected_s = reservation.expected_s - now.steady_s
    return f"for {reservation.operation}, whose job is expected to fit in {_seconds(expected_s)}"


def _seconds(seconds: float) -> str:
    return f"{max(0.0, seconds):.0f} s"
