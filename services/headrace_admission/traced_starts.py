"""The trace of an operation, from the request that starts it on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec

from headrace.obs.tracing import start_of_operation
from headrace.runtime.border import Caller
from headrace.wire.operations import StartOperation

OnStart = Callable[[StartOperation, Caller], Awaitable[msgspec.Struct]]


def traced(on_start: OnStart) -> OnStart:
    """The handler of starts, of which each operation is given the trace that it is part of."""

    async def handle(request: StartOperation, caller: Caller) -> msgspec.Struct:
        with start_of_operation("StartOperation", request.operation, request.spec.trace) as trace:
            if trace != request.spec.trace:
                spec = msgspec.structs.replace(request.spec, trace=trace)
                request = msgspec.structs.replace(request, spec=spec)
            return await on_start(request, caller)

    return handle
