"""The sessions of a host: they pass bytes between people and processes, and end processes whose person has left.

Nothing here waits for a process or for a person. The number of bytes that are held here is bounded in each direction. Output beyond the
bound stays in the pipe or the terminal, and the process that writes it waits. Input beyond the bound is not accepted, and must be sent
again. If a person sends no turn for the grace time, the person counts as having left the session. A command beside a job is then hung up,
and killed a little later. If the session uses the terminal of a job, the job is stopped and its terminal is hung up.
"""

from __future__ import annotations

import os
import select
import signal
from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import msgspec

from headrace.obs.logging import Logger
from headrace.runtime.engine import NS_PER_MS, Moment
from headrace.wire.codec import encode
from headrace.wire.heartbeat import JobKey, short_text
from headrace.wire.refusals import Busy, NotFound, Refusal, WrongState
from headrace.wire.sessions import MOST_SESSION_BYTES, SessionCommand, SessionTurn
from headrace_agent.runner.effects import JobExit
from headrace_agent.runner.files.job_log import job_fields, job_name
from headrace_agent.runner.host.containers import find_container
from headrace_agent.runner.host.interface import Host
from headrace_agent.runner.host.poll import Poll
from headrace_agent.runner.jobs.launch import Ends, Launcher, NotStarted, account_of
from headrace_agent.runner.jobs.process_table import ProcessTable
from headrace_agent.runner.protocol import Run, Turn, Turned
from headrace_agent.runner.sessions.session import Session, SessionEnd, WaitingTurn

#: Upper bound of the commands beside jobs on this host, of all people.
MOST_COMMANDS: Final = 64
#: Upper bound of the commands of one person beside jobs on this host.
_MOST_COMMANDS_OF_A_PERSON: Final = 16
#: Largest number of sessions whose process has ended and whose results are kept. Beyond it, the oldest result of the person with the most
#: results is dropped, so that a person with many sessions does not cost other people their results.
_MOST_ENDED: Final = 256
#: Number of sessions that are over whose names are remembered, so that a late turn does not begin such a session again.
_MOST_FORGOTTEN: Final = 4_096
#: Milliseconds from the hang-up of a command (SIGHUP) to SIGKILL.
_KILL_AFTER_MS: Final = 5_000
#: Milliseconds after the end of a process for which output is still read from its terminal.
_REST_OF_TERMINAL_MS: Final = 500
_NOT_STARTED: Final = 126


class Sessions:
    """All sessions of the host. `send` sends an answer to the agent; `poll` reports events of the descriptors."""

    def __init__(
        self,
        host: Host,
        poll: Poll,
        log: Logger,
        launcher: Launcher,
        jobs: ProcessTable,
        grace_ms: int,
        send: Callable[[Turned], None],
    ) -> None:
        self._host = host
        self._poll = poll
        self._log = log
        self._launcher = launcher
        self._jobs = jobs
        self._grace_ms = grace_ms
        self._send = send
        self._sessions: list[Session] = []
        self._by_id: dict[str, Session] = {}
        #: For each descriptor that the poll watches: its session, and the events that the poll watches for.
        self._by_fd: dict[int, tuple[Session, int]] = {}
        #: Descriptors that are closed at the end of a turn of the loop. If a descriptor were closed earlier, a new descriptor could get the
        #: same number. An event that the poll has already reported for the closed descriptor would then seem to belong to the new one.
        self._to_close: list[int] = []
        self._forgotten: deque[str] = deque(maxlen=_MOST_FORGOTTEN)
        self._buffer = bytearray(MOST_SESSION_BYTES)

    @property
    def open_count(self) -> int:
        """Number of sessions to which a person has connected and whose process has not ended."""
        return sum(bool(each.id) and each.end is None for each in self._sessions)

    def owns(self, fd: int) -> bool:
        return fd in self._by_fd

    def on_hello(self) -> None:
        """Forget the turns that wait for an answer: they came through the agent's former connection, which is closed."""
        for session in self._sessions:
            session.waiting = None

    def on_job_started(self, run: Run, terminal_fd: int, now: Moment) -> None:
        """Keep the terminal of a job that has started, for the person who will connect to it."""
        session = Session(run, now.steady_ns, is_job=True, has_terminal=True)
        session.in_fd = session.out_fds[0] = terminal_fd
        self._sessions.append(session)
        self._pump(session, now)

    def on_job_ended(self, job: JobKey, exit: JobExit, now: Moment) -> None:
        """Record how a job ended, in the session of the job's terminal. The commands beside the job were killed with the job."""
        for session in self._sessions:
            if session.is_job and session.run.job == job and session.end is None:
                self._end(session, SessionEnd(exit.exit_code, exit.signal, now.steady_ns, exit.failure), now)

    def on_turn(self, order: Turn, now: Moment) -> None:
        """Handle one turn of a session. Answer it now, or later if it waits for output."""
        found = self._by_id.get(order.turn.session) or self._begin(order, now)
        refusal = found.refusal_of(order.user, order.turn) if isinstance(found, Session) else found
        if refusal is not None:
            self._send(Turned(order.number, encode(refusal)))
        elif isinstance(found, Session):
            self._take(found, order, now)

    def _take(self, session: Session, order: Turn, now: Moment) -> None:
        turn = order.turn
        session.last_ns = max(session.last_ns, now.steady_ns)
        session.inflow.accept(turn.input_offset, turn.input, ended=turn.input_ended)
        session.outflows[0].receive(turn.stdout_offset)
        session.outflows[1].receive(turn.stderr_offset)
        if turn.size is not None and turn.turn > session.sized_by and session.has_terminal and session.in_fd >= 0:
            session.sized_by = turn.turn
            with suppress(OSError):
                self._host.terminals.resize(session.in_fd, turn.size.rows, turn.size.columns)
        if turn.hang_up:
            self._leave(session, now)
        if turn.wait_ms is not None:
            self._answer_waiting(session)
            session.waiting = WaitingTurn(order.number, now.steady_ns + turn.wait_ms * NS_PER_MS)
        self._pump(session, now)
        if turn.wait_ms is None:
            self._send(Turned(order.number, encode(session.state(self._grace_ms, with_output=False))))
        elif session.waiting is not None and session.waiting.until_ns <= now.steady_ns:
            self._answer_waiting(session)

    def on_event(self, fd: int, now: Moment) -> None:
        """Handle an event of a descriptor: output, space for input, a program that runs, or the end of a process."""
        session, _ = self._by_fd[fd]
        if session.starting is not None and fd == session.starting.fd:
            self._on_started(session, now)
        elif fd == session.pidfd:
            self._on_exited(session, now)
        else:
            self._pump(session, now)

    def on_time(self, now: Moment) -> list[JobKey]:
        """Answer the turns whose waiting time is over, and end the sessions whose person has left.

        Return the jobs whose person has left their terminal. The caller must stop these jobs, and then call `hang_up`.
        """
        left = []
        for session in list(self._sessions):
            if session.waiting is not None and session.waiting.until_ns <= now.steady_ns:
                session.last_ns = now.steady_ns
                self._answer_waiting(session)
            if session.end is not None and session.out_fds:
                self._pump(session, now)
            if self._due_ns(session) > now.steady_ns:
                continue
            if session.is_over:
                self._forget(session)
            elif not session.left_ns:
                self._leave(session, now)
            elif not session.is_job:
                self._kill(session)
        for session in self._sessions:
            if session.left_ns and session.is_job and session.end is None and not session.was_killed:
                session.was_killed = True
                left.append(session.run.job)
        self._forget_ended()
        self._close_ended()
        return left

    def _forget_ended(self) -> None:
        """Forget sessions whose process has ended, until at most `_MOST_ENDED` such sessions are left."""
        ended = [each for each in self._sessions if each.end is not None]
        while len(ended) > _MOST_ENDED:
            owners = Counter(each.owner for each in ended)
            most = max(owners, key=owners.__getitem__)
            oldest = next(each for each in ended if each.owner == most)
            ended.remove(oldest)
            self._forget(oldest)

    def hang_up(self, job: JobKey) -> None:
        """Close this process's end of the terminal of a job that is being stopped, so that the job's processes get SIGHUP.

        The SIGTERM that stops the job would not be enough: interactive shells ignore it.
        """
        for session in self._sessions:
            if session.is_job and session.run.job == job:
                self._close_ends(session)
        self._close_ended()

    def _close_ended(self) -> None:
        for fd in self._to_close:
            self._host.files.close(fd)
        self._to_close.clear()

    def next_ns(self) -> int | None:
        """Return the CLOCK_BOOTTIME in nanoseconds at which `on_time` may have something to do, or None."""
        due = [self._due_ns(session) for session in self._sessions]
        due += [session.waiting.until_ns for session in self._sessions if session.waiting is not None]
        for session in self._sessions:
            if session.end is not None and any(session.outflows[stream].space_bytes for stream in session.out_fds):
                due.append(session.end.at_ns + _REST_OF_TERMINAL_MS * NS_PER_MS)
        return min(due, default=None)

    def _due_ns(self, session: Session) -> int:
        """Return the next time at which the session counts as left by its person, is killed, or is forgotten."""
        if session.left_ns and session.end is None:
            never_ns = 2**63
            return never_ns if session.was_killed else session.left_ns + _KILL_AFTER_MS * NS_PER_MS
        waits_ns = session.waiting.until_ns if session.waiting is not None else 0
        return max(session.last_ns, waits_ns) + self._grace_ms * NS_PER_MS

    def _begin(self, order: Turn, now: Moment) -> Session | Refusal:
        """Begin a session: start its command, or connect the person to the terminal of the job."""
        turn, user = order.turn, order.user
        if turn.session in self._forgotten:
            return NotFound("session", turn.session)
        command = turn.command
        session = self._terminal_of(turn) if command is None else self._start(order, command, now)
        if isinstance(session, Session):
            session.id, session.user = turn.session, user
            self._by_id[turn.session] = session
            self._log.info("session began", **job_fields(session.run.job), user=user, beside=not session.is_job)
        return session

    def _terminal_of(self, turn: SessionTurn) -> Session | Refusal:
        wanted = turn.operation, turn.index
        name = f"{turn.operation}.{turn.index}"
        terminals = [each for each in self._sessions if each.is_job]
        found = [each for each in terminals if (each.run.job.operation, each.run.job.index) == wanted]
        if not found:
            return NotFound("terminal of job", name)
        newest = max(found, key=lambda each: each.run.job.attempt)
        if newest.id:
            return WrongState("terminal of job", name, "used by another session", "a terminal that no session uses")
        return newest

    def _start(self, order: Turn, command: SessionCommand, now: Moment) -> Session | Refusal:
        turn = order.turn
        found = self._jobs.running(turn.operation, turn.index)
        if found is None:
            return WrongState("job", f"{turn.operation}.{turn.index}", "not running on this node", "a job that runs")
        # A command that has ended still counts here while its person has not received all output: until then it holds a pipe.
        live = [each for each in self._sessions if not each.is_job and not each.is_over]
        of_user = sum(each.user == order.user for each in live)
        if len(live) >= MOST_COMMANDS or of_user >= _MOST_COMMANDS_OF_A_PERSON:
            why = f"{len(live)} of at most {MOST_COMMANDS} commands run beside jobs of this node, {of_user} of them are yours"
            return Busy(len(live), 0, f"{why}; a person may have {_MOST_COMMANDS_OF_A_PERSON}")
        run, scratch = found
        beside = self._command_beside(run, command)
        if not isinstance(beside, Run):
            return beside
        session = Session(beside, now.steady_ns, is_job=False, has_terminal=command.terminal)
        self._sessions.append(session)
        try:
            ends = self._make_ends(session)
            session.starting = self._launcher.begin_beside(beside, scratch, ends)
        except (NotStarted, OSError) as error:
            self._close_their_ends(session)
            self._close_ends(session)
            self._end(session, _unstarted(error, now), now)
        else:
            self._jobs.beside.starting[session.starting] = run.job
            self._watch(session, session.starting.fd, select.EPOLLIN)
        return session

    def _command_beside(self, run: Run, command: SessionCommand) -> Run | Refusal:
        """Return the run that starts a command beside a job. If the job runs in an image, the command runs in the job's container."""
        argv, environment = command.argv, run.environment
        if run.container is not None:
            name = f"{run.job.operation}.{run.job.index}"
            try:
                account = account_of(run)
            except NotStarted as refusal:
                return WrongState("container of job", name, "out of reach", f"an account of the host ({refusal})")
            uid = account.uid if account is not None else os.geteuid()
            container = find_container(self._host.processes, job_name(run.job), uid)
            if container is None:
                expected = "a container that runs; while its image is pulled, try again"
                return WrongState("container of job", name, "not found on this node", expected)
            try:
                argv, environment = container.command(argv)
            except FileNotFoundError:
                return WrongState(
                    "container of job", name, "out of reach", "the program nsenter of util-linux on the node"
                )
        environment = {**environment, **({"TERM": command.term} if command.term else {})}
        return msgspec.structs.replace(
            run, argv=argv, environment=environment, terminal=command.terminal, container=None
        )

    def _make_ends(self, session: Session) -> Ends:
        """Make the pipes or the terminal of a command. Raises OSError; the session then has the descriptors that were made, to close
        them.
        """
        terminals, theirs = self._host.terminals, session.their_fds
        if session.has_terminal:
            session.out_fds[0], end, path = terminals.open()
            session.in_fd = session.out_fds[0]
            theirs.append(end)
            theirs.append(terminals.copy(end))
            return Ends(theirs[0], theirs[1], terminal=path)
        session.in_fd, end = terminals.input_pipe()
        theirs.append(end)
        for stream in (0, 1):
            session.out_fds[stream], end = self._host.processes.pipe()
            theirs.append(end)
        return Ends(theirs[1], theirs[2], stdin_fd=theirs[0])

    def _close_their_ends(self, session: Session) -> None:
        for fd in session.their_fds:
            self._host.files.close(fd)
        session.their_fds.clear()

    def _on_started(self, session: Session, now: Moment) -> None:
        starting, session.starting = session.starting, None
        assert starting is not None
        self._watch(session, starting.fd, 0)
        try:
            session.pid, session.pidfd = self._launcher.finish_beside(session.run, starting)
        except NotStarted as refusal:
            self._jobs.beside.bury(starting)
            self._close_their_ends(session)
            self._end(session, _unstarted(refusal, now), now)
            return
        self._close_their_ends(session)
        del self._jobs.beside.starting[starting]
        self._jobs.beside.running[session.pid] = session.run.job
        self._watch(session, session.pidfd, select.EPOLLIN)
        job = session.run.job
        alive = self._jobs.running(job.operation, job.index)
        if alive is None or alive[0].job != job or session.left_ns:
            self._host.processes.signal_group(session.pid, signal.SIGKILL)
        self._pump(session, now)

    def _on_exited(self, session: Session, now: Moment) -> None:
        if not self._host.processes.exited(session.pid):
            return
        # The whole process group is killed, because processes that the command left behind would keep its pipes open.
        self._host.processes.signal_group(session.pid, signal.SIGKILL)
        reaped = self._host.processes.reap(session.pid)
        # The process cannot be reaped while some of its threads are still ending. The poll reports the event again when they have ended.
        if reaped is None:
            return
        self._watch(session, session.pidfd, 0)
        self._host.files.close(session.pidfd)
        del self._jobs.beside.running[session.pid]
        session.pidfd = -1
        self._end(session, SessionEnd(reaped.exit_code, reaped.signal, now.steady_ns), now)

    def _end(self, session: Session, end: SessionEnd, now: Moment) -> None:
        session.end = end
        session.last_ns = max(session.last_ns, now.steady_ns)
        if session.in_fd >= 0:
            self._close_input(session)
        self._log.info(
            "session ended",
            **job_fields(session.run.job),
            user=session.user,
            exit_code=end.exit_code,
            signal=end.signal,
        )
        self._pump(session, now)

    def _leave(self, session: Session, now: Moment) -> None:
        """Handle that the person has left a session: hang up its command. If the session is over already, forget the session.

        If the session uses the terminal of a job, the job is not stopped here: `on_time` returns the job, and the caller stops it.
        """
        if session.is_over:
            self._forget(session)
            return
        if session.left_ns:
            return
        session.left_ns = now.steady_ns
        self._log.info("session left", **job_fields(session.run.job), user=session.user)
        if session.is_job and session.end is None:
            return
        self._close_ends(session)
        if session.starting is not None:
            self._host.processes.starter.kill(session.starting, self._jobs.known_pids)
        elif session.pidfd >= 0 and not session.has_terminal:
            self._host.processes.signal_group(session.pid, signal.SIGHUP)

    def _kill(self, session: Session) -> None:
        session.was_killed = True
        if session.pidfd >= 0:
            self._host.processes.signal_group(session.pid, signal.SIGKILL)

    def _forget(self, session: Session) -> None:
        self._answer_waiting(session)
        self._close_ends(session)
        if session in self._sessions:
            self._sessions.remove(session)
        if self._by_id.pop(session.id, None) is not None:
            self._forgotten.append(session.id)

    def _close_ends(self, session: Session) -> None:
        for fd in {session.in_fd, *session.out_fds.values()} - {-1}:
            self._close_later(session, fd)
        session.in_fd, session.out_fds = -1, {}

    def _pump(self, session: Session, now: Moment) -> None:
        """Pass on as much input and output as possible, answer the waiting turn if there is news for it, and watch the descriptors for
        more.
        """
        self._write(session)
        for stream in list(session.out_fds):
            self._read(session, stream, now)
        if session.waiting is not None and session.has_news:
            self._answer_waiting(session)
        wanted = {fd: 0 for fd in (session.in_fd, *session.out_fds.values()) if fd >= 0}
        if session.in_fd >= 0 and session.inflow.waiting:
            wanted[session.in_fd] |= select.EPOLLOUT
        for stream, fd in session.out_fds.items():
            if session.outflows[stream].space_bytes and session.starting is None:
                wanted[fd] |= select.EPOLLIN
        for fd, mask in wanted.items():
            self._watch(session, fd, mask)

    def _write(self, session: Session) -> None:
        inflow = session.inflow
        while session.in_fd >= 0 and inflow.waiting:
            try:
                inflow.take(self._host.files.write(session.in_fd, bytes(inflow.waiting)))
            except BlockingIOError:
                return
            except OSError:
                self._close_input(session)
        if session.in_fd < 0:
            inflow.waiting.clear()
        elif inflow.is_ended and not session.has_terminal:
            self._close_input(session)

    def _close_input(self, session: Session) -> None:
        fd, session.in_fd = session.in_fd, -1
        if not session.has_terminal:
            self._close_later(session, fd)

    def _read(self, session: Session, stream: int, now: Moment) -> None:
        fd, flow = session.out_fds[stream], session.outflows[stream]
        while flow.space_bytes and session.starting is None:
            try:
                count = self._host.files.read(fd, memoryview(self._buffer)[: flow.space_bytes])
            except BlockingIOError:
                rest_ms = _REST_OF_TERMINAL_MS if session.has_terminal else 0
                if session.end is None or now.steady_ns < session.end.at_ns + rest_ms * NS_PER_MS:
                    return
                count = 0
            except OSError:
                # No process has the terminal open any more.
                count = 0
            if not count:
                self._close_later(session, fd)
                del session.out_fds[stream]
                session.in_fd = -1 if session.in_fd == fd else session.in_fd
                return
            flow.add(memoryview(self._buffer)[:count])

    def _close_later(self, session: Session, fd: int) -> None:
        self._watch(session, fd, 0)
        self._to_close.append(fd)

    def _answer_waiting(self, session: Session) -> None:
        waiting, session.waiting = session.waiting, None
        if waiting is not None:
            self._send(Turned(waiting.number, encode(session.state(self._grace_ms, with_output=True))))

    def _watch(self, session: Session, fd: int, mask: int) -> None:
        """Let the poll report these events of a descriptor; 0: none.

        Descriptors are watched only when needed: the poll would report a terminal that no process has open again and again.
        """
        known = self._by_fd.get(fd)
        if known is None and mask:
            self._poll.register(fd, mask)
        elif known is not None and not mask:
            self._poll.unregister(fd)
        elif known is not None and known[1] != mask:
            self._poll.modify(fd, mask)
        if mask:
            self._by_fd[fd] = session, mask
        else:
            self._by_fd.pop(fd, None)


def _unstarted(error: NotStarted | OSError, now: Moment) -> SessionEnd:
    if isinstance(error, NotStarted):
        return SessionEnd(error.exit_code or _NOT_STARTED, None, now.steady_ns, short_text(str(error)))
    why = f"not started: no terminal or pipe can be made: {os.strerror(error.errno or 0)}"
    return SessionEnd(_NOT_STARTED, None, now.steady_ns, why)
