"""One session: its process, its streams, and the turn that waits for output."""

from __future__ import annotations

from typing import NamedTuple

from headrace.wire.refusals import NotFound, Refusal
from headrace.wire.sessions import SessionState, SessionTurn
from headrace_agent.runner.host.starting import Starting
from headrace_agent.runner.protocol import Run
from headrace_agent.runner.sessions.flow import Inflow, Outflow


class WaitingTurn(NamedTuple):
    """A turn that is answered when there is output, at the latest at `until_ns` (CLOCK_BOOTTIME)."""

    number: int
    until_ns: int


class SessionEnd(NamedTuple):
    """The end of a session's process."""

    exit_code: int | None
    signal: int | None
    #: CLOCK_BOOTTIME in nanoseconds at which the end of the process was noticed.
    at_ns: int
    reason: str = ""


class Session:
    """A session with the terminal of a job (`is_job`), or with a command beside a job. `last_ns` is the time of the last turn."""

    def __init__(self, run: Run, last_ns: int, *, is_job: bool, has_terminal: bool) -> None:
        self.run = run
        self.last_ns = last_ns
        self.is_job = is_job
        self.has_terminal = has_terminal
        #: Name of the session; empty for the terminal of a job to which no person has connected yet.
        self.id = ""
        #: Person of the session; empty while `id` is empty.
        self.user = ""
        self.inflow = Inflow()
        self.outflows = Outflow(), Outflow()
        #: Descriptor of the input; negative: closed. For a terminal, the same descriptor is also among the outputs.
        self.in_fd = -1
        #: Descriptors of the outputs, by stream (0 stdout, 1 stderr).
        self.out_fds: dict[int, int] = {}
        #: Descriptors of the command's ends of its pipes or terminal. This process closes them once the command is started.
        self.their_fds: list[int] = []
        self.starting: Starting | None = None
        self.pid = 0
        self.pidfd = -1
        self.end: SessionEnd | None = None
        #: CLOCK_BOOTTIME in nanoseconds at which the person hung up or the grace time was over; 0: neither has happened.
        self.left_ns = 0
        self.was_killed = False
        #: Number of the turn that was the last to set the size of the terminal.
        self.sized_by = 0
        self.waiting: WaitingTurn | None = None

    def refusal_of(self, user: str, turn: SessionTurn) -> Refusal | None:
        """Return the refusal of a turn that another person sent, or that is about another job; None for any other turn."""
        job = self.run.job
        is_same = (user, turn.operation, turn.index) == (self.user, job.operation, job.index)
        return None if is_same else NotFound("session", turn.session)

    @property
    def owner(self) -> str:
        """The session's person; or the job's account, while no person has connected to the job's terminal."""
        return self.user or self.run.account

    @property
    def is_over(self) -> bool:
        """True if the process has ended and all its output was read."""
        return self.end is not None and not self.out_fds

    @property
    def has_news(self) -> bool:
        return self.is_over or any(flow.kept for flow in self.outflows)

    def state(self, grace_ms: int, *, with_output: bool) -> SessionState:
        """Return the state of the session, as it is sent to the person.

        Without `with_output`, the state never says that the session is over, because the person may not have received all output yet.
        """
        stdout, stderr = self.outflows
        state = SessionState(self.inflow.offset, grace_ms=grace_ms)
        if not with_output:
            return state
        end = self.end if self.is_over else None
        return SessionState(
            self.inflow.offset,
            stdout.offset,
            bytes(stdout.kept),
            stderr.offset,
            bytes(stderr.kept),
            ended=end is not None,
            exit_code=end.exit_code if end is not None else None,
            signal=end.signal if end is not None else None,
            reason=end.reason if end is not None else "",
            grace_ms=grace_ms,
        )
