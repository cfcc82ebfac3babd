"""admission's real shell on a real server: what it answered is durable, and nothing foreign moves it."""

from __future__ import annotations

import gc
from collections.abc import Awaitable, Iterator
from contextlib import suppress
from typing import Any

import anyio
import msgspec
import pytest
from hypothesis import given, settings

import headrace
from headrace.bus import Bus, BusError, Message, PermissionRefused
from headrace.bus.nats.bus import NatsBus
from headrace.bus.nats.streams.mirror import BucketMirror
from headrace.bus.nats.streams.writes import NatsWrites
from headrace.ids import AllocationId, NodeName, OperationId, PoolName, TreeName
from headrace.pools import Pool, Tree
from headrace.resources import Resources
from headrace.runtime.copied_bucket import CopiedBucket
from headrace.runtime.role import Deposed, Role, role_of
from headrace.wire import ledger, subjects
from headrace.wire.codec import decode, encode
from headrace.wire.consumption import GetConsumption
from headrace.wire.figures import FiguresAnswer
from headrace.wire.groups import AskGroups, ChangeGroup, GetGroup
from headrace.wire.heartbeat import JobEnd, JobResult
from headrace.wire.log import JobsEnded, Published
from headrace.wire.logs import AskLogReader
from headrace.wire.lost_work import GetLostWork
from headrace.wire.nodes import (
    ChangedNode,
    ChangeNode,
    Enrol,
    Enrolled,
    GivenUpNode,
    GiveUpNode,
    LongestLeaseRecord,
    NodeChange,
    NodeRecord,
)
from headrace.wire.operations import (
    AbortOperation,
    CompleteOperation,
    CountPools,
    ExplainOperation,
    GetJobs,
    GetOperation,
    JobPage,
    ListOperations,
    OperationList,
    OperationSpec,
    OperationState,
    OperationView,
    PerTree,
    ResumeOperation,
    ScanQueues,
    StartAnswer,
    StartOperation,
    SuspendOperation,
    UpdateOperation,
)
from headrace.wire.refusals import (
    BadRequest,
    Busy,
    Exists,
    NotAllowed,
    NotFound,
    NotReady,
    NotRecorded,
    WrongState,
    decode_answer,
)
from headrace.wire.rights import GetRights
from headrace.wire.services import ListServices, ServiceView
from headrace_admission.decisions import operation_changes
from headrace_admission.decisions.transaction import Transaction
from headrace_admission.engine import AdmissionEngine
from headrace_admission.log import checkpointing
from headrace_admission.log.checkpoint import CheckpointStore
from headrace_admission.log.restoring import LogFollower
from headrace_admission.nodes.enrolment import GivingUp, enrol
from headrace_admission.pools_watch import PoolsWatch
from headrace_admission.service import AdmissionService, serve
from headrace_admission.settings import AdmissionSettings
from headrace_admission.state.operation import OperationRecord
from tests.contract.waiting import eventually
from tests.support.clocks import NOW, HandClock
from tests.support.effort import few_or_many
from tests.support.killing import killed
from tests.support.mutate import mutated_for
from tests.support.nats_server import NatsServer, nats_server
from tests.support.tree_services import a_bus, ask, running, stand_in_for

SETTINGS = AdmissionSettings(administrators="*")
TREE = TreeName("default")


@pytest.fixture
def server() -> Iterator[NatsServer]:
    with nats_server() as started:
        yield started


def a_start(name: str = "operation-1", jobs: int = 3, pool: str = "research", **spec: Any) -> StartOperation:
    return StartOperation(
        OperationId(name),
        OperationSpec(
            pool=PoolName(pool), argv=["true"], job_count=jobs, resources=Resources(user_slots=1, cpu=100), **spec
        ),
    )


def an_end(index: int, result: JobResult, attempt: int = 1, operation: str = "operation-1") -> ledger.ReportedEnd:
    return ledger.ReportedEnd(
        NodeName("n1"),
        JobEnd(
            operation=OperationId(operation),
            index=index,
            attempt=attempt,
            allocation=AllocationId("1-1"),
            result=result,
            exit_code=0 if result is JobResult.COMPLETED else 1,
            stderr_tail="the last words",
        ),
    )


async def request(server: NatsServer, verb: str, message: msgspec.Struct, answer: Any, user: str = "anna") -> Any:
    async with a_bus(server, "user", user) as bus:
        return await ask(bus, subjects.user(user, verb), message, answer)


async def as_allocator(server: NatsServer, verb: str, message: msgspec.Struct, answer: Any) -> Any:
    async with a_bus(server, "service", "allocator") as bus:
        await stand_in_for(bus, role_of("allocator", TREE))
        return await ask(bus, subjects.ledger(verb), message, answer)


async def test_a_start_that_was_answered_outlives_a_kill(server: NatsServer) -> None:
    async with killed(server, SETTINGS, serve):
        answer = await request(server, "op.start", a_start(), StartAnswer)
        assert answer.state is OperationState.RUNNING

    async with running(server, SETTINGS, serve):
        view = await request(server, "op.get", GetOperation(OperationId("operation-1")), OperationView)

    assert view.spec == a_start().spec
    assert view.user == "anna"


@pytest.mark.parametrize("who_waits", ["anna", "ben"])
async def test_news_of_an_operation_do_not_carry_its_command_and_who_waits_gets_it_whole(
    server: NatsServer, who_waits: str
) -> None:
    argv = ["x" * 100_000, "y"]
    start = a_start(jobs=1)
    start = msgspec.structs.replace(start, spec=msgspec.structs.replace(start.spec, argv=argv, working_directory="/w"))
    async with (
        running(server, SETTINGS, serve),
        headrace.connect(url=server.url, user=who_waits) as client,
        a_bus(server, "user", "anna") as bus,
        anyio.create_task_group() as tasks,
    ):
        news = await bus.subscribe(subjects.operation_view("anna", "operation-1"))
        await request(server, "op.start", start, StartAnswer)
        await as_allocator(server, "attach", ledger.Attach(TREE, 1), ledger.Attached)
        seen: list[OperationView] = []

        async def wait() -> None:
            seen.append(await client.wait("operation-1", seen.append, timeout_s=20))

        tasks.start_soon(wait)
        await eventually(lambda: seen)
        end = ledger.ReportEnds(TREE, 1, [an_end(0, JobResult.COMPLETED)])
        await as_allocator(server, "report", end, ledger.ReportAnswer)
        sizes = [len((await anext(news)).data) for _ in range(2)]

    assert max(sizes) < 2_000
    assert seen[-1].state is OperationState.COMPLETED
    assert [(view.spec.argv, view.spec.working_directory) for view in seen] == [(argv, "/w")] * len(seen)


async def test_another_user_is_answered_before_the_flood_of_one_is_done_and_nobodys_request_is_lost(
    server: NatsServer,
) -> None:
    flood, command = 45, ["x" * 100_000]
    answered: list[str] = []

    async with (
        running(server, SETTINGS, serve),
        a_bus(server, "user", "mallory") as mallory,
        a_bus(server, "user", "anna") as anna,
        anyio.create_task_group() as tasks,
    ):

        async def start(bus: Bus, user: str, name: str, argv: list[str]) -> None:
            wanted = a_start(name)
            wanted = msgspec.structs.replace(wanted, spec=msgspec.structs.replace(wanted.spec, argv=argv))
            answer = await bus.request(subjects.user(user, "op.start"), encode(wanted), timeout_s=60)
            assert isinstance(decode_answer(answer, StartAnswer), StartAnswer | Busy)
            answered.append(user)

        await request(server, "op.start", a_start("operation-0"), StartAnswer)
        for number in range(flood):
            tasks.start_soon(start, mallory, "mallory", f"flood-{number:04}", command)
        await eventually(lambda: answered)
        tasks.start_soon(start, anna, "anna", "operation-1", ["true"])

    assert len(answered) == flood + 1
    assert answered.index("anna") < flood / 2


async def test_everything_is_as_it_was_after_a_checkpoint_and_more_events(server: NatsServer) -> None:
    async with running(server, SETTINGS, serve):
        await request(server, "op.start", a_start(), StartAnswer)
        await as_allocator(server, "attach", ledger.Attach(TREE, 1), ledger.Attached)
        ends = [an_end(0, JobResult.COMPLETED), an_end(1, JobResult.FAILED)]
        await as_allocator(server, "report", ledger.ReportEnds(TREE, 1, ends), ledger.ReportAnswer)
    async with killed(server, SETTINGS, serve):
        await as_allocator(
            server, "report", ledger.ReportEnds(TREE, 1, [an_end(1, JobResult.LOST, attempt=2)]), ledger.ReportAnswer
        )
        before = await request(server, "op.get", GetOperation(OperationId("operation-1")), OperationView)
        rows = await request(server, "op.jobs", GetJobs(OperationId("operation-1")), JobPage)

    async with running(server, SETTINGS, serve):
        after = await request(server, "op.get", GetOperation(OperationId("operation-1")), OperationView)
        rows_after = await request(server, "op.jobs", GetJobs(OperationId("operation-1")), JobPage)

    assert (after.completed_jobs, after.failed_jobs, after.lost_jobs, after.open_jobs) == (1, 1, 1, 2)
    assert after == before
    assert rows_after == rows


async def test_the_checkpoint_of_a_service_that_stops_is_written_without_pauses(
    server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpointing, "_BETWEEN_PAGES_S", 3_600)
    async with running(server, SETTINGS, serve):
        for number in range(6):
            start = a_start(f"operation-{number}", environment={"LONG": "x" * 60_000})
            await request(server, "op.start", start, StartAnswer)

    async with a_bus(server, "service", "reader") as bus:
        operations: list[OperationRecord] = []
        store = CheckpointStore(await bus.key_value(subjects.CHECKPOINT_BUCKET), 9)
        await store.read(lambda page: operations.extend(page.operations))
    assert len(operations) == 6


async def test_the_log_is_bounded_by_bytes_and_nothing_is_forgotten_that_no_checkpoint_covers(
    server: NatsServer,
) -> None:
    """Bounded by entries alone, it once held up to 25 GB."""
    bounds = AdmissionSettings(administrators="*", checkpoint_bytes=300_000, keep_bytes=500_000)
    names = [f"operation-{number:02}" for number in range(30)]
    async with killed(server, bounds, serve), a_bus(server, "service", "reader") as bus:
        log = await bus.log(subjects.STREAM, subjects.LOG)
        for name in names:
            await request(server, "op.start", a_start(name, environment={"LONG": "x" * 60_000}), StartAnswer)
        with anyio.fail_after(20):
            while await log.size_bytes() > 800_000:  # noqa: ASYNC110 - the server tells nobody
                await anyio.sleep(0.02)

    async with running(server, bounds, serve):
        listed = await request(server, "op.list", ListOperations(), OperationList)

    assert sorted(view.operation for view in listed.operations) == names


async def test_the_same_id_gets_the_first_answer_and_another_user_or_operation_is_refused(server: NatsServer) -> None:
    async with running(server, SETTINGS, serve):
        first = await request(server, "op.start", a_start(), StartAnswer)
        again = await request(server, "op.start", a_start(), StartAnswer)
        larger = await request(server, "op.start", a_start(jobs=99), StartAnswer)
        other = await request(server, "op.start", a_start(), StartAnswer, user="boris")
        listed = await request(server, "op.list", ListOperations(), OperationList)

    assert again == msgspec.structs.replace(first, repeated=True)
    assert isinstance(other, Exists)
    assert larger == Exists("operation", "operation-1", where="with another number of jobs")
    assert [view.spec.job_count for view in listed.operations] == [3]


async def test_an_entry_for_a_tree_without_a_pool_changes_the_weight_there(server: NatsServer) -> None:
    """No coroutine is left behind that nobody awaits, which would fail this test."""
    entries = {TREE: PerTree(weight=4.0)}
    async with running(server, SETTINGS, serve):
        await request(server, "op.start", a_start(), StartAnswer)
        change = UpdateOperation(OperationId("operation-1"), scheduling_options_per_pool_tree=entries)
        changed = await request(server, "op.update", change, OperationView)
        gc.collect()

    assert changed.spec.scheduling_options_per_pool_tree[TREE].weight == 4.0


async def test_an_unknown_pool_is_made_for_the_time_of_its_operations_and_near_names_are_told(
    server: NatsServer,
) -> None:
    async with a_bus(server, "service", "configuring") as bus:
        bucket = await bus.key_value(subjects.POOLS_BUCKET, history=64)
        tree = Tree(TREE, [Pool(PoolName("research"), PoolName("<Root>"))])
        await bucket.put("default", msgspec.json.encode(tree))
    async with running(server, SETTINGS, serve):
        meant = await request(server, "op.start", a_start(pool="research"), StartAnswer)
        mistyped = await request(server, "op.start", a_start("operation-2", pool="reserch"), StartAnswer)

    assert not meant.ephemeral_pool
    assert mistyped.ephemeral_pool
    assert mistyped.near == ["research"]


async def test_a_tree_that_was_removed_while_no_admission_lived_is_taken_from_its_operations(
    server: NatsServer,
) -> None:
    other = TreeName("gpu")
    async with a_bus(server, "service", "configuring") as bus:
        bucket = await CopiedBucket.open(bus, subjects.POOLS_BUCKET, history=subjects.POOLS_HISTORY)
        for tree in (TREE, other):
            await bucket.put(tree, msgspec.json.encode(Tree(tree)))
    async with killed(server, SETTINGS, serve):
        await request(server, "op.start", a_start("operation-1", pool_trees=[other]), StartAnswer)
        await request(server, "op.start", a_start("operation-2", pool_trees=[TREE, other]), StartAnswer)
    async with a_bus(server, "service", "configuring") as bus:
        await (await CopiedBucket.open(bus, subjects.POOLS_BUCKET)).delete(other)

    async with running(server, SETTINGS, serve):
        views = [
            await request(server, "op.get", GetOperation(OperationId(name)), OperationView)
            for name in ("operation-1", "operation-2")
        ]

    assert [view.state for view in views] == [OperationState.ABORTING, OperationState.RUNNING]
    assert [place.tree for place in views[1].placements] == [TREE]
    assert views[1].erased_trees == [other]


async def test_starts_into_pools_that_nobody_configured_read_all_pools_once_and_not_again(
    server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each once did, and there were 173 a second instead of 1,349."""
    reads: list[BucketMirror] = []
    read_whole = BucketMirror._read_whole

    async def counted(mirror: BucketMirror) -> None:
        if mirror._stream.endswith(subjects.POOLS_BUCKET):
            reads.append(mirror)
        await read_whole(mirror)

    monkeypatch.setattr(BucketMirror, "_read_whole", counted)
    async with running(server, SETTINGS, serve):
        for user in ("anna", "boris", "clara"):
            answer = await request(server, "op.start", a_start(f"operation-{user}", pool=f"{user}s"), StartAnswer, user)
            assert isinstance(answer, StartAnswer)

    # By one mirror it decides, by the other it writes again what is lost.
    assert len(reads) == 2


async def test_a_pool_that_was_just_written_is_found_though_no_watch_tells_and_nothing_is_asked_without_a_write(
    server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[BucketMirror] = []
    catch_up = BucketMirror.catch_up

    async def counted(mirror: BucketMirror, *, timeout_s: float) -> bool:
        looks.append(mirror)
        return await catch_up(mirror, timeout_s=timeout_s)

    async with running(server, SETTINGS, serve), a_bus(server, "service", "configuring") as bus:
        await request(server, "op.list", ListOperations(), OperationList)
        monkeypatch.setattr(BucketMirror, "catch_up", counted)
        unknown = await request(server, "op.start", a_start(), StartAnswer)
        looked_before_a_write = len(looks)
        monkeypatch.setattr(BucketMirror, "_take_updates", lambda _mirror: None)
        tree = Tree(TREE, [Pool(PoolName("new"), PoolName("<Root>"))])
        await (await bus.key_value(subjects.POOLS_BUCKET, history=64)).put(TREE, msgspec.json.encode(tree))
        written = await request(server, "op.start", a_start("operation-2", pool="new"), StartAnswer)

    assert unknown.ephemeral_pool
    assert looked_before_a_write == 0
    assert not written.ephemeral_pool
    assert len(looks) == 1


async def test_once_the_mirror_has_what_was_written_no_start_into_an_unknown_pool_looks(
    server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[BucketMirror] = []
    catch_up = BucketMirror.catch_up

    async def counted(mirror: BucketMirror, *, timeout_s: float) -> bool:
        looks.append(mirror)
        return await catch_up(mirror, timeout_s=timeout_s)

    async with running(server, SETTINGS, serve), a_bus(server, "service", "configuring") as bus:
        await request(server, "op.list", ListOperations(), OperationList)
        bucket = await bus.key_value(subjects.POOLS_BUCKET, history=64)
        monkeypatch.setattr(BucketMirror, "catch_up", counted)
        found, asked = [], []
        for number in range(3):
            tree = Tree(TREE, [Pool(PoolName(f"new-{number}"), PoolName("<Root>"))])
            revision = await bucket.put(TREE, msgspec.json.encode(tree))
            start = a_start(f"operation-{number}", pool=f"new-{number}")
            start = msgspec.structs.replace(start, min_revision=revision)
            found.append(await request(server, "op.start", start, StartAnswer, f"user-{number}"))
            before = len(looks)
            unknown = a_start(f"operation-of-{number}", pool=f"unknown-{number}")
            answer = await request(server, "op.start", unknown, StartAnswer, f"user-{number}")
            assert answer.ephemeral_pool
            asked.append(len(looks) - before)

    assert [each.ephemeral_pool for each in found] == [False] * 3
    assert asked == [0] * 3


async def test_without_the_right_to_hear_writes_each_start_into_an_unknown_pool_looks(
    server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refused(_bus: NatsBus, bucket: str) -> NatsWrites:
        raise PermissionRefused(bucket)

    monkeypatch.setattr(NatsBus, "writes", refused)
    async with running(server, SETTINGS, serve), a_bus(server, "service", "configuring") as bus:
        await request(server, "op.list", ListOperations(), OperationList)
        monkeypatch.setattr(BucketMirror, "_take_updates", lambda _mirror: None)
        tree = Tree(TREE, [Pool(PoolName("new"), PoolName("<Root>"))])
        await (await bus.key_value(subjects.POOLS_BUCKET, history=64)).put(TREE, msgspec.json.encode(tree))
        answer = await request(server, "op.start", a_start(pool="new"), StartAnswer)

    assert not answer.ephemeral_pool


async def test_what_was_recorded_is_told_to_services_before_it_is_told_to_people(server: NatsServer) -> None:
    """The walk to a process goes on by the event; on a small machine whoever is told first runs first."""
    view = subjects.operation_view("anna", OperationId("operation-1"))
    async with running(server, SETTINGS, serve), a_bus(server, "service", "reader") as reader:
        inbox = await reader.subscribe(subjects.EVENTS, view)
        await request(server, "op.start", a_start(), StartAnswer)
        told: list[str] = []
        while len(set(told)) < 2:
            message = await anext(inbox)
            # One without events only tells how far the log is.
            if message.subject == view or decode(message.data, Published).events:
                told.append(message.subject)

    assert told[0] == subjects.EVENTS


async def test_failed_jobs_run_again_until_there_are_too_many(server: NatsServer) -> None:
    """The limit is 2: the first failure is retried, the second fails the operation, whose other jobs are let go."""
    async with running(server, SETTINGS, serve), a_bus(server, "service", "reader") as reader:
        events = await reader.subscribe(subjects.EVENTS)
        await request(server, "op.start", a_start(max_failed_job_count=2), StartAnswer)
        for attempt in (1, 2):
            ends = ledger.ReportEnds(TREE, 1, [an_end(0, JobResult.FAILED, attempt)])
            await as_allocator(server, "report", ends, ledger.ReportAnswer)
        failing = await request(server, "op.get", GetOperation(OperationId("operation-1")), OperationView)
        await as_allocator(
            server, "released", ledger.Released(TREE, 1, [OperationId("operation-1")]), ledger.ReleasedAnswer
        )
        failed = await request(server, "op.get", GetOperation(OperationId("operation-1")), OperationView)
        retries = []
        async for message in events:
            published = decode(message.data, Published)
            retries += [e.ends[0].retry for e in published.events if isinstance(e, JobsEnded)]
            if len(retries) == 2:
                break

    assert [retry.attempt if retry else None for retry in retries] == [2, None]
    assert failing.state is OperationState.FAILING
    assert failed.state is OperationState.FAILED
    assert "max_failed_job_count is 2" in failed.reason
    assert failed.last_failures[-1].stderr_tail == "the last words"


async def test_while_the_log_is_away_a_start_is_not_recorded_and_its_id_may_be_retried(server: NatsServer) -> None:
    """The log's stream is taken away under the running service, so that its appends get no answer."""
    quick = AdmissionSettings(administrators="*", answer_deadline_ms=200)
    async with running(server, quick, serve), a_bus(server, "user", "anna") as bus:
        assert isinstance(await ask(bus, subjects.user("anna", "op.start"), a_start(), StartAnswer), StartAnswer)
        server.freeze()
        try:
            with pytest.raises(BusError):
                await bus.request(subjects.user("anna", "op.start"), encode(a_start("operation-2")), timeout_s=0.5)
        finally:
            server.thaw()
        answers: list[Any] = []
        with anyio.fail_after(20):
            while not any(isinstance(answer, StartAnswer) for answer in answers):
                try:
                    answers.append(
                        await ask(bus, subjects.user("anna", "op.start"), a_start("operation-2"), StartAnswer)
                    )
                except BusError:
                    await anyio.sleep(0.05)
        listed = await ask(bus, subjects.user("anna", "op.list"), ListOperations(), OperationList)

    assert [view.operation for view in listed.operations] == ["operation-2", "operation-1"]
    assert all(isinstance(answer, StartAnswer | NotRecorded) for answer in answers)


async def test_while_the_disk_is_full_every_refusal_says_so_and_so_does_the_list_of_services(
    server: NatsServer,
) -> None:
    quick = AdmissionSettings(administrators="*", answer_deadline_ms=200, longest_waiting_ms=500)
    async with running(server, quick, serve), a_bus(server, "user", "anna") as bus:

        async def trouble() -> str:
            view = await ask(bus, subjects.user("anna", "service.list"), ListServices(), ServiceView)
            assert isinstance(view, ServiceView)
            return view.trouble

        def start(number: int) -> Awaitable[Any]:
            return ask(bus, subjects.user("anna", "op.start"), a_start(f"operation-{number}"), StartAnswer)

        assert isinstance(await start(1), StartAnswer)
        assert await trouble() == ""
        server.fill_disk()
        refusals = []
        with anyio.fail_after(30):
            while not await trouble():
                refusals.append(await start(2))
        refusals.append(await start(3))

        assert {type(refusal) for refusal in refusals} == {NotRecorded, Busy}
        assert {refusal.text() for refusal in refusals if "disk is full" not in refusal.text()} == set()
        assert "disk is full" in await trouble()
        # Nobody was told that it is, and should admission end now it never was.
        listed = await ask(bus, subjects.user("anna", "op.list"), ListOperations(), OperationList)
        assert isinstance(listed, OperationList)
        assert [each.operation for each in listed.operations] == ["operation-1"]
        got = await ask(bus, subjects.user("anna", "op.get"), GetOperation(OperationId("operation-2")), OperationView)
        assert isinstance(got, NotReady)
        assert "disk is full" in got.text()

        server.restart()
        answer = None
        with anyio.fail_after(30):
            while not isinstance(answer, StartAnswer):
                await anyio.sleep(0.05)
                with suppress(BusError):
                    answer = await start(2)
        assert await trouble() == ""


async def test_a_former_admission_is_fenced_off_by_its_successor(
    server: NatsServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first one lives on; its next append is refused by the log, and it gives up. That is no failure of a handler."""
    with pytest.RaisesGroup(pytest.RaisesExc(Deposed), flatten_subgroups=True):
        async with killed(server, SETTINGS, serve, "first"):
            await request(server, "op.start", a_start(), StartAnswer)
            async with running(server, SETTINGS, serve, "second"):
                await request(server, "op.start", a_start("operation-2"), StartAnswer)
            with anyio.fail_after(20):
                while True:
                    await request(server, "op.abort", AbortOperation(OperationId("operation-1")), OperationView)
                    await anyio.sleep(0.05)
    assert "handler failed" not in capsys.readouterr().err


async def test_a_decision_that_fails_half_way_ends_the_process_and_its_successor_knows_nothing_of_it(
    server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it had applied and not recorded would go on: the state and the log would tell two stories."""
    whole = operation_changes.abort

    def half(transaction: Transaction, asked: AbortOperation, user: str) -> object:
        raise ZeroDivisionError(whole(transaction, asked, user))

    abort, get = AbortOperation(OperationId("operation-1")), GetOperation(OperationId("operation-1"))
    with pytest.RaisesGroup(pytest.RaisesExc(Deposed, match="ZeroDivisionError"), flatten_subgroups=True):
        async with killed(server, SETTINGS, serve, "first"):
            await request(server, "op.start", a_start(), StartAnswer)
            monkeypatch.setattr(operation_changes, "abort", half)
            with anyio.fail_after(20):
                with suppress(BusError):
                    await request(server, "op.abort", abort, OperationView)
                await anyio.sleep_forever()
    monkeypatch.undo()

    async with running(server, SETTINGS, serve, "second"):
        known = await request(server, "op.get", get, OperationView)
        aborted = await request(server, "op.abort", abort, OperationView)

    assert known.state is OperationState.RUNNING
    assert aborted.state is not OperationState.RUNNING


async def test_a_node_is_enrolled_once_and_cannot_speak_for_another(server: NatsServer) -> None:
    async with running(server, SETTINGS, serve), a_bus(server, "node", "n1") as node:
        first = await ask(node, subjects.enrol("n1"), Enrol(NodeName("n1")), Enrolled)
        again = await ask(node, subjects.enrol("n1"), Enrol(NodeName("n1")), Enrolled)
        forged = await ask(node, subjects.enrol("n1"), Enrol(NodeName("n2")), Enrolled)

    assert isinstance(first, Enrolled)
    assert again == first
    assert isinstance(forged, BadRequest)


async def test_a_node_is_changed_by_an_administrator_and_removed_only_once_its_allocator_gave_it_up(
    server: NatsServer,
) -> None:
    settings = AdmissionSettings(administrators="anna")
    refused = NotAllowed(who="bob", what="change node n1", administrators=["anna"])
    asked: list[GiveUpNode] = []

    async def change(what: NodeChange, node: str = "n1", user: str = "anna") -> Any:
        return await request(server, "node.change", ChangeNode(NodeName(node), what), ChangedNode, user)

    async def give_up(message: Message) -> bytes:
        asked.append(decode(message.data, GiveUpNode))
        alive = WrongState("node", "n1", "online", "silent")
        return encode(alive if len(asked) == 1 else GivenUpNode(NodeName("n1"), 0))

    async with (
        running(server, settings, serve),
        a_bus(server, "node", "n1") as node,
        a_bus(server, "service", "allocator") as allocator,
    ):
        await ask(node, subjects.enrol("n1"), Enrol(NodeName("n1")), Enrolled)
        records = await allocator.key_value(subjects.NODES_BUCKET)

        async def record() -> NodeRecord:
            entry = await records.get("n1")
            assert entry is not None
            return msgspec.json.decode(entry.value, type=NodeRecord)

        async def drained() -> bool:
            return (await record()).drained

        assert await change(NodeChange.DRAIN, user="bob") == refused
        assert isinstance(await change(NodeChange.DRAIN, "n2"), NotFound)
        first = await change(NodeChange.DRAIN)
        assert first.drain.by == "anna"
        assert await change(NodeChange.DRAIN) == first
        await ask(node, subjects.enrol("n1"), Enrol(NodeName("n1"), tags=["new"]), Enrolled)
        assert await drained()
        # The allocator clears a node that it holds back, drained or not, each time the number rises.
        for times in (1, 2):
            assert await change(NodeChange.UNDRAIN) == ChangedNode(NodeName("n1"))
            assert ((await record()).drained, (await record()).undrained) == (False, times)
        assert isinstance(await change(NodeChange.REMOVE), NotReady)
        await allocator.serve(subjects.give_up_node(TREE), give_up)
        assert isinstance(await change(NodeChange.REMOVE), WrongState)
        assert await records.get("n1") is not None
        assert await change(NodeChange.REMOVE) == ChangedNode(NodeName("n1"))
        assert await records.get("n1") is None


async def test_a_change_of_what_can_be_no_node_is_refused_with_the_rule(server: NatsServer) -> None:
    async with running(server, SETTINGS, serve):
        for name in ("", "..", "N1", "a b", "*"):
            refused = await request(server, "node.change", ChangeNode(NodeName(name), NodeChange.DRAIN), ChangedNode)
            assert isinstance(refused, BadRequest), name
            assert (refused.place, refused.value) == ("node name", name)


async def test_a_node_moves_to_another_tree_once_nothing_of_the_former_one_may_run_on_it(server: NatsServer) -> None:
    """The former tree's allocator may have gone with its tree: its nodes then wait for their lease, and not for ever."""
    clock, record = HandClock(), NodeRecord(NodeName("n1"), TREE, machine="m1")
    moved = Enrol(NodeName("n1"), TreeName("west"), machine="m1")
    answers: list[msgspec.Struct] = [WrongState("node", "n1", "online", "silent"), GivenUpNode(NodeName("n1"), 0)]

    async def give_up(_message: Message) -> bytes:
        return encode(answers.pop(0))

    async def claim(_message: Message) -> bytes:
        return encode(FiguresAnswer("allocator", [], role=f"allocator.{TREE}", term=1))

    async with (
        a_bus(server, "service", "admission") as bus,
        a_bus(server, "service", "allocator") as allocator,
        a_bus(server, "node", "n2") as liar,
    ):
        # A node that calls itself the allocator keeps no tree alive.
        await liar.serve(subjects.FIGURES, claim)
        nodes = await bus.key_value(subjects.NODES_BUCKET)
        await nodes.update("n1", msgspec.json.encode(record), 0)
        leases = await bus.key_value(subjects.NODE_LEASES_BUCKET)
        await leases.update(TREE, msgspec.json.encode(LongestLeaseRecord(term=1, lease_ms=600_000)), 0)
        giving_up = GivingUp(bus, clock)
        for now_s, is_over in ((0.0, False), (500.0, False), (605.0, False), (607.0, True)):
            clock.now_s = now_s
            assert isinstance(await giving_up(record, ""), GivenUpNode if is_over else NotReady), now_s
        serving = await allocator.serve(subjects.give_up_node(TREE), give_up)
        refused = await enrol(nodes, moved, clock.now(), giving_up)
        assert isinstance(refused, WrongState)
        assert (
            refused.text() == "node n1 is in tree default and may run jobs of that tree; expected a node of tree west"
        )
        assert isinstance(await enrol(nodes, moved, clock.now(), giving_up), Enrolled)
        await serving.close()
        entry = await nodes.get("n1")
        assert entry is not None
        assert msgspec.json.decode(entry.value, type=NodeRecord).tree == "west"


async def test_an_answer_is_never_sent_to_another_party(server: NatsServer) -> None:
    """A request that wants its answer at somebody else's inbox is counted as forged and gets none."""
    async with (
        running(server, SETTINGS, serve) as runtime,
        a_bus(server, "user", "victim") as victim,
        a_bus(server, "user", "forger") as forger,
    ):
        await ask(victim, subjects.user("victim", "op.list"), ListOperations(), OperationList)
        with pytest.raises(BusError):
            await forger.request(subjects.user("victim", "op.list"), encode(ListOperations()), timeout_s=0.3)

        assert runtime.endpoints.forged == 1


async def test_bad_requests_name_the_place_the_value_and_what_was_expected(server: NatsServer) -> None:
    async with running(server, SETTINGS, serve):
        name = await request(server, "op.start", a_start(pool="No Pool"), StartAnswer)
        nothing = a_start()
        nothing = msgspec.structs.replace(
            nothing, spec=msgspec.structs.replace(nothing.spec, resources=Resources(user_slots=1))
        )
        empty = await request(server, "op.start", nothing, StartAnswer)
        missing = await request(server, "op.get", GetOperation(OperationId("no-such-one")), OperationView)
        state = await request(server, "op.list", ListOperations(state="runing"), OperationList)

    assert (name.place, name.value) == ("pool", "No Pool")
    assert empty.place == "spec.resources"
    assert isinstance(missing, NotFound)
    assert "running" in state.expected


HANDLERS: list[tuple[str, str, Any]] = [
    (subjects.user("anna", "op.start"), "user", StartOperation),
    (subjects.user("anna", "op.get"), "user", GetOperation),
    (subjects.user("anna", "op.list"), "user", ListOperations),
    (subjects.user("anna", "op.jobs"), "user", GetJobs),
    (subjects.user("anna", "op.abort"), "user", AbortOperation),
    (subjects.user("anna", "op.explain"), "user", ExplainOperation),
    (subjects.user("anna", "op.update"), "user", UpdateOperation),
    (subjects.user("anna", "op.suspend"), "user", SuspendOperation),
    (subjects.user("anna", "op.resume"), "user", ResumeOperation),
    (subjects.user("anna", "op.complete"), "user", CompleteOperation),
    (subjects.user("anna", "op.scan"), "user", ScanQueues),
    (subjects.user("anna", "pool.counts"), "user", CountPools),
    (subjects.user("anna", "pool.lost_work"), "user", GetLostWork),
    (subjects.user("anna", "consumption"), "user", GetConsumption),
    (subjects.user("anna", "node.change"), "user", ChangeNode),
    (subjects.user("anna", "rights"), "user", GetRights),
    (subjects.user("anna", "group.change"), "user", ChangeGroup),
    (subjects.user("anna", "group.get"), "user", GetGroup),
    (subjects.GROUPS_OF, "service", AskGroups),
    (subjects.log_reader("n1"), "node", AskLogReader),
    (subjects.enrol("n1"), "node", Enrol),
    (subjects.ledger("attach"), "service", ledger.Attach),
    (subjects.ledger("draw"), "service", ledger.DrawBlock),
    (subjects.ledger("report"), "service", ledger.ReportEnds),
    (subjects.ledger("released"), "service", ledger.Released),
    (subjects.OPERATIONS_WHOLE, "service", ledger.WholeOperationsRequest),
]


@settings(max_examples=few_or_many(4, 30))
@given(messages=mutated_for(HANDLERS))
async def test_no_damaged_message_stops_admission_or_breaks_its_books(
    messages: list[tuple[tuple[str, str, Any], bytes]],
) -> None:
    """Whatever is sent to whichever handler: every request is answered, and a good one works afterwards."""
    services: list[AdmissionService] = []

    async def watched(runtime: Any) -> None:
        reader, pools = LogFollower(runtime.bus, AdmissionEngine(), runtime.clock), PoolsWatch(runtime)
        runtime.tasks.start_soon(pools.follow)
        service = AdmissionService(runtime, Role("admission", 1, runtime.deposition), reader, pools)
        services.append(service)
        await service.start()
        await anyio.sleep_forever()

    with nats_server() as server:
        async with (
            killed(server, SETTINGS, watched),
            a_bus(server, "user", "anna") as anna,
            a_bus(server, "node", "n1") as node,
            a_bus(server, "service", "somebody") as somebody,
        ):
            senders = {"user": anna, "node": node, "service": somebody}
            await request(server, "op.start", a_start("operation-0"), StartAnswer)
            for (subject, kind, _), data in messages:
                await senders[kind].request(subject, data, timeout_s=5)
            answer = await request(server, "op.start", a_start("operation-z"), StartAnswer)

    assert isinstance(answer, StartAnswer)
    assert services[0].engine.check() == []


def test_a_spec_that_is_too_large_for_the_log_is_refused_before_anything_is_done() -> None:
    from headrace_admission.log.byte_budget import LARGEST_SPEC_BYTES
    from headrace_admission.state.rules import TreeRules

    engine = AdmissionEngine()
    engine.on_configuration(TREE, TreeRules(), NOW)
    start = a_start(environment={"LONG": "x" * LARGEST_SPEC_BYTES})

    decision = engine.on_start(start, "anna", NOW)

    assert decision.effects == []
    assert isinstance(decision.answer, BadRequest)
    assert engine.state.operations == {}
