"""Whatever bytes come to fair_share: they are counted, answered where an answer is expected, and change nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import anyio
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.bus import BusError, NoResponders
from headrace.ids import TreeName
from headrace.wire import subjects
from headrace.wire.codec import LARGEST_MESSAGE_BYTES, decode, encode
from headrace.wire.history import GetHistory, PoolHistory
from headrace.wire.log import Published
from headrace.wire.pool_changes import ChangePools, PoolPlan, SetOptions
from headrace.wire.pool_explanations import ExplainPool, PoolExplained
from headrace.wire.pools import GetPools, PoolList
from headrace.wire.refusals import BadRequest, Refusal
from headrace.wire.snapshots import SharePart, UsagePart, WholeRequest
from headrace.wire.trees import CreateTree, ListTrees, MovePoolToTree, RemoveTree, TreeList
from headrace_fair_share.service import serve
from headrace_fair_share.settings import FairShareSettings
from tests.contract.waiting import eventually
from tests.support.effort import few_or_many
from tests.support.fair_share import create_pool
from tests.support.mutate import answers_to, mutated, mutated_several, reads
from tests.support.nats_server import NatsServer, nats_server
from tests.support.tree_services import TREE, SmallWorld, live, running, small_world

pytestmark = pytest.mark.long

SETTINGS = FairShareSettings(administrators="*")
VERBS: list[tuple[str, Any]] = [
    ("pool.change", ChangePools),
    ("pool.move_to_tree", MovePoolToTree),
    ("tree.list", ListTrees),
    ("tree.create", CreateTree),
    ("tree.remove", RemoveTree),
    ("pool.list", GetPools),
    ("pool.history", GetHistory),
    ("pool.explain", ExplainPool),
]
ANSWERS: dict[Any, Any] = {
    GetPools: PoolList,
    GetHistory: PoolHistory,
    ExplainPool: PoolExplained,
    ChangePools: PoolPlan,
    MovePoolToTree: PoolPlan,
    ListTrees: TreeList,
    CreateTree: PoolPlan,
    RemoveTree: PoolPlan,
}


@pytest.fixture(scope="module")
def server() -> Iterator[NatsServer]:
    with nats_server() as there:
        yield there


async def names(world: SmallWorld) -> list[str]:
    listed = await world.ask("pool.list", GetPools(), PoolList)
    assert isinstance(listed, PoolList)
    return [view.name for view in listed.pools]


async def other_trees(world: SmallWorld) -> set[TreeName]:
    listed = await world.ask("tree.list", ListTrees(), TreeList)
    assert isinstance(listed, TreeList)
    return {view.tree for view in listed.trees} - {TREE}


def asked_tree(message: bytes, kind: Any) -> str:
    """The tree whose service a request is for; empty where it is none."""
    if not reads(message, kind):
        return ""
    request = decode(message, kind)
    return str(getattr(request, "asked", "") or getattr(request, "tree", ""))


@pytest.mark.parametrize(("verb", "kind"), VERBS)
@settings(max_examples=few_or_many(3, 20))
@given(data=st.data())
async def test_never_do_damaged_requests_change_anything(
    server: NatsServer, verb: str, kind: Any, data: st.DataObject
) -> None:
    messages = data.draw(mutated_several(kind))
    async with small_world(server) as world, running(server, SETTINGS, serve) as runtime:
        await world.ask("pool.change", create_pool("there"), PoolPlan)
        before = await names(world)

        async def answer(message: bytes) -> bytes | None:
            try:
                with anyio.fail_after(10):
                    while True:
                        try:
                            return await world.user.request(subjects.user("anna", verb), message, timeout_s=5)
                        except NoResponders:
                            # The service has begun to answer, one subject after another.
                            await anyio.sleep(0.02)
            except (BusError, TimeoutError) as error:
                # A request for another tree that there is, such as one made just now, is for that tree's own service to answer.
                if asked_tree(message, kind) in await other_trees(world):
                    return None
                raise AssertionError(f"no answer to {message!r}") from error

        answers = await answers_to(messages, kind, ANSWERS[kind] | Refusal, runtime.endpoints, answer)
        if not any(isinstance(answer, PoolPlan) for answer in answers):
            assert await names(world) == before
        for made in await other_trees(world):
            await world.ask("tree.remove", RemoveTree(made, recursive=True), PoolPlan)


@settings(max_examples=few_or_many(3, 20))
@given(data=st.data())
async def test_never_do_damaged_publications_stop_the_service(server: NatsServer, data: st.DataObject) -> None:
    feeds: list[tuple[str, Any]] = [(subjects.EVENTS, Published), (subjects.usage(TREE), UsagePart)]
    sent = [
        (subject, kind, message)
        for subject, kind in feeds
        for message in data.draw(st.lists(mutated(kind), min_size=5, max_size=15))
    ]
    async with small_world(server) as world, running(server, SETTINGS, serve) as runtime:
        world.admission.operations = [live("operation-1", "research")]
        await world.shares.until(lambda shares: shares.version.epoch >= 1)
        for subject, _, message in sent:
            await world.service.publish(subject, message)
        await world.service.barrier()
        count = sum(not reads(message, kind) for _, kind, message in sent)
        await eventually(lambda: runtime.endpoints.malformed >= count)
        at = world.shares.reader.version
        await world.shares.until(lambda shares: shares.version.epoch >= at.epoch + 2)
        assert runtime.endpoints.malformed == count


async def test_an_oversized_request_is_answered(server: NatsServer) -> None:
    message = encode(ChangePools([SetOptions(b" " * (LARGEST_MESSAGE_BYTES - 200))]))
    async with small_world(server) as world, running(server, SETTINGS, serve) as runtime:
        await names(world)
        too_much = await world.user.request(subjects.user("anna", "pool.change"), message + b" " * 1_000, timeout_s=5)
        too_deep = await world.user.request(subjects.user("anna", "pool.change"), message, timeout_s=5)
        counted = runtime.endpoints.malformed

    answer: Any = PoolPlan | Refusal
    assert isinstance(decode(too_much, answer), BadRequest)
    assert decode(too_deep, answer).text()
    assert counted == 1


@pytest.mark.parametrize("written", [b'{"future": 18446744073709551616}', b'{"future": {"d": [-9223372036854775809]}}'])
async def test_a_number_that_no_message_can_carry_is_refused_and_all_lists_are_still_answered(
    server: NatsServer, written: bytes
) -> None:
    """An attribute that is not known is kept as it is, and would stand in every later answer about the pools and the trees."""
    kinds: Any = PoolPlan | Refusal, PoolList | Refusal, TreeList | Refusal
    async with small_world(server) as world, running(server, SETTINGS, serve):
        await names(world)

        async def ask(verb: str, request: msgspec.Struct) -> bytes:
            return await world.user.request(subjects.user("anna", verb), encode(request), timeout_s=5)

        refused = await ask("pool.change", ChangePools([SetOptions(written)]))
        pools, trees = await ask("pool.list", GetPools()), await ask("tree.list", ListTrees())

    assert isinstance(decode(trees, kinds[2]), TreeList)
    assert isinstance(decode(pools, kinds[1]), PoolList)
    assert "bits cannot be stored; expected a number from -2**63 to 2**64 - 1" in decode(refused, kinds[0]).text()


async def test_an_answer_is_not_sent_into_somebody_elses_inbox(server: NatsServer) -> None:
    """bob may publish under his own name only; the answer to what stands under anna's goes to anna or to nobody."""
    async with small_world(server) as world, running(server, SETTINGS, serve) as runtime:
        await names(world)
        with pytest.raises(BusError):
            await world.user.request(subjects.user("bob", "pool.list"), encode(GetPools()), timeout_s=0.3)
        forged = runtime.endpoints.forged

    assert forged == 1


async def test_a_page_of_the_whole_is_asked_for_by_services_only(server: NatsServer) -> None:
    async with small_world(server) as world, running(server, SETTINGS, serve):
        await world.shares.until(lambda shares: shares.version.epoch >= 1)
        with pytest.raises(BusError):
            await world.user.request(subjects.share_whole(TREE), encode(WholeRequest()), timeout_s=0.3)
        page = await world.service.request(subjects.share_whole(TREE), encode(WholeRequest()), timeout_s=5)

    assert decode(page, SharePart).base is None
