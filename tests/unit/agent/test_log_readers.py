"""Who may read logs: how long an agent uses an answer of admission."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from headrace.bus import Bus, RequestTimeout
from headrace.ids import OperationId
from headrace.runtime.endpoints import Caller, CallerKind
from headrace.wire.codec import decode, encode
from headrace.wire.logs import AskLogReader, LogChunk, LogReader, ReadLog
from headrace.wire.refusals import NotAllowed, NotFound, NotReady
from headrace_agent.job_logs.requests import AnswerRate, JobLogs, Readers
from tests.support.clocks import HandClock

ONE = OperationId("one")


class Admission:
    """Answers for the group of those who may read; None: it does not answer."""

    def __init__(self) -> None:
        self.readers: set[str] | None = {"anna"}
        self.started_at_ms = 0
        self.asked = 0

    async def request(self, subject: str, data: bytes, **_: Any) -> bytes:
        self.asked += 1
        if self.readers is None:
            raise RequestTimeout("admission is down")
        user = decode(data, AskLogReader).user
        return encode(LogReader(self.started_at_ms) if user in self.readers else NotAllowed(user, "read the output"))


def a_reader() -> tuple[Readers, Admission, HandClock]:
    admission, clock = Admission(), HandClock()
    return Readers(cast("Bus", admission), clock, "log_reader"), admission, clock


async def test_a_right_that_was_taken_away_ends_within_a_second() -> None:
    readers, admission, clock = a_reader()
    assert await readers.refusal_of(ONE, "anna") is None
    admission.readers = set()
    clock.now_s = 1.0
    assert isinstance(await readers.refusal_of(ONE, "anna"), NotAllowed)


async def test_a_follower_that_asks_all_the_time_asks_admission_twice_a_second() -> None:
    readers, admission, clock = a_reader()
    for nth in range(100):
        clock.now_s = nth / 50
        assert await readers.refusal_of(ONE, "anna") is None
    assert admission.asked == 4


async def test_reading_goes_on_while_admission_is_replaced_and_a_session_as_long_as_it_is_down() -> None:
    readers, admission, clock = a_reader()
    assert await readers.refusal_of(ONE, "anna") is None
    assert await readers.refusal_of(ONE, "anna", session_in="default") is None
    admission.readers = None
    for clock.now_s, reads in ((9.0, True), (11.0, False)):
        assert (await readers.refusal_of(ONE, "anna") is None) is reads
        assert await readers.refusal_of(ONE, "anna", session_in="default") is None
        assert isinstance(await readers.refusal_of(ONE, "ben"), NotReady)


async def test_only_the_logs_of_the_present_start_are_read_unless_the_runner_is_older(tmp_path: Path) -> None:
    readers, admission, clock = a_reader()
    for folder in ("one", "one.1000"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "0.1.stdout").write_text(folder)
    runner = {"tells_starts_apart": True}
    logs = JobLogs(
        str(tmp_path),
        readers,
        AnswerRate(clock),
        lambda _operation, _index: None,
        lambda _key: False,
        lambda: runner["tells_starts_apart"],
    )

    async def read(started_at_ms: int) -> bytes | None:
        clock.now_s += 1.0
        admission.started_at_ms = started_at_ms
        answer = await logs.on_read(ReadLog(ONE, 0), Caller(CallerKind.USER, "anna", "job.logs"))
        assert isinstance(answer, LogChunk | NotFound)
        return answer.data if isinstance(answer, LogChunk) else None

    assert [await read(started) for started in (1000, 2000, 0)] == [b"one.1000", None, b"one"]
    runner["tells_starts_apart"] = False
    assert await read(2000) == b"one"
