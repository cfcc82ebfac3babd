"""Enrolment: the records of nodes in their bucket, and how administrators change them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from headrace.bus import Bus, BusError, KeyValue, WrongRevision
from headrace.errors import BadInput
from headrace.ids import node_name
from headrace.images import RUNTIME_TAGS
from headrace.obs.logging import logger
from headrace.pools.rights import Person
from headrace.runtime.clock import Clock
from headrace.runtime.engine import Moment
from headrace.suggestions import near
from headrace.wire import subjects
from headrace.wire.codec import encode
from headrace.wire.nodes import (
    MOST_TAGS,
    ChangedNode,
    ChangeNode,
    Enrol,
    Enrolled,
    GivenUpNode,
    GiveUpNode,
    NodeChange,
    NodeRecord,
)
from headrace.wire.refusals import (
    BadRequest,
    NotFound,
    NotReady,
    Refusal,
    WrongState,
    decode_answer,
    not_allowed,
)
from headrace_admission.gone_allocators import LeaseSilence, is_gone
from headrace_admission.nodes.drains import changed_record, record_in, write

_GIVE_UP_S: Final = 2.0


def node_record(request: Enrol, known: NodeRecord | None, now: Moment) -> NodeRecord | WrongState:
    """Return the new record of a node, or a refusal. A drained node stays drained.

    A node whose agent names no machine cannot change its tree. A node that joined by a token keeps the tree and tags of the
    token; its agent adds only the tags of container runtimes.
    """
    tags = sorted(set(request.tags))
    if known is not None and known.terms is not None:
        if known.tree != request.tree:
            return WrongState(
                "node", request.node, f"bound to tree {known.tree} by its token", f"a token for tree {request.tree}"
            )
        runtimes = [tag for tag in tags if tag in RUNTIME_TAGS.values()]
        allowed = list(dict.fromkeys([*known.terms.tags, *runtimes]))[:MOST_TAGS]
        cut = [tag for tag in tags if tag not in allowed]
        return _as_said(msgspec.structs.replace(known, tags=allowed, cut_tags=cut), request)
    if known is None:
        return _as_said(NodeRecord(request.node, request.tree, tags, enrolled_at_ms=now.wall_ms), request)
    if known.tree != request.tree and not request.machine:
        return WrongState("node", request.node, f"in tree {known.tree}", f"a node of tree {request.tree}")
    return _as_said(msgspec.structs.replace(known, tree=request.tree, tags=tags), request)


def _as_said(record: NodeRecord, request: Enrol) -> NodeRecord:
    """Return the record with what the agent said about its host in the request."""
    return msgspec.structs.replace(
        record,
        machine=request.machine or record.machine,
        isolated=request.isolated,
        isolation_detail=request.isolation_detail,
    )


AskToGiveUp = Callable[[NodeRecord, str], Awaitable[GivenUpNode | Refusal]]
#: Revokes the key of a node, and deletes the node's record if the second argument is True.
TakeOut = Callable[[NodeRecord, bool], Awaitable[Refusal | None]]


class GivingUp:
    """Asks the allocator of a node's tree to give up the node.

    If that allocator is gone for good, the node counts as given up, because nothing runs on the allocator's nodes any more.
    """

    def __init__(self, bus: Bus, clock: Clock) -> None:
        self._bus = bus
        self._clock = clock
        self._silence = LeaseSilence()

    async def __call__(self, record: NodeRecord, to_machine: str) -> GivenUpNode | Refusal:
        request = encode(GiveUpNode(record.node, to_machine))
        try:
            answer = await self._bus.request(subjects.give_up_node(record.tree), request, timeout_s=_GIVE_UP_S)
        except BusError:
            if await is_gone(self._bus, record.tree, self._silence, self._clock):
                return GivenUpNode(record.node, 0)
            return NotReady(
                f"the allocator of tree {record.tree} does not answer, so jobs may run on the node until the lease of the node ends"
            )
        return decode_answer(answer, GivenUpNode)


async def enrol(nodes: KeyValue, request: Enrol, now: Moment, give_up: AskToGiveUp) -> Enrolled | Refusal:
    """Enrol a node, or find it enrolled. Raises `BusError`.

    Another machine or another tree may use the name of a node only after the allocator of the node's present tree has given the node up.
    """
    joined = False
    while True:
        entry = await nodes.get(request.node)
        known = record_in(entry)
        if entry is None and joined:
            # The record was deleted meanwhile. A new record would have no terms, and would keep the name from other hosts.
            return WrongState("node", request.node, "removed", "a new token (`headrace node token`)")
        joined = known is not None and known.key != ""
        record = node_record(request, known, now)
        if not isinstance(record, NodeRecord):
            return record
        if entry is not None and record == known:
            return Enrolled(node=record.node, tree=record.tree, revision=entry.revision)
        if known is not None and (record.tree != known.tree or (known.machine and not known.is_of(request.machine))):
            given_up = await give_up(known, request.machine)
            if isinstance(given_up, WrongState) and record.tree != known.tree:
                where = f"in tree {known.tree} and may run jobs of that tree"
                return WrongState("node", record.node, where, f"a node of tree {record.tree}")
            if isinstance(given_up, Refusal):
                return given_up
        value = msgspec.json.encode(record)
        try:
            revision = await nodes.update(request.node, value, entry.revision if entry is not None else 0)
        except WrongRevision:
            continue
        logger().info("node enrolled", node=record.node, tree=record.tree)
        return Enrolled(node=record.node, tree=record.tree, revision=revision)


async def change_node(
    nodes: KeyValue, request: ChangeNode, by: Person, now: Moment, give_up: AskToGiveUp, take_out: TakeOut
) -> ChangedNode | Refusal:
    """Drain, undrain, shut out or remove a node for an administrator. Raises `BusError`.

    Before a node is removed, its allocator must give it up, and its key is revoked. With a valid key, its agent would enrol the node again.
    """
    if not by.administrator:
        return not_allowed(by, f"change node {request.node}")
    try:
        node_name(request.node)
    except BadInput as error:
        return BadRequest.of(error)
    while True:
        entry = await nodes.get(request.node)
        record = record_in(entry)
        if entry is None or record is None:
            return NotFound("node", request.node, near=near(request.node, await nodes.entries()))
        if request.change is NodeChange.SHUT_OUT:
            if not record.key:
                state = "enrolled with a credential that did not come from a token"
                return WrongState("node", record.node, state, "a node that joined by a token")
            return await take_out(record, False) or ChangedNode(record.node)
        if request.change is NodeChange.REMOVE:
            given_up = await give_up(record, "")
            if isinstance(given_up, Refusal):
                return given_up
            refusal = await take_out(record, True)
            if refusal is not None:
                return refusal
            logger().info("node removed", node=record.node, tree=record.tree, lost_jobs=given_up.lost_jobs)
            return ChangedNode(record.node)
        changed = changed_record(record, request, by, now)
        if not isinstance(changed, NodeRecord):
            return changed
        try:
            await write(nodes, entry, record, changed)
        except WrongRevision:
            continue
        return ChangedNode(record.node, changed.drain)
