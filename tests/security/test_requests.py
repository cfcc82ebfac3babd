"""Requests in another's name, to another's inbox and about what belongs to another, at all services of a secured cluster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack, ExitStack
from typing import Any, Final

import anyio
import msgspec
import pytest

from headrace.access.jwt import claims_of
from headrace.access.key_credential import KeyCredential
from headrace.access.nkeys import SigningKey
from headrace.access.permissions import Party
from headrace.access.routes import PartyKind
from headrace.bus.nats.bus import NatsBus
from headrace.client import NotAdmitted, Refused
from headrace.client import connect as connect_client
from headrace.ids import Incarnation, NodeName, PoolName, TreeName
from headrace.resources import Resources
from headrace.wire import operations as wire
from headrace.wire import subjects
from headrace.wire.codec import encode
from headrace.wire.files import AskOver, FetchPiece
from headrace.wire.heartbeat import Heartbeat, HeartbeatReason
from headrace.wire.joining import Join, Renew, proof_of
from headrace.wire.logs import AskLogReader
from headrace.wire.nodes import Enrol, NodeChange, NodeTerms
from headrace.wire.operations import OperationSpec
from headrace_cli.agent.token import new_user_key
from tests.integration.test_persons import FORBIDDEN, FORGED, QUESTIONS, THEIRS, TREE
from tests.support.agent_world import NODE
from tests.support.bare_connection import BareConnection, NotLetIn
from tests.support.secured_cluster import PATIENCE_S, WholeCluster, whole_cluster

pytestmark = pytest.mark.long

#: The node of the attacker. The agent of the other one runs.
THEIR_NODE: Final = NodeName("node-2")
PERSONS: Final = ("anna", "ben", "eve")
#: Requests of a node, by what stands before its name in the subject.
OF_NODE: Final[dict[str, msgspec.Struct]] = {
    "enrol": Enrol(THEIR_NODE, machine="rogue"),
    "log_reader": AskLogReader(THEIRS, "ben"),
    "fetch_piece": FetchPiece(THEIRS, 0),
    "ask_over": AskOver([THEIRS]),
    "renew": Renew(THEIR_NODE, new_user_key().public),
}
#: Where nothing of what is asked may be heard. Each is an answer's place that its sender may not name.
FOREIGN_INBOXES: Final = (
    *("_INBOX.user.anna.stolen", "_INBOX.user.anna.x.stolen", "_INBOX.user.*.stolen", "_INBOX.user.ben", "_INBOX.user"),
    *("_INBOX.user.benn.stolen", "_INBOX.node.node-1.stolen", "_INBOX.node.stolen", "_INBOX.host.x.stolen"),
    *("_INBOX.service.admission.stolen", "_INBOX.service.allocator.stolen", "_INBOX.service.fair-share.stolen"),
    *(subjects.LOG, subjects.EVENTS, subjects.HAPPENINGS, subjects.usage(TREE), "headrace.v1.cmd.node-1.nudge"),
    *(f"$KV.{subjects.POOLS_BUCKET}.{TREE}", f"$JS.API.STREAM.PURGE.KV_{subjects.POOLS_BUCKET}"),
    *(subjects.user("eve", "node.change"), subjects.heartbeat(TREE, "node-1"), "$SYS.REQ.SERVER.PING", "_inbox.stolen"),
)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WholeCluster]:
    path = tmp_path_factory.mktemp("secured")
    with whole_cluster(path, nodes=[NODE, THEIR_NODE], people=PERSONS, administrators="eve") as running:
        anyio.run(run_theirs, running)
        yield running
        assert running.ended() == []


async def run_theirs(cluster: WholeCluster) -> None:
    """Starts an operation of anna's that does not end, in a pool that ben may not use."""
    async with cluster.client("eve") as eve, cluster.client("anna") as anna:
        await eve.pools.create("p", attributes={"access": {"use": ["anna"]}})
        spec = OperationSpec(PoolName("p"), ["sleep", "1000"], resources=Resources(user_slots=1, cpu=1))
        operation = await anna.start(spec, operation=THEIRS)
        with anyio.fail_after(PATIENCE_S):
            while not (await operation.places()).running:  # noqa: ASYNC110
                await anyio.sleep(0.02)


async def ask(bus: NatsBus, subject: str, request: msgspec.Struct, forged: Mapping[str, Any] = {}) -> Any:
    """The answer as it is on the wire. `forged` are more fields of the request."""
    data = msgspec.msgpack.encode({**forged, **msgspec.msgpack.decode(encode(request))}) if forged else encode(request)
    return msgspec.msgpack.decode(await bus.request(subject, data, timeout_s=PATIENCE_S))


async def stored(bus: NatsBus, *streams: str) -> list[int]:
    """The number of the last message of each stream."""
    found = []
    for stream in streams:
        answer = await bus.request(f"$JS.API.STREAM.INFO.{stream}", b"", timeout_s=PATIENCE_S)
        found.append(msgspec.json.decode(answer)["state"]["last_seq"])
    return found


def is_stolen(subject: str, data: bytes) -> bool:
    """True for an answer to the attacker. Services and agents go on with their own conversations meanwhile.

    Every answer has a field `refusal`, and nothing else does that is published on the subjects that are no inboxes.
    """
    return subject.endswith("stolen") or (not subject.startswith("_INBOX.") and b"refusal" in data)


async def test_nothing_is_heard_at_an_inbox_that_is_not_the_senders(cluster: WholeCluster) -> None:
    requests = {subjects.user("ben", verb): request for verb, request in {**QUESTIONS, **FORBIDDEN}.items()}
    of_node = {f"headrace.v1.{verb}.{THEIR_NODE}": request for verb, request in OF_NODE.items()}
    own = {
        "_INBOX.user.anna.*.asked.*": "client/people/anna/credential",
        "_INBOX.user.anna.*.answered.*": "client/people/anna/credential",
        "headrace.v1.happenings": "client/people/anna/credential",
        "_INBOX.node.node-1.>": "client/nodes/node-1/credential",
        "headrace.v1.cmd.node-1.nudge": "client/nodes/node-1/credential",
        "_INBOX.service.admission.>": "admission/credential",
        "headrace.v1.user.*.node.change": "admission/credential",
        "_INBOX.service.allocator.>": "allocator/credential",
        "headrace.v1.events": "allocator/credential",
    }
    streams = (subjects.STREAM, f"KV_{subjects.POOLS_BUCKET}")
    with ExitStack() as stack:
        listeners = {}
        for subject, place in own.items():
            listener = BareConnection(cluster.port, cluster.ca_file, cluster.issued(place))
            listeners[subject] = stack.enter_context(listener)
            listener.subscribe(subject)
            assert listener.flush() == []
        async with (
            cluster.entered("provisioner") as provisioning,
            cluster.entered("client/people/ben") as ben,
            cluster.entered(f"client/nodes/{THEIR_NODE}") as node,
        ):
            before = await stored(provisioning, *streams)
            for bus, asked in ((ben, requests), (node, of_node)):
                for subject, request in asked.items():
                    for inbox in FOREIGN_INBOXES:
                        await bus._link.send(subject, encode(request), reply=inbox)
                # Each subject is read in the order of its messages: with this answer all before it are done with.
                for subject, request in asked.items():
                    await ask(bus, subject, request)
            assert await stored(provisioning, *streams) == before
        heard = {}
        for subject, listener in listeners.items():
            assert listener.flush() == []
            heard[subject] = [told for told in listener.heard if is_stolen(*told)]
    assert heard == {subject: [] for subject in own}


@pytest.mark.parametrize("forged", [{}, FORGED], ids=["plain", "forged fields"])
async def test_what_belongs_to_another_person_is_neither_changed_nor_told(
    cluster: WholeCluster, forged: Mapping[str, Any]
) -> None:
    async with cluster.client("anna") as anna, cluster.entered("client/people/ben") as ben:
        answers = {verb: await ask(ben, subjects.user("ben", verb), each, forged) for verb, each in FORBIDDEN.items()}
        told = await ask(ben, subjects.user("ben", "op.get"), wire.GetOperation(THEIRS), forged)
        after = await anna.get(THEIRS)

    # That an operation is in the pool is everybody's to know, and is looked at before the rights.
    in_use = dict.fromkeys(("pool.change", "pool.move_to_tree"), "broken_rules")
    expected = {**dict.fromkeys(FORBIDDEN, "not_allowed"), **in_use}
    assert {verb: answer["refusal"] for verb, answer in answers.items()} == expected
    assert {answer.get("who", "ben") for answer in answers.values()} == {"ben"}
    assert told["is_withheld"]
    assert told["spec"]["argv"] == ["sleep"]
    assert (after.state, after.user, after.spec.weight) == (wire.OperationState.RUNNING, "anna", 1.0)


async def test_a_node_speaks_for_no_other_node_in_its_messages(cluster: WholeCluster) -> None:
    key = claims_of(cluster.issued(f"client/nodes/{NODE}/credential").jwt)["sub"]
    heartbeat = Heartbeat(
        node=NODE,
        tree=TREE,
        incarnation=Incarnation("9" * 16 + "-abcdef00"),
        seq=1,
        applied=0,
        term=0,
        reason=HeartbeatReason.PERIOD,
        total=Resources(user_slots=9, cpu=900),
        machine="rogue",
    )
    own_tree = msgspec.structs.replace(heartbeat, node=THEIR_NODE, tree=TreeName("other"))
    forged: dict[str, list[msgspec.Struct]] = {
        "enrol": [Enrol(NODE, machine="rogue"), Enrol(NODE)],
        "renew": [Renew(NODE, key), Renew(NODE, new_user_key().public), Renew(THEIR_NODE, key)],
    }
    async with cluster.entered(f"client/nodes/{THEIR_NODE}") as node, cluster.client("eve") as eve:
        refused = [
            (await ask(node, f"headrace.v1.{verb}.{THEIR_NODE}", each))["refusal"]
            for verb, requests in forged.items()
            for each in requests
        ]
        refused += [
            (await ask(node, subjects.heartbeat(TREE, THEIR_NODE), each))["refusal"] for each in (heartbeat, own_tree)
        ]
        there = {view.node: view for view in (await eve.nodes()).nodes}

    assert refused == ["bad_request"] * 4 + ["not_found"] + ["bad_request"] * 2
    assert (there[NODE].state, there[NODE].total.cpu) == ("online", 400)


async def test_a_token_lets_one_host_join_whoever_races_and_whatever_comes_later(cluster: WholeCluster) -> None:
    async with cluster.client("eve") as eve, AsyncExitStack() as stack:
        token = await cluster.token(eve, "node-3", NodeTerms())
        host = claims_of(token.credential.jwt)["sub"]
        party = Party(kind=PartyKind.HOST, name=host)
        bus = await stack.enter_async_context(cluster.bus(party, token.credential))
        keys = [new_user_key() for _ in range(20)]
        answers: dict[str, Any] = {}

        async def join(key: SigningKey) -> None:
            request = Join(key.public, key.sign(proof_of(host)))
            answers[key.public] = await ask(bus, subjects.join(host), request)

        # A token is no node's key.
        await join(SigningKey.from_seed(token.credential.seed))
        assert answers.pop(host)["refusal"] == "wrong_state"
        # Nor is the key of another party, which would be shut out with this node.
        theirs, own = claims_of(cluster.issued("admission/credential").jwt)["sub"], new_user_key()
        for proof in (b"", own.sign(proof_of(host))):
            assert (await ask(bus, subjects.join(host), Join(theirs, proof)))["refusal"] == "bad_request"
        elsewhere = own.sign(proof_of("U" * 56))
        assert (await ask(bus, subjects.join(host), Join(own.public, elsewhere)))["refusal"] == "bad_request"
        async with anyio.create_task_group() as tasks:
            for key in keys:
                tasks.start_soon(join, key)
        (won,) = [key for key in keys if answers[key.public]["refusal"] == "none"]
        assert {answer["refusal"] for answer in answers.values()} == {"none", "wrong_state"}

        joined = KeyCredential(jwt=answers[won.public]["jwt"], seed=won.seed)
        with BareConnection(cluster.port, cluster.ca_file, joined) as node:
            await eve.change_node("node-3", NodeChange.SHUT_OUT)
            assert "Revoked" in node.wait_closed()
        # Neither the key that was shut out nor another joins by the token that was used.
        for each in (won, new_user_key()):
            await join(each)
            assert answers[each.public]["refusal"] == "wrong_state"
        with pytest.raises(NotLetIn):
            BareConnection(cluster.port, cluster.ca_file, joined)


async def test_an_ordinary_person_makes_no_token(cluster: WholeCluster) -> None:
    async with cluster.client("ben") as ben:
        with pytest.raises(Refused, match="ben may not let a host join"):
            await cluster.token(ben, "node-4")
    with pytest.raises(NotAdmitted):
        async with connect_client(url=cluster.url, ca_file=cluster.ca_file, user="ben"):
            pass
