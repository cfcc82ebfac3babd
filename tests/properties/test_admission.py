"""The admission engine against a plain model of it, over random rows of everything that can happen, restarts included."""

from __future__ import annotations

import copy
import itertools
from typing import Any

import msgspec
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headrace.ids import ROOT_POOL, PoolName
from headrace.wire import operations as wire
from headrace.wire.operations import FINAL_STATES, OperationState
from headrace.wire.refusals import OverLimit
from headrace_admission.engine import AdmissionEngine
from headrace_admission.log import checkpoint
from headrace_admission.lost_work import LostWorkRow
from headrace_admission.state.ephemeral_pools import TreePools
from headrace_admission.state.operation import OperationRecord
from headrace_admission.state.rules import rules_of
from headrace_admission.state.state import Page, Restored, State
from tests.reference.admission import ROOT, Model, ModelPool
from tests.support.clocks import NOW
from tests.support.effort import few_or_many
from tests.unit.admission.desk import TREE, Desk, oid

#: Few names and small limits, so that everything meets everything.
NAMES = ["a", "b", "c", "d"]
GUESTS = ["x", "y"]
USERS = ["anna", "boris"]
limit = st.sampled_from([1, 2, 1, 2, 3, 0, None])
asked_pool = st.sampled_from([*NAMES, *NAMES, *GUESTS, ""])


class AdmissionMachine(RuleBasedStateMachine):
    """Does the same to the engine and to the model, and looks whether they agree."""

    @initialize(
        only_on_scan=st.booleans(),
        parents=st.lists(st.integers(0, 3), min_size=3, max_size=3),
        per_user=st.integers(1, 2),
        limits=st.lists(limit, min_size=6, max_size=6),
    )
    def begin(self, only_on_scan: bool, parents: list[int], per_user: int, limits: list[int | None]) -> None:
        self.model = Model(only_on_scan=only_on_scan, per_user=per_user, default_parent="a")
        above = [ROOT, *NAMES]
        for number, name in enumerate(NAMES[:3]):
            pool = ModelPool(above[min(parents[number], number)], limits[2 * number], limits[2 * number + 1])
            self.model.configured[name] = pool
        self.desk = Desk()
        self.started = 0
        self.preempted = 0
        self.write_checkpoint()
        self.before: dict[str, int] = {}
        self.promotes_only = False
        self._configure()

    # --- operations -------------------------------------------------------------------------------------------------

    @rule(
        starts=st.lists(
            st.tuples(asked_pool, st.sampled_from([*USERS, USERS[0]]), st.booleans()), min_size=1, max_size=5
        )
    )
    def start(self, starts: list[tuple[str, str, bool]]) -> None:
        self._remember()
        for pool, user, vanilla in starts:
            name = f"{self.started:03}"
            self.started += 1
            answer = self.desk.start(name, pool, user, type="vanilla" if vanilla else "map")
            assert _refused_at(answer) == self.model.start(name, user, pool, vanilla=vanilla)
            if isinstance(answer, wire.StartAnswer):
                again = self.desk.engine.on_start(_the_same(self.desk, name), user, NOW)
                assert again.effects == []
                assert isinstance(again.answer, wire.StartAnswer)
                assert again.answer.repeated

    @precondition(lambda self: self.model.operations)
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        self._remember()
        name = data.draw(st.sampled_from(sorted(self.model.operations)))
        if self.desk.state_of(name) is OperationState.RUNNING:
            self.desk.finish(name)
        else:
            self.desk.abort(name)
        self.model.end(name)

    @precondition(lambda self: self.desk.running())
    @rule(data=st.data())
    def preempt(self, data: st.DataObject) -> None:
        """The job runs again, and the work is lost."""
        self._remember()
        self.desk.preempt(data.draw(st.sampled_from(self.desk.running())))
        self.preempted += 1

    @precondition(lambda self: self.model.operations)
    @rule(data=st.data())
    def abort(self, data: st.DataObject) -> None:
        self._remember()
        name = data.draw(st.sampled_from(sorted(self.model.operations)))
        self.desk.abort(name)
        if self.desk.state_of(name) is OperationState.ABORTING:
            self._compare()
            self.desk.released(name)
        self.model.end(name)

    @precondition(lambda self: self.model.operations)
    @rule(data=st.data(), pool=st.sampled_from([*NAMES, *NAMES, *GUESTS]))
    def move(self, data: st.DataObject, pool: str) -> None:
        self._remember()
        name = data.draw(st.sampled_from(sorted(self.model.operations)))
        answer = self.desk.move(name, pool)
        assert _refused_at(answer) == self.model.move(name, pool)

    @rule()
    def scan(self) -> None:
        self._remember()
        self.desk.scan()
        self.model.scan()

    # --- configuration ----------------------------------------------------------------------------------------------

    @rule(limits=st.lists(limit, min_size=4, max_size=4))
    def set_running_limits(self, limits: list[int | None]) -> None:
        """Of all pools at once."""
        for given, running in zip(self.model.configured.values(), limits, strict=False):
            given.max_running = running
        self._configure()

    @rule(data=st.data(), total=st.none() | st.integers(0, 6), running=limit)
    def set_limits(self, data: st.DataObject, total: int | None, running: int | None) -> None:
        given = self.model.configured[self._some_pool(data)]
        if total is None or running is None or running <= total:
            given.max_total, given.max_running = total, running
            self._configure()

    @rule(total=st.integers(4, 20), running=st.integers(0, 5))
    def set_tree(self, total: int, running: int) -> None:
        self.model.max_total, self.model.max_running = total, running
        self._configure()

    @rule(default_parent=st.sampled_from([*NAMES, *GUESTS, ROOT]))
    def set_default_parent(self, default_parent: str) -> None:
        self.model.default_parent = default_parent
        self._configure()

    @rule(nested=st.booleans())
    def set_placement_rules(self, nested: bool) -> None:
        self.model.nested = nested
        self._configure()

    @rule(data=st.data(), hub=st.booleans(), subpool=st.none() | st.tuples(limit, limit))
    def set_hub(self, data: st.DataObject, hub: bool, subpool: tuple[int | None, int | None] | None) -> None:
        given = self.model.configured[self._some_pool(data)]
        if not (hub and given.fifo):
            given.hub, given.subpool = hub, subpool
            self._configure()

    @rule(data=st.data(), fifo=st.booleans(), light=st.booleans())
    def set_mode(self, data: st.DataObject, fifo: bool, light: bool) -> None:
        pool = self._some_pool(data)
        given = self.model.configured[pool]
        everybody = [*self.model.configured.values(), *self.model.ephemeral.values()]
        if fifo and (given.hub or any(each.parent == pool for each in everybody)):
            return
        given.fifo, given.light = fifo, light
        self._configure()

    @rule(data=st.data(), parent=st.sampled_from([*NAMES, ROOT]))
    def move_pool(self, data: st.DataObject, parent: str) -> None:
        pool = self._some_pool(data)
        if self._may_be_parent(parent) and pool not in self._explicit_chain(parent):
            self.model.configured[pool].parent = parent
            self._configure()

    @rule(pool=st.sampled_from([*NAMES, *GUESTS]), parent=st.sampled_from([*NAMES, ROOT]), running=limit)
    def create_pool(self, pool: str, parent: str, running: int | None) -> None:
        if pool not in self.model.configured and pool != parent and self._may_be_parent(parent):
            self.model.configured[pool] = ModelPool(parent, None, running)
            self._configure()

    @rule(data=st.data())
    def remove_pool(self, data: st.DataObject) -> None:
        pool = self._some_pool(data)
        if len(self.model.configured) > 1 and not self._has_explicit_children(pool):
            del self.model.configured[pool]
            self._configure()

    @rule(data=st.data(), to=st.sampled_from([*NAMES, *GUESTS]))
    def rename_pool(self, data: st.DataObject, to: str) -> None:
        pool = self._some_pool(data)
        lives_above = any(each.parent == to for each in self.model.ephemeral.values())
        if to in self.model.configured or (self.model.configured[pool].fifo and lives_above):
            return
        self.model.configured[to] = self.model.configured.pop(pool)
        for each in self.model.configured.values():
            if each.parent == pool:
                each.parent = to
        self._configure()

    # --- the service's life -----------------------------------------------------------------------------------------

    @rule()
    def write_checkpoint(self) -> None:
        assert self.desk.state.sequence == len(self.desk.entries)
        self.checkpoint = checkpoint.Checkpoint(self.desk.state, page_bytes=400)
        self.to_write = self.checkpoint.pages()
        self.written: list[bytes] = []
        self.records_of_the_checkpoint = [each.to_record() for each in self.desk.state.operations.values()]

    @rule(pages=st.integers(1, 3))
    def go_on_with_the_checkpoint(self, pages: int) -> None:
        """Its pages are encoded while the state goes on; a restart finds all of them."""
        self.written += itertools.islice(self.to_write, pages)

    @rule()
    def restart(self) -> None:
        """From the checkpoint and what the log holds behind it; the configuration is as it was."""
        engine = self._restored()
        assert engine.on_configuration(TREE, rules_of(self.desk.trees[TREE]), NOW).effects == []
        self.desk.engine = engine

    @rule(data=st.data(), running=limit)
    def restart_with_another_configuration(self, data: st.DataObject, running: int | None) -> None:
        """It changed while nobody looked: a pool went, or its limit is another."""
        pool = self._some_pool(data)
        if len(self.model.configured) == 1 or self._has_explicit_children(pool):
            return
        if running is None:
            del self.model.configured[pool]
        else:
            self.model.configured[pool].max_running = running
        self.desk.engine = self._restored()
        self._configure()

    @rule(share=st.floats(0, 1))
    def deliver_twice(self, share: float) -> None:
        """The end of the log once more."""
        self.desk.replay(self.desk.engine, 1 + int(share * len(self.desk.entries)))

    # --- what must hold ---------------------------------------------------------------------------------------------

    @invariant()
    def agrees(self) -> None:
        if hasattr(self, "model"):
            self._compare()
            self._judge_running()
            lost = self.desk.state.lost_work.told(TREE, None, 0, 10**13)
            assert sum(each.runs for each in lost) == self.preempted

    def _compare(self) -> None:
        assert self.desk.engine.check() == []
        book, model = self.desk.state.books[TREE], self.model
        live = {name.removeprefix("operation-"): o for name, o in self.desk.state.live.items()}
        assert {name: (o.spec.pool, o.state is OperationState.PENDING) for name, o in live.items()} == {
            name: (o.pool, o.waits_at is not None) for name, o in model.operations.items()
        }
        for pool in (*NAMES, *GUESTS, *USERS, *model.ephemeral, ROOT):
            assert book.counts(PoolName(pool)).as_tuple() == model.counts(pool), pool
            assert (book.exists(PoolName(pool)), book.parent(PoolName(pool))) == (
                model.exists(pool),
                model.pool(pool).parent,
            )
            limits = book.max_operation_count(PoolName(pool)), book.max_running_operation_count(PoolName(pool))
            assert limits == model.limits(pool), pool
        queues = {pool: [each.name for each in queue] for pool, queue in model.queues.items() if queue}
        assert {pool: self.desk.queue(pool) for pool in book.queues} == queues

    def _judge_running(self) -> None:
        if self.promotes_only:
            for pool in (*self.model.configured, *self.model.ephemeral, ROOT):
                running, most = self.model.counts(pool)[1], self.model.limits(pool)[1]
                assert running <= max(self.before.get(pool, 0), most), pool
        self.promotes_only = False

    # --- within -----------------------------------------------------------------------------------------------------

    def _remember(self) -> None:
        """What follows may fill pools up to their limits and not beyond."""
        pools = (*self.model.configured, *self.model.ephemeral, ROOT)
        self.before = {pool: self.model.counts(pool)[1] for pool in pools}
        self.promotes_only = True

    def _configure(self) -> None:
        model = self.model
        model.configured = {name: model.configured[name] for name in self._parents_first()}
        pools: dict[str, dict[str, Any]] = {}
        for name, pool in model.configured.items():
            given: dict[str, Any] = {"parent": pool.parent, "create_ephemeral_subpools": pool.hub}
            given |= {"mode": "fifo" if pool.fifo else "fair_share", "enable_lightweight_operations": pool.light}
            given |= _present(max_operation_count=pool.max_total, max_running_operation_count=pool.max_running)
            if pool.subpool is not None:
                total, running = pool.subpool
                config = _present(max_operation_count=total, max_running_operation_count=running)
                given["ephemeral_subpool_config"] = config
            pools[name] = given
        self.desk.configure(
            pools,
            max_operation_count=model.max_total,
            max_running_operation_count=model.max_running,
            default_parent_pool=model.default_parent,
            placement_rules=["nested_user specified", "user"] if model.nested else ["specified", "user"],
            max_ephemeral_pools_per_user=model.per_user,
            promote_only_on_scan=model.only_on_scan,
        )
        model.configured = copy.deepcopy(model.configured)
        model.reconfigured()

    def _restored(self) -> AdmissionEngine:
        records: list[OperationRecord] = []
        pools: list[TreePools] = []
        lost: list[LostWorkRow] = []
        self.written += self.to_write
        for page in self.written:
            read = checkpoint.read_page(page)
            records += read.operations
            pools += read.pools
            lost += read.lost_work
        assert records == self.records_of_the_checkpoint
        engine = AdmissionEngine()
        engine.on_restored(Page(records, pools, lost), NOW)
        engine.on_restored(Restored(self.checkpoint.sequence, self.checkpoint.allocator_terms), NOW)
        self.desk.replay(engine, 1 + self.checkpoint.sequence // 2)
        assert {name: o.to_record() for name, o in engine.state.operations.items()} == {
            name: o.to_record() for name, o in self.desk.state.operations.items()
        }
        assert engine.state.lost_work.rows() == self.desk.state.lost_work.rows()
        assert self._consumed(engine.state) == self._consumed(self.desk.state)
        assert all(o.state not in FINAL_STATES for o in engine.state.live.values())
        return engine

    def _consumed(self, state: State) -> list[object]:
        """The facts of the entries behind the checkpoint. Paths of pools are those of the configuration then and now."""
        facts = [each for each in state.consumption.waiting if each.sequence > self.checkpoint.sequence]
        return [(each.sequence, each.day, each.chain.pools[0], each.user, each.operation, each.sums) for each in facts]

    def _some_pool(self, data: st.DataObject) -> str:
        return data.draw(st.sampled_from(sorted(self.model.configured)))

    def _parents_first(self) -> list[str]:
        return sorted(self.model.configured, key=lambda name: len(self._explicit_chain(name)))

    def _explicit_chain(self, pool: str) -> list[str]:
        chain = []
        while pool != ROOT:
            chain.append(pool)
            pool = self.model.configured[pool].parent
        return chain

    def _may_be_parent(self, pool: str) -> bool:
        return pool == ROOT or (pool in self.model.configured and not self.model.configured[pool].fifo)

    def _has_explicit_children(self, pool: str) -> bool:
        return any(each.parent == pool for each in self.model.configured.values())


def _present(**values: int | None) -> dict[str, int]:
    return {key: value for key, value in values.items() if value is not None}


def _refused_at(answer: msgspec.Struct) -> str | None:
    """Where, in the model's words; None when it was done."""
    if not isinstance(answer, OverLimit):
        assert isinstance(answer, wire.StartAnswer | wire.OperationView), answer
        return None
    broken = answer.broken[0]
    return "@user" if broken.user else broken.pool


def _the_same(desk: Desk, name: str) -> wire.StartOperation:
    return wire.StartOperation(oid(name), desk.state.operations[oid(name)].spec)


assert ROOT == ROOT_POOL  # two words for one thing would make every comparison vain
TestAdmission = AdmissionMachine.TestCase
TestAdmission.settings = settings(
    max_examples=few_or_many(50, 3_000),
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
