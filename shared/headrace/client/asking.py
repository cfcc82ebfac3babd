"""One question to a service, asked again while that can help and cannot harm.

«Busy», «not ready», nobody listening and no connection mean that nothing was done: every request may be sent again. After silence,
or «not recorded», only a repeatable request may: one that has the same effect however often it is done. A long computation that
changes nothing is asked for once: whoever asked again would wait behind the first request, which is computed for nobody then.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final, TypeVar

import anyio
import msgspec

from headrace.bus import Bus, BusError, NoResponders, NotConnected, RequestTimeout
from headrace.client.errors import Unanswered
from headrace.runtime.clock import Clock
from headrace.wire.defects import encode_request
from headrace.wire.refusals import Busy, NotReady, NotRecorded, Refusal, Refused, decode_answer

T = TypeVar("T", bound=msgspec.Struct)

#: Verbs that change nothing, so that silence leaves nothing open. A verb that is not named here may have taken effect.
READS: Final = frozenset(
    {
        *("op.get", "op.list", "op.jobs", "op.explain", "op.history", "op.log", "op.where", "op.why", "op.progress"),
        *(
            "op.plan_start",
            "op.fit",
            "pool.list",
            "pool.counts",
            "pool.lost_work",
            "pool.explain",
            "pool.history",
            "pool.what_if",
        ),
        *("tree.list", "node.list", "service.list", "service.figures", "preemption.observed", "job.logs", "rights"),
    }
)
#: Whoever waits or follows bears a server that is away for this long, so that a restart of services or bus goes unnoticed.
LONGEST_ABSENCE_S = 60.0
#: How long one attempt waits for its answer; services answer within 2 s or say that they could not.
_ATTEMPT_S = 4.0
_FIRST_PAUSE_S = 0.02
_LONGEST_PAUSE_S = 1.0
_jitter = random.Random()


class Pauses:
    """Growing pauses with jitter, so that many clients do not come back together."""

    def __init__(self) -> None:
        self._next_s = _FIRST_PAUSE_S

    def next_s(self) -> float:
        pause = self._next_s * (0.5 + _jitter.random())
        self._next_s = min(_LONGEST_PAUSE_S, self._next_s * 2)
        return pause


class Asker:
    """Asks in the name of one user. `subject_of` makes the subject of a verb, `timeout_s` holds unless a question has its own."""

    def __init__(self, bus: Bus, clock: Clock, subject_of: Callable[[str], str], timeout_s: float) -> None:
        self._bus = bus
        self._clock = clock
        self._subject_of = subject_of
        self._timeout_s = timeout_s

    async def ask(
        self,
        verb: str,
        request: msgspec.Struct,
        kind: type[T],
        *,
        timeout_s: float | None = None,
        repeatable: bool = True,
        computes: bool = False,
    ) -> T:
        """The answer, of type `kind`. `computes` is True for a long computation, which is one of `READS`.

        Raises `Refused`, `BadInput`, or `Unanswered` when the time is over.
        """
        data = encode_request(request)
        started = self._clock.steady_s()
        deadline = started + (self._timeout_s if timeout_s is None else timeout_s)
        pauses = Pauses()
        #: What left open whether it was done.
        doubt: Exception | None = None
        while True:
            left_s = max(0.001, deadline - self._clock.steady_s())
            try:
                return await self._attempt(verb, data, kind, left_s if computes else min(_ATTEMPT_S, left_s))
            except (NoResponders, NotConnected) as error:
                trouble: Exception = error
            except RequestTimeout as error:
                trouble = doubt = error
            except Refused as refused:
                if not isinstance(refused.refusal, Busy | NotReady | NotRecorded):
                    raise
                trouble = refused
                doubt = refused if isinstance(refused.refusal, NotRecorded) else doubt
            pause_s = pauses.next_s()
            now = self._clock.steady_s()
            if now + pause_s >= deadline or (doubt is not None and not repeatable):
                why = doubt or trouble
                maybe_done = doubt is not None and ".".join(verb.split(".")[:2]) not in READS
                raise Unanswered(verb, now - started, str(why), maybe_done=maybe_done) from why
            await anyio.sleep(pause_s)

    async def _attempt(self, verb: str, data: bytes, kind: type[T], timeout_s: float) -> T:
        try:
            answer = await self._bus.request(self._subject_of(verb), data, timeout_s=timeout_s)
        except (NoResponders, NotConnected, RequestTimeout):
            raise
        except BusError as error:
            raise Unanswered(verb, 0.0, str(error), maybe_done=False) from error
        message = decode_answer(answer, kind)
        if isinstance(message, Refusal):
            raise Refused(message)
        return message
