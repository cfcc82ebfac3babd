"""Traces of single heartbeats, made on request. There are too many heartbeats to trace them all."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import anyio

from headrace.obs import tracing
from headrace.obs.tracing import SpanKind
from headrace.pools.rights import Person
from headrace.runtime.endpoints import Caller
from headrace.wire import subjects
from headrace.wire.heartbeat import Heartbeat
from headrace.wire.refusals import NotAllowed, NotReady, WrongState, not_allowed
from headrace.wire.trace import HeartbeatTraced, TraceHeartbeat

#: Longest time in seconds that a request for a trace waits until the traced heartbeat is answered or given up.
_WAIT_S: Final = 3.0


class HeartbeatTraces:
    """Traces heartbeats on request. After a request, `beat` sends the next heartbeat at once, and this heartbeat is traced."""

    def __init__(self, person: Callable[[str], Person], beat: Callable[[], None]) -> None:
        self._person = person
        self._beat = beat
        self._asked: list[Callable[[str], None]] = []

    async def on_asked(
        self, request: TraceHeartbeat, caller: Caller
    ) -> HeartbeatTraced | NotAllowed | NotReady | WrongState:
        """Trace the next heartbeat for a caller. When the heartbeat is answered or given up, answer the caller with the id of the trace."""
        person = self._person(caller.name)
        if not person.administrator:
            return not_allowed(person, f"trace heartbeats of node {request.node}")
        if not tracing.is_on():
            return WrongState(
                "node", request.node, "without tracing", "trace_endpoint or trace_folder in the settings of its agent"
            )
        sent, traces = anyio.Event(), list[str]()

        def on_traced(trace_id: str) -> None:
            traces.append(trace_id)
            sent.set()

        self._asked.append(on_traced)
        self._beat()
        with anyio.move_on_after(_WAIT_S):
            await sent.wait()
            return HeartbeatTraced(traces[0])
        return NotReady(f"no heartbeat was sent within {_WAIT_S:g} s")

    @contextmanager
    def span(self, heartbeat: Heartbeat) -> Iterator[None]:
        """If a trace was requested, record the `with` block, which sends a heartbeat and handles its answer, as one span."""
        asked, self._asked = self._asked, []
        if not asked:
            yield
            return
        reason, allocations = heartbeat.reason.value, len(heartbeat.allocations)
        about: tracing.Attributes = {
            "node": heartbeat.node,
            "seq": heartbeat.seq,
            "reason": reason,
            "allocations": allocations,
        }
        subject = subjects.heartbeat("*", "*")
        with tracing.span("heartbeat", about, kind=SpanKind.CLIENT, subject=subject) as context:
            yield
        for on_traced in asked:
            on_traced(context.trace_id if context else "")
