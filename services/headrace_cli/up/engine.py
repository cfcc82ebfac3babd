"""The supervisor of `headrace up`: when a process is started again, and when a stop becomes a kill.

While running, a process that ends is started anew after a pause that doubles. While stopping, one group after another is told to
end, in the order of `StopGroup`. A group that does not end in its time is killed, and so is everything when the whole time is over.
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
#: A process that ran this long has recovered: its next pause is the first one again.
STEADY_AFTER_S = 10.0
#: From the request to stop until what is left is killed, agents with their jobs first.
STOP_TIME_S = 15.0
AGENTS_TIME_S = 12.0
GROUP_TIME_S = 1.0
#: Between two renewals of a bus that stops recording again at once.
LONGEST_RENEWAL_PAUSE_S = 60.0
#: A bus that is renewed is killed if it has not ended by then: its disk may hold it up.
RENEWAL_TIME_S = 5.0
#: Exit status of a service that cannot use its settings: starting it again would end the same way.
BAD_SETTINGS = 2


class StopGroup(enum.IntEnum):
    """The order of stopping: services that take work before those that remember it, the bus last."""

    AGENTS = 0
    ALLOCATOR = 1
    FAIR_SHARE = 2
    INTEGRAL = 3
    ADMISSION = 4
    BUS = 5


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
    """A process ended."""

    name: str
    #: Its exit status; negative for the number of a signal.
    status: int


class Start(msgspec.Struct, frozen=True):
    """Start this process now."""

    name: str


class Restart(msgspec.Struct, frozen=True):
    """Say that it ended unasked and will be started again after the pause."""

    name: str
    status: int
    pause_s: float


class Signal(msgspec.Struct, frozen=True):
    """Send this signal to the process."""

    name: str
    number: int


class KillJobs(msgspec.Struct, frozen=True):
    """End runners and jobs, which nobody else would once their agents were killed."""


class KillEverything(msgspec.Struct, frozen=True):
    """Kill all processes, runners and jobs at once."""


class GiveUp(msgspec.Struct, frozen=True):
    """Say that the process cannot work. The stop follows in the same effects."""

    name: str
    status: int


class NotRecording(msgspec.Struct, frozen=True):
    """Say that the bus records nothing, and what it waits for."""

    error: str
    #: Why its folder cannot be written; empty: it can.
    obstacle: str


class RenewBus(msgspec.Struct, frozen=True):
    """Say that the bus is started again, and end it."""

    name: str


class Recording(msgspec.Struct, frozen=True):
    """Say that the bus records again."""


Effect = Start | Restart | Signal | KillJobs | KillEverything | GiveUp | NotRecording | RenewBus | Recording


class _Process(msgspec.Struct):
    plan: ProcessPlan
    running: bool = False
    started_ns: int = 0
    pause_s: float = FIRST_PAUSE_S
    #: When it is to be started again; None: it runs, or it is over for good.
    due_ns: int | None = None


class SupervisorEngine:
    """Keeps the processes of `plans` running until it is told to stop."""

    def __init__(self, plans: list[ProcessPlan]) -> None:
        self._processes = {plan.name: _Process(plan) for plan in plans}
        self._mode: StopMode | None = None
        self._group: StopGroup | None = None
        self._group_deadline_ns: int | None = None
        self._deadline_ns: int | None = None
        self._killed = False
        #: Why the bus records nothing, as it was said last. None: it records.
        self._not_recording: NotRecording | None = None
        self._renewed_ns: int | None = None
        self._renewal_pause_s = FIRST_PAUSE_S
        self._renewal_deadline_ns: int | None = None
        self._unasked_ends = 0

    @property
    def stopping(self) -> bool:
        """True if it was told to stop."""
        return self._mode is not None

    @property
    def finished(self) -> bool:
        """True if it was told to stop and nothing runs any more."""
        return self.stopping and not self.running()

    def running(self) -> list[str]:
        """Names the processes that run, in the order of the plans."""
        return [name for name, process in self._processes.items() if process.running]

    def next_due_ns(self) -> int | None:
        """Returns the steady time at which `on_tick` is to be called, if nothing else happens before."""
        due = [process.due_ns for process in self._processes.values()]
        due += [self._group_deadline_ns, self._deadline_ns, self._renewal_deadline_ns]
        return min((each for each in due if each is not None), default=None)

    def on_begin(self, moment: Moment) -> Outcome[None, Effect]:
        """Starts everything at once. The services wait for the bus themselves."""
        return Outcome(None, [self._start(process, moment) for process in self._processes.values()])

    def on_ended(self, ended: Ended, moment: Moment) -> Outcome[None, Effect]:
        """Plans the restart of a process that ended, or goes on with the stop. A bus that is renewed starts at once."""
        process = self._processes[ended.name]
        process.running = False
        if self._mode is not None:
            return Outcome(None, self._advance(moment))
        if process.plan.group is StopGroup.BUS and self._renewal_deadline_ns is not None:
            self._renewal_deadline_ns = None
            return Outcome(None, [self._start(process, moment)])
        self._unasked_ends += 1
        if ended.status == BAD_SETTINGS:
            return Outcome(None, [GiveUp(ended.name, ended.status), *self._stop(StopMode.INTERRUPT, moment)])
        if moment.steady_ns - process.started_ns >= _ns(STEADY_AFTER_S):
            process.pause_s = FIRST_PAUSE_S
        pause_s = process.pause_s
        process.due_ns = moment.steady_ns + _ns(pause_s)
        process.pause_s = min(LONGEST_PAUSE_S, pause_s * 2)
        return Outcome(None, [Restart(ended.name, ended.status, pause_s)])

    def on_tick(self, moment: Moment) -> Outcome[None, Effect]:
        """Does what is due by now: restarts while running, kills while stopping."""
        if self._mode is None:
            due = [process for process in self._processes.values() if _is_over(process.due_ns, moment)]
            effects = [self._start(process, moment) for process in due]
            if _is_over(self._renewal_deadline_ns, moment):
                self._renewal_deadline_ns = moment.steady_ns + _ns(RENEWAL_TIME_S)
                effects += [Signal(name, signal.SIGKILL) for name in self._running_buses()]
            return Outcome(None, effects)
        if _is_over(self._deadline_ns, moment):
            return Outcome(None, self._kill(moment))
        return Outcome(None, self._kill_group() if _is_over(self._group_deadline_ns, moment) else [])

    def on_health(self, error: str, obstacle: str, moment: Moment) -> Outcome[None, Effect]:
        """Takes note of what the bus says of itself. A bus that could not write once must be started again to write anything.

        `error` is why it records nothing, empty while it records. `obstacle` is why its folder cannot be written now.
        """
        known = self._not_recording
        if self.stopping or not error:
            self._not_recording = None
            return Outcome(None, [Recording()] if known is not None and not self.stopping else [])
        effects: list[Effect] = []
        if known is None or known.obstacle != obstacle:
            self._not_recording = NotRecording(error, obstacle)
            effects.append(self._not_recording)
        return Outcome(None, effects if obstacle else [*effects, *self._renew_bus(moment)])

    def _renew_bus(self, moment: Moment) -> list[Effect]:
        """Ends the bus, unless that was done a moment ago and did not help."""
        if self._renewed_ns is None or moment.steady_ns - self._renewed_ns > _ns(2 * LONGEST_RENEWAL_PAUSE_S):
            self._renewal_pause_s = FIRST_PAUSE_S
        elif moment.steady_ns - self._renewed_ns < _ns(self._renewal_pause_s):
            return []
        self._renewed_ns = moment.steady_ns
        self._renewal_deadline_ns = moment.steady_ns + _ns(RENEWAL_TIME_S)
        self._renewal_pause_s = min(LONGEST_RENEWAL_PAUSE_S, 2 * self._renewal_pause_s)
        return [RenewBus(name) for name in self._running_buses()]

    def _running_buses(self) -> list[str]:
        buses = (name for name, process in self._processes.items() if process.plan.group is StopGroup.BUS)
        return [name for name in buses if self._processes[name].running]

    def on_stop(self, mode: StopMode, moment: Moment) -> Outcome[None, Effect]:
        """Begins to stop. If it is stopping already, everything is killed at once."""
        return Outcome(None, self._kill(moment) if self.stopping else self._stop(mode, moment))

    def checks(self) -> Iterator[Check]:
        """Yields the check of the only structure, the processes."""
        yield self._check_processes

    def check(self) -> list[str]:
        """Returns broken invariants in words. Empty if all hold."""
        return run_checks(self.checks())

    def figures(self) -> list[Figure]:
        """Counts processes that run, and those that ended unasked."""
        return [
            gauge("processes_running", "processes", len(self.running()), "Processes of the stack that run."),
            counter(
                "processes_ended_unasked", "processes", self._unasked_ends, "Ends of processes that nobody asked for."
            ),
        ]

    def _check_processes(self) -> list[str]:
        broken: list[str] = []
        for name, process in self._processes.items():
            if process.running and process.due_ns is not None:
                broken.append(f"{name} runs and is due to start")
            if self.stopping and process.due_ns is not None:
                broken.append(f"{name} is due to start in the middle of the stop")
            if not FIRST_PAUSE_S <= process.pause_s <= LONGEST_PAUSE_S:
                broken.append(f"{name} has a pause of {process.pause_s:g} s")
        return broken

    def _start(self, process: _Process, moment: Moment) -> Effect:
        process.running = True
        process.started_ns = moment.steady_ns
        process.due_ns = None
        return Start(process.plan.name)

    def _stop(self, mode: StopMode, moment: Moment) -> list[Effect]:
        self._mode = mode
        self._renewal_deadline_ns = None
        for process in self._processes.values():
            process.due_ns = None
        if mode is not StopMode.WAIT:
            self._deadline_ns = moment.steady_ns + _ns(STOP_TIME_S)
        return self._advance(moment)

    def _advance(self, moment: Moment) -> list[Effect]:
        """Turns to the first group that still runs. The same one as before goes on undisturbed."""
        left = [process for process in self._processes.values() if process.running]
        if not left:
            self._group_deadline_ns = self._deadline_ns = None
            return []
        group = min(process.plan.group for process in left)
        if self._killed or group is self._group:
            return []
        self._group = group
        if self._deadline_ns is None and group is not StopGroup.AGENTS:
            self._deadline_ns = moment.steady_ns + _ns(STOP_TIME_S - AGENTS_TIME_S)
        self._group_deadline_ns = self._deadline_of(group, moment)
        number = signal.SIGTERM if group is not StopGroup.AGENTS else _AGENT_SIGNALS[self._mode or StopMode.INTERRUPT]
        return [Signal(process.plan.name, number) for process in left if process.plan.group is group]

    def _deadline_of(self, group: StopGroup, moment: Moment) -> int | None:
        if group is not StopGroup.AGENTS:
            return moment.steady_ns + _ns(GROUP_TIME_S)
        return None if self._mode is StopMode.WAIT else moment.steady_ns + _ns(AGENTS_TIME_S)

    def _kill_group(self) -> list[Effect]:
        self._group_deadline_ns = None
        late = [process.plan for process in self._processes.values() if process.running]
        effects: list[Effect] = [Signal(plan.name, signal.SIGKILL) for plan in late if plan.group is self._group]
        if self._group is StopGroup.AGENTS and self._mode is not StopMode.LEAVE:
            effects.append(KillJobs())
        return effects

    def _kill(self, moment: Moment) -> list[Effect]:
        if self._killed:
            return []
        self._killed = True
        self._group_deadline_ns = self._deadline_ns = None
        return [KillEverything(), *self._advance(moment)]


def _ns(seconds: float) -> int:
    return round(seconds * 1_000_000_000)


def _is_over(deadline_ns: int | None, moment: Moment) -> bool:
    return deadline_ns is not None and deadline_ns <= moment.steady_ns
