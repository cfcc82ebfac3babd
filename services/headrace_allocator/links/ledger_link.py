"""The allocator's requests to the ledger: attach, lease indexes, release them, and report ends until they are recorded.

Nothing is decided here: each answer goes back to the engine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from itertools import islice
from typing import Final, TypeVar

import anyio
import anyio.abc
import msgspec

from headrace.bus import Bus, BusError
from headrace.ids import OperationId, TreeName
from headrace.obs.logging import logger
from headrace.runtime.engine import Moment, Outcome
from headrace.runtime.role import Role
from headrace.wire import ledger as wire
from headrace.wire import subjects
from headrace.wire.codec import BadMessage, encode, runs_within
from headrace.wire.refusals import Refusal, StaleTerm, decode_answer
from headrace.wire.version import Term
from headrace_allocator.effects import Draw, Effect, Release, Return
from headrace_allocator.engine import AllocatorEngine

A = TypeVar("A", bound=msgspec.Struct)

_TIMEOUT_S: Final = 3.0
_RETRY_S: Final = 0.25
#: Upper bound of the ends in one report.
_ENDS_PER_REPORT: Final = 500
_REPORT_BYTES: Final = 256 * 1024
#: Upper bound of the session spans in one report.
_SESSIONS_PER_REPORT: Final = 100
#: Seconds of the pause after a report, for each reported end beyond the first, so that ends which arrive meanwhile go together in the
#: next report.
_GATHER_EACH_S: Final = 0.005
#: Upper bound of the pause after a report, in seconds.
_GATHER_MOST_S: Final = 0.02


class LedgerLink:
    """The requests of one allocator to the ledger, and their answers."""

    def __init__(
        self,
        bus: Bus,
        engine: AllocatorEngine,
        role: Role,
        take: Callable[[Outcome[None, Effect]], None],
        now: Callable[[], Moment],
    ) -> None:
        self._bus = bus
        self._engine = engine
        self._take = take
        self._now = now
        self._tree: TreeName = engine.facts.tree
        self._role = role
        self._term: Term = role.term
        self._log = logger(tree=self._tree, term=self._term)
        self._to_report: list[wire.ReportedEnd] = []
        #: Session spans to report. A span that a node reports again before it is recorded is contained only once.
        self._sessions: dict[wire.ReportedSession, None] = {}
        self._report_wanted = anyio.Event()
        #: Number of ends that are still to be reported, by operation.
        self._unreported: Counter[OperationId] = Counter()
        #: By operation, an event that is set once all ends of the operation are reported. The request that reports the operation as
        #: released waits for the event.
        self._all_reported: dict[OperationId, anyio.Event] = {}

    async def attach(self) -> Term:
        """Send the request to attach until the ledger answers that this term may lease indexes. Returns the term of admission."""
        while True:
            answer = await self._ask("attach", wire.Attach(self._tree, self._term), wire.Attached)
            if answer is not None:
                return answer.admission_term
            await anyio.sleep(_RETRY_S)

    async def draw(self, effect: Draw) -> None:
        """Request job indexes once."""
        request = wire.DrawBlock(self._tree, self._term, effect.operation, effect.below, effect.more)
        answer = await self._ask("draw", request, wire.DrawAnswer, operation=effect.operation)
        self._take(self._engine.on_drawn(effect.operation, answer, self._now()))

    async def give_back(self, effect: Return) -> None:
        """Release job indexes with one request."""
        request = wire.ReturnIndexes(self._tree, self._term, effect.operation, effect.change, effect.runs)
        await self._ask("return", request, wire.ReturnAnswer, operation=effect.operation)

    async def release(self, effect: Release) -> None:
        """Report, with one request, operations of which no node holds anything any more.

        The ends of these operations are reported first, since the ledger accepts no ends of an operation that is over.
        """
        for operation in effect.operations:
            while self._unreported[operation]:
                await self._all_reported.setdefault(operation, anyio.Event()).wait()
        request = wire.Released(self._tree, self._term, effect.operations)
        if await self._ask("released", request, wire.ReleasedAnswer) is None:
            self._take(self._engine.on_release_failed(effect.operations, self._now()))

    def report(self, ends: list[wire.ReportedEnd], sessions: Iterable[wire.ReportedSession] = ()) -> None:
        """Queue ends and session spans to be reported."""
        self._to_report.extend(ends)
        self._sessions.update(dict.fromkeys(sessions))
        self._unreported.update(one.end.operation for one in ends)
        self._report_wanted.set()

    async def keep_reporting(self, before: Callable[[], Awaitable[None]]) -> None:
        """Report ends to the ledger in order, and repeat each report until the ledger confirms it. Ends that arrive meanwhile go into one
        report.

        Calls `before` before each report. It publishes decisions, so that subscribers hear how a job got its allocation before they hear of
        the job's end.

        After a report of many ends there is a pause, since each report wakes all services and costs them more than the ends in it.
        """
        while True:
            await self._report_wanted.wait()
            self._report_wanted = anyio.Event()
            while self._to_report or self._sessions:
                await before()
                sessions = list(islice(self._sessions, _SESSIONS_PER_REPORT))
                batch = next(runs_within(self._to_report[:_ENDS_PER_REPORT], _REPORT_BYTES), [])
                is_whole = len(batch) == len(self._to_report)
                request = wire.ReportEnds(self._tree, self._term, batch, sessions)
                answer = await self._ask("report", request, wire.ReportAnswer, ends=len(batch))
                if answer is None:
                    await anyio.sleep(_RETRY_S)
                    continue
                del self._to_report[: len(batch)]
                self._note_reported(batch)
                # The spans are dropped even if an admission of an older release ignored them: the nodes report such spans again.
                self._sessions = {each: None for each in self._sessions if each not in sessions}
                if answer.sessions == len(sessions):
                    self._take(self._engine.on_sessions_recorded(sessions, self._now()))
                self._take(self._engine.on_recorded(batch, self._now()))
                if is_whole and (gather_s := seconds_to_gather(len(batch) + len(sessions))):
                    await anyio.sleep(gather_s)

    def _note_reported(self, batch: list[wire.ReportedEnd]) -> None:
        for operation in (one.end.operation for one in batch):
            self._unreported[operation] -= 1
            if not self._unreported[operation]:
                del self._unreported[operation]
                if operation in self._all_reported:
                    self._all_reported.pop(operation).set()

    async def _ask(self, verb: str, request: msgspec.Struct, kind: type[A], **what: object) -> A | None:
        """Send a request to the ledger. Returns the answer; None if there is none or the ledger refused."""
        try:
            data = await self._bus.request(subjects.ledger(verb), encode(request), timeout_s=_TIMEOUT_S)
            answer = decode_answer(data, kind)
        except (BusError, BadMessage) as error:
            self._log.info("ledger does not answer", verb=verb, error=str(error), **what)
            return None
        if isinstance(answer, StaleTerm):
            # `on_term` deposes this allocator only if another allocator has really taken the term, so a forged answer deposes no leader.
            self._role.on_term(answer.known, "the ledger")
            return None
        if isinstance(answer, Refusal):
            self._log.info("ledger refuses", verb=verb, why=answer.text(), **what)
            return None
        return answer


def seconds_to_gather(reported: int) -> float:
    """Return the seconds to gather ends after a report of `reported` ends. A single end must not wait, so the result is 0 for 1.

    Example: 1 end: 0 s; 3 ends: 0.01 s; 5 and more: 0.02 s.
    """
    return min(_GATHER_MOST_S, _GATHER_EACH_S * (reported - 1))
