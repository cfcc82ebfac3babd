"""The start of admission: what it announces can be read by everybody who starts after it."""

from __future__ import annotations

from typing import Any

from headrace.bus import AppendUnknown
from headrace.wire import subjects
from headrace_admission.engine import AdmissionEngine
from headrace_admission.log.checkpoint import CheckpointStore
from headrace_admission.log.restoring import restore
from headrace_admission.state.rules import GlobalRules
from tests.simulation.bus import connect_to
from tests.simulation.clock import LoopClock
from tests.simulation.loop import VirtualLoop, run_virtually
from tests.simulation.server import SimulatedServer


class _SilentTwice:
    """A log that leaves the first two appends unanswered and does not make them."""

    def __init__(self, log: Any) -> None:
        self._log = log
        self._silences = 2

    async def append(self, data: bytes, *, expected_last: int, timeout_s: float) -> int:
        if self._silences:
            self._silences -= 1
            raise AppendUnknown("no answer")
        return int(await self._log.append(data, expected_last=expected_last, timeout_s=timeout_s))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)


def test_a_term_that_was_announced_at_a_later_try_does_not_keep_the_next_one_from_starting() -> None:
    async def course(loop: VirtualLoop) -> list[int]:
        server, announced = SimulatedServer(loop), []
        async with connect_to(server, "admission") as bus:
            log = await bus.log(subjects.STREAM, subjects.LOG)
            bucket = await bus.key_value(subjects.CHECKPOINT_BUCKET)
            for term in (1, 2):
                engine = AdmissionEngine(GlobalRules(), term=term)
                announced.append(
                    await restore(
                        engine,
                        _SilentTwice(log),
                        CheckpointStore(bucket, term),
                        LoopClock(loop),
                        term=term,
                        writer=f"admission-{term}",
                    )
                )
        return announced

    assert run_virtually(1, course) == [1, 2]
