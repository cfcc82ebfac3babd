"""Messages that are nearly right, at every request of a secured cluster: each is answered or refused, and no process fails.

`make test` sends some hundred, `make test-all` many thousand. A failure names the seed and shows the messages.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import anyio
import msgspec
import pytest

from headrace.access.routes import ROUTES, PartyKind
from headrace.bus import BusError
from headrace.bus.nats.bus import NatsBus
from headrace.wire import subjects
from headrace.wire.heartbeat import AllocationReport, Heartbeat, JobEnd
from headrace.wire.nodes import Enrol
from headrace.wire.trees import CreateTree
from tests.integration.test_persons import FORBIDDEN, QUESTIONS, THEIRS, TREE
from tests.security.test_requests import OF_NODE, PERSONS, THEIR_NODE, run_theirs
from tests.support.agent_world import NODE
from tests.support.effort import few_or_many, seeds
from tests.support.fuzzing import Fuzzer
from tests.support.secured_cluster import PATIENCE_S, SERVICES, WholeCluster, whole_cluster

pytestmark = pytest.mark.long

NAMES: Final = (THEIRS, NODE, THEIR_NODE, TREE, *PERSONS, "p", "<Root>", "new", "of-ben-0001", "cpu", "memory")
OF_PERSON: Final = {verb: type(request) for verb, request in {**QUESTIONS, **FORBIDDEN}.items()}
#: Bounds of what a node may offer and an allocation may hold.
AMOUNT: Final = (1, 100, 0, 2**20, 0)
#: Messages of one test.
MOST: Final = 400
AT_ONCE: Final = 16
#: Each line of a log that has one of these tells of a fault.
FAULTS: Final = (
    "handler failed",
    "service failed",
    "broken invariant",
    "Traceback",
    "what-if request failed",
    "Task exception",
)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WholeCluster]:
    path = tmp_path_factory.mktemp("secured")
    with whole_cluster(path, nodes=[NODE, THEIR_NODE], people=PERSONS, administrators="eve") as running:
        anyio.run(run_theirs, running)
        yield running


class Sending:
    """Sends requests over a connection, and keeps what was not answered."""

    def __init__(self, bus: NatsBus) -> None:
        self._bus = bus
        self._free = anyio.Semaphore(AT_ONCE)
        self.answers: dict[str, int] = {}
        self.unanswered: list[tuple[str, str, str]] = []

    async def send(self, subject: str, data: bytes) -> None:
        async with self._free:
            try:
                answer = msgspec.msgpack.decode(await self._bus.request(subject, data, timeout_s=PATIENCE_S))
            except (BusError, msgspec.DecodeError) as error:
                self.unanswered.append((subject, repr(error), shown(data)))
                return
        kind = answer["refusal"]
        self.answers[kind] = self.answers.get(kind, 0) + 1


def shown(data: bytes) -> str:
    try:
        return repr(msgspec.msgpack.decode(data))[:2_000]
    except (msgspec.DecodeError, RecursionError):
        return repr(data[:100])


async def send_all(bus: NatsBus, fuzzer: Fuzzer, kinds: Mapping[str, type[msgspec.Struct]]) -> Sending:
    """Sends as many messages to each subject."""
    sending = Sending(bus)
    async with anyio.create_task_group() as tasks:
        for _ in range(max(1, MOST // len(kinds))):
            for subject, kind in kinds.items():
                # A tree that no process serves would be asked about in vain.
                fields = {"dry_run": True} if kind is CreateTree else {}
                tasks.start_soon(sending.send, subject, fuzzer.message(kind, **fields))
    return sending


class Logs:
    """The logs of all processes, from now on."""

    def __init__(self, cluster: WholeCluster) -> None:
        self._cluster = cluster
        self._before = {name: len(cluster.log(name)) for name in cluster.processes}

    def faults(self) -> list[str]:
        """Lines that tell of a fault, and the processes that have ended."""
        added = {name: self._cluster.log(name)[before:] for name, before in self._before.items()}
        told = [f"{name}: {line}" for name, log in added.items() for line in log.splitlines() if is_fault(line)]
        return [*told, *self._cluster.ended()]


def is_fault(line: str) -> bool:
    return any(words in line for words in FAULTS)


async def assert_all_serve(cluster: WholeCluster) -> None:
    """Every service answers, the agent too."""
    async with cluster.client("anna") as anna:
        roles = {view.role.partition(".")[0] for view in await anna.processes.list()}
        assert roles == set(SERVICES)
        assert {view.node for view in (await anna.nodes()).nodes} >= {NODE}
        await anna.list()


def test_every_request_of_persons_and_nodes_is_tried() -> None:
    of_node = {route.subject for route in ROUTES if route.senders == (PartyKind.NODE,)}
    assert {f"headrace.v1.{verb}.{{node}}" for verb in OF_NODE} | {subjects.heartbeat("{tree}", "{node}")} == of_node


@pytest.mark.parametrize("seed", seeds(2, 10))
@pytest.mark.parametrize("name", ["ben", "eve"])
async def test_a_persons_requests_are_all_answered(cluster: WholeCluster, name: str, seed: int) -> None:
    logs = Logs(cluster)
    kinds = {subjects.user(name, verb): kind for verb, kind in OF_PERSON.items()}
    async with cluster.entered(f"client/people/{name}") as bus:
        sending = await send_all(bus, Fuzzer(seed, NAMES), kinds)
    await assert_all_serve(cluster)

    assert sending.unanswered == []
    assert logs.faults() == []
    assert {"none", "bad_request", "not_found"} <= sending.answers.keys()


@pytest.mark.parametrize("seed", seeds(2, 8))
async def test_a_nodes_requests_are_all_answered(cluster: WholeCluster, seed: int) -> None:
    logs = Logs(cluster)
    kinds: dict[str, Any] = {f"headrace.v1.{verb}.{THEIR_NODE}": type(request) for verb, request in OF_NODE.items()}
    async with cluster.entered(f"client/nodes/{THEIR_NODE}") as bus:
        sending = await send_all(bus, Fuzzer(seed, NAMES), kinds)
    await assert_all_serve(cluster)

    assert sending.unanswered == []
    assert logs.faults() == []
    assert {"none", "bad_request"} <= sending.answers.keys()


@pytest.mark.parametrize("seed", seeds(2, 8))
async def test_heartbeats_of_a_node_that_tells_anything_harm_nothing(cluster: WholeCluster, seed: int) -> None:
    logs = Logs(cluster)
    fuzzer = Fuzzer(seed, NAMES)
    subject, allocations = subjects.heartbeat(TREE, THEIR_NODE), ["1-0", "1-1"]
    applied = term = accepted = 0
    async with cluster.entered(f"client/nodes/{THEIR_NODE}") as bus:
        await bus.request(f"headrace.v1.enrol.{THEIR_NODE}", msgspec.msgpack.encode(Enrol(THEIR_NODE)), timeout_s=5)
        for seq in range(1, few_or_many(100, 300) + 1):
            own: dict[str, Any] = {
                "node": THEIR_NODE,
                "tree": TREE,
                "incarnation": f"{seed + 1:016}-abcdef00",
                "seq": seq,
                "term": term,
            }
            # Most are such that they are believed, so that the books of the allocator change.
            if fuzzer.is_likely(0.7):
                own |= {"total": AMOUNT, "machine": "", "starts": {}, "applied": applied}
            reports = [report(fuzzer, allocations) for _ in range(3) if fuzzer.is_likely(0.4)]
            ends = [end(fuzzer, allocations) for _ in range(3) if fuzzer.is_likely(0.3)]
            data = fuzzer.message(Heartbeat, **own, allocations=reports, ends=ends)
            answer = msgspec.msgpack.decode(await bus.request(subject, data, timeout_s=PATIENCE_S))
            if answer["refusal"] == "none":
                applied, term = (seq, answer["term"]) if fuzzer.is_likely(0.8) else (applied, term)
                allocations += [each["allocation"] for each in answer.get("start", [])]
                accepted += 1
    await assert_all_serve(cluster)

    assert logs.faults() == []
    assert accepted > 20


def report(fuzzer: Fuzzer, allocations: Sequence[str]) -> Any:
    made = fuzzer.value(AllocationReport)
    if isinstance(made, list) and fuzzer.is_likely(0.9):
        made[:2] = [fuzzer.one_of(allocations), fuzzer.one_of((THEIRS, "of-ben-0001"))]
        if len(made) > 3:
            made[3], made[8:] = AMOUNT, [None]
    return made


def end(fuzzer: Fuzzer, allocations: Sequence[str]) -> Any:
    made = fuzzer.value(JobEnd)
    if isinstance(made, dict) and fuzzer.is_likely(0.9):
        made |= {"operation": THEIRS, "index": fuzzer.one_of((0, 1)), "allocation": fuzzer.one_of(allocations)}
        made |= {"preemption": None, "start": None}
    return made
