"""What the supervisor decides: who is started when, who is told to end when, and when patience is over.

Pure: moments come as arguments (seconds of a steady clock), what is to be done goes out as effects. While running, a process that
ends is started anew after a pause that doubles. While stopping, one group after another is told to end, in the order of
`StopGroup`; a group that does not end in its time is killed, and so is everything when the whole time is over.
"""

from __future__ import annotations

import enum
import signal

import msgspec

__all__ = [
    "AGENTS_TIME_S",
    "FIRST_PAUSE_S",
    "GROUP_TIME_S",
    "LONGEST_PAUSE_S",
    "STEADY_AFTER_S",
    "STOP_TIME_S",
    "Effect",
    "Finished",
    "GiveUp",
    "KillEverything",
    "KillJobs",
    "ProcessPlan",
    "Restart",
    "Signal",
    "Start",
    "StopGroup",
    "StopMode",
    "SupervisorEngine",
]

FIRST_PAUSE_S = 0.2
LONGEST_PAUSE_S = 5.0
#: A process that ran this long has recovered: its next pause is the first one again.
STEADY_AFTER_S = 10.0
#: From the request to stop until what is left is killed, agents with their jobs first.
STOP_TIME_S = 15.0
AGENTS_TIME_S = 12.0
GROUP_TIME_S = 1.0
#: Exit status of a service that cannot use its settings: starting it again would end the same way.
BAD_SETTINGS = 2


class StopGroup(enum.IntEnum):
    """Order of stopping. Who takes work goes before who remembers it, the bus goes last."""

    AGENTS = 0
    ALLOCATOR = 1
    FAIR_SHARE = 2
    INTEGRAL = 3
    ADMISSION = 4
    BUS = 5


class StopMode(enum.StrEnum):
    """What becomes of running jobs."""

    #: They are interrupted and go back to pending.
    INTERRUPT = "interrupt"
    #: They end by themselves, however long that takes.
    WAIT = "wait"
    #: Runner and jobs stay for the next `headrace up`.
    LEAVE_RUNNING = "leave_running"


_AGENT_SIGNALS = {
    StopMode.INTERRUPT: signal.SIGTERM,
    StopMode.WAIT: signal.SIGUSR1,
    StopMode.LEAVE_RUNNING: signal.SIGUSR2,
}


class ProcessPlan(msgspec.Struct, frozen=True):
    """A process to keep running."""

    name: str
    group: StopGroup


class Start(msgspec.Struct, frozen=True):
    """Start this process now."""

    name: str


class Restart(msgspec.Struct, frozen=True):
    """It ended unasked and will be started again after the pause: to be told, nothing to do."""

    name: str
    status: int
    pause_s: float


class Signal(msgspec.Struct, frozen=True):
    """Send this signal to the process."""

    name: str
    number: int


class KillJobs(msgspec.Struct, frozen=True):
    """Agents were killed: end runners and jobs, which nobody else would."""


class KillEverything(msgspec.Struct, frozen=True):
    """Kill all processes, runners and jobs at once."""


class GiveUp(msgspec.Struct, frozen=True):
    """The process cannot work: to be told; the stop follows in the same effects."""

    name: str
    status: int


class Finished(msgspec.Struct, frozen=True):
    """Nothing runs any more."""


Effect = Start | Restart | Signal | KillJobs | KillEverything | GiveUp | Finished


class _Kept(msgspec.Struct):
    plan: ProcessPlan
    running: bool = False
    started_s: float = 0.0
    pause_s: float = FIRST_PAUSE_S
    #: When it is to be started again; None: it runs, or it is over for good.
    due_s: float | None = None


class SupervisorEngine:
    """Keeps the processes of `plans` running until it is told to stop."""

    def __init__(self, plans: list[ProcessPlan]) -> None:
        self._kept = {plan.name: _Kept(plan) for plan in plans}
        self._mode: StopMode | None = None
        self._group: StopGroup | None = None
        self._group_deadline_s: float | None = None
        self._deadline_s: float | None = None
        self._killed = False
        self._finished = False

    @property
    def stopping(self) -> bool:
        return self._mode is not None

    @property
    def finished(self) -> bool:
        return self._finished

    def running(self) -> list[str]:
        """Names of the processes that run, in the order of the plans."""
        return [name for name, kept in self._kept.items() if kept.running]

    def next_due_s(self) -> float | None:
        """When `on_time` is to be called, if nothing else happens before."""
        moments = [kept.due_s for kept in self._kept.values()] + [self._group_deadline_s, self._deadline_s]
        return min((moment for moment in moments if moment is not None), default=None)

    def on_begin(self, now_s: float) -> list[Effect]:
        """Start everything: the services wait for the bus themselves."""
        return [self._start(kept, now_s) for kept in self._kept.values()]

    def on_exit(self, name: str, status: int, now_s: float) -> list[Effect]:
        """A process ended; `status` is its exit status, negative for a signal's number."""
        kept = self._kept[name]
        kept.running = False
        if self._mode is not None:
            return self._advance(now_s)
        if status == BAD_SETTINGS:
            return [GiveUp(name, status), *self.on_stop(StopMode.INTERRUPT, now_s)]
        if now_s - kept.started_s >= STEADY_AFTER_S:
            kept.pause_s = FIRST_PAUSE_S
        pause_s = kept.pause_s
        kept.due_s = now_s + pause_s
        kept.pause_s = min(LONGEST_PAUSE_S, pause_s * 2)
        return [Restart(name, status, pause_s)]

    def on_time(self, now_s: float) -> list[Effect]:
        """Whatever is due by now: restarts while running, kills while stopping."""
        if self._mode is None:
            due = [kept for kept in self._kept.values() if kept.due_s is not None and kept.due_s <= now_s]
            return [self._start(kept, now_s) for kept in due]
        if self._deadline_s is not None and self._deadline_s <= now_s:
            return self._kill(now_s)
        if self._group_deadline_s is not None and self._group_deadline_s <= now_s:
            return self._kill_group()
        return []

    def on_stop(self, mode: StopMode, now_s: float) -> list[Effect]:
        """Asked to stop. Asked a second time: everything is killed at once."""
        if self._mode is not None:
            return self._kill(now_s)
        self._mode = mode
        for kept in self._kept.values():
            kept.due_s = None
        if mode is not StopMode.WAIT:
            self._deadline_s = now_s + STOP_TIME_S
        return self._advance(now_s)

    def _start(self, kept: _Kept, now_s: float) -> Effect:
        kept.running = True
        kept.started_s = now_s
        kept.due_s = None
        return Start(kept.plan.name)

    def _advance(self, now_s: float) -> list[Effect]:
        """Turns to the first group that still runs; the same one as before goes on undisturbed."""
        if self._finished:
            return []
        left = [kept for kept in self._kept.values() if kept.running]
        if not left:
            self._finished = True
            self._group_deadline_s = self._deadline_s = None
            return [Finished()]
        group = min(kept.plan.group for kept in left)
        if self._killed or group is self._group:
            return []
        self._group = group
        if self._deadline_s is None and group is not StopGroup.AGENTS:
            self._deadline_s = now_s + STOP_TIME_S - AGENTS_TIME_S
        self._group_deadline_s = self._deadline_of(group, now_s)
        number = signal.SIGTERM if group is not StopGroup.AGENTS else _AGENT_SIGNALS[self._mode or StopMode.INTERRUPT]
        return [Signal(kept.plan.name, number) for kept in left if kept.plan.group is group]

    def _deadline_of(self, group: StopGroup, now_s: float) -> float | None:
        if group is not StopGroup.AGENTS:
            return now_s + GROUP_TIME_S
        return None if self._mode is StopMode.WAIT else now_s + AGENTS_TIME_S

    def _kill_group(self) -> list[Effect]:
        self._group_deadline_s = None
        late = [kept.plan for kept in self._kept.values() if kept.running and kept.plan.group is self._group]
        effects: list[Effect] = [Signal(plan.name, signal.SIGKILL) for plan in late]
        if self._group is StopGroup.AGENTS and self._mode is not StopMode.LEAVE_RUNNING:
            effects.append(KillJobs())
        return effects

    def _kill(self, now_s: float) -> list[Effect]:
        if self._killed:
            return []
        self._killed = True
        self._group_deadline_s = self._deadline_s = None
        return [KillEverything(), *self._advance(now_s)]
