"""Persons at real services behind a server that lets each party do what the tables say.

Whatever anna keeps to herself is heard and read by nobody but her, chris who manages the pool, and eve who administers all.
And ben is ben, whatever his messages say.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final

import anyio
import msgspec
import pytest

from headrace.access.nkeys import SECRET_BYTES, KeyKind, SigningKey
from headrace.access.permissions import Party, permissions_of
from headrace.access.routes import ROUTES, PartyKind
from headrace.bus import Bus, connect
from headrace.bus.provisioning import provision
from headrace.client import Client, Refused
from headrace.client.place import Place
from headrace.ids import ROOT_POOL, OperationId, PoolName, TreeName, UserName
from headrace.resources import Resources
from headrace.runtime.clock import SystemClock
from headrace.wire import operations as wire
from headrace.wire import subjects
from headrace.wire.codec import encode
from headrace.wire.consumption import GetConsumption, Level
from headrace.wire.explanations import ExplainWaiting
from headrace.wire.figures import FiguresRequest
from headrace.wire.files import Archive, Upload
from headrace.wire.groups import ChangeGroup, GetGroup, GroupChange, ListGroups
from headrace.wire.happenings import GetOperationHistory
from headrace.wire.history import GetHistory
from headrace.wire.joining import MakeToken
from headrace.wire.logs import LogStream, ReadLog
from headrace.wire.lost_work import GetLostWork
from headrace.wire.nodes import ChangeNode, ListNodes, ListProgress, NodeChange, WhereRequest
from headrace.wire.operations import OperationSpec
from headrace.wire.pool_changes import ChangePools, Remove
from headrace.wire.pool_explanations import ExplainPool
from headrace.wire.pools import GetPools
from headrace.wire.preemption import ListObserved
from headrace.wire.replay import ReadEvents
from headrace.wire.rights import GetRights, RightGrant, RightsOnPool
from headrace.wire.services import ListServices
from headrace.wire.sessions import SessionCommand, SessionTurn
from headrace.wire.start_plans import FitOperation, PlanStart
from headrace.wire.trace import TraceHeartbeat
from headrace.wire.trees import CreateTree, ListTrees, MovePoolToTree, RemoveTree
from headrace.wire.what_if import WhatIf
from headrace_admission.service import serve as serve_admission
from headrace_admission.settings import AdmissionSettings
from headrace_allocator.service import serve as serve_allocator
from headrace_allocator.settings import AllocatorSettings
from headrace_fair_share.service import serve as serve_fair_share
from headrace_fair_share.settings import FairShareSettings
from tests.support.agent_world import NODE, agent
from tests.support.guarded import Guarded, guarded_server
from tests.support.tree_services import running_on

pytestmark = pytest.mark.long

TREE: Final = TreeName("default")
PERSONS: Final = ("anna", "ben", "chris", "eve")
PARTIES: Final = {
    **{kind.value: Party(kind=kind, tree=TREE) for kind in PartyKind if kind.is_service},
    **{name: Party(kind=PartyKind.PERSON, name=name) for name in PERSONS},
    "provisioner": Party(kind=PartyKind.PROVISIONER),
    "agent": Party(kind=PartyKind.NODE, name=NODE, tree=TREE),
}
#: In each field that is for the owner alone.
SECRET: Final = "hunter2"
THEIRS: Final = OperationId("of-anna-0001")
FORGED: Final[dict[str, Any]] = {
    **dict.fromkeys(("user", "caller", "who", "owner", "as_user", "person", "pool_user"), "eve"),
    "administrator": True,
    "administrators": ["ben"],
}
FORGED_HEADERS: Final = {"user": "eve", "caller": "eve", "nats-user": "eve", "headrace-user": "eve"}


class House:
    """The services, an agent, and a connection and a client of each person."""

    def __init__(self, buses: dict[str, Bus], url: str, folder: Path) -> None:
        self.buses = buses
        self.folder = folder
        place = Place(url, "", "", TREE, url)
        self.clients = {
            name: Client(buses[name], SystemClock(), place, UserName(name), timeout_s=20.0) for name in PERSONS
        }

    async def ask(self, person: str, verb: str, request: msgspec.Struct, forged: Mapping[str, Any] = {}) -> Any:
        """The answer as it is on the wire. `forged` are more fields of the request."""
        data = encode(request)
        if forged:
            # Keys that are no field of the request are added; its own fields keep their meaning.
            data = msgspec.msgpack.encode({**forged, **msgspec.msgpack.decode(data)})
        headers = FORGED_HEADERS if forged else None
        answer = await self.buses[person].request(subjects.user(person, verb), data, timeout_s=10, headers=headers)
        return msgspec.msgpack.decode(answer)


@asynccontextmanager
async def a_house(tmp_path: Path) -> AsyncIterator[House]:
    (tmp_path / "credentials").mkdir()
    with guarded_server("passwords", PARTIES, tmp_path / "credentials") as server:
        async with AsyncExitStack() as stack:
            buses = {name: await stack.enter_async_context(a_bus(server, name)) for name in PARTIES if name != "agent"}
            await provision(buses["provisioner"], [TREE])
            services: list[AbstractAsyncContextManager[Any]] = [
                running_on(buses["admission"], AdmissionSettings(administrators="eve"), serve_admission, "admission"),
                running_on(
                    buses["fair_share"], FairShareSettings(administrators="eve"), serve_fair_share, "fair_share"
                ),
                running_on(buses["allocator"], AllocatorSettings(administrators="eve"), serve_allocator, "allocator"),
            ]
            for service in services:
                await stack.enter_async_context(service)
            credential = str(server.folder / "agent")
            await stack.enter_async_context(agent(server, tmp_path / "state", credential_file=credential))
            house = House(buses, server.url, tmp_path)
            await house.clients["eve"].pools.create("p", attributes={"access": {"use": ["anna"], "manage": ["chris"]}})
            yield house


def a_bus(server: Guarded, name: str) -> Any:
    party = PARTIES[name]
    is_provisioner = party.kind is PartyKind.PROVISIONER
    credential = server.credential(name)
    return connect(
        [server.url], name=name, credential=credential, inbox_prefix=party.inbox, makes_stores=is_provisioner
    )


async def run_theirs(house: House) -> wire.OperationView:
    """Runs an operation of anna's to its end, which is a failure. Everything that may hold a secret does."""
    folder = house.folder / SECRET
    folder.mkdir()
    script = f"echo {SECRET}; echo {SECRET} >&2; exit 3"
    spec = OperationSpec(
        PoolName("p"),
        ["/bin/sh", "-c", script],
        resources=Resources(user_slots=1, cpu=1),
        environment={"TOKEN": SECRET},
        working_directory=str(folder),
        max_failed_job_count=1,
    )
    anna = house.clients["anna"]
    await anna.start(spec, operation=THEIRS)
    return await anna.wait(THEIRS, timeout_s=30)


async def test_nobody_hears_or_reads_what_another_keeps_to_themselves(tmp_path: Path) -> None:
    heard: dict[str, list[bytes]] = {}

    async def listen(inbox: Any) -> None:
        async for message in inbox:
            heard.setdefault(message.subject, []).append(message.data)

    async with a_house(tmp_path) as house, anyio.create_task_group() as tasks:
        # The inbox may be heard in a queue group alone. Answers to others go to theirs.
        for pattern in (each for each in permissions_of(PARTIES["ben"]).subscribe if " " not in each):
            tasks.start_soon(listen, await house.buses["ben"].subscribe(pattern))
        own = await run_theirs(house)
        read = {
            user: {verb: encode_again(await house.ask(user, verb, request)) for verb, request in QUESTIONS.items()}
            for user in PERSONS
        }
        await house.buses["ben"].barrier()
        tasks.cancel_scope.cancel()

    assert own.state is wire.OperationState.FAILED
    assert {subjects.HAPPENINGS, subjects.share(TREE), subjects.decisions(TREE)} <= heard.keys()
    assert [subject for subject, told in heard.items() if any(SECRET.encode() in data for data in told)] == []
    told_to = {user: {verb for verb, data in read[user].items() if SECRET.encode() in data} for user in PERSONS}
    everything = {"op.get", "op.explain", f"job.logs.{NODE}"}
    assert told_to == {"anna": everything, "ben": set(), "chris": everything, "eve": everything}


def encode_again(answer: Any) -> bytes:
    return msgspec.msgpack.encode(answer)


async def test_a_refusal_names_the_pool_the_right_and_who_has_it(tmp_path: Path) -> None:
    async with a_house(tmp_path) as house:
        await run_theirs(house)
        ben, anna = house.clients["ben"], house.clients["anna"]
        refused = []
        for asking in (
            lambda: ben.run(["true"], pool="p"),
            lambda: ben.abort(THEIRS),
            lambda: ben.pools.set("p", {"weight": 2}),
            lambda: anna.pools.set("p", {"access": {}}),
            lambda: ben.trees.create("another", {}),
        ):
            with pytest.raises(Refused) as refusal:
                await asking()
            refused.append(str(refusal.value))
        rights = {user: (await house.clients[user].persons.rights()) for user in PERSONS}

    assert [words.splitlines()[-1].partition("; ")[2] for words in refused] == [
        "this needs the right `use` on pool p, held by: anna, eve",
        "this needs the right `manage` on pool p, held by: chris, eve",
        "this needs the right `write` on pool p, held by: eve",
        "this needs the right `administer` on pool p, held by: eve",
        "this needs the rights of an administrator, held by: eve",
    ]
    open_to_all = RightGrant("use", ROOT_POOL, "use", "")
    assert rights["ben"].pools == [
        RightsOnPool(TREE, ROOT_POOL, ["use"], [open_to_all]),
        RightsOnPool(TREE, PoolName("p"), []),
    ]
    assert [row.rights for row in rights["chris"].pools] == [["use"], ["manage"]]
    assert [user for user in PERSONS if rights[user].administrator] == ["eve"]


async def test_rules_of_a_tree_place_whoever_names_no_pool_within_their_rights(tmp_path: Path) -> None:
    rules = ["specified existing", "nested_user default people", "reject"]
    no_pool = OperationSpec(PoolName(""), ["true"], resources=Resources(user_slots=1, cpu=1))
    another = msgspec.structs.replace(no_pool, pool=PoolName("anothr"))
    async with a_house(tmp_path) as house:
        eve, anna, ben = house.clients["eve"], house.clients["anna"], house.clients["ben"]
        await eve.pools.create("people", attributes={"create_ephemeral_subpools": True, "access": {"use": ["anna"]}})
        plan = await eve.trees.set(TREE, {"placement_rules": rules, "access": {"use": ["eve"]}})
        started = [await anna.start(spec) for spec in (no_pool, another)]
        explained = await anna.explain(started[1].id)
        refused = []
        for asking in (lambda: ben.start(no_pool), lambda: eve.trees.set(TREE, {"placement_rules": [*rules, "user"]})):
            with pytest.raises(Refused) as refusal:
                await asking()
            refused.append(str(refusal.value).splitlines()[-1])
        ended = [await anna.wait(each.id, timeout_s=30) for each in started]
        await eve.trees.set(TREE, {"placement_rules": ["specified existing", "reject"]})
        for spec in (no_pool, another):
            with pytest.raises(Refused) as refusal:
                await anna.start(spec)
            refused.append(str(refusal.value).splitlines()[-1])

    assert plan.warnings == []
    assert [each.state for each in ended] == [wire.OperationState.COMPLETED] * 2
    assert [(each.spec.pool, each.placements[0].rule) for each in ended] == [("people$anna", rules[1])] * 2
    assert explained.view.placements[0].rule == rules[1]
    assert [level.parent for level in explained.levels if level.pool == "people$anna"] == ["people"]
    assert "ben may not run operations in pool people$ben" in refused[0]
    assert "placement_rules[3]: user cannot be used" in refused[1]
    assert "pool: no placement rule chooses a pool" in refused[2]
    assert "there is no pool 'anothr'" in refused[3]


USER_KEY: Final = SigningKey(KeyKind.USER, bytes(SECRET_BYTES)).public
#: Questions about anna's operation, by verb.
QUESTIONS: Final[dict[str, msgspec.Struct]] = {
    "op.upload": Upload(Archive("0" * 64, 1)),
    "op.get": wire.GetOperation(THEIRS),
    "op.list": wire.ListOperations(),
    "op.jobs": wire.GetJobs(THEIRS),
    "op.explain": wire.ExplainOperation(THEIRS),
    "op.history": GetOperationHistory(THEIRS),
    "op.log": ReadEvents(),
    "pool.counts": wire.CountPools(),
    "pool.lost_work": GetLostWork(PoolName("p"), 0, 1),
    "consumption": GetConsumption(Level.YEARS, "2026"),
    "pool.list": GetPools(operations=True),
    "pool.explain": ExplainPool("p"),
    subjects.of_tree("op.where", TREE): WhereRequest(THEIRS),
    subjects.of_tree("op.why", TREE): ExplainWaiting(THEIRS),
    subjects.of_tree("op.fit", TREE): FitOperation(OperationSpec(PoolName("p"), ["true"])),
    subjects.of_tree("op.progress", TREE): ListProgress([THEIRS]),
    subjects.of_tree("node.list", TREE): ListNodes(),
    subjects.of_tree("preemption.observed", TREE): ListObserved(),
    f"job.logs.{NODE}": ReadLog(THEIRS, 0, stream=LogStream.STDERR),
    "rights": GetRights(),
    "group.get": GetGroup("research"),
    "group.list": ListGroups(),
    "service.list": ListServices(),
    "service.figures": FiguresRequest(),
    "tree.list": ListTrees(),
    "pool.history": GetHistory(PoolName("p"), 0, 1),
    "pool.what_if": WhatIf(changes=[Remove(PoolName("p"), in_use=True)]),
}
#: Requests that ben may not make, by verb.
FORBIDDEN: Final[dict[str, msgspec.Struct]] = {
    "op.start": wire.StartOperation(OperationId("of-ben-0001"), OperationSpec(PoolName("p"), ["true"])),
    "op.plan_start": PlanStart(OperationId("of-ben-0001"), OperationSpec(PoolName("p"), ["true"])),
    "op.update": wire.UpdateOperation(THEIRS, weight=2.0),
    "op.suspend": wire.SuspendOperation(THEIRS),
    "op.resume": wire.ResumeOperation(THEIRS),
    "op.complete": wire.CompleteOperation(THEIRS),
    "op.abort": wire.AbortOperation(THEIRS),
    "op.scan": wire.ScanQueues(),
    "node.change": ChangeNode(NODE, NodeChange.DRAIN),
    "node.token": MakeToken(NODE, USER_KEY),
    "group.change": ChangeGroup("of-ben", GroupChange.CREATE, ["ben"]),
    "pool.change": ChangePools([Remove(PoolName("p"))]),
    "pool.move_to_tree": MovePoolToTree(PoolName("p"), TreeName("other"), ROOT_POOL),
    "tree.create": CreateTree(TreeName("other")),
    "tree.remove": RemoveTree(TREE),
    f"job.logs.{NODE}": ReadLog(THEIRS, 0),
    f"job.session.{NODE}": SessionTurn("a" * 32, THEIRS, 0, 1, SessionCommand(["touch", "/tmp/of-ben"])),
    f"debug.heartbeat.{NODE}": TraceHeartbeat(NODE),
}
#: Requests that need a cluster with an operator: tests/security/test_tokens.py.
ABOUT_TOKENS: Final = frozenset({"token.create", "token.list", "token.revoke", "token.end"})


def test_every_request_of_a_person_is_tried() -> None:
    verbs = {
        route.subject.partition(".user.{user}.")[2].format(tree=TREE, node=NODE)
        for route in ROUTES
        if PartyKind.PERSON in route.senders
    }

    assert verbs == QUESTIONS.keys() | FORBIDDEN.keys() | ABOUT_TOKENS


async def test_a_request_is_judged_by_its_subject_whatever_its_body_and_headers_say(tmp_path: Path) -> None:
    async with a_house(tmp_path) as house:
        await run_theirs(house)
        refused = {verb: await house.ask("ben", verb, request, FORGED) for verb, request in FORBIDDEN.items()}
        plain = {verb: await house.ask("ben", verb, request) for verb, request in FORBIDDEN.items()}
        told = await house.ask("ben", "op.get", QUESTIONS["op.get"], FORGED)
        rights = await house.ask("ben", "rights", GetRights(), FORGED)
        own = wire.StartOperation(OperationId("of-ben-0002"), OperationSpec(PoolName("of-ben"), ["true"]))
        await house.ask("ben", "op.start", own, FORGED)
        started = await house.clients["eve"].get(own.operation)

    assert {verb: answer["refusal"] for verb, answer in refused.items()} == dict.fromkeys(FORBIDDEN, "not_allowed")
    assert {answer["who"] for answer in refused.values()} == {"ben"}
    assert refused == plain
    assert told["is_withheld"]
    assert (rights["user"], rights["administrator"]) == ("ben", False)
    assert started.user == "ben"
