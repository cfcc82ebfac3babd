"""The trace of an operation, which begins with the request that starts it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec

from headrace.obs.tracing import start_of_operation
from headrace.runtime.endpoints import Caller
from headrace.wire.operations import StartOperation

OnStart = Callable[[StartOperation, Caller], Awaitable[msgspec.Struct]]


def traced(on_start: OnStart) -> OnStart:
    """Return a handler that gives each started operation a trace context, then calls `on_start`."""

    async def handle(request: StartOperation, caller: Caller) -> msgspec.Struct:
        with start_of_operation("StartOperation", request.operation, request.spec.trace) as trace:
            if trace != request.spec.trace:
                spec = msgspec.structs.replace(request.spec, trace=trace)
                request = msgspec.structs.replace(request, spec=spec)
            return await on_start(request, caller)

    return handle
