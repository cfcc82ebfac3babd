"""The supervisor of `headrace up`: carries out what its engine decides, and reports it to the user."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from io import TextIOWrapper
from pathlib import Path
from typing import NamedTuple, assert_never

import anyio
import anyio.abc
import msgspec

from headrace.child_process import until_ended
from headrace.client.place import Place
from headrace.client.places.endpoint import Endpoint
from headrace.counted import counted
from headrace.obs.logging import configure, logger
from headrace.runtime.clock import SystemClock
from headrace.runtime.engine import Moment
from headrace.wire.nodes import NodeView, StopMode
from headrace_cli.stores import PROVISIONER, keep_stores
from headrace_cli.up import process_marks
from headrace_cli.up.commands import NATS_SERVER, commands, scrubbed, write_configuration
from headrace_cli.up.configuration import server_url
from headrace_cli.up.damaged_buckets import have_buckets_checked
from headrace_cli.up.forking import Nursery
from headrace_cli.up.guard import LEAVE_JOBS
from headrace_cli.up.log_lines import follow_logs, last_words, size_of, tail
from headrace_cli.up.log_sizes import keep_logs_small
from headrace_cli.up.options import UpOptions
from headrace_cli.up.processes import collect, describe_status, guard, open_log, spawn
from headrace_cli.up.readiness import tell_pauses, tell_troubles, wait_ready
from headrace_cli.up.restarts import (
    Effect,
    Ended,
    GiveUp,
    KillEverything,
    KillJobs,
    NotRecording,
    Recording,
    RenewBus,
    Restart,
    Signal,
    Start,
    SupervisorEngine,
)
from headrace_cli.up.server_health import HEALTH, Health, watch_health
from headrace_cli.up.state_folder import InUse, StateFolder, free_port, naming_folder, port_is_free, take_lock
from headrace_cli.up.web_address import tell_addresses

#: Seconds in which the agents of a killed `up` must end. They leave their jobs running.
_TAKE_OVER_S = 5.0


class Ready(NamedTuple):
    """What is reported once everything answers."""

    nodes: list[NodeView]
    took_s: float
    #: Warnings about settings of the trees that may surprise users.
    warnings: list[str]


class UpResult(NamedTuple):
    """The result of `headrace up`, when no process runs any more."""

    #: True if at some time everything answered.
    ready: bool
    #: True if a signal stopped the run.
    interrupted: bool
    #: Number of processes that ended unexpectedly.
    crashes: int


class _Gone(NamedTuple):
    """Event: a process ended and must be reaped."""

    name: str


class _StopAsked(NamedTuple):
    by_signal: bool


_Event = _Gone | _StopAsked | Health
Tell = Callable[[str], None]
#: Function that is called once everything answers. If it returns True, everything is stopped.
WhenReady = Callable[[Ready], Awaitable[bool]]


async def run_up(options: UpOptions, tell: Tell, when_ready: WhenReady) -> UpResult:
    """Run everything until Ctrl-C or SIGTERM, or until `when_ready` returns True.

    Raises `InUse`, `MissingExtra`, `Unwritable`; in these cases nothing was started.
    """
    with ExitStack() as held:
        with naming_folder(options.state):
            words = "the last `headrace up` was killed; waiting until its processes have ended"
            lock = held.enter_context(take_lock(options.state, words))
            port = _usable_port(options.port, "--port")
            if options.web_port is not None:
                # If any free port may be used, choose the port now, so that a restarted web service has the same address.
                options = msgspec.structs.replace(options, web_port=_usable_port(options.web_port, "--web-port", port))
            state = StateFolder(options.state)
            state.make()
            left = process_marks.end_leftovers(state.path, leave_jobs=True, agents_time_s=_TAKE_OVER_S)
            if left:
                tell(f"ended {counted(len(left), 'process')} that a killed `headrace up` had left")
            # Remove the certificate as well: a client of an older release, without TLS, would take a leftover `ca.pem` for the certificate
            # of a cluster.
            held.callback(state.withdraw, whole=True)
            shutil.rmtree(state.web, ignore_errors=True)  # of an `up` that was killed
            write_configuration(state, options, port)
            log = held.enter_context(open_log(state.log("up")))
        watch = held.enter_context(guard(state.path, lock, scrubbed(os.environ)))
        configure("up", options.log_level, TextIOWrapper(log, encoding="utf-8", write_through=True))
        return await _Supervisor(options, state, port, tell, when_ready, watch).run()


def _usable_port(port: int, option: str, taken: int = 0) -> int:
    """Return the port to listen at; for 0 any free one. Raises `InUse`, `BadInput`."""
    port = port or free_port()
    if port == taken or not port_is_free(port, option):
        raise InUse(
            f"port {port} on 127.0.0.1 is taken; nothing was changed. Choose another port with {option}; 0 means any free port"
        )
    return port


class _Supervisor:
    def __init__(
        self,
        options: UpOptions,
        state: StateFolder,
        port: int,
        tell: Tell,
        when_ready: WhenReady,
        watch: subprocess.Popen[bytes],
    ) -> None:
        self._options = options
        self._state = state
        self._url = server_url(port)
        self._tell = tell
        self._when_ready = when_ready
        self._watch = watch
        self._clock = SystemClock()
        entries = commands(state, options)
        self._commands = {plan.name: command for plan, command in entries}
        self._engine = SupervisorEngine([plan for plan, _ in entries])
        # The mark is the first variable, because it would not be found at the end of a very long environment.
        self._environment = {process_marks.UP_MARK: str(state.path), **scrubbed(os.environ)}
        self._nursery = Nursery(self._commands, self._environment)
        #: Process ids by process name. The kernel does not reuse a process id before the process is reaped.
        self._running: dict[str, int] = {}
        self._log_starts: dict[str, int] = {}
        self._waiting_for, self._lacks = "nats-server", "does not answer"
        self._ready = False
        self._interrupted = False
        self._crashes = 0
        self._events, self._coming = anyio.create_memory_object_stream[_Event](1000)

    async def run(self) -> UpResult:
        begun = self._clock.now()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._watch_signals)
            tasks.start_soon(self._watch_health)
            tasks.start_soon(keep_logs_small, self._state.path)
            tasks.start_soon(self._keep_stores)
            if self._options.verbose:
                logs = {name: command.log for name, command in self._commands.items()}
                tasks.start_soon(follow_logs, logs, self._tell)
            try:
                self._perform(self._engine.on_begin(begun).effects, tasks)
                tasks.start_soon(self._bring_up, begun)
                await self._supervise(tasks)
            finally:
                self._state.withdraw()
                tasks.cancel_scope.cancel()
        self._sweep()
        return UpResult(self._ready, self._interrupted, self._crashes)

    async def _supervise(self, tasks: anyio.abc.TaskGroup) -> None:
        while not self._engine.finished:
            due_ns = self._engine.next_due_ns()
            event: _Event | None = None
            left_s = None if due_ns is None else max(0.0, (due_ns - self._clock.now().steady_ns) / 1e9)
            with anyio.move_on_after(left_s):
                event = await self._coming.receive()
            now = self._clock.now()
            match event:
                case _Gone(name):
                    pid = self._running.pop(name)
                    status = collect(pid)
                    logger().info("process ended", process=name, pid=pid, status=status)
                    outcome = self._engine.on_ended(Ended(name, status), now)
                case _StopAsked(by_signal):
                    self._interrupted |= by_signal
                    outcome = self._engine.on_stop(self._announce_stop(), now)
                case Health(error, obstacle):
                    outcome = self._engine.on_health(error, obstacle, now)
                case None:
                    outcome = self._engine.on_tick(now)
            self._perform(outcome.effects, tasks)
            for words in self._engine.check():
                logger().error("broken invariant", what=words)

    def _announce_stop(self) -> StopMode:
        mode = self._options.stop_mode if self._ready else StopMode.INTERRUPT
        again = self._engine.stopping
        if mode is StopMode.LEAVE and not again and self._watch.stdin is not None:
            self._watch.stdin.write(LEAVE_JOBS)
            self._watch.stdin.flush()
        self._state.withdraw()
        self._tell("killing everything" if again else _STOP_WORDS[mode])
        figures = {figure.name: figure.value for figure in self._engine.figures()}
        logger().info("stopping", mode=mode, again=again, **figures)
        return mode

    def _perform(self, effects: Sequence[Effect], tasks: anyio.abc.TaskGroup) -> None:
        for effect in effects:
            logger().debug("supervisor", effect=type(effect).__name__, detail=str(effect))
            match effect:
                case Start(name):
                    self._start(name, tasks)
                case Restart(name, status, pause_s):
                    self._say(name, status, f"restarting it in {pause_s:g} s")
                case GiveUp(name, status):
                    self._say(name, status, "a restart would not help, so everything is stopped")
                case Signal(name, number):
                    if name in self._running:
                        os.kill(self._running[name], number)
                case NotRecording(error, obstacle):
                    self._tell_not_recording(error, obstacle)
                case RenewBus(name):
                    self._tell(f"{self._state.nats} can be written again: restarting {name}")
                    logger().warning("restarting the server: its storage can be written again", process=name)
                    os.kill(self._running[name], signal.SIGTERM)
                case Recording():
                    self._tell("operations are recorded again")
                case KillJobs():
                    process_marks.kill(self._state.path, frozenset({"runner", "job"}))
                case KillEverything():
                    process_marks.kill(self._state.path)
                case _:
                    assert_never(effect)

    def _start(self, name: str, tasks: anyio.abc.TaskGroup) -> None:
        command = self._commands[name]
        self._log_starts[name] = size_of(command.log)
        if name == NATS_SERVER:
            have_buckets_checked(self._state.nats)
        pid = self._running[name] = self._nursery.claim(name) or spawn(command, self._environment)
        logger().info("process started", process=name, pid=pid)
        tasks.start_soon(self._await_end, name, pid)

    async def _await_end(self, name: str, pid: int) -> None:
        await until_ended(pid)
        await self._events.send(_Gone(name))

    def _say(self, name: str, status: int, what: str) -> None:
        self._crashes += 1
        words = last_words(self._commands[name].log, self._log_starts[name])
        reason = describe_status(status) + (f": {words}" if words else "")
        self._tell(f"{name} ended ({reason}); {what}")
        logger().warning("process ended unexpectedly", process=name, status=status, words=words, then=what)

    async def _watch_signals(self) -> None:
        with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as signals:
            async for _ in signals:
                await self._events.send(_StopAsked(by_signal=True))

    async def _watch_health(self) -> None:
        place = self._place(self._state.credentials / HEALTH)
        await watch_health(place, self._state.nats, self._events.send)

    def _tell_not_recording(self, error: str, obstacle: str) -> None:
        logger().error("operations cannot be recorded", error=error, obstacle=obstacle)
        waits = f"{self._state.nats} cannot be written: {obstacle}" if obstacle else "the server must be restarted"
        self._tell(f"nothing can be recorded ({error}); {waits}. Running jobs continue")

    async def _keep_stores(self) -> None:
        """Create the buckets and streams for which the services wait, and create them again whenever they are lost."""
        await keep_stores(self._place(self._state.credentials / PROVISIONER), self._options.trees)

    def _place(self, credential: Path) -> Place:
        state = self._state
        return Place(self._url, str(credential), str(state.authority), self._options.trees[0], where=str(state.path))

    async def _bring_up(self, begun: Moment) -> None:
        nodes: list[NodeView] = []
        warnings: list[str] = []
        place = self._place(self._state.credential)
        with anyio.move_on_after(self._options.ready_timeout_s):
            nodes, warnings = await wait_ready(place, self._options, self._on_progress)
        if self._engine.stopping:
            return
        if not nodes:
            self._tell_not_ready()
            await self._events.send(_StopAsked(by_signal=False))
            return
        took_s = self._clock.now().steady_s - begun.steady_s
        self._ready = True
        tree, traces = self._options.trees[0], self._options.traces
        with naming_folder(self._state.path):
            self._state.announce(Endpoint(url=self._url, tree=tree, pid=os.getpid(), traces=traces))
        logger().info("ready", took_s=round(took_s, 3))
        if await self._when_ready(Ready(nodes, took_s, warnings)) and not self._engine.stopping:
            await self._events.send(_StopAsked(by_signal=False))
            return
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(tell_troubles, place, tree, self._tell)
            if self._options.web_port is not None:
                tasks.start_soon(tell_addresses, self._state.web / "address.json", self._tell)
            for tree in self._options.trees:
                tasks.start_soon(tell_pauses, place, tree, warnings, self._tell)

    def _on_progress(self, process: str, lacks: str) -> None:
        self._waiting_for, self._lacks = process, lacks

    def _tell_not_ready(self) -> None:
        name = self._waiting_for
        lacks = self._lacks if name in self._running else "does not run"
        lines = tail(self._commands[name].log, 15, since=self._log_starts.get(name, 0))
        end = "Its last log lines:" if lines else "Its log is empty."
        self._tell(f"not ready within {self._options.ready_timeout_s:g} s: {name} {lacks}. {end}")
        for line in lines:
            self._tell(f"  {line}")
        self._tell(f"all logs: {self._state.logs}")

    def _sweep(self) -> None:
        """End and log processes that are left after the stop. Normally there are none."""
        spared = {"runner", "job"} if self._options.stop_mode is StopMode.LEAVE else set()
        left = [process for process in process_marks.find(self._state.path) if process.role not in spared]
        if left:
            logger().warning(
                "processes left after the stop", processes=[f"{process.role} {process.pid}" for process in left]
            )
            process_marks.end_leftovers(self._state.path, leave_jobs=bool(spared), agents_time_s=0.0)


_STOP_WORDS = {
    StopMode.INTERRUPT: "stopping: running jobs are interrupted and go back to pending; Ctrl-C again kills everything",
    StopMode.WAIT: "stopping when the running jobs have ended; Ctrl-C again kills everything",
    StopMode.LEAVE: "stopping; running jobs stay for the next `headrace up`; Ctrl-C again kills everything",
}
