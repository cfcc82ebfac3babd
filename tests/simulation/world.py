"""The whole of Headrace in one simulated world: services with their shells, agents, people, and a seed that breaks things.

What must hold at every step is judged by the truth on the hosts and by the engines' own checks. Faults end at some time; then
everything that was promised must come true.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import secrets
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, Final, TypeVar

import anyio
import anyio.to_thread
import msgspec
from anyio._backends._asyncio import AsyncIOBackend, CancelScope

from headrace.bus import BusError, serving
from headrace.ids import ROOT_POOL, OperationId, PoolName, TreeName
from headrace.pools import Pool, PoolConfig, Tree, TreeOptions
from headrace.resources import Resources
from headrace.runtime import shell
from headrace.runtime.service import runtime_on
from headrace.runtime.shell import Shell
from headrace.wire import operations as wire
from headrace.wire import subjects
from headrace.wire.codec import encode
from headrace.wire.operations import FINAL_STATES, OperationSpec
from headrace.wire.refusals import NotFound, Refusal, decode_answer
from headrace_admission.service import serve as serve_admission
from headrace_admission.settings import AdmissionSettings
from headrace_agent.settings import AgentSettings
from headrace_allocator.service import serve as serve_allocator
from headrace_allocator.settings import AllocatorSettings
from headrace_fair_share.service import serve as serve_fair_share
from headrace_fair_share.settings import FairShareSettings
from headrace_integral.service import serve as serve_integral
from headrace_integral.settings import IntegralSettings
from tests.reference.heartbeats.comparing import every_heartbeat_compared
from tests.simulation.bus import connect_to
from tests.simulation.clock import LoopClock
from tests.simulation.hosts import Host, SimulatedAgent, Truth
from tests.simulation.invariants import Invariants
from tests.simulation.length import LONG
from tests.simulation.loop import PROCESS, VirtualLoop
from tests.simulation.recorded import Recorded, Violation
from tests.simulation.server import SimulatedServer

__all__ = ["TREE", "World", "a_pool", "a_spec", "chance_from", "everything_by_seed"]

T = TypeVar("T")
Answer = TypeVar("Answer", bound=msgspec.Struct)

TREE: Final = TreeName("default")
_RESTART_S: Final = 0.5
#: A function that many modules of anyio have imported by its name.
_BACKEND: Final = "get_async_backend"


class World:
    """Everything that there is, by name."""

    def __init__(self, loop: VirtualLoop) -> None:
        self.loop = loop
        self.random = loop.random
        self.server = SimulatedServer(loop)
        self.recorded = Recorded(self.server.store.stream(subjects.STREAM))
        self.truth = Truth(self.recorded)
        self.invariants = Invariants(self)
        #: Machines that never come back, with the node that each said to be.
        self.gone: dict[str, str] = {}
        #: Read by allocators when they start.
        self.node_lease_s = 40.0
        self.length = LONG
        #: Processes that start later have a wall clock that is so far off at most.
        self.wrong_clocks_ms = 0
        self.hosts: dict[str, Host] = {}
        self.trees: tuple[TreeName, ...] = (TREE,)
        #: By process: the engine of it that serves now.
        self.shells: dict[str, Shell[Any]] = {}
        self._lives: dict[str, int] = {}
        #: Set to ask a process to stop, by process.
        self._stopping: dict[str, anyio.Event] = {}
        self._tasks: dict[str, asyncio.Task[Any]] = {}
        self._programs: dict[str, Callable[[str], Awaitable[None]]] = {}
        #: Processes that are not started again when they end.
        self.given_up: set[str] = set()
        self.restarts = 0
        #: Operations whose start was answered, and those that were told to end.
        self.stopped: set[OperationId] = set()
        self.accepted: dict[OperationId, OperationSpec] = {}
        self.ended: dict[OperationId, wire.OperationView] = {}
        self.log: list[str] = []

    def note(self, words: str) -> None:
        """A line for whoever reads what happened."""
        self.log.append(f"{self.loop.time():8.3f} {words}")

    # --- processes ------------------------------------------------------------------------------------------------

    def start(self, name: str, program: Callable[[str], Awaitable[None]]) -> None:
        """Starts a process that is started again whenever it ends, as a supervisor does."""
        self._programs[name] = program
        self._lives[name] = self._lives.get(name, 0) + 1
        process = f"{name}#{self._lives[name]}"

        async def run() -> None:
            try:
                await program(process)
            except BaseExceptionGroup as group:
                self.note(f"{process} ends: {_leaf(group)!r}")
                if isinstance(_leaf(group), _DEFECTS):
                    self.truth.violations.append(f"{process} ends: {_leaf(group)!r}")
            except BusError as error:
                self.note(f"{process} ends: {error!r}")

        task = self.loop.spawn(process, run)
        self._tasks[name] = task
        self.loop.call_soon(self._watch, name, process, task, context=self.loop.world_context)

    def _watch(self, name: str, process: str, task: asyncio.Task[Any]) -> None:
        task.add_done_callback(lambda _task: self._again(name, process), context=self.loop.world_context)

    def _again(self, name: str, process: str) -> None:
        self.shells.pop(process, None)
        if self.process(name) == process and name not in self.given_up:
            self.restarts += 1
            self.loop.call_later(_RESTART_S, self._start_again, name, process, context=self.loop.world_context)

    def _start_again(self, name: str, process: str) -> None:
        # Killed twice, given up or started by somebody else in the meantime: there is never a second one beside it.
        if self.process(name) == process and name not in self.given_up:
            self.start(name, self._programs[name])

    def process(self, name: str) -> str:
        """The present life of a process."""
        return f"{name}#{self._lives.get(name, 0)}"

    def kill(self, name: str) -> None:
        """SIGKILL; the supervisor starts it again."""
        process = self.process(name)
        self.note(f"kill {process}")
        self.loop.kill(process)
        if name.startswith("agent."):
            self.hosts[name.removeprefix("agent.")].to_agent = None
        for client in list(self.server.clients):
            if client.process == process:
                client.lose_connection()
        self._again(name, process)

    def stop(self, name: str, *, for_good: bool = False) -> None:
        """SIGTERM; the supervisor starts it again, unless it is stopped for good."""
        self.note(f"stop {self.process(name)}")
        if for_good:
            self.given_up.add(name)
        stopping = self._stopping.get(self.process(name))
        if stopping is not None:
            stopping.set()

    def _asked_to_stop(self, process: str) -> anyio.Event:
        event = self._stopping[process] = anyio.Event()
        return event

    def freeze(self, name: str) -> None:
        """SIGSTOP."""
        self.note(f"freeze {self.process(name)}")
        self.loop.freeze(self.process(name))

    def thaw(self, name: str) -> None:
        """SIGCONT."""
        self.note(f"thaw {self.process(name)}")
        self.loop.thaw(self.process(name))

    # --- what runs ------------------------------------------------------------------------------------------------

    def start_service(self, kind: str, instance: str = "a", tree: TreeName = TREE) -> None:
        """Starts one of the four services; instances of one kind stand by for one another."""
        common = {"instance": instance, "lease_ms": 2_000, "administrators": "*", "tree": tree}

        async def program(process: str) -> None:
            serve, settings = _SERVICES[kind](self, common)
            async with (
                connect_to(self.server, process, subjects.inbox("service", kind)) as bus,
                anyio.create_task_group() as tasks,
            ):
                runtime: Any = runtime_on(bus, kind, settings, tasks, self._asked_to_stop(process), self._clock())
                tasks.start_soon(runtime.deposition.watch)
                await runtime.terms.serve(bus)
                await serve(runtime)
                tasks.cancel_scope.cancel()

        self.start(f"{kind}.{instance}" if tree == TREE else f"{kind}.{tree}.{instance}", program)

    def start_host(
        self, name: str, cores: int, tree: TreeName = TREE, tags: Sequence[str] = (), *, node: str = ""
    ) -> None:
        """A machine with an agent and a runner. `node` is the name that it was given, where that is not its own."""
        node = node or name
        host = self.hosts[name] = Host(name, cores, self.loop, self.truth, tree)
        host.tags = tags
        settings = AgentSettings(
            node=node,
            machine=name,
            cpu=cores,
            memory=cores * 2**30,
            state_folder=f"/nowhere/{name}",
            heartbeat_timeout_ms=1_000,
            tree=tree,
            tags=list(tags),
            users="agent",
        )

        async def program(process: str) -> None:
            async with (
                connect_to(self.server, process, subjects.inbox("node", node)) as bus,
                anyio.create_task_group() as tasks,
            ):
                runtime = runtime_on(bus, "agent", settings, tasks, self._asked_to_stop(process), self._clock())
                await SimulatedAgent(runtime, host).run()
                tasks.cancel_scope.cancel()

        self.start(f"agent.{name}", program)

    def _clock(self) -> LoopClock:
        return LoopClock(self.loop, self.random.randint(-self.wrong_clocks_ms, self.wrong_clocks_ms))

    def switch_off(self, name: str) -> None:
        """A host loses its power."""
        self.given_up.add(f"agent.{name}")
        self.kill(f"agent.{name}")
        self.hosts[name].lose_power()

    def switch_on(self, name: str) -> None:
        """It is there again, with its files, and its agent is started unless it lives."""
        agent = f"agent.{name}"
        self.hosts[name].is_on = True
        if agent in self.given_up:
            self.given_up.remove(agent)
            self.start(agent, self._programs[agent])

    async def configure(self, pools: list[Pool], options: TreeOptions, tree: TreeName = TREE) -> None:
        """Writes the pools, as an administrator does before anything starts."""
        async with connect_to(self.server, "administrator") as bus:
            bucket = await bus.key_value(subjects.POOLS_BUCKET, history=subjects.POOLS_HISTORY)
            await bucket.put(tree, msgspec.json.encode(Tree(tree, pools, options)))

    async def run_operation(
        self, name: str, spec: OperationSpec, then: Sequence[tuple[float, type[msgspec.Struct], str]] = ()
    ) -> None:
        """A person starts an operation, asking again until it is answered, and waits for its end.

        `then` are further wishes, one after the other: how many seconds after the start, which request, and its verb.
        """
        operation = OperationId(name)
        async with connect_to(self.server, f"person-{name}", subjects.inbox("user", "anna")) as bus:
            await self._insist(bus, "op.start", wire.StartOperation(operation, spec), wire.StartAnswer)
            self.recorded.judge_answered(operation)
            self.accepted[operation] = spec
            self.note(f"{name} accepted")
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._wish, bus, operation, then)
                await self._await_end(bus, operation)
                tasks.cancel_scope.cancel()

    async def _wish(self, bus: Any, operation: OperationId, then: Sequence[tuple[float, Any, str]]) -> None:
        """Each wish waits for the answer to the one before: a suspension asked for again after the resumption would stay."""
        started_s = self.loop.time()
        for seconds, request, verb in then:
            await anyio.sleep(max(0.0, started_s + seconds - self.loop.time()))
            if verb in ("op.abort", "op.complete"):
                self.stopped.add(operation)
            answer = await self._insist(bus, verb, request(operation), wire.OperationView)
            self.note(f"{verb}: {answer.operation} is {answer.state}")

    async def _insist(self, bus: Any, verb: str, request: msgspec.Struct, kind: type[Answer]) -> Answer:
        """Asks until it is answered as wished, or for ever."""
        while True:
            answer = await self._ask(bus, verb, request, kind)
            if isinstance(answer, kind):
                return answer
            await anyio.sleep(0.3)

    async def _await_end(self, bus: Any, operation: OperationId) -> None:
        while True:
            view = await self._ask(bus, "op.get", wire.GetOperation(operation), wire.OperationView)
            if isinstance(view, wire.OperationView) and view.state in FINAL_STATES:
                self.ended[operation] = view
                self.note(f"{operation} {view.state}")
                return
            if isinstance(view, NotFound):
                raise Violation(f"{operation} was accepted and is not known any more")
            await anyio.sleep(1.0)

    async def _ask(self, bus: Any, verb: str, request: msgspec.Struct, kind: type[Answer]) -> Answer | Refusal | None:
        try:
            data = await bus.request(subjects.user("anna", verb), encode(request), timeout_s=3.0)
        except BusError:
            return None
        return decode_answer(data, kind)

    async def keep_checking(self) -> None:
        """Looks at everything that must always hold, over and over."""
        while True:
            await anyio.sleep(self.length.check_s)
            self.invariants.check()


#: No fault of the world around it ends a process with one of these.
_DEFECTS: Final = (AssertionError, AttributeError, LookupError, NameError, TypeError)


def _leaf(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


_SERVICES: Final[dict[str, Callable[[World, dict[str, Any]], tuple[Any, Any]]]] = {
    "admission": lambda _world, common: (
        serve_admission,
        AdmissionSettings(**common, checkpoint_events=40, keep_entries=20, consumption_period_ms=1_000),
    ),
    "allocator": lambda world, common: (
        serve_allocator,
        AllocatorSettings(
            **common,
            node_heartbeat_timeout_ms=4_000,
            node_lease_ms=int(world.node_lease_s * 1000),
            # Less often than usual: half of all that is published otherwise.
            usage_interval_ms=100,
        ),
    ),
    "fair_share": lambda world, common: (
        serve_fair_share,
        FairShareSettings(
            **common, fair_share_update_period_ms=2_000, update_spacing_ms=int(world.length.update_spacing_s * 1000)
        ),
    ),
    "integral": lambda _world, common: (serve_integral, IntegralSettings(**common)),
}


class _InOrder(dict[Any, None]):
    """A set in the order of its coming: anyio cancels child scopes in the order of a set, which addresses in memory decide."""

    def add(self, each: Any) -> None:
        self[each] = None

    def discard(self, each: Any) -> None:
        self.pop(each, None)

    remove = dict.__delitem__


@contextlib.contextmanager
def everything_by_seed(world_of: Callable[[], World | None], seed: int) -> Iterator[None]:
    """While it lasts, chance comes from the seed, threads run at once, shells are known to the world, and every heartbeat is compared."""
    chance = random.Random(seed)
    unseeded, threads, watch = random.Random, anyio.to_thread.run_sync, Shell.watch
    init_scope = CancelScope.__init__

    class Seeded(unseeded):  # type: ignore[misc, valid-type]
        def __init__(self, given: Any = None) -> None:
            super().__init__(chance.random() if given is None else given)

    async def at_once(function: Callable[..., T], *args: Any, **_options: Any) -> T:
        await anyio.sleep(0.0005)
        return function(*args)

    async def known(self: Shell[Any], *args: Any, **given: Any) -> None:
        world = world_of()
        if world is not None:
            world.shells[PROCESS.get()] = self
        await watch(self, *args, **given)

    def different(error: AssertionError) -> None:
        world = world_of()
        assert world is not None
        world.truth.violations.append(str(error))

    def ordered(self: CancelScope, *args: Any, **given: Any) -> None:
        init_scope(self, *args, **given)
        self._child_scopes = _InOrder()  # type: ignore[assignment]

    for module in list(sys.modules.values()):
        for value in list(vars(module).values()) if getattr(module, "__name__", "").startswith("headrace") else []:
            if isinstance(value, unseeded):
                value.seed(f"{seed} {module.__name__}")
    hexadecimal, look_s, turn_ns = secrets.token_hex, shell.PAUSE_LOOK_S, serving._TURN_NS
    # In virtual time no loop ever pauses, and looking for that takes real time.
    shell.PAUSE_LOOK_S = 120.0  # type: ignore[misc]
    # Told by the processor's clock: how many messages a turn answers would differ from run to run.
    serving._TURN_NS = sys.maxsize  # type: ignore[misc]
    with_backend = [
        module for name, module in sys.modules.items() if name.startswith("anyio.") and _BACKEND in vars(module)
    ]
    find_backend = vars(anyio.to_thread)[_BACKEND]
    for module in with_backend:
        # There is one backend; to look for it takes as long as most of what it is looked for.
        setattr(module, _BACKEND, lambda _name=None: AsyncIOBackend)
    random.Random = Seeded  # type: ignore[assignment, misc]
    anyio.to_thread.run_sync = at_once  # type: ignore[assignment]
    Shell.watch = known  # type: ignore[method-assign, method-assign]
    CancelScope.__init__ = ordered  # type: ignore[method-assign]
    secrets.token_hex = lambda nbytes=8: f"{chance.getrandbits(8 * (nbytes or 8)):0{2 * (nbytes or 8)}x}"
    try:
        with every_heartbeat_compared(different):
            yield
    finally:
        for module in with_backend:
            setattr(module, _BACKEND, find_backend)
        random.Random = unseeded  # type: ignore[misc]
        anyio.to_thread.run_sync = threads
        Shell.watch = watch  # type: ignore[method-assign]
        CancelScope.__init__ = init_scope  # type: ignore[method-assign]
        secrets.token_hex = hexadecimal
        shell.PAUSE_LOOK_S = look_s  # type: ignore[misc]
        serving._TURN_NS = turn_ns  # type: ignore[misc]


def chance_from(loop: VirtualLoop, share: float) -> bool:
    """True with this probability."""
    return loop.random.random() < share


def a_pool(name: str, **options: Any) -> Pool:
    """A pool below the root."""
    return Pool(PoolName(name), ROOT_POOL, PoolConfig(**options))


def a_spec(pool: str, jobs: int, argv: list[str], **options: Any) -> OperationSpec:
    """Jobs of one core."""
    return OperationSpec(PoolName(pool), argv, jobs, Resources(user_slots=1, cpu=100), **options)
