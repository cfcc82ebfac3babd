"""The requests about nodes: from agents, from hosts that join, and from administrators."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

import anyio
import msgspec

from headrace.bus import BusError, NoResponders, NotConnected
from headrace.ids import UserName
from headrace.obs.logging import logger
from headrace.pools.rights import Person
from headrace.runtime.concurrent_calls import together
from headrace.runtime.copied_bucket import CopiedBucket
from headrace.runtime.endpoints import Caller, CallerKind
from headrace.runtime.service import Runtime
from headrace.wire import subjects
from headrace.wire.access_tokens import CreateToken, EndToken, ListTokens, RevokeToken
from headrace.wire.joining import Join, MakeToken, Renew
from headrace.wire.nodes import ChangedNode, ChangeNode, Enrol, NodeRecord
from headrace.wire.refusals import SLOW_BUS, BadRequest, NotReady, NotRecorded, Refusal, WrongState, not_allowed
from headrace_admission.floods.flood_watch import FloodWatch, floods_ended
from headrace_admission.nodes.drains import Drains
from headrace_admission.nodes.enrolment import GivingUp, change_node, enrol
from headrace_admission.nodes.join_tokens import Keys
from headrace_admission.nodes.joining import Joining
from headrace_admission.nodes.keys_file import read_authority
from headrace_admission.nodes.person_tokens import PersonTokens
from headrace_admission.nodes.revocation import Revocations
from headrace_admission.settings import AdmissionSettings

_CHANGE_NODE_S: Final = 3.0
_LOOK_AT_DRAINS_S: Final = 1.0
_NO_AUTHORITY: Final = WrongState(
    "admission's",
    "authority_file",
    "empty",
    "the file that `headrace cluster init --operator` writes; no host can join without it. A Headrace of `headrace up` has "
    "none: see docs/how-to/hosts.md for a cluster that other hosts join",
)
_NO_TOKENS: Final = WrongState(
    "admission's",
    "authority_file",
    "empty",
    "a cluster made with `headrace cluster init --operator`; elsewhere a program sends the header that `headrace web` prints",
)


class NodeRequests:
    """Handlers of the requests about nodes, for one term of admission."""

    _nodes: CopiedBucket
    _drains: Drains
    _joining: Joining | None = None
    _tokens: PersonTokens | None = None
    _floods: FloodWatch | None = None

    def __init__(self, runtime: Runtime[AdmissionSettings], person: Callable[[str], Awaitable[Person]]) -> None:
        self._runtime = runtime
        self._person = person
        self._now = runtime.clock.now
        self._give_up = GivingUp(runtime.bus, runtime.clock)

    async def open(self) -> None:
        """Open the buckets, and send the revoked keys to the server. Raises `BusError`, `BadInput`."""
        runtime = self._runtime
        self._nodes = await self._kept(subjects.NODES_BUCKET, NodeRecord)
        self._drains = Drains(self._nodes)
        await self._drains.read()
        runtime.tasks.start_soon(self._keep_drains)
        runtime.presence.watches(str, lambda: [floods_ended(self._floods)])
        authority = read_authority(runtime.settings)
        if authority is None:
            return
        keys = Keys(await self._kept(subjects.KEYS_BUCKET))
        revocations = Revocations(runtime.bus, keys, runtime.settings, runtime.clock, authority)
        self._joining = Joining(self._nodes, keys, revocations, authority, runtime.settings)
        self._tokens = PersonTokens(keys, revocations, authority)
        runtime.presence.watches(revocations.trouble)
        runtime.tasks.start_soon(revocations.keep)
        self._floods = FloodWatch(runtime.settings, runtime.clock, authority, revocations)
        runtime.presence.watches(self._floods.trouble)
        runtime.tasks.start_soon(self._floods.keep)

    async def serve(self) -> None:
        """Serve the requests. Raises `BusError`."""
        endpoints = self._runtime.endpoints
        user = CallerKind.USER
        await together(
            partial(endpoints.serve, subjects.enrol("*"), Enrol, CallerKind.NODE, self._on_enrol),
            partial(endpoints.serve, subjects.renew("*"), Renew, CallerKind.NODE, self._on_renew),
            partial(endpoints.serve, subjects.join("*"), Join, CallerKind.HOST, self._on_join),
            partial(endpoints.serve, subjects.user("*", "node.change"), ChangeNode, user, self._on_change),
            partial(endpoints.serve, subjects.user("*", "node.token"), MakeToken, user, self._on_make_token),
            partial(endpoints.serve, subjects.user("*", "token.create"), CreateToken, user, self._on_create_token),
            partial(endpoints.serve, subjects.user("*", "token.list"), ListTokens, user, self._on_list_tokens),
            partial(endpoints.serve, subjects.user("*", "token.revoke"), RevokeToken, user, self._on_revoke_token),
            partial(endpoints.serve, subjects.user("*", "token.end"), EndToken, user, self._on_end_token),
        )

    async def _kept(self, name: str, kind: type[msgspec.Struct] | None = None) -> CopiedBucket:
        bucket = await CopiedBucket.open(self._runtime.bus, name, kind=kind)
        await bucket.write_lost_again()
        self._runtime.tasks.start_soon(bucket.keep)
        return bucket

    async def _keep_drains(self) -> None:
        while True:
            try:
                await self._drains.apply(self._now())
            except BusError as error:
                logger().warning("drain of a node not written; it is tried again", error=str(error))
            await anyio.sleep(_LOOK_AT_DRAINS_S)

    async def _on_enrol(self, request: Enrol, caller: Caller) -> msgspec.Struct:
        if request.node != caller.name:
            return self._forged(request.node, caller)
        return await self._answered(enrol(self._nodes, request, self._now(), self._give_up))

    async def _on_renew(self, request: Renew, caller: Caller) -> msgspec.Struct:
        if request.node != caller.name:
            return self._forged(request.node, caller)
        joining = self._joining
        return _NO_AUTHORITY if joining is None else await self._answered(joining.renew(request, self._now()))

    async def _on_join(self, request: Join, caller: Caller) -> msgspec.Struct:
        joining = self._joining
        if joining is None:
            return _NO_AUTHORITY
        return await self._answered(joining.join(caller.name, request, self._now()))

    async def _on_make_token(self, request: MakeToken, caller: Caller) -> msgspec.Struct:
        joining, by = self._joining, await self._person(caller.name)
        if not by.administrator:
            return not_allowed(by, f"let a host join as node {request.node}")
        if joining is None:
            return _NO_AUTHORITY
        return await self._answered(joining.make_token(request, by, self._now()))

    async def _on_create_token(self, request: CreateToken, caller: Caller) -> msgspec.Struct:
        if self._tokens is None:
            return _NO_TOKENS
        return await self._answered(self._tokens.create(request, UserName(caller.name), self._now()))

    async def _on_list_tokens(self, request: ListTokens, caller: Caller) -> msgspec.Struct:
        if self._tokens is None:
            return _NO_TOKENS
        return await self._answered(self._tokens.list(UserName(caller.name), self._now()))

    async def _on_revoke_token(self, request: RevokeToken, caller: Caller) -> msgspec.Struct:
        if self._tokens is None:
            return _NO_TOKENS
        return await self._answered(self._tokens.revoke(request, UserName(caller.name)))

    async def _on_end_token(self, request: EndToken, caller: Caller) -> msgspec.Struct:
        if self._tokens is None:
            return _NO_TOKENS
        return await self._answered(self._tokens.end(request, UserName(caller.name)))

    async def _on_change(self, request: ChangeNode, caller: Caller) -> msgspec.Struct:
        by = await self._person(caller.name)
        try:
            with anyio.fail_after(_CHANGE_NODE_S):
                changing = change_node(self._nodes, request, by, self._now(), self._give_up, self._take_out)
                answer = await self._answered(changing)
        except TimeoutError:
            return NotRecorded(int(_CHANGE_NODE_S * 1000), SLOW_BUS)
        if isinstance(answer, ChangedNode):
            self._drains.note(answer.node, answer.drain, self._now().wall_ms)
        return answer

    async def _take_out(self, record: NodeRecord, removes: bool) -> Refusal | None:
        if self._joining is not None:
            await self._joining.take_out(record.node, removes=removes)
        elif record.key:
            return _NO_AUTHORITY
        elif removes:
            await self._nodes.delete(record.node)
        return None

    async def _answered(self, answer: Awaitable[msgspec.Struct]) -> msgspec.Struct:
        began_s = self._runtime.clock.steady_s()
        why = "the bucket of nodes was not written, or the server did not get the list of revoked keys"
        try:
            return await answer
        except (NotConnected, NoResponders) as error:
            return NotReady(f"{why}: {error}")
        except BusError as error:
            # The change may have been written although an error was raised.
            return NotRecorded(int((self._runtime.clock.steady_s() - began_s) * 1000), f"{why}: {error}")

    def _forged(self, node: str, caller: Caller) -> BadRequest:
        self._runtime.endpoints.report_forged(caller.name, caller.subject, f"speaks for node {node}")
        return BadRequest("node", node, f"the node of the subject, {caller.name}")
