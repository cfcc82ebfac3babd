"""The agent's decisions: which orders it obeys, what each heartbeat reports, when a heartbeat is sent, and how the agent stops.

After each call `due_ns` returns the time of the next `on_tick`. The engine keeps these rules, which the descriptions of the messages do not
state:

* No heartbeat is sent before the runner's first full report (`FullReport`) arrives, or before the agent learns that there is no runner.
  Until then the agent does not know everything that runs on the node.
* After a restart of the agent its allocations are those of the runner's full report. Each allocation has one job, and is closing if that
  job was interrupted. The report does not list slots whose jobs had not started, so the allocator assigns these slots again.
* While there is a problem (`trouble`), and after the agent was asked to stop, new allocations are returned at once with their
  slots.
* The agent answers every full report of the runner with the lease, before any job. This is needed because the runner may be a new process,
  which starts no job until it has a lease.
* An answer with `enrolled=False` does not extend the lease: an allocator that does not count the node may assign its jobs to
  other nodes.
* While the runner is away or does not answer, the lease is not extended. When the lease has expired, the agent reports the jobs as lost, so
  that they run on other nodes. A runner that was only stopped for a while ends these jobs when it continues. A new runner ends the jobs
  that the runner before it left.
* Orders that would take one allocation beyond `LARGEST_ALLOCATION_JOBS` slots, or all allocations together beyond `LARGEST_PICTURE_BYTES`,
  are void as a whole, because a heartbeat could not hold the report of so many slots.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Final, assert_never

import msgspec

from headrace.ids import AllocationId, OperationId
from headrace.runtime.engine import NS_PER_MS, Check, Figure, Moment, Outcome, counter, gauge, run_checks
from headrace.wire.codec import LARGEST_MESSAGE_BYTES, runs_within
from headrace.wire.heartbeat import (
    MOST_GPUS,
    Heartbeat,
    HeartbeatReason,
    JobKey,
    NodeState,
    Nudge,
    Orders,
    short_text,
)
from headrace.wire.nodes import StopMode
from headrace.wire.refusals import Busy
from headrace.wire.version import Term
from headrace_agent.adoption import Adoption
from headrace_agent.agent_stop import Stopping
from headrace_agent.allocations.node_allocations import NodeAllocations
from headrace_agent.allocations.unreported_starts import UnsentStartRecords
from headrace_agent.effects import AgentEffect, Beat, EnrolNode, Identity, Leave, LogRecord, SendToRunner, Trouble
from headrace_agent.files.operation_files import FilesFailure, OperationFiles
from headrace_agent.heartbeat_timing import Pulse
from headrace_agent.host_faults import HostFaults
from headrace_agent.runner.protocol import EndAll, Ended, FullReport, NodeLease, Pong, Recalled, Started, ToAgent
from headrace_agent.session_spans import AnsweredTurn, SessionSpans
from headrace_agent.starts_and_ends import StartsAndEnds
from headrace_agent.void_orders import Awaited, why_nudge_is_void, why_orders_are_void

#: Upper bound of the ends of jobs that admission has not recorded yet. While there are that many, no further job starts.
MOST_UNRECORDED_ENDS: Final = 5_000
#: Milliseconds from the end of the runner's lease, at which the runner begins to end its jobs, to the time at which the allocator may give
#: the jobs to other nodes. The margin is at most half of the allocator's lease. In the first half of the margin jobs may react to SIGTERM;
#: the second half is for the kill.
_LEASE_MARGIN_MS: Final = 10_000
#: The latest end of a lease that the runner accepts, in nanoseconds of CLOCK_BOOTTIME.
_LATEST_NS: Final = 2**62
#: If an allocation has more unstarted jobs than this, the heartbeat that reports the end of one of its jobs may wait for further ends: the
#: allocation needs no new jobs soon.
_MANY_AHEAD: Final = 8
#: Smallest number of milliseconds between a successful enrolment and the next request to enrol. The agent enrols the node again while the
#: allocator answers that it does not know the node.
_ENROL_AGAIN_MS: Final = 1_000
#: Upper bound in bytes of the spans of sessions in one heartbeat. A heartbeat with less than four times as much free space carries no such
#: spans.
_MOST_SESSIONS_BYTES: Final = 16 * 1024
_STOP_REASON: Final = "the agent of this host stopped"

_encoder = msgspec.msgpack.Encoder()


class AgentEngine:
    """The decisions of one agent process, from its start to its end."""

    def __init__(self, identity: Identity, with_files: Iterable[str] = ()) -> None:
        """`with_files` names the folders with files of operations that earlier agent processes left on this host."""
        self._identity = identity
        self.held = NodeAllocations(identity.total, identity.gpus.offered)
        self._files = OperationFiles(identity.files_folder, with_files)
        self.pulse = Pulse()
        #: The highest allocator term whose orders were obeyed.
        self.term: Term = 0
        #: Number of answers and nudges that were void, and therefore not obeyed.
        self.void = 0
        self._jobs = StartsAndEnds(identity, self.held, self._files)
        self._faults = HostFaults()
        self._adoption = Adoption(self.held, self._jobs)
        self._stopping = Stopping(identity.stop_timeout_ms)
        self._starts = UnsentStartRecords()
        self._limits = ""
        #: Reason why the tree assigns nothing to this node, from the newest answer to a heartbeat; empty: the node may get jobs.
        self._left_out = ""
        self._trouble: dict[Trouble, str] = {Trouble.RUNNER_AWAY: "the runner is not connected yet"}
        self._enrolling = False
        self._enrolled_ns: int | None = None
        self._left = False
        #: The lease that was last sent to the runner. It is sent again after a full report, since the runner may be a new process.
        self._lease: NodeLease | None = None
        #: Number of times that the lease expired while jobs were here and was extended afterwards.
        self._leases_passed = 0
        #: Number of open sessions of people with jobs of this node.
        self._sessions = 0
        self._session_spans = SessionSpans(identity.session_grace_ms)

    def due_ns(self) -> int | None:
        """Return the CLOCK_BOOTTIME in nanoseconds at which `on_tick` has something to do, or None if nothing is planned."""
        due = (
            *(self.pulse.next_ns(), self._stopping.deadline_ns, self.held.first_wait_ends_ns(), self._faults.until_ns),
            *(self._lost_ns(), self._session_spans.next_ns()),
        )
        return min([due_ns for due_ns in due if due_ns is not None], default=None) if not self._left else None

    def on_start(self, now: Moment) -> Outcome[None, AgentEffect]:
        """Begin to wait for the runner, and enrol the node. This must be the first event that the engine gets."""
        self.pulse.started(now.steady_ns)
        return Outcome(None, self._enrol(now))

    def on_tick(self, now: Moment) -> Outcome[None, AgentEffect]:
        """Do what is due now: return overdue allocations, act on deadlines, and send the next heartbeat. An early call does no harm."""
        if self._faults.end_pause(now):
            return self.on_trouble(Trouble.HOST_FAULT, "", now)
        effects = self._jobs.give_back_overdue(now)
        if effects:
            self.pulse.want(HeartbeatReason.PERIOD)
        lost_ns = self._lost_ns()
        if lost_ns is not None and now.steady_ns >= lost_ns:
            self._jobs.hold = self._hold()
            effects += self._adoption.lose_all(f"the lease is over: {self._trouble[Trouble.RUNNER_AWAY]}", now)
            self.pulse.want(HeartbeatReason.JOB_ENDED)
        if self._session_spans.on_time(self.held.by_job, now):
            self.pulse.want(HeartbeatReason.PERIOD)
        return self._done(effects, now)

    def on_orders(self, orders: Orders, now: Moment) -> Outcome[None, AgentEffect]:
        """Obey the answer to a heartbeat. A void answer is only counted; the caller then reports its heartbeat as lost
        (`on_heartbeat_lost`).
        """
        in_flight = self.pulse.seq if self.pulse.in_flight else None
        awaited = Awaited(self._identity.node, self._identity.incarnation, in_flight, self.term)
        why = why_orders_are_void(orders, awaited, self.held)
        if why:
            self.void += 1
            return Outcome(
                None, [LogRecord("warning", "void orders", {"why": why, "seq": orders.seq, "term": orders.term})]
            )
        next_ms = min(orders.next_heartbeat_ms, max(orders.lease_ms // 4, 1))
        sent_ns = self.pulse.answered(next_ms, now.steady_ns)
        self._starts.on_answer(self.held.by_id.values(), is_new=orders.term != self.term or not orders.enrolled)
        self.term = orders.term
        effects: list[AgentEffect] = [] if orders.enrolled else self._enrol(now)
        if orders.enrolled and Trouble.RUNNER_AWAY not in self._trouble:
            effects += self._extend_lease(orders.lease_ms, sent_ns)
        effects += self._note_left_out(orders.left_out)
        self._jobs.hold = self._hold()
        for take_back in orders.take_back:
            effects += self._jobs.take_back(take_back)
        for start in orders.start:
            effects += self._jobs.start(start, now)
        for extend in orders.extend:
            effects += self._jobs.extend(extend)
        effects += self._jobs.start_waiting()
        effects += self._jobs.forget(orders.forget, keep={extend.allocation for extend in orders.extend})
        if self._session_spans.forget(orders.forget.sessions):
            self.pulse.want(HeartbeatReason.PERIOD)
        return self._done(effects, now)

    def on_heartbeat_lost(self, seq: int, unit: float, now: Moment) -> Outcome[None, AgentEffect]:
        """Record that the heartbeat `seq` got no answer, or an answer that was not obeyed.

        `unit` is a random number in [0, 1). It varies the pause before the next heartbeat, so that many nodes do not send at the same time.
        """
        if seq != self.pulse.seq or not self.pulse.in_flight:
            return Outcome(None)
        self.pulse.lost(unit, now.steady_ns, stopping=self._stopping.mode is not None)
        return self._done([], now)

    def on_nudge(self, nudge: Nudge, now: Moment) -> Outcome[None, AgentEffect]:
        """Send a heartbeat at once because a nudge asks for it, unless the nudge is void."""
        why = why_nudge_is_void(nudge, self._identity.node, self.term)
        if why:
            self.void += 1
            return Outcome(None, [LogRecord("warning", "void nudge", {"why": why, "term": nudge.term})])
        self.pulse.want(HeartbeatReason.NUDGED)
        self.pulse.end_pause(now.steady_ns)
        return self._done([], now)

    def on_enrolled(self, now: Moment) -> Outcome[None, AgentEffect]:
        """Record that admission has enrolled the node, and send the first heartbeat."""
        self._enrolling = False
        self._enrolled_ns = now.steady_ns
        self.pulse.want(HeartbeatReason.STARTED)
        self.pulse.end_pause(now.steady_ns)
        return self._done([], now)

    def on_runner(self, message: ToAgent, now: Moment) -> Outcome[None, AgentEffect]:
        """Process a message of the runner."""
        self._jobs.hold = self._hold()
        effects: list[AgentEffect]
        match message:
            case Started():
                self._faults.on_started()
                effects = self._jobs.on_started(message)
            case Ended():
                before = len(self.held.ends)
                effects = self._on_host_fault(message.end.reason, now) if message.is_host_fault else []
                effects += self._jobs.on_ended(message.end, now, message.followed_by)
                if len(self.held.ends) > before:
                    may_wait = self.held.unstarted_behind(message.end) > _MANY_AHEAD
                    is_last = not self.held.by_job
                    self.pulse.want(HeartbeatReason.JOB_ENDED, may_wait=may_wait, is_last=is_last)
            case Pong(sessions):
                self._sessions, effects = sessions, []
            case Recalled(allocation):
                effects = self._jobs.on_recalled(AllocationId(allocation))
                if effects and self._stopping.mode is not None:
                    self._stopping.tell_after(self.pulse.seq)
                    self.pulse.want(HeartbeatReason.STOPPING)
                    self.pulse.end_pause(now.steady_ns)
            case FullReport():
                effects = self._on_picture(message, now)
            case _:
                assert_never(message)
        return self._done(effects, now)

    def on_trouble(self, kind: Trouble, words: str, now: Moment) -> Outcome[None, AgentEffect]:
        """Record a problem, or (if `words` is empty) its end.

        `RUNNER_AWAY` and `NO_RUNNER` also end with the runner's full report.
        """
        if kind is Trouble.NO_RUNNER and words:
            # Without a runner no job can run here. So the agent knows what runs (nothing), and heartbeats may be sent.
            self.pulse.open()
        before = self._trouble.get(kind, "")
        if kind in (Trouble.RUNNER_AWAY, Trouble.NO_RUNNER):
            self._trouble.pop(Trouble.RUNNER_AWAY if kind is Trouble.NO_RUNNER else Trouble.NO_RUNNER, None)
        if words:
            self._trouble[kind] = short_text(words)
        else:
            self._trouble.pop(kind, None)
        if before == self._trouble.get(kind, ""):
            return self._done([], now)
        self.pulse.want(HeartbeatReason.PERIOD)
        self._jobs.hold = self._hold()
        fields: dict[str, str | int] = {"kind": kind, "why": words}
        line = LogRecord("warning", "trouble", fields) if words else LogRecord("info", "trouble over", fields)
        return self._done([line, *self._jobs.start_waiting()], now)

    def refusal_of_session(self, session: str) -> Busy | None:
        """Return the refusal for a session that would be one too many on this node, or None if the session is known or may begin."""
        return None if self._session_spans.knows(session) else self._session_spans.refusal()

    def on_session(self, answered: AnsweredTurn, now: Moment) -> Outcome[None, AgentEffect]:
        """Record that the runner answered a turn (a request) of a person's session with a job."""
        spans, has_news, turn = self._session_spans, False, answered.turn
        if not spans.knows(turn.session):
            jobs = (key for key in self.held.by_job if (key.operation, key.index) == (turn.operation, turn.index))
            job = max(jobs, default=None)
            if job is not None:
                has_news = spans.on_begun(turn.session, job, self.held.by_job[job].id, answered.user, now)
        has_news |= spans.on_turn(turn.session, now, is_over=answered.is_over)
        if has_news:
            self.pulse.want(HeartbeatReason.PERIOD)
        return self._done([], now)

    def on_files(self, folder: str, failure: FilesFailure | None, now: Moment) -> Outcome[None, AgentEffect]:
        """Record that the files of an operation arrived in this folder, or could not be fetched."""
        self._jobs.hold = self._hold()
        self.pulse.want(HeartbeatReason.PERIOD)
        return self._done(self._jobs.on_files(folder, failure), now)

    def unused_files(self) -> list[OperationId]:
        """Return the operations that have files here but no allocation; empty until the runner has reported what runs here."""
        return self._files.unused(self.held.specs) if self._limits else []

    def on_over(self, operations: list[OperationId], now: Moment) -> Outcome[None, AgentEffect]:
        """Remove the files of operations that have ended."""
        return self._done([*self._files.over(operations, self.held.specs)], now)

    def on_progress(self, progress: Mapping[JobKey, int], now: Moment) -> Outcome[None, AgentEffect]:
        """Record the progress of jobs, in thousandths. The next heartbeat reports the progress; no heartbeat is sent only for this."""
        for key, thousandths in progress.items():
            allocation = self.held.by_job.get(key)
            if allocation is not None and allocation.job is not None:
                allocation.job = msgspec.structs.replace(allocation.job, progress=thousandths)
        return Outcome(None)

    def on_stop(self, mode: StopMode, now: Moment) -> Outcome[None, AgentEffect]:
        """Begin to stop. While the agent stops, a further request counts only if its mode is more urgent."""
        if not self._stopping.begin(mode, self.pulse.seq, now):
            return Outcome(None)
        self.pulse.want(HeartbeatReason.STOPPING)
        self.pulse.end_pause(now.steady_ns)
        effects: list[AgentEffect] = [
            LogRecord("info", "stopping", {"mode": mode.value, "jobs": len(self.held.by_job)})
        ]
        self._jobs.hold = self._hold()
        effects += self._jobs.start_waiting()
        return self._done(effects + self._close_all(self._stopping.interruption_ms), now)

    def checks(self) -> Iterator[Check]:
        """Yield the checks of the allocations and of the heartbeats."""
        yield self.held.check
        yield self.pulse.check

    def check(self) -> list[str]:
        """Return a description of each broken invariant; empty if all hold."""
        return run_checks(self.checks())

    def figures(self) -> list[Figure]:
        """Return the metrics of this node's allocations, jobs, heartbeats, lease and sessions."""
        return [
            *self.held.figures(),
            *self.pulse.figures(),
            counter(
                "void_messages",
                "messages",
                self.void,
                "Messages that were ignored because they were outdated or their sender may not send them.",
            ),
            counter(
                "leases_passed",
                "times",
                self._leases_passed,
                "Times that the lease of the node ended while it had jobs. The jobs may have run elsewhere at the same time.",
            ),
            gauge(
                "sessions",
                "sessions",
                self._sessions,
                "Sessions of people with jobs of this node: terminals of `headrace shell`, and commands of `headrace op exec`.",
            ),
            gauge("allocator_term", "term", self.term, "Term of the allocator whose orders the agent follows."),
        ]

    def _extend_lease(self, lease_ms: int, sent_ns: int) -> list[AgentEffect]:
        """Extend the runner's lease. It ends a margin before the time at which the allocator may give the jobs to other nodes."""
        margin_ms = min(_LEASE_MARGIN_MS, lease_ms // 2)
        until_ns = sent_ns + (lease_ms - margin_ms) * NS_PER_MS
        known = self._lease
        is_unbroken = known is not None and sent_ns <= known.until_boottime_ns
        since_ns = known.since_boottime_ns if known is not None and is_unbroken else sent_ns
        self._lease = NodeLease(min(until_ns, _LATEST_NS), margin_ms // 2, since_ns)
        told = SendToRunner(self._lease)
        if known is None or is_unbroken or not self.held.by_job:
            return [told]
        self._leases_passed += 1
        over_ms = (sent_ns - known.until_boottime_ns) // NS_PER_MS
        fields: dict[str, str | int] = {"over_for_ms": over_ms, "jobs": len(self.held.by_job)}
        return [
            LogRecord("warning", "the lease of the node ended; its jobs may run elsewhere at the same time", fields),
            told,
        ]

    def _lost_ns(self) -> int | None:
        """Return the CLOCK_BOOTTIME in nanoseconds at which the jobs of an unresponsive runner count as lost, or None.

        From this time on the allocator may give the jobs to other nodes.
        """
        if self._lease is None or Trouble.RUNNER_AWAY not in self._trouble or not self.held.by_job:
            return None
        # When its lease ends, the runner sends SIGTERM to the jobs, and SIGKILL `timeout_ms` later. The same time is allowed again for the
        # kill to take effect.
        return self._lease.until_boottime_ns + 2 * self._lease.timeout_ms * NS_PER_MS

    def _enrol(self, now: Moment) -> list[AgentEffect]:
        if self._enrolling:
            return []
        self._enrolling = True
        pause_ms = 0
        if self._enrolled_ns is not None:
            pause_ms = max(0, _ENROL_AGAIN_MS - (now.steady_ns - self._enrolled_ns) // NS_PER_MS)
        return [EnrolNode(pause_ms)]

    def _note_left_out(self, why: str) -> list[AgentEffect]:
        """Log why the tree assigns nothing to the node if the reason is new, or that the node may get jobs again."""
        if why == self._left_out:
            return []
        self._left_out = why
        line = (
            LogRecord("warning", "left out by the tree", {"why": why}) if why else LogRecord("info", "in the tree", {})
        )
        return [line]

    def _on_host_fault(self, why: str, now: Moment) -> list[AgentEffect]:
        """Start no job for a while: the host has just failed to start a job, and would most likely fail to start the next one."""
        self._faults.note(now)
        return list(self.on_trouble(Trouble.HOST_FAULT, why, now).effects)

    def _on_picture(self, picture: FullReport, now: Moment) -> list[AgentEffect]:
        if self._left:
            # The agent has left. The runner gets the order to end again, since it may have been away when the order was first sent.
            return self._end_runner()
        self.pulse.open()
        self._limits = picture.isolation
        self._trouble.pop(Trouble.RUNNER_AWAY, None)
        self._trouble.pop(Trouble.NO_RUNNER, None)
        self._jobs.hold = self._hold()
        # The lease is sent before any job: the runner may be a new process, which starts no job without a lease.
        effects: list[AgentEffect] = [SendToRunner(self._lease)] if self._lease is not None else []
        effects += self._adoption.on_picture(picture, now)
        if picture.trouble:
            effects.append(LogRecord("warning", "runner reports trouble", {"why": picture.trouble}))
        self.pulse.want(HeartbeatReason.JOB_ENDED if picture.ended else HeartbeatReason.PERIOD)
        if self._stopping.mode is not None:
            effects += self._close_all(self._stopping.interruption_ms)
        return effects

    def _end_runner(self) -> list[AgentEffect]:
        """End the runner with all its remaining jobs, unless the runner stays for the next agent."""
        return [SendToRunner(EndAll(0, _STOP_REASON))] if self._stopping.with_runner else []

    def _close_all(self, timeout_ms: int | None) -> list[AgentEffect]:
        """Close all allocations that have a job. `timeout_ms` is the time from the interruption of a job to its kill; the interruption
        timeout of the job's operation applies if it is shorter. None: the jobs are not interrupted.
        """
        effects: list[AgentEffect] = []
        for allocation in list(self.held.by_job.values()):
            spec = self.held.specs.get(allocation.operation)
            own_ms = timeout_ms
            if own_ms is not None and spec is not None:
                own_ms = min(own_ms, spec.interruption_timeout_ms)
            effects += self._jobs.close(allocation, own_ms, _STOP_REASON)
        return effects

    def _hold(self) -> str:
        """Return the reason why no job may start, or an empty string if jobs may start."""
        return "the agent is stopping" if self._stopping.mode is not None else self._all_trouble()

    def _node_state(self) -> NodeState:
        """Return the state that the node is to have. While the health command fails, the node is draining."""
        state = self._stopping.node_state
        return NodeState.DRAINING if state is NodeState.OPEN and Trouble.HEALTH in self._trouble else state

    def _all_trouble(self) -> str:
        if not self._trouble and len(self.held.ends) < MOST_UNRECORDED_ENDS:
            return ""
        words = [*self._trouble.values()]
        if len(self.held.ends) >= MOST_UNRECORDED_ENDS:
            words.append(
                f"{len(self.held.ends)} ends of jobs are not recorded yet; the agent keeps at most {MOST_UNRECORDED_ENDS}"
            )
        return short_text("; ".join(words))

    def _done(self, effects: list[AgentEffect], now: Moment) -> Outcome[None, AgentEffect]:
        """Return the effects, with the end of the agent or a heartbeat at their end if either is due now."""
        if self._left:
            return Outcome(None, effects)
        if self._stopping.may_leave(self.pulse, self.held, now):
            self._left = True
            return Outcome(None, [*effects, *self._end_runner(), Leave(self._stopping.with_runner)])
        reason = self.pulse.begin_heartbeat(now.steady_ns)
        return Outcome(None, effects if reason is None else [*effects, Beat(self._heartbeat(reason, now))])

    def _heartbeat(self, reason: HeartbeatReason, now: Moment) -> Heartbeat:
        ends = self.held.ends
        self._session_spans.on_time(self.held.by_job, now)
        heartbeat = Heartbeat(
            node=self._identity.node,
            tree=self._identity.tree,
            incarnation=self._identity.incarnation,
            seq=self.pulse.seq,
            applied=self.pulse.applied,
            term=self.term,
            reason=reason,
            total=self.held.total,
            allocations=self.held.report(),
            ends_waiting=len(ends),
            state=self._node_state(),
            isolation=self._limits,
            trouble=self._all_trouble(),
            machine=self._identity.machine,
            boottime_ms=now.steady_ns // NS_PER_MS,
            starts=self._starts.for_heartbeat(),
            gpus=dict(islice(self.held.gpu_holders().items(), MOST_GPUS)),
        )
        spans = self._session_spans.report()
        if not (ends or spans):
            return heartbeat
        free_bytes = LARGEST_MESSAGE_BYTES - len(_encoder.encode(heartbeat)) - 100
        if spans and free_bytes > 4 * _MOST_SESSIONS_BYTES:
            heartbeat = msgspec.structs.replace(heartbeat, sessions=next(runs_within(spans, _MOST_SESSIONS_BYTES)))
            free_bytes -= _MOST_SESSIONS_BYTES
        told = ends.within(free_bytes)
        return msgspec.structs.replace(heartbeat, ends=told, ends_waiting=len(ends) - len(told))
