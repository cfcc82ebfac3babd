"""`headrace export operations` on a real server: each finished operation once, through kills, refusals and losses of the log."""

from __future__ import annotations

import csv
import json
import random
import threading
import time
from pathlib import Path

import anyio
import anyio.to_thread
import pytest
from pyarrow import parquet

import headrace
from headrace.client.finished import FinishedPage, LogPosition
from headrace.wire import subjects
from headrace_admission.service import serve
from headrace_admission.settings import AdmissionSettings
from headrace_cli.exit_statuses import Exit
from tests.support.effort import few_or_many
from tests.support.ended_operations import LIMIT_S, SETTINGS, World, finish, names_in, world
from tests.support.http_receiver import Receiver, http_receiver
from tests.support.killing import killed
from tests.support.nats_server import NatsServer, nats_server
from tests.support.tree_services import a_bus, running

pytestmark = pytest.mark.long


async def finished(server: NatsServer, position: LogPosition | None = None) -> list[FinishedPage]:
    async with headrace.connect(url=server.url, user="ben") as client:
        return [page async for page in client.finished.pages(position)]


def names(pages: list[FinishedPage]) -> list[str]:
    return [each.operation for page in pages for each in page.operations]


async def until_lines(path: Path, count: int) -> None:
    """Until the file has this many lines."""

    def look() -> None:
        deadline_s = time.monotonic() + LIMIT_S
        while not path.exists() or path.read_bytes().count(b"\n") < count:
            assert time.monotonic() < deadline_s
            time.sleep(0.01)

    await anyio.to_thread.run_sync(look)


async def test_a_file_goes_on_after_its_last_operation_and_drops_a_line_that_was_cut() -> None:
    async with world() as it:
        await finish(it.server, "one", "two")
        await it.run("export", "operations", "ended.jsonl")
        whole = it.file.read_bytes()
        first = json.loads(whole.splitlines()[0])
        await finish(it.server, "three", fails=True, user="ben", pool="lab")
        # A kill between the second line and the position file, in the middle of the third line.
        (it.state / "ended.jsonl.position").unlink()
        it.file.write_bytes(whole + b'{"operation":"thr')
        told = await it.run("export", "operations", "ended.jsonl")
        as_json = await it.run("export", "operations", "ended.jsonl", "--json")
        last = json.loads(it.file.read_bytes().splitlines()[-1])

        assert it.lines() == ["one", "two", "three"]
        assert told.stderr == "1 operation exported to ended.jsonl\n"
        assert json.loads(as_json.stdout) == {"target": "ended.jsonl", "operations": 0, "incomplete": 0}
        assert (first["user"], first["pool"], first["state"], first["cause"]) == (
            "anna",
            "research",
            "completed",
            "jobs_done",
        )
        assert (first["cpu"], first["memory"], first["ran_ms"], first["cpu_ms"]) == (1.5, 2**30, 3000, 900)
        assert (last["state"], last["failed_jobs"], last["pool"], last["is_complete"]) == ("failed", 1, "lab", True)

        it.file.write_bytes(b"not an export\n")
        refused = await it.run("export", "operations", "ended.jsonl", expect=Exit.USAGE)
        assert "ended.jsonl" in refused.stderr
        assert it.file.read_bytes() == b"not an export\n"


@pytest.mark.both
async def test_a_file_is_the_same_wherever_a_kill_cuts_it() -> None:
    draw = random.Random(11)
    async with world() as it:
        beside = it.state / "ended.jsonl.position"
        await finish(it.server, "one")
        await it.run("export", "operations", "ended.jsonl")
        least, older = it.file.stat().st_size, beside.read_bytes()
        await finish(it.server, "two", "three")
        await it.run("export", "operations", "ended.jsonl")
        whole = it.file.read_bytes()
        # The lines are written first, then the position beside them: a kill leaves some first bytes of the lines, and the older position.
        ends = [nth + 1 for nth, byte in enumerate(whole) if byte == ord("\n")]
        for cut in [*ends, *draw.sample(range(least, len(whole)), few_or_many(2, 240))]:
            it.file.write_bytes(whole[:cut])
            beside.write_bytes(older)
            await it.run("export", "operations", "ended.jsonl")
            assert it.file.read_bytes() == whole, cut


@pytest.mark.both
async def test_a_file_has_each_operation_once_whenever_the_exporter_is_killed() -> None:
    draw = random.Random(7)
    kills = few_or_many(4, 240)
    expected: list[str] = []
    async with world() as it:
        for kill in range(kills):
            some = [f"operation-{kill}-{nth}" for nth in range(3)]
            with it.begin("export", "operations", "ended.jsonl", "--follow") as exporter:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(finish, it.server, *some)
                    await until_lines(it.file, len(expected) + 1)
                    await anyio.sleep(draw.random() * 0.01)
                    exporter.kill()
            expected += some
        with it.begin("export", "operations", "ended.jsonl", "--follow") as exporter:
            await until_lines(it.file, len(expected))
            await finish(it.server, "last")
            await until_lines(it.file, len(expected) + 1)
            second = await it.run("export", "operations", "ended.jsonl", expect=Exit.REFUSED)
            exporter.kill()
        lines = it.lines()

    assert "another process" in second.stderr
    assert lines == [*expected, "last"]


@pytest.mark.long
async def test_a_file_goes_on_when_the_server_is_back() -> None:
    async with world() as it:
        await finish(it.server, "one")
        with it.begin("export", "operations", "ended.jsonl", "--follow") as exporter:
            await until_lines(it.file, 1)
            await anyio.to_thread.run_sync(it.server.restart)
            await finish(it.server, "two")
            await until_lines(it.file, 2)
            exporter.kill()
        assert it.lines() == ["one", "two"]


async def sent_to(it: World, receiver: Receiver, *more: str) -> str:
    header = ("--header", "Authorization: Bearer ${TOKEN}")
    done = await it.run("export", "operations", receiver.url, "--position", "ended.position", *header, *more)
    return done.stderr


async def test_an_endpoint_gets_each_operation_though_it_refuses_closes_or_the_exporter_is_killed() -> None:
    async with world() as it:
        with http_receiver(lambda nth: (503, 0, 204)[min(nth, 2)]) as receiver:
            await finish(it.server, "one", "two")
            said = await sent_to(it, receiver)
            assert "it answers 503" in said
            assert said.count("next attempt in") == 2
        assert {each.headers["idempotency-key"] for each in list(receiver.requests.queue)} == {
            receiver.accepted[0].headers["idempotency-key"]
        }
        assert receiver.accepted[0].headers["authorization"] == "Bearer secret-of-the-test"
        assert "secret-of-the-test" not in said

        await finish(it.server, "three")
        with http_receiver(lambda _: 500) as receiver:
            with it.begin("export", "operations", receiver.url, "--position", "ended.position") as exporter:
                refused = await anyio.to_thread.run_sync(receiver.next)
                exporter.kill()
            await finish(it.server, "four")
            receiver.answer = lambda _: 204
            await sent_to(it, receiver)
        again, rest = receiver.accepted
        assert again.body == refused.body
        assert again.headers["idempotency-key"] == refused.headers["idempotency-key"]
        assert (names_in(again.body), names_in(rest.body)) == (["three"], ["four"])


@pytest.mark.long
async def test_an_endpoint_that_hangs_is_asked_again() -> None:
    go_on = threading.Event()

    def answer(nth: int) -> int:
        return 204 if nth or go_on.wait(LIMIT_S) else 500

    async with world() as it:
        with http_receiver(answer) as receiver:
            await finish(it.server, "one")
            said = await sent_to(it, receiver)
            go_on.set()

    assert "it does not answer (ReadTimeout)" in said
    assert names_in(receiver.accepted[0].body) == ["one"]


async def test_a_table_has_the_operations_of_its_period_and_replaces_the_file() -> None:
    async with world() as it:
        await finish(it.server, "one", "two")
        (it.state / "ended.csv").write_text("old")
        for format_ in ("csv", "parquet"):
            await it.run("export", "operations", f"ended.{format_}", "--format", format_, "--since", "1h")
        empty = await it.run("export", "operations", "--format", "csv", "--until", "2020-01-01")
        rows = list(csv.DictReader((it.state / "ended.csv").read_text().splitlines()))
        table = parquet.read_table(it.state / "ended.parquet").to_pylist()

    assert [row["operation"] for row in rows] == ["one", "two"]
    assert [row["title"] for row in rows] == ["'=1+anna"] * 2
    assert [row["operation"] for row in table] == ["one", "two"]
    assert table[0]["ended_at_ms"].timestamp() * 1000 == int(rows[0]["ended_at_ms"])
    assert (table[0]["cpu"], rows[0]["cpu"], rows[0]["is_complete"]) == (1.5, "1.5", "true")
    assert empty.stdout.count("\n") == 1


async def test_operations_that_admission_has_forgotten_are_known_from_the_log() -> None:
    async with world(AdmissionSettings(administrators="*", keep_finished=1)) as it:
        await finish(it.server, *(f"operation-{nth}" for nth in range(5)))
        pages = await finished(it.server)
        (first, *_, last) = [each for page in pages for each in page.operations]

    assert [first.operation, last.operation] == ["operation-0", "operation-4"]
    plain = ("operation", "started_at_ms", "ended_at_ms", "position")
    facts = [
        {name: getattr(each, name) for name in each.__struct_fields__ if name not in plain} for each in (first, last)
    ]
    assert facts[0] == facts[1]


async def test_entries_that_were_removed_before_they_were_read_are_named() -> None:
    async with world() as it:
        await finish(it.server, "one")
        await it.run("export", "operations", "ended.jsonl")
        await finish(it.server, "two", "three")
        (*_, last) = await finished(it.server)
        await finish(it.server, "four")
        async with a_bus(it.server) as bus:
            await (await bus.log(subjects.STREAM, subjects.LOG)).forget(last.position.sequence)
        said = (await it.run("export", "operations", "ended.jsonl")).stderr

        assert it.lines() == ["one", "four"]
        assert f"to {last.position.sequence} of the log were removed before they were read" in said


async def test_reading_goes_on_when_the_log_has_lost_its_newest_entries_or_is_another() -> None:
    with nats_server() as server:
        async with killed(server, SETTINGS, serve):
            await finish(server, "one", "two")
            ahead = (await finished(server))[-1].position
        async with running(server, SETTINGS, serve):
            await finish(server, "three")
            behind = LogPosition(ahead.term, ahead.sequence + 1_000, 1)
            after_loss = names(await finished(server, behind))
            of_another = names(await finished(server, LogPosition(ahead.term + 1_000, 3, 1)))

    assert after_loss == ["three"]
    assert of_another == ["one", "two", "three"]
