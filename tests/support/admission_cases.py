"""Conformance cases of admission put to running services: every step is a request over the bus, as a client makes it."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from typing import Any

import anyio
import anyio.from_thread
import anyio.to_thread

from headrace.bus import Bus
from headrace.ids import ROOT_POOL, AllocationId, NodeName, OperationId, PoolName
from headrace.resources import Resources
from headrace.runtime.role import role_of
from headrace.wire import ledger, subjects
from headrace.wire import operations as wire
from headrace.wire.heartbeat import JobEnd, JobResult
from headrace.wire.operations import FINAL_STATES, OperationSpec, OperationState
from headrace.wire.placements import PoolLevel
from headrace.wire.pool_changes import ChangePools, Create, Move, PoolChange, PoolPlan, Remove, Set, SetOptions
from headrace.wire.refusals import NotReady
from tests.conformance.pools_admission import Configuration, Verdict, refused, run_steps
from tests.conformance.reporting import Comparison, Problem
from tests.support.nats_server import NatsServer
from tests.support.tree_services import PATIENCE_S, TREE, a_bus, ask, stand_in_for

__all__ = ["ADMINISTRATOR", "run_case"]

ADMINISTRATOR = "root"


class _Nothing(Configuration):
    """A tree without pools and with every option at its default."""

    def __init__(self) -> None:
        super().__init__({}, {})
        self.options.clear()


class ServiceDesk:
    """Asks the services from a worker thread, so that the steps of a case are the same as with the engine."""

    def __init__(self, server: NatsServer, allocator: Bus, configuration: Configuration, case: str) -> None:
        self._server = server
        self._allocator = allocator
        self._configuration = configuration
        self._case = case.lower()
        self._known: tuple[dict[str, Any], dict[str, dict[str, Any]]] = ({}, {})
        self._revision = 0
        self._started: list[str] = []

    # --- what a case asks -------------------------------------------------------------------------------------------

    def configure(self) -> None:
        self._to(self._configuration)

    def start(self, step: dict[str, Any]) -> Verdict:
        spec = OperationSpec(
            pool=PoolName(step["pool"] or ""),
            argv=["true"],
            resources=Resources(user_slots=1, cpu=100),
            weight=step.get("weight", 1.0),
            type=step.get("type", "map"),
        )
        request = wire.StartOperation(self._id(step["op"]), spec, self._revision)
        answer = self._ask("op.start", request, wire.StartAnswer, user=step.get("user", ADMINISTRATOR))
        if not isinstance(answer, wire.StartAnswer):
            return refused(answer)
        self._started.append(step["op"])
        return Verdict(answer.state.value, answer.pool, next((each.blocked_by for each in answer.waiting), ""))

    def move(self, step: dict[str, Any]) -> Verdict:
        request = wire.UpdateOperation(self._id(step["op"]), pool=PoolName(step["pool"]), min_revision=self._revision)
        answer = self._ask("op.update", request, wire.OperationView)
        if not isinstance(answer, wire.OperationView):
            return refused(answer)
        return Verdict(answer.state.value, answer.spec.pool)

    def finish(self, name: str) -> None:
        if self._view(name).state is OperationState.PENDING:
            self._ask("op.abort", wire.AbortOperation(self._id(name)), wire.OperationView)
            return
        end = JobEnd(self._id(name), 0, 1, AllocationId("1-1"), JobResult.COMPLETED)
        report = ledger.ReportEnds(TREE, 1, [ledger.ReportedEnd(NodeName("n1"), end)])
        self._call(lambda: ask(self._allocator, subjects.ledger("report"), report, ledger.ReportAnswer))

    def scan(self, at_s: float | None) -> None:
        assert at_s is None, "services scan by their own clock"
        self._ask("op.scan", wire.ScanQueues(), wire.Scanned)

    def seen(self, what: str, key: str) -> Any:
        if what in ("states", "op_pools"):
            view = self._view(key)
            return view.state.value if what == "states" else view.spec.pool
        level = self._level(key)
        if what == "pool_exists":
            return level is not None
        if level is None:
            return {"counters": [0, 0, 0], "queues": []}.get(what)
        match what:
            case "counters":
                return [
                    level.operation_count,
                    level.running_operation_count,
                    level.lightweight_running_operation_count,
                ]
            case "queues":
                return [self._name(operation) for operation in level.first_waiting]
            case "parents":
                return level.parent
            case "is_ephemeral":
                return level.ephemeral
            case "limits":
                return [level.max_operation_count, level.max_running_operation_count]
            case _:
                raise Problem(f"nothing to compare with {what}")

    def check(self) -> list[str]:
        return []

    def clear(self) -> None:
        """Ends all operations and takes all pools away, for the next case."""
        for name in self._started:
            if self._view(name).state not in FINAL_STATES:
                self.finish(name)
        self._to(_Nothing())

    # --- within -----------------------------------------------------------------------------------------------------

    def _to(self, wanted: Configuration) -> None:
        changes = _changes(self._known, (wanted.options, wanted.pools))
        if changes:
            plan = self._ask("pool.change", ChangePools(changes), PoolPlan)
            if not isinstance(plan, PoolPlan) or plan.broken:
                raise Problem(f"a configuration that is refused: {plan}")
            self._revision = plan.revision
        self._known = (dict(wanted.options), {name: dict(given) for name, given in wanted.pools.items()})
        self._await_revision()

    def _await_revision(self) -> None:
        """A start that is refused in any case waits for the configuration; so do reads behind it."""
        spec = OperationSpec(PoolName("not to be"), ["true"], resources=Resources(user_slots=1, cpu=100))
        request = wire.StartOperation(OperationId("never-started"), spec, self._revision)
        self._ask("op.start", request, wire.StartAnswer)

    def _view(self, name: str) -> wire.OperationView:
        view = self._ask("op.get", wire.GetOperation(self._id(name)), wire.OperationView)
        assert isinstance(view, wire.OperationView), view
        return view

    def _level(self, pool: str) -> PoolLevel | None:
        answer = self._ask("pool.counts", wire.CountPools(PoolName(pool), TREE), wire.PoolCounts)
        return answer.pools[0] if isinstance(answer, wire.PoolCounts) else None

    def _ask(self, verb: str, request: Any, kind: Any, user: str = ADMINISTRATOR) -> Any:
        async def asked() -> Any:
            async with a_bus(self._server, "user", user) as bus:
                answer: Any = NotReady("")
                with anyio.fail_after(PATIENCE_S):
                    while isinstance(answer, NotReady):
                        answer = await ask(bus, subjects.user(user, verb), request, kind)
                return answer

        return self._call(asked)

    def _call(self, call: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        return anyio.from_thread.run(call)

    def _id(self, name: str) -> OperationId:
        return OperationId(f"{self._case}-{name.encode().hex()}-op")

    def _name(self, operation: OperationId) -> str:
        return bytes.fromhex(operation.split("-")[-2]).decode()


async def run_case(server: NatsServer, allocator: Bus, case: dict[str, Any]) -> list[Comparison]:
    """Puts one case with steps to services that have neither pools nor operations; they have none afterwards."""
    configuration = Configuration(case["tree_config"], case["pools"])
    await stand_in_for(allocator, role_of("allocator", TREE))
    desk = ServiceDesk(server, allocator, configuration, case["id"])

    def run() -> list[Comparison]:
        desk.configure()
        comparisons = run_steps(case, configuration, desk)
        desk.clear()
        return comparisons

    return await anyio.to_thread.run_sync(run)


def _changes(
    before: tuple[dict[str, Any], dict[str, dict[str, Any]]], after: tuple[dict[str, Any], dict[str, dict[str, Any]]]
) -> list[PoolChange]:
    """New pools first, so that others can be moved below them; what goes, goes last."""
    options = _differences(before[0], after[0])
    made: list[PoolChange] = [SetOptions(json.dumps(options).encode())] if options else []
    old, new = before[1], after[1]
    for name, given in new.items():
        parent, attributes = PoolName(given.get("parent", ROOT_POOL)), _attributes(given)
        if name not in old:
            made.append(Create(PoolName(name), parent, json.dumps(attributes).encode()))
            continue
        if old[name].get("parent", ROOT_POOL) != parent:
            made.append(Move(PoolName(name), parent))
        differences = _differences(_attributes(old[name]), attributes)
        if differences:
            made.append(Set(PoolName(name), json.dumps(differences).encode()))
    gone = [name for name in old if name not in new]
    return made + [Remove(PoolName(name), in_use=True) for name in reversed(gone)]


def _attributes(given: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in given.items() if key != "parent"}


def _differences(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """Null for what is not said any more."""
    return {key: after.get(key) for key in {**before, **after} if before.get(key) != after.get(key)}
