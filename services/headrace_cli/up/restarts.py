"""The engine of the supervisor of `headrace up`: decides when a process is started again, and when a process that does not stop is killed.

Until a stop is requested, a process that ends is started again after a pause, which doubles each time the process ends. During the stop,
one group of processes after another gets a signal to end, in the order of `StopGroup`. A group that does not end in its time is killed.
Everything is killed when the time for the whole stop is over.
"""

from __future__ import annotations

import enum
import signal
from collections.abc import Iterator

import msgspec

from headrace.runtime.engine import Check, Figure, Moment, Outcome, counter, gauge, run_checks
from headrace.wire.nodes import StopMode

FIRST_PAUSE_S = 0.2
LONGEST_PAUSE_S = 5.0
#: Seconds for which a process must run to count as recovered. If it ends later than that, it is started again after the shortest pause.
STEADY_AFTER_S = 10.0
#: Seconds from the request to stop until everything that is left is killed. Of this time, agents and their jobs, which end first, get
#: `AGENTS_TIME_S`.
STOP_TIME_S = 15.0
AGENTS_TIME_S = 12.0
GROUP_TIME_S = 1.0
#: Longest pause in seconds between two restarts of a bus (the NATS server) that, after each restart, soon stops recording messages again.
LONGEST_RENEWAL_PAUSE_S = 60.0
#: Seconds in which a bus must end before its restart. A bus whose disk does not answer cannot end in this time, and is killed.
RENEWAL_TIME_S = 5.0
#: Exit status of a service that cannot use its settings. Such a service is not started again, because it would end in the same way.
BAD_SETTINGS = 2


class StopGroup(enum.IntEnum):
    """The groups of processes, in the order in which they are stopped. Services that accept work stop before services that record it. The
    bus stops last.

    The web service stops after the agents, so that it can show how the jobs end, and before the services to which it sends requests.
    """

    AGENTS = 0
    WEB = 1
    ALLOCATOR = 2
    FAIR_SHARE = 3
    INTEGRAL = 4
    ADMISSION = 5
    BUS = 6


_AGENT_SIGNALS = {
    StopMode.INTERRUPT: signal.SIGTERM,
    StopMode.WAIT: signal.SIGUSR1,
    StopMode.LEAVE: signal.SIGUSR2,
}


class ProcessPlan(msgspec.Struct, frozen=True):
    """A process to keep running."""

    name: str
    group: StopGroup


class Ended(msgspec.Struct, frozen=True):
    """Event: a process ended."""

    name: str
    #: Exit status of the process; if a signal ended it, the negative number of the signal.
    status: int


class Start(msgspec.Struct, frozen=True):
    """Effect: start this process now."""

    name: str


class Restart(msgspec.Struct, frozen=True):
    """Effect: report that a process ended unexpectedly and will be started again after the pause."""

    name: str
    status: int
    pause_s: float


class Signal(msgspec.Struct, frozen=True):
    """Effect: send this signal to the process."""

    name: str
    number: int


class KillJobs(msgspec.Struct, frozen=True):
    """Effect: kill runners and jobs. It follows the kill of their agents, after which nothing else would end them."""


class KillEverything(msgspec.Struct, frozen=True):
    """Effect: kill all processes, runners and jobs at once."""


class GiveUp(msgspec.Struct, frozen=True):
    """Effect: report that the process cannot work and that `up` therefore stops. The effects that stop the other processes follow in the
    same list.
    """

    name: str
    status: int


class NotRecording(msgspec.Struct, frozen=True):
    """Effect: report that the bus records nothing. If its folder cannot be written, the report says why."""

    error: str
    #: Reason why the folder of the bus cannot be written; empty if it can be written.
    obstacle: str


class RenewBus(msgspec.Struct, frozen=True):
    """Effect: report that the bus will be started again, and end it for this purpose."""

    name: str


class Recording(msgspec.Struct, frozen=True):
    """Effect: report that the bus records again."""


Effect = Start | Restart | Signal | KillJobs | KillEverything | GiveUp | NotRecording | RenewBus | Recording


class _Process(msgspec.Struct):
    plan: ProcessPlan
    running: bool = False
    started_ns: int = 0
    pause_s: float = FIRST_PAUSE_S
    #: Steady time of the next start, in nanoseconds; None: the process runs, or is over for good.
    due_ns: int | None = None


class SupervisorEngine:
    """Keeps the processes of `plans` running until a stop is requested."""

    def __init__(self, plans: list[ProcessPlan]) -> None:
        self._processes = {plan.name: _Process(plan) for plan in plans}
        self._mode: StopMode | None = None
        self._group: StopGroup | None = None
        self._group_deadline_ns: int | None = None
        self._deadline_ns: int | None = None
        self._killed = False
        #: Last report that the bus records nothing; None if it records.
        self._not_recording: NotRecording | None = None
        self._renewed_ns: int | None = None
        self._renewal_pause_s = FIRST_PAUSE_S
        self._renewal_deadline_ns: int | None = None
        self._unasked_ends = 0

    @property
    def stopping(self) -> bool:
        """True if a stop was requested."""
        return self._mode is not None

    @property
    def finished(self) -> bool:
        """True if a stop was requested and no process runs any more."""
        return self.stopping and not self.running()

    def running(self) -> list[str]:
        """Return the names of the running processes, in the order of the plans."""
        return [name for name, process in self._processes.items() if process.running]

    def next_due_ns(self) -> int | None:
        """Return the steady time, in nanoseconds, at which to call `on_tick` if no event comes before. None: `on_tick` need not be
        called.
        """
        due = [process.due_ns for process in self._processes.values()]
        due += [self._group_deadline_ns, self._deadline_ns, self._renewal_deadline_ns]
        return min((each for each in due if each is not None), default=None)

    def on_begin(self, now: Moment) -> Outcome[None, Effect]:
        """Start all processes at once. The services themselves wait for the bus."""
        return Outcome(None, [self._start(process, now) for process in self._processes.values()])

    def on_ended(self, ended: Ended, now: Moment) -> Outcome[None, Effect]:
        """Plan the restart of a process that ended; during a stop, continue the stop instead. A bus that was ended in order to restart it
        is started at once.
        """
        process = self._processes[ended.name]
        process.running = False
        if self._mode is not None:
            return Outcome(None, self._advance(now))
        if process.plan.group is StopGroup.BUS and self._renewal_deadline_ns is not None:
            self._renewal_deadline_ns = None
            return Outcome(None, [self._start(process, now)])
        self._unasked_ends += 1
        if ended.status == BAD_SETTINGS:
            return Outcome(None, [GiveUp(ended.name, ended.status), *self._stop(StopMode.INTERRUPT, now)])
        if now.steady_ns - process.started_ns >= _ns(STEADY_AFTER_S):
            process.pause_s = FIRST_PAUSE_S
        pause_s = process.pause_s
        process.due_ns = now.steady_ns + _ns(pause_s)
        process.pause_s = min(LONGEST_PAUSE_S, pause_s * 2)
        return Outcome(None, [Restart(ended.name, ended.status, pause_s)])

    def on_tick(self, now: Moment) -> Outcome[None, Effect]:
        """Do what is due now: start processes whose pause is over, or kill processes whose time to end is over."""
        if self._mode is None:
            due = [process for process in self._processes.values() if _is_over(process.due_ns, now)]
            effects = [self._start(process, now) for process in due]
            if _is_over(self._renewal_deadline_ns, now):
                self._renewal_deadline_ns = now.steady_ns + _ns(RENEWAL_TIME_S)
                effects += [Signal(name, signal.SIGKILL) for name in self._running_buses()]
            return Outcome(None, effects)
        if _is_over(self._deadline_ns, now):
            return Outcome(None, self._kill(now))
        return Outcome(None, self._kill_group() if _is_over(self._group_deadline_ns, now) else [])

    def on_health(self, error: str, obstacle: str, now: Moment) -> Outcome[None, Effect]:
        """Handle a report on the health of the bus. A bus that records nothing is restarted once its folder can be written.

        The restart is needed because after one failed write the bus writes nothing more until it is started again. `error` says why the bus
        records nothing; it is empty if the bus records. `obstacle` says why the folder of the bus cannot be written now.
        """
        known = self._not_recording
        if self.stopping or not error:
            self._not_recording = None
            return Outcome(None, [Recording()] if known is not None and not self.stopping else [])
        effects: list[Effect] = []
        if known is None or known.obstacle != obstacle:
            self._not_recording = NotRecording(error, obstacle)
            effects.append(self._not_recording)
        return Outcome(None, effects if obstacle else [*effects, *self._renew_bus(now)])

    def _renew_bus(self, now: Moment) -> list[Effect]:
        """End the bus so that it is started again, unless a recent restart did not help."""
        if self._renewed_ns is None or now.steady_ns - self._renewed_ns > _ns(2 * LONGEST_RENEWAL_PAUSE_S):
            self._renewal_pause_s = FIRST_PAUSE_S
        elif now.steady_ns - self._renewed_ns < _ns(self._renewal_pause_s):
            return []
        self._renewed_ns = now.steady_ns
        self._renewal_deadline_ns = now.steady_ns + _ns(RENEWAL_TIME_S)
        self._renewal_pause_s = min(LONGEST_RENEWAL_PAUSE_S, 2 * self._renewal_pause_s)
        return [RenewBus(name) for name in self._running_buses()]

    def _running_buses(self) -> list[str]:
        buses = (name for name, process in self._processes.items() if process.plan.group is StopGroup.BUS)
        return [name for name in buses if self._processes[name].running]

    def on_stop(self, mode: StopMode, now: Moment) -> Outcome[None, Effect]:
        """Begin to stop. If a stop is already in progress, kill everything at once."""
        return Outcome(None, self._kill(now) if self.stopping else self._stop(mode, now))

    def checks(self) -> Iterator[Check]:
        """Yield the only check of this engine: of its table of processes."""
        yield self._check_processes

    def check(self) -> list[str]:
        """Return the broken invariants in words. Empty if all hold."""
        return run_checks(self.checks())

    def figures(self) -> list[Figure]:
        """Return two metrics: the number of running processes, and the number of processes that ended unexpectedly."""
        return [
            gauge("processes_running", "processes", len(self.running()), "Number of running processes."),
            counter("processes_ended_unasked", "processes", self._unasked_ends, "Processes that ended unexpectedly."),
        ]

    def _check_processes(self) -> list[str]:
        broken: list[str] = []
        for name, process in self._processes.items():
            if process.running and process.due_ns is not None:
                broken.append(f"{name} runs and is due to start")
            if self.stopping and process.due_ns is not None:
                broken.append(f"{name} is due to start during the stop")
            if not FIRST_PAUSE_S <= process.pause_s <= LONGEST_PAUSE_S:
                broken.append(f"{name} has a pause of {process.pause_s:g} s")
        return broken

    def _start(self, process: _Process, now: Moment) -> Effect:
        process.running = True
        process.started_ns = now.steady_ns
        process.due_ns = None
        return Start(process.plan.name)

    def _stop(self, mode: StopMode, now: Moment) -> list[Effect]:
        self._mode = mode
        self._renewal_deadline_ns = None
        for process in self._processes.values():
            process.due_ns = None
        if mode is not StopMode.WAIT:
            self._deadline_ns = now.steady_ns + _ns(STOP_TIME_S)
        return self._advance(now)

    def _advance(self, now: Moment) -> list[Effect]:
        """Tell the first group that still runs to end. If this group got the signal before, do nothing."""
        left = [process for process in self._processes.values() if process.running]
        if not left:
            self._group_deadline_ns = self._deadline_ns = None
            return []
        group = min(process.plan.group for process in left)
        if self._killed or group is self._group:
            return []
        self._group = group
        if self._deadline_ns is None and group is not StopGroup.AGENTS:
            self._deadline_ns = now.steady_ns + _ns(STOP_TIME_S - AGENTS_TIME_S)
        self._group_deadline_ns = self._deadline_of(group, now)
        number = signal.SIGTERM if group is not StopGroup.AGENTS else _AGENT_SIGNALS[self._mode or StopMode.INTERRUPT]
        return [Signal(process.plan.name, number) for process in left if process.plan.group is group]

    def _deadline_of(self, group: StopGroup, now: Moment) -> int | None:
        if group is not StopGroup.AGENTS:
            return now.steady_ns + _ns(GROUP_TIME_S)
        return None if self._mode is StopMode.WAIT else now.steady_ns + _ns(AGENTS_TIME_S)

    def _kill_group(self) -> list[Effect]:
        self._group_deadline_ns = None
        late = [process.plan for process in self._processes.values() if process.running]
        effects: list[Effect] = [Signal(plan.name, signal.SIGKILL) for plan in late if plan.group is self._group]
        if self._group is StopGroup.AGENTS and self._mode is not StopMode.LEAVE:
            effects.append(KillJobs())
        return effects

    def _kill(self, now: Moment) -> list[Effect]:
        if self._killed:
            return []
        self._killed = True
        self._group_deadline_ns = self._deadline_ns = None
        return [KillEverything(), *self._advance(now)]


def _ns(seconds: float) -> int:
    return round(seconds * 1_000_000_000)


def _is_over(deadline_ns: int | None, now: Moment) -> bool:
    return deadline_ns is not None and deadline_ns <= now.steady_ns
