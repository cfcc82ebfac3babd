"""The shell of the runner: one loop over the agent's socket, the jobs' pipes and processes, signals and time.

The loop performs one effect after the other, in the engine's order. No effect waits for anything that a job controls: the effect `Launch`,
for example, only begins the start of a process, and the poll reports the outcome.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
from collections import deque
from collections.abc import Iterator
from itertools import chain
from typing import assert_never

from headrace.obs.logging import Logger, lost_lines
from headrace.runtime.engine import NS_PER_MS, Check, Moment, Outcome
from headrace.systemd.notifier import Notifier
from headrace.wire.heartbeat import JobKey
from headrace_agent.runner.agent_link import AgentLink
from headrace_agent.runner.effects import (
    About,
    Drop,
    EndRunner,
    Keep,
    Launch,
    RunnerEffect,
    SendToAgent,
    Signal,
    TellDeadline,
)
from headrace_agent.runner.engine import RunnerEngine
from headrace_agent.runner.files.job_log import job_fields
from headrace_agent.runner.files.kept_jobs import KeptJobs
from headrace_agent.runner.files.log_retention import Retention
from headrace_agent.runner.files.removal import Removal
from headrace_agent.runner.files.scratch import ScratchFolders
from headrace_agent.runner.host.interface import Host
from headrace_agent.runner.host.poll import Poll
from headrace_agent.runner.jobs.isolation import choose_isolation
from headrace_agent.runner.jobs.launch import Launched, Launcher, NotStarted
from headrace_agent.runner.jobs.leftovers import end_leftovers, lost
from headrace_agent.runner.jobs.process_table import ProcessTable
from headrace_agent.runner.protocol import (
    Acknowledge,
    EndAll,
    Hello,
    Interrupt,
    NodeLease,
    Ping,
    Pong,
    Recall,
    Run,
    RunAhead,
    ToRunner,
    Turn,
)
from headrace_agent.runner.sessions.relay import MOST_COMMANDS, Sessions
from headrace_agent.runner.settings import Settings

#: Largest number of the agent's messages that are obeyed before the jobs' output is read again.
_MESSAGES_A_TURN = 32
_TICK_MS = 1_000
_LONGEST_WAIT_MS = 60_000
_FIGURES_MS = 60_000
#: Longest time in milliseconds from the end of the last job to the end of a runner that was ordered to end. In this time the agent can read
#: the last messages, and the runner tries again to write ends that could not be written.
_LEAVE_MS = 2_000
#: Largest number of file descriptors that one job takes. While its process starts, there are seven: both ends of three pipes, and one file.
#: Later there are six: two pipes, three files, one pidfd.
_FDS_PER_JOB = 7
#: Number of file descriptors that one command beside a job takes while it starts: both ends of four pipes.
_FDS_PER_COMMAND = 8
_SPARE_FDS = 64 + MOST_COMMANDS * _FDS_PER_COMMAND


class Runner:
    """The runner. Its state folder must not be in use by another runner. Raises OSError if its folders cannot be made."""

    def __init__(
        self, host: Host, settings: Settings, log: Logger, open_files: tuple[int, int], usable_fds: int
    ) -> None:
        self._host = host
        self._settings = settings
        self._log = log
        self._poll = Poll()
        state = settings.state
        self._kept = KeptJobs(host.files, state)
        self._removal = Removal(host.files, f"{state}/trash")
        self._isolation = choose_isolation(
            host, settings.isolation, settings.cgroup, settings.memory_headroom_bytes, settings.job_pids
        )
        scratch = ScratchFolders(host.files, state, self._removal)
        retention = Retention(settings.logs_total_bytes)
        launcher = Launcher(host, settings, self._kept, self._isolation, scratch, retention, open_files)
        self._launcher = launcher
        self._jobs = ProcessTable(host, settings, self._poll, launcher, self._isolation, scratch, retention)
        self._sessions = Sessions(
            host,
            self._poll,
            log,
            launcher,
            self._jobs,
            settings.session_grace_ms,
            lambda answer: self._link.send(answer),
        )
        self._engine = RunnerEngine(most_jobs=max(1, (usable_fds - _SPARE_FDS) // _FDS_PER_JOB))
        self._notes: list[str] = []
        self._leave_ns: int | None = None
        self._tick_ns = 0
        self._figures_ns = 0
        self._checks: Iterator[Check] = iter(())
        #: CLOCK_BOOTTIME in nanoseconds since which there is neither a job nor an agent; None: there is a job or an agent.
        self._alone_ns: int | None = None
        self._terminations = 0
        self._recover(launcher.boot)
        self._survey_logs()
        self._signals = self._listen_to_signals()
        self._link = AgentLink(state, self._poll, log, os.getuid())
        log.info("runner started", isolation=self._isolation.name, detail=self._isolation.detail, pid=os.getpid())

    def run(self, notifier: Notifier) -> None:
        """Run until the runner may end. Give systemd a sign of life after each step."""
        most_ms = int(notifier.period_s * 1000) if notifier.is_heard else _LONGEST_WAIT_MS
        while not self.step(min(most_ms, _LONGEST_WAIT_MS)):
            notifier.alive()
        self.close()

    def step(self, most_ms: int = _LONGEST_WAIT_MS) -> bool:
        """Wait for events, at most `most_ms`, and handle them. Return True if the runner may end."""
        for fd, mask in self._poll.events(self._timeout_ms(most_ms) / 1000):
            self._on_event(fd, mask)
        # Ends of jobs are handled before messages: a job that a message starts may need what an ended job makes free.
        self._look()
        for run, refusal in self._jobs.late_starts(self._host.processes.now()):
            self._on_start(run, refusal)
        for message in self._link.messages(_MESSAGES_A_TURN):
            self._on_message(message)
        now = self._host.processes.now()
        due_ns = self._engine.next_wake_ns()
        if due_ns is not None and due_ns <= now.steady_ns:
            self._settle(self._jobs.jobs())
            self._take(self._engine.on_time(self._host.processes.now()))
        for job in self._sessions.on_time(now):
            self._settle([job])
            self._take(self._engine.on_left(job, self._host.processes.now()))
            self._sessions.hang_up(job)
        self._make_room()
        self._removal.step()
        if now.steady_ns >= self._tick_ns:
            self._tick_ns = now.steady_ns + _TICK_MS * NS_PER_MS
            self._jobs.tidy()
            self._kept.retry()
            self._watch(now)
        self._link.flush(now.steady_ns)
        if not len(self._jobs):
            self._launcher.make_spare()
        return self._may_leave(now)

    def close(self) -> None:
        self._jobs.end_starts()
        self._link.close()
        self._signals.close()
        self._poll.close()
        self._kept.close()
        self._log.info("runner ended", unwritten_ends=self._kept.unwritten)

    def _watch(self, now: Moment) -> None:
        """Run the next invariant check, and log the metrics once a minute."""
        check = next(self._checks, None)
        if check is None:
            self._checks = chain(self._engine.checks(), [self._jobs.retention.check])
        for words in check() if check is not None else ():
            self._log.error("broken invariant", what=words)
        if now.steady_ns >= self._figures_ns:
            self._figures_ns = now.steady_ns + _FIGURES_MS * NS_PER_MS
            figures = {figure.name: figure.value for figure in self._engine.figures()}
            figures |= {"garbage": self._link.garbage, "log_lines_lost": lost_lines()}
            self._log.info("figures", **figures, logs_bytes=self._jobs.retention.total_bytes)

    def _recover(self, boot: str) -> None:
        state = self._settings.state
        kept = self._kept.load()
        now = self._host.processes.now()
        killed = end_leftovers(self._host, kept.leftovers, boot)
        ends = list(kept.ends)
        for leftover in kept.leftovers:
            end = lost(leftover, boot, now.wall_ms)
            self._isolation.kill(end.key)
            self._jobs.remove_later(end.key)
            self._kept.write_end(end)
            ends.append(end)
            self._log.info("job lost", **job_fields(end.key, end.allocation), reason=end.reason)
        if kept.spoiled:
            names = ", ".join(kept.spoiled[:5])
            self._notes.append(
                f"{len(kept.spoiled)} files of jobs could not be read and were moved to {state}/spoiled: {names}"
            )
            self._log.info("files spoiled", count=len(kept.spoiled), names=names)
        for entry in self._host.files.entries(f"{state}/scratch"):
            with contextlib.suppress(OSError):
                self._removal.remove(f"{state}/scratch/{entry.name}")
        self._engine.on_recovered(ends, now)
        self._log.info("recovered", ends=len(kept.ends), lost=len(kept.leftovers), processes_killed=killed)

    def _survey_logs(self) -> None:
        """Record the existing logs. If the logs folder cannot be used, the runner continues, and no job can be started."""
        try:
            self._host.files.make_folder(self._settings.logs)
            self._jobs.retention.survey(self._host.files, self._settings.logs)
        except OSError as error:
            self._notes.append(f"the logs folder {self._settings.logs} cannot be used: {error.strerror}")
            self._log.info("logs unusable", folder=self._settings.logs, why=error.strerror)

    def _listen_to_signals(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        theirs.setblocking(False)
        self._wakeup = theirs
        signal.set_wakeup_fd(theirs.fileno(), warn_on_full_buffer=False)
        # The handler does nothing. SIG_IGN is not used, because the jobs would inherit an ignored signal.
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda *_: None)
        self._poll.register(ours, select.EPOLLIN)
        return ours

    def _timeout_ms(self, most_ms: int) -> float:
        if self._link.unread or self._removal.busy or (self._jobs.retention.next_is_due and not self._leave_ns):
            return 0
        now_ns = self._host.processes.now().steady_ns
        due = [now_ns + most_ms * NS_PER_MS, self._engine.next_wake_ns(), self._jobs.next_look_ns(), self._leave_ns]
        due += [self._link.due_ns, self._sessions.next_ns()]
        if self._alone_ns is not None and self._settings.abandoned_after_ms:
            due.append(self._alone_ns + self._settings.abandoned_after_ms * NS_PER_MS)
        # While the host is suspended, the time of a lease runs on, but the timeout of the poll does not. So while there are jobs, the poll
        # returns at least once a second.
        if len(self._jobs) or self._kept.unwritten or self._jobs.untidy:
            due.append(self._tick_ns)
        return max(0.0, (min(due_ns for due_ns in due if due_ns is not None) - now_ns) / NS_PER_MS)

    def _on_event(self, fd: int, mask: int) -> None:
        if self._jobs.owns_start(fd):
            started = self._jobs.on_start(fd)
            if started is not None:
                self._on_start(*started)
        elif self._jobs.owns_pipe(fd):
            failed = self._jobs.on_output(fd)
            if failed is not None:
                self._fail(*failed)
        elif self._jobs.owns_pidfd(fd):
            self._jobs.on_main_ended(fd, self._host.processes.now())
        elif self._sessions.owns(fd):
            self._sessions.on_event(fd, self._host.processes.now())
        elif fd == self._signals.fileno():
            self._on_signals(self._signals.recv(4096))
        else:
            self._link.on_event(fd, mask)

    def _on_signals(self, numbers: bytes) -> None:
        for number in numbers:
            self._log.info("signal", number=number)
            if number == signal.SIGTERM:
                self._terminations += 1
                timeout_ms = self._settings.end_timeout_ms if self._terminations == 1 else 0
                self._on_message(EndAll(timeout_ms, "the runner was asked to end"))

    def _on_message(self, message: ToRunner) -> None:
        now = self._host.processes.now()
        match message:
            case Hello():
                self._sessions.on_hello()
                about = About(self._isolation.name, self._isolation.detail, os.getpid(), self._trouble())
                self._take(self._engine.on_hello(about, now))
            case Run():
                self._take(self._engine.on_run(message, now))
            case RunAhead():
                self._take(self._engine.on_run_ahead(message, now))
            case Recall():
                self._take(self._engine.on_recall(message, now))
            case Interrupt():
                self._log.info(
                    "interrupt", **job_fields(message.job), timeout_ms=message.timeout_ms, reason=message.reason
                )
                self._settle([message.job])
                self._take(self._engine.on_interrupt(message, self._host.processes.now()))
            case EndAll():
                self._log.info("asked to end all jobs", timeout_ms=message.timeout_ms, reason=message.reason)
                self._settle(self._jobs.jobs())
                self._take(self._engine.on_end_all(message, self._host.processes.now()))
            case NodeLease():
                self._take(self._engine.on_lease(message, now))
            case Ping():
                self._link.send(Pong(self._sessions.open_count))
            case Turn():
                self._sessions.on_turn(message, now)
            case Acknowledge():
                self._take(self._engine.on_acknowledge(message.jobs, now))
            case _:
                assert_never(message)

    def _trouble(self) -> str:
        return "; ".join(note for note in [*self._notes, self._kept.trouble] if note)

    def _take(self, outcome: Outcome[None, RunnerEffect]) -> None:
        """Perform the effects in their order. If performing an effect leads to further effects, these are performed after all others."""
        todo = deque(outcome.effects)
        while todo:
            effect = todo.popleft()
            match effect:
                case Launch(run):
                    todo.extend(self._launch(run))
                case Signal(job, number):
                    self._log.debug("job signal", **job_fields(job), number=number)
                    self._jobs.signal(job, number)
                case TellDeadline(path, at_ms):
                    # The job gets the signal even if the file cannot be written.
                    with contextlib.suppress(OSError):
                        self._host.files.leave_word(path, f"{at_ms / 1000:.3f}\n".encode())
                case Keep(end):
                    facts = {name: getattr(end, name) for name in ("result", "exit_code", "signal", "reason", "cpu_ms")}
                    self._log.info("job ended", **job_fields(end.key, end.allocation), **facts)
                    if not self._kept.write_end(end):
                        self._log.info("end not written", **job_fields(end.key), trouble=self._kept.trouble)
                case Drop(job):
                    self._log.debug("job acknowledged", **job_fields(job))
                    self._kept.forget(job)
                case SendToAgent(message):
                    self._link.send(message)
                case EndRunner():
                    self._leave_ns = self._leave_ns or self._host.processes.now().steady_ns + _LEAVE_MS * NS_PER_MS
                case _:
                    assert_never(effect)

    def _launch(self, run: Run) -> list[RunnerEffect]:
        try:
            launched = self._jobs.begin(run)
        except NotStarted as refusal:
            return self._not_started(run, refusal)
        return self._started(run, launched) if launched is not None else []

    def _on_start(self, run: Run, outcome: Launched | NotStarted) -> None:
        """Handle the outcome of a start: the process of the job runs its program, or cannot run it."""
        effects = self._not_started(run, outcome) if isinstance(outcome, NotStarted) else self._started(run, outcome)
        self._take(Outcome(None, effects))

    def _started(self, run: Run, launched: Launched) -> list[RunnerEffect]:
        effects = [*self._engine.on_started(run.job, launched.pid, launched.at).effects]
        self._log.info("job started", **job_fields(run.job, run.allocation), pid=launched.pid)
        if run.terminal:
            self._sessions.on_job_started(run, launched.stdout_fd, launched.at)
        if launched.failure:
            effects += self._engine.on_not_confined(run.job, launched.failure, self._host.processes.now()).effects
        return effects

    def _not_started(self, run: Run, refusal: NotStarted) -> list[RunnerEffect]:
        now = self._host.processes.now()
        return [*self._engine.on_not_started(run.job, str(refusal), refusal.exit_code, now).effects]

    def _fail(self, job: JobKey, reason: str) -> None:
        self._log.info("job failing", **job_fields(job), reason=reason)
        self._take(self._engine.on_failure(job, reason, self._host.processes.now()))

    def _settle(self, jobs: list[JobKey]) -> None:
        """Handle the ends of those main processes of `jobs` that have ended by now, before anything is decided about these jobs."""
        for pidfd in self._jobs.ended_unseen(jobs):
            self._jobs.on_main_ended(pidfd, self._host.processes.now())
        self._look()

    def _look(self) -> None:
        for job, exit in self._jobs.collect_ended(self._host.processes.now()):
            self._sessions.on_job_ended(job, exit, self._host.processes.now())
            self._take(self._engine.on_exited(job, exit, self._host.processes.now()))

    def _make_room(self) -> None:
        folder = self._jobs.retention.next_to_go()
        if folder is not None:
            operation = folder.partition(".")[0]
            try:
                self._removal.remove(f"{self._settings.logs}/{folder}")
                self._log.info(
                    "logs removed", operation=operation, why="the logs of all jobs together took too much space"
                )
            except OSError as error:
                self._log.info("logs not removed", operation=operation, why=str(error))

    def _is_abandoned(self, now: Moment) -> bool:
        if self._link.connected or len(self._jobs) or self._kept.unwritten:
            self._alone_ns = None
            return False
        if self._alone_ns is None:
            self._alone_ns = now.steady_ns
        after_ms = self._settings.abandoned_after_ms
        return after_ms > 0 and now.steady_ns >= self._alone_ns + after_ms * NS_PER_MS

    def _may_leave(self, now: Moment) -> bool:
        if self._is_abandoned(now):
            self._log.info("abandoned", after_ms=self._settings.abandoned_after_ms)
            return True
        if self._leave_ns is None:
            return False
        return now.steady_ns >= self._leave_ns or (self._link.flushed and not self._kept.unwritten)
