"""One process leads a role, the others stand by: handed over, taken over, and never two who believe it for long."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import anyio
import msgspec
import pytest

from headrace.bus import Bus, ConnectionLost, Message, NoResponders
from headrace.runtime.lease import Candidate, LeaseRecord
from headrace.runtime.role import Deposed, Deposition, Role, lead
from headrace.runtime.terms import TermBook, take_term
from headrace.wire import subjects
from headrace.wire.codec import encode
from headrace.wire.version import LARGEST_JUMP, WhoAnswer
from tests.contract.both_worlds import World, on_both_worlds
from tests.contract.waiting import eventually
from tests.simulation.bus import connect_to
from tests.simulation.loop import VirtualLoop, run_virtually
from tests.simulation.server import SimulatedServer

LEASE_S = 1.0
ROLE = "allocator.default"


class Process:
    """A process that wants the lead of the role; `led` are the terms in which it did."""

    def __init__(self, bus: Bus, instance: str, terms: list[tuple[str, int]], *, has_standby: bool = False) -> None:
        self.bus = bus
        self.has_standby = has_standby
        self.instance = instance
        self.leads = False
        self.stopping = anyio.Event()
        self.deposition = Deposition()
        self.role: Role | None = None
        self._terms = terms

    async def run(self) -> None:
        """Stands by, leads until it is asked to stop or deposed."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.deposition.watch)
            book = TermBook(self.instance)
            await lead(
                self.bus,
                book,
                self.deposition,
                ROLE,
                self._serve,
                instance=self.instance,
                stopping=self.stopping,
                lease_s=LEASE_S,
                has_standby=self.has_standby,
            )
            tasks.cancel_scope.cancel()

    async def _serve(self, role: Role) -> None:
        self.role = role
        self.leads = True
        self._terms.append((self.instance, role.term))
        try:
            await self.stopping.wait()
        finally:
            self.leads = False


@on_both_worlds
async def test_who_is_asked_to_stop_hands_over_at_once(world: World) -> None:
    terms: list[tuple[str, int]] = []
    async with world.connect("a") as a, world.connect("b") as b, anyio.create_task_group() as tasks:
        first, second = Process(a, "a", terms), Process(b, "b", terms)
        tasks.start_soon(first.run)
        await eventually(lambda: first.leads)
        tasks.start_soon(second.run)
        await anyio.sleep(LEASE_S * 2)
        assert not second.leads

        began = anyio.current_time()
        first.stopping.set()
        await eventually(lambda: second.leads)
        assert anyio.current_time() - began < LEASE_S * 10
        assert terms == [("a", 1), ("b", 2)]
        second.stopping.set()


@on_both_worlds
async def test_who_hands_over_has_answered_everything_before_another_one_leads(world: World) -> None:
    """The lease was once given back first, and a former leader answered beside its successor."""
    answers: list[bytes] = []

    async def slow(_message: Message) -> bytes:
        await anyio.sleep(0.5)
        return b"of the first"

    async def ask() -> None:
        answers.append(await asks.request(world.word, b"", timeout_s=10))

    async with (
        world.connect("a") as a,
        world.connect("b") as b,
        world.connect("asks") as asks,
        anyio.create_task_group() as tasks,
    ):
        first, second = Process(a, "a", []), Process(b, "b", [])
        tasks.start_soon(first.run)
        await eventually(lambda: first.leads)
        await a.serve(world.word, slow)
        tasks.start_soon(second.run)
        tasks.start_soon(ask)
        await anyio.sleep(0.2)

        first.stopping.set()
        await eventually(lambda: second.leads)
        assert answers == [b"of the first"]
        with pytest.raises(NoResponders):
            await asks.request(world.word, b"", timeout_s=10)
        second.stopping.set()


@on_both_worlds
async def test_who_stands_by_and_is_asked_to_stop_ends_without_leading(world: World) -> None:
    terms: list[tuple[str, int]] = []
    async with world.connect("a") as a, world.connect("b") as b, anyio.create_task_group() as tasks:
        first, second = Process(a, "a", terms), Process(b, "b", terms)
        tasks.start_soon(first.run)
        await eventually(lambda: first.leads)
        second.stopping.set()
        with anyio.fail_after(20):
            await second.run()
        first.stopping.set()
    assert terms == [("a", 1)]


@on_both_worlds
async def test_a_new_life_of_the_same_instance_leads_without_waiting_for_the_lease(world: World) -> None:
    terms: list[tuple[str, int]] = []
    async with world.connect("a") as a, world.connect("again") as again, anyio.create_task_group() as tasks:
        bucket = await a.key_value(subjects.LEASES_BUCKET)
        await bucket.update(ROLE, msgspec.json.encode(LeaseRecord("a", "killed")), 0)
        second = Process(again, "a", terms)
        tasks.start_soon(second.run)
        await eventually(lambda: second.leads)
        second.stopping.set()
    assert terms == [("a", 1)]


@on_both_worlds
async def test_who_loses_the_lease_ends(world: World) -> None:
    async def usurped() -> None:
        async with world.connect("a") as a, anyio.create_task_group() as tasks:
            first = Process(a, "a", [])
            tasks.start_soon(first.run)
            await eventually(lambda: first.leads)
            bucket = await a.key_value(subjects.LEASES_BUCKET)
            await bucket.put(ROLE, msgspec.json.encode(LeaseRecord("b", "other")))
            await anyio.sleep(20)

    with pytest.RaisesGroup(pytest.RaisesExc(Deposed, match="b holds the lease"), flatten_subgroups=True):
        await usurped()


@on_both_worlds
async def test_one_forged_term_deposes_nobody_and_a_true_one_does(world: World) -> None:
    async def told() -> None:
        async with world.connect("a") as a, anyio.create_task_group() as tasks:
            first = Process(a, "a", [])
            tasks.start_soon(first.run)
            await eventually(lambda: first.leads)
            assert first.role is not None
            first.role.on_term(900, "a liar")
            await anyio.sleep(1)
            assert first.leads
            assert await take_term(a, ROLE) == 2
            first.role.on_term(2, "a peer")
            await anyio.sleep(20)

    with pytest.RaisesGroup(pytest.RaisesExc(Deposed, match="a peer knows term 2"), flatten_subgroups=True):
        await told()


@on_both_worlds
async def test_a_liar_who_names_higher_and_higher_terms_keeps_nobody_waiting(world: World) -> None:
    """Each is looked up, and before the answer comes the next one is told: nobody was answered any more."""
    async with world.connect("a") as a, world.connect("b") as b, anyio.create_task_group() as tasks:
        # A peer that knows no term leaves whoever asks to wait for others.
        await TermBook("b").serve(b)
        first = Process(a, "a", [])
        tasks.start_soon(first.run)
        await eventually(lambda: first.leads)

        async def lie(role: Role) -> None:
            for term in itertools.count(900):
                role.on_term(term, "a liar")
                await anyio.sleep(0.02)

        assert first.role is not None
        tasks.start_soon(lie, first.role)
        for _ in range(3):
            await anyio.sleep(0.05)
            with anyio.fail_after(10):
                await first.role.until_sure()
        assert first.leads
        tasks.cancel_scope.cancel()


@on_both_worlds
async def test_a_leader_whose_lease_is_over_answers_only_once_it_knows_that_nobody_took_a_term(world: World) -> None:
    """It wakes from a freeze, and the first heartbeat in its mailbox would be answered in the name of a former leader."""
    answered: list[bool] = []

    async def woken(taken: bool) -> None:
        async with world.connect("a") as a, anyio.create_task_group() as tasks:
            first = Process(a, "a", [])
            tasks.start_soon(first.run)
            await eventually(lambda: first.leads)
            if taken:
                await take_term(a, ROLE)
            assert first.role is not None
            assert first.role._lease is not None
            first.role._lease.sure_until_s = 0.0
            with anyio.fail_after(10):
                await first.role.until_sure()
            answered.append(taken)
            first.stopping.set()

    await woken(taken=False)
    with pytest.RaisesGroup(pytest.RaisesExc(Deposed, match="knows term"), flatten_subgroups=True):
        await woken(taken=True)
    assert answered == [False]


@on_both_worlds
async def test_who_regains_a_lost_lease_ends_if_another_one_took_a_term_meanwhile(world: World) -> None:
    """The bucket of leases was lost twice: another one led in between, and its readers were deaf to the lower term for good."""

    async def regained(taken: bool) -> bool:
        async with world.connect("a") as a, anyio.create_task_group() as tasks:
            first = Process(a, "a", [])
            tasks.start_soon(first.run)
            await eventually(lambda: first.leads)
            if taken:
                await take_term(a, ROLE)
            await (await a.key_value(subjects.LEASES_BUCKET)).delete(ROLE)
            await anyio.sleep(LEASE_S * 2)
            leads = first.leads
            first.stopping.set()
        return leads

    assert await regained(taken=False)
    with pytest.RaisesGroup(
        pytest.RaisesExc(Deposed, match="another holder of the lease knows"), flatten_subgroups=True
    ):
        await regained(taken=True)


def test_who_was_succeeded_while_the_bucket_lost_its_newest_writes_does_not_renew_what_its_successor_wrote() -> None:
    """Its successor's record had the very revision of its own, and it led on in a term that nobody heard any more."""

    async def world(loop: VirtualLoop) -> None:
        server = SimulatedServer(loop)
        async with connect_to(server, "a") as a, connect_to(server, "b") as b, anyio.create_task_group() as tasks:
            first, second = Process(a, "a", []), Process(b, "b", [])
            tasks.start_soon(first.run)
            await eventually(lambda: first.leads)
            leases = server.store.bucket(subjects.LEASES_BUCKET, 1)
            renewed = leases.last_sequence
            assert first.role is not None
            lease = first.role._lease
            assert lease is not None
            await eventually(lambda: renewed < lease._revision == leases.last_sequence)
            server.crash()
            leases.roll_back(1)
            server.cut = {("a", "to"), ("a", "from")}
            server.start()
            await eventually(lambda: b.connected)
            tasks.start_soon(second.run)
            await eventually(lambda: second.leads)
            # Before it renews its lease, which would have another revision then.
            server.cut = {("b", "to")}
            await anyio.sleep(LEASE_S * 5)

    with pytest.RaisesGroup(pytest.RaisesExc(Deposed, match="b holds the lease"), flatten_subgroups=True):
        run_virtually(1, world)


@on_both_worlds
async def test_terms_survive_a_lost_bucket_by_peers_and_records_and_do_not_jump(world: World) -> None:
    async with world.connect("a") as a, world.connect("peer") as peer:
        known = 41

        async def answer(_message: object) -> bytes:
            return encode(WhoAnswer(role=ROLE, term=known, peer="peer"))

        await peer.serve(subjects.WHO, answer)
        assert await take_term(a, ROLE) == 42
        assert await take_term(a, ROLE, recorded=77) == 78
        known = 2**62
        assert await take_term(a, ROLE) == 79
        book = TermBook("a")
        assert book.see(ROLE, 80)
        assert not book.see(ROLE, 80 + LARGEST_JUMP + 1)
        assert book.see(ROLE, 81)


@on_both_worlds
async def test_a_lost_bucket_of_terms_brings_no_term_back_and_silences_nobody_whom_no_peer_knows(world: World) -> None:
    """The lease tells the term: of a leader that is too slow to answer as a peer, and of one that is gone."""
    terms: list[tuple[str, int]] = []
    async with world.connect("a") as a, world.connect("b") as b:
        for _ in range(2):
            async with anyio.create_task_group() as tasks:
                leader = Process(a, "a", terms)
                tasks.start_soon(leader.run)
                await eventually(lambda: leader.leads)  # noqa: B023 - within this turn
                await anyio.sleep(LEASE_S)
                await (await a.key_value(subjects.TERMS_BUCKET)).delete(ROLE)
                reader = TermBook("b")
                assert await reader.believes(b, ROLE, terms[-1][1])
                assert not await reader.believes(b, ROLE, terms[-1][1] + 1)
                leader.stopping.set()
    assert terms == [("a", 1), ("a", 2)]


def test_silence_is_no_proof_that_nobody_else_leads() -> None:
    """A leader that woke from a freeze heard neither bucket nor peers at first, and answered for a time that was over."""

    async def world(loop: VirtualLoop) -> None:
        server = SimulatedServer(loop)
        async with connect_to(server, "a") as a, connect_to(server, "b") as b, anyio.create_task_group() as tasks:
            first = Process(a, "a", [])
            tasks.start_soon(first.run)
            await eventually(lambda: first.leads)
            assert first.role is not None
            await take_term(b, ROLE)

            async def no_bucket(*_arguments: object, **_options: object) -> None:
                raise ConnectionLost

            async def nobody(*_arguments: object, **_options: object) -> list[bytes]:
                return []

            gather, key_value = a.gather, a.key_value
            a.gather, a.key_value = nobody, no_bucket  # type: ignore[method-assign,assignment]
            first.role.doubt()
            with anyio.move_on_after(5):
                await first.role.until_sure()
                raise AssertionError("it is sure, though nobody told it anything")
            a.gather, a.key_value = gather, key_value  # type: ignore[method-assign]
            await anyio.sleep(20)

    with pytest.RaisesGroup(pytest.RaisesExc(Deposed, match="knows term 2"), flatten_subgroups=True):
        run_virtually(1, world)


def in_a_simulated_world(seed: int, kill: Callable[[VirtualLoop, str], None]) -> list[tuple[str, int]]:
    """Two processes of which the leader meets its fate; returns who led, in which terms."""
    terms: list[tuple[str, int]] = []
    living: dict[str, Process] = {}

    async def world(loop: VirtualLoop) -> None:
        server = SimulatedServer(loop)

        async def process(name: str) -> None:
            async with connect_to(server, name) as bus:
                living[name] = Process(bus, name, terms)
                try:
                    await living[name].run()
                except BaseExceptionGroup:
                    return

        loop.spawn("a", lambda: process("a"))
        await eventually(lambda: terms)
        loop.spawn("b", lambda: process("b"))
        await anyio.sleep(1)
        kill(loop, "a")
        began = loop.time()
        await eventually(lambda: len(terms) == 2)
        assert loop.time() - began < 3 * LEASE_S
        loop.thaw("a")
        await anyio.sleep(LEASE_S)
        assert [name for name, each in living.items() if each.leads and not loop.is_killed(name)] == ["b"]

    run_virtually(seed, world)
    return terms


@pytest.mark.parametrize("seed", range(20))
def test_who_is_killed_or_frozen_is_succeeded_after_the_lease_and_ends_when_it_wakes(seed: int) -> None:
    assert in_a_simulated_world(seed, VirtualLoop.kill) == [("a", 1), ("b", 2)]
    assert in_a_simulated_world(seed, VirtualLoop.freeze) == [("a", 1), ("b", 2)]


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("warm", [True, False], ids=["somebody stands by", "nobody does"])
def test_after_a_crash_who_stands_by_leads_and_not_the_next_life_of_the_leader(seed: int, *, warm: bool) -> None:
    terms: list[tuple[str, int]] = []

    async def world(loop: VirtualLoop) -> None:
        server = SimulatedServer(loop)

        async def process(name: str) -> None:
            async with connect_to(server, name) as bus:
                await Process(bus, name[0], terms, has_standby=True).run()

        loop.spawn("a", lambda: process("a"))
        await eventually(lambda: terms)
        if warm:
            loop.spawn("b", lambda: process("b"))
            await anyio.sleep(LEASE_S)
        loop.kill("a")
        loop.spawn("a again", lambda: process("a again"))
        began = loop.time()
        await eventually(lambda: len(terms) == 2)
        assert loop.time() - began < LEASE_S
        await anyio.sleep(5 * LEASE_S)

    run_virtually(seed, world)
    assert terms == [("a", 1), ("b" if warm else "a", 2)]


def test_a_bucket_that_was_out_of_reach_for_longer_than_a_lease_takes_no_leader_down() -> None:
    """Nobody could renew: after each loss of JetStream's leader whoever stood by took the lease of a leader that lived."""
    terms: list[tuple[str, int]] = []

    async def world(loop: VirtualLoop) -> None:
        server = SimulatedServer(loop)
        async with connect_to(server, "a") as a, connect_to(server, "b") as b, anyio.create_task_group() as tasks:
            first, second = Process(a, "a", terms), Process(b, "b", terms)
            tasks.start_soon(first.run)
            await eventually(lambda: first.leads)
            tasks.start_soon(second.run)
            await anyio.sleep(1)
            server.lose_leader(loop.random.uniform(7, 9) * LEASE_S)
            await anyio.sleep(12 * LEASE_S)
            tasks.cancel_scope.cancel()

    for seed in range(40):
        run_virtually(seed, world)
    assert terms == [("a", 1)] * 40


def test_a_candidate_waits_a_whole_lease_of_its_own_clock() -> None:
    candidate = Candidate("b", lease_s=3.0)
    held = LeaseRecord("a", "life")

    assert not candidate.may_take(7, held, now_s=100.0)
    assert not candidate.may_take(7, held, now_s=102.9)
    assert not candidate.may_take(8, held, now_s=103.0)
    assert not candidate.may_take(8, held, now_s=105.9)
    assert candidate.may_take(8, held, now_s=106.0)
    assert candidate.may_take(9, msgspec.structs.replace(held, is_released=True), now_s=106.0)
    assert candidate.may_take(9, None, now_s=106.0)
    assert candidate.may_take(9, LeaseRecord("b", "former life"), now_s=106.0)
