"""A node answers what everybody is asked with rubbish, on a real server with the rights of nodes: the others are heard all the same."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import cast

import anyio
import msgspec
import pytest

from headrace.access.permissions import Party
from headrace.access.routes import PartyKind
from headrace.bus import Bus
from headrace.bus.protocol import Message
from headrace.client.asking import Asker
from headrace.client.errors import Unanswered
from headrace.client.logs import JobLogReader, Questions
from headrace.client.processes import Processes
from headrace.ids import OperationId, UserName
from headrace.resources import Resources
from headrace.runtime.clock import SystemClock
from headrace.wire import subjects
from headrace.wire.codec import encode
from headrace.wire.figures import Figure, FigureKind, FiguresAnswer
from headrace.wire.heartbeat import JobResult, JobSlot
from headrace.wire.logs import LogChunk
from headrace.wire.operations import JobRow, OperationSpec, OperationState, OperationView
from headrace.wire.refusals import BadRequest, NotAllowed, NotReady, Refused
from tests.support.guarded import everybody, guarded_server

pytestmark = pytest.mark.long

PARTIES = {
    "anna": Party(kind=PartyKind.PERSON, name="anna"),
    "honest": Party(kind=PartyKind.NODE, name="honest"),
    "rogue": Party(kind=PartyKind.NODE, name="rogue"),
}
ANNA = UserName("anna")
PATIENCE_S = 60.0
HONEST = FiguresAnswer("agent", [Figure("jobs", "jobs", FigureKind.GAUGE, 3)], instance="honest")
#: Answers that are no answer, and the process that each names.
RUBBISH = {
    b"": "an unknown process",
    b"\xff\xfe rubbish": "an unknown process",
    b"\x91" * 4_000: "an unknown process",
    msgspec.msgpack.encode({"refusal": "none", "service": "agent", "instance": "rogue", "figures": 7}): "agent rogue",
    msgspec.msgpack.encode({"refusal": "none", "service": "a" * 100_000, "figures": 7}): "aaaa",
    msgspec.msgpack.encode(
        {
            "refusal": "none",
            "service": "agent",
            "figures": [{"name": "x", "unit": "", "kind": "gauge", "value": float("nan")}],
        }
    ): "agent",
}


def answering(data: bytes) -> Callable[[Message], Awaitable[bytes]]:
    async def answer(_: Message) -> bytes:
        return data

    return answer


@pytest.mark.parametrize(("rubbish", "named"), RUBBISH.items(), ids=range(len(RUBBISH)))
async def test_figures_of_others_are_told_and_the_rubbish_is_named(rubbish: bytes, named: str, tmp_path: Path) -> None:
    with guarded_server("passwords", PARTIES, tmp_path) as server:
        async with everybody(server, PARTIES) as buses:
            asked = subjects.user("*", "service.figures")
            await buses["honest"].serve(asked, answering(encode(HONEST)))
            await buses["rogue"].serve(asked, answering(rubbish))
            processes = Processes(buses["anna"], ANNA)
            told = await processes.figures()

    assert told == [HONEST]
    (unread,) = processes.unread
    assert named in unread.text()
    assert len(unread.text()) < 1_000


class TwoJobs:
    """An operation whose first job ran on one node and whose second on another."""

    async def get(self, operation: str) -> OperationView:
        spec = OperationSpec(pool="p", argv=["true"], job_count=2, resources=Resources(cpu=100))  # type: ignore[arg-type]
        return OperationView(
            OperationId(operation),
            ANNA,
            spec,
            OperationState.COMPLETED,
            suspended=False,
            ephemeral_pool=False,
            started_at_ms=1,
            ended_at_ms=2,
            completed_jobs=2,
            failed_jobs=0,
            aborted_jobs=0,
            lost_jobs=0,
            open_jobs=0,
        )

    async def jobs(self, operation: str) -> AsyncIterator[JobRow]:
        for index, node in enumerate(("rogue", "honest")):
            yield JobRow(JobSlot(index, 1), result=JobResult.COMPLETED, node=node)


#: Answers of a node that are of no use to a reader, and what the reader is told.
NO_OUTPUT = {
    b"\xff" * 100_000: "cannot be read",
    encode(NotReady("x" * 50)): "not ready",
    encode(BadRequest("offset", "0", "another offset")): "another offset",
    # The same bytes for ever.
    encode(LogChunk(b"drip\n", 0, 1, ended=False, written=2**40)): "read before",
}


@pytest.mark.parametrize("follow", [False, True])
@pytest.mark.parametrize(("rubbish", "told"), NO_OUTPUT.items(), ids=range(len(NO_OUTPUT)))
async def test_output_from_other_nodes_is_read_though_one_node_answers_with_rubbish(
    tmp_path: Path, rubbish: bytes, told: str, follow: bool
) -> None:
    chunks: Mapping[int, bytes] = {
        0: encode(LogChunk(b"water\n", 6, 1, ended=False, written=6)),
        6: encode(LogChunk(b"", 6, 1, ended=True, written=6)),
    }

    async def tell(message: Message) -> bytes:
        return chunks[msgspec.msgpack.decode(message.data).get("offset", 0)]

    with guarded_server("passwords", PARTIES, tmp_path) as server:
        async with everybody(server, PARTIES) as buses:
            await buses["rogue"].serve(subjects.user("*", "job.logs.rogue"), answering(rubbish))
            await buses["honest"].serve(subjects.user("*", "job.logs.honest"), tell)
            asker = Asker(cast("Bus", buses["anna"]), SystemClock(), lambda verb: subjects.user(ANNA, verb), 10.0)
            reader = JobLogReader(
                cast("Questions", TwoJobs()), asker, OperationId("operation-1"), None, {"follow": follow}
            )
            lines = []
            # A reader that does not follow says at the end that a node did not answer.
            with anyio.fail_after(PATIENCE_S), suppress(Unanswered):
                async for line in reader.read():
                    lines += [line]

    assert [(line.index, line.text) for line in lines] == [(0, ""), (1, "water")]
    assert told in lines[0].trouble
    assert len(lines[0].trouble) < 1_000


async def test_a_reader_without_the_right_is_refused_by_the_first_node(tmp_path: Path) -> None:
    refusal = encode(NotAllowed("ben", "read the output", "manage", "pool p"))

    async def withheld(operation: str) -> OperationView:
        return msgspec.structs.replace(await TwoJobs.get(questions, operation), is_withheld=True)

    questions = TwoJobs()
    questions.get = withheld  # type: ignore[method-assign]
    with guarded_server("passwords", PARTIES, tmp_path) as server:
        async with everybody(server, PARTIES) as buses:
            for node in ("rogue", "honest"):
                await buses[node].serve(subjects.user("*", f"job.logs.{node}"), answering(refusal))
            asker = Asker(cast("Bus", buses["anna"]), SystemClock(), lambda verb: subjects.user(ANNA, verb), 10.0)
            reader = JobLogReader(
                cast("Questions", questions), asker, OperationId("operation-1"), None, {"follow": True}
            )
            with anyio.fail_after(PATIENCE_S), pytest.raises(Refused, match="may not"):
                _ = [line async for line in reader.read()]
