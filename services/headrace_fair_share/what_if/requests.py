"""Answers what-if questions over the bus: one at a time, in a worker thread, with pauses between them.

The pauses leave the processor to the updates of fair share most of the time, however many questions are asked about a large tree.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

import anyio
import anyio.to_thread
import msgspec

from headrace.ids import TreeName
from headrace.obs.logging import logger
from headrace.pools import Person
from headrace.runtime.endpoints import Caller, CallerKind, Endpoints
from headrace.runtime.shell import Shell
from headrace.wire import subjects
from headrace.wire.refusals import Busy, NotFound, Refusal, WrongState
from headrace.wire.what_if import WhatIf, WhatIfAnswer
from headrace_fair_share.configuration.persons import sure
from headrace_fair_share.effects import Effect
from headrace_fair_share.engine import FairShareEngine
from headrace_fair_share.update.updater import FAULTS
from headrace_fair_share.what_if.comparison import compared
from headrace_fair_share.what_if.supposing import Supposed

#: Number of questions that may be pending; more are refused.
_MOST_WAITING: Final = 4
#: Pause after an answer, as a multiple of the time its computation took.
_REST: Final = 3.0


class WhatIfRequests:
    """Answers what-if questions about one tree. No question changes anything."""

    def __init__(
        self,
        tree: TreeName,
        engine: FairShareEngine,
        shell: Shell[Effect],
        person: Callable[[str], Awaitable[Person]],
        unknown_tree: Callable[[str], NotFound | None],
    ) -> None:
        self._tree = tree
        self._engine = engine
        self._shell = shell
        self._person = person
        self._unknown_tree = unknown_tree
        self._turn = anyio.Lock()
        #: Arrival times of pending questions in microseconds, the oldest first.
        self._waiting: list[int] = []
        self._rested_us = 0

    async def serve(self, endpoints: Endpoints) -> None:
        """Start to answer what-if questions."""
        await endpoints.serve(subjects.user("*", "pool.what_if"), WhatIf, CallerKind.USER, self._on_what_if)

    async def _on_what_if(self, request: WhatIf, caller: Caller) -> msgspec.Struct | None:
        if request.tree != self._tree:
            return self._unknown_tree(request.tree)
        person = await self._person(caller.name)
        asked_us = self._shell.now().steady_us
        if len(self._waiting) >= _MOST_WAITING:
            return Busy(len(self._waiting), (asked_us - self._waiting[0]) // 1000)
        self._waiting.append(asked_us)
        try:
            async with self._turn:
                await anyio.sleep(max(0, self._rested_us - self._shell.now().steady_us) / 1e6)
                return await self._answer(request, person)
        finally:
            self._waiting.remove(asked_us)

    async def _answer(self, request: WhatIf, person: Person) -> WhatIfAnswer | Refusal:
        began = self._shell.now()
        supposed = self._engine.on_what_if(request, person, began).answer
        if not isinstance(supposed, Supposed):
            return sure(supposed, person)
        try:
            answer = await anyio.to_thread.run_sync(partial(compared, supposed))
        except FAULTS as fault:
            logger().error("what-if request failed", tree=self._tree, exception=fault)
            broken = f"not computable with these changes, since the update fails: {fault}"
            return WrongState(
                "tree", self._tree, broken, "other changes; please report these changes as a fault in Headrace"
            )
        now_us = self._shell.now().steady_us
        took_us = now_us - began.steady_us
        self._rested_us = now_us + int(_REST * took_us)
        logger().info(
            "what-if request answered", tree=self._tree, user=person.name, ms=took_us // 1000, told=len(answer.elements)
        )
        return answer
