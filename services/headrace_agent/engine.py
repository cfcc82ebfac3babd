"""The agent's decisions: which orders are obeyed, what every heartbeat says, when one goes, and how the agent stops.

Pure: every `on_...` takes what happened and the moment, and returns effects in the order in which they are to be performed.
After each call `due_ns` says when `on_tick` has something to do.

What is decided here, beyond the wire's own words:

* Until the first picture of a runner, or the news that there is no runner, no heartbeat goes: it could not be the whole picture.
* After a restart of the agent its allocations are those of the runner's picture, each running with its one job. Slots that were not
  started are not in the picture any more, so the allocator hands them out anew; an interruption under way goes on at the runner.
* While something is wrong (`trouble`), and once the agent was asked to stop, starts end at once with their slots given back.
* An answer that says `enrolled=False` extends no lease: whoever does not count the node may give its jobs to others.
* Orders that would take an allocation beyond `LARGEST_ALLOCATION_JOBS` are void as a whole, as a heartbeat could not report it.
"""

from __future__ import annotations

from typing import Final, assert_never

import msgspec

from headrace.ids import AllocationId
from headrace.wire.codec import LARGEST_MESSAGE_BYTES
from headrace.wire.heartbeat import (
    LARGEST_ALLOCATION_JOBS,
    AllocationState,
    Extend,
    Forget,
    Heartbeat,
    HeartbeatReason,
    NodeState,
    Nudge,
    Orders,
    Start,
    TakeBack,
)
from headrace.wire.nodes import StopMode
from headrace.wire.version import Term
from headrace_agent.effects import AgentEffect, Beat, Enrol, Identity, Leave, LogLine, Tell, Trouble
from headrace_agent.node_allocations import NS_PER_MS, Allocation, Moment, NodeAllocations
from headrace_agent.pulse import Pulse
from headrace_agent.runner.protocol import Acknowledge, EndAll, Ended, Lease, Picture, Started, ToAgent
from headrace_agent.starts_and_ends import Jobs
from headrace_agent.void_orders import defect_of_figures, is_legal

__all__ = ["MOST_UNRECORDED_ENDS", "AgentEngine"]

#: With so many ends unacknowledged no further job starts.
MOST_UNRECORDED_ENDS: Final = 5_000
#: The runner ends its jobs so long before the node's jobs are given to others; half of a lease shorter than twice this.
_LEASE_MARGIN_MS: Final = 10_000
#: The runner reads no larger figure.
_LATEST_NS: Final = 2**62
#: At a stop: for the last ends to be acknowledged, after the kill.
_LAST_ENDS_MS: Final = 3_000
#: Enrolled, and the allocator does not know it yet: not asked again before this.
_ENROL_AGAIN_MS: Final = 1_000
#: A picture of this estimated size takes no more allocations, so that it never grows too large to be sent.
_LARGEST_PICTURE_BYTES: Final = 350 * 1024
_TROUBLE_CHARACTERS: Final = 2_000
_SEVERITY: Final = {StopMode.WAIT: 1, StopMode.LEAVE: 2, StopMode.INTERRUPT: 3, StopMode.KILL: 4}
_STOP_REASON: Final = "the agent of this host stopped"

_encoder = msgspec.msgpack.Encoder()


class AgentEngine:
    """One agent."""

    def __init__(self, identity: Identity) -> None:
        self._identity = identity
        self.books = NodeAllocations(identity.total)
        self.pulse = Pulse()
        #: The highest term obeyed.
        self.term: Term = 0
        #: Answers and nudges that were not obeyed.
        self.void = 0
        self._jobs = Jobs(identity, self.books)
        self._isolation = ""
        self._trouble: dict[Trouble, str] = {Trouble.RUNNER_AWAY: "the runner is not connected yet"}
        self._enrolling = False
        self._enrolled_ns: int | None = None
        self._stop: StopMode | None = None
        #: Newest heartbeat when the stop began: a later one tells the allocator of it.
        self._stop_seq = 0
        self._deadline_ns: int | None = None
        self._left = False

    def start(self, now: Moment) -> list[AgentEffect]:
        """The first call."""
        self.pulse.started(now.boottime_ns)
        return self._enrol(now)

    def due_ns(self) -> int | None:
        """CLOCK_BOOTTIME at which `on_tick` has something to do."""
        due = [moment for moment in (self.pulse.next_ns(), self._deadline_ns) if moment is not None]
        return min(due, default=None) if not self._left else None

    def on_tick(self, now: Moment) -> list[AgentEffect]:
        """Does what is due; earlier does no harm."""
        return self._pump(now)

    def on_orders(self, orders: Orders, now: Moment) -> list[AgentEffect]:
        """The answer to a heartbeat. One that is void has no effect but to be counted: its heartbeat is as good as lost."""
        defect = self._defect(orders)
        if defect:
            self.void += 1
            return [LogLine("warning", "void orders", {"why": defect, "seq": orders.seq, "term": orders.term})]
        next_ms = min(orders.next_heartbeat_ms, max(orders.lease_ms // 4, 1))
        sent_ns = self.pulse.answered(next_ms, now.boottime_ns)
        self.term = orders.term
        effects: list[AgentEffect] = []
        if orders.enrolled:
            margin_ms = min(_LEASE_MARGIN_MS, orders.lease_ms // 2)
            until_ns = sent_ns + (orders.lease_ms - margin_ms) * NS_PER_MS
            effects.append(Tell(Lease(min(until_ns, _LATEST_NS))))
        else:
            effects += self._enrol(now)
        self._jobs.hold = self._hold()
        for take_back in orders.take_back:
            effects += self._take_back(take_back)
        for start in orders.start:
            effects += self._start(start)
        for extend in orders.extend:
            effects += self._extend(extend)
        effects += self._jobs.start_waiting()
        effects += self._forget(orders.forget, keep={extend.allocation for extend in orders.extend})
        return effects + self._pump(now)

    def on_heartbeat_lost(self, seq: int, unit: float, now: Moment) -> list[AgentEffect]:
        """The heartbeat `seq` was not answered, or not with orders to obey; `unit` in [0, 1) spreads the pause."""
        if seq != self.pulse.seq or not self.pulse.in_flight:
            return []
        self.pulse.lost(unit, now.boottime_ns, stopping=self._stop is not None)
        return self._pump(now)

    def on_nudge(self, nudge: Nudge, now: Moment) -> list[AgentEffect]:
        """A heartbeat now, if the nudge is for us and of nobody who is over."""
        if nudge.node != self._identity.node or nudge.term < self.term:
            self.void += 1
            return [LogLine("warning", "void nudge", {"for": nudge.node, "term": nudge.term, "known": self.term})]
        self.pulse.want(HeartbeatReason.NUDGED)
        self.pulse.end_pause(now.boottime_ns)
        return self._pump(now)

    def on_enrolled(self, now: Moment) -> list[AgentEffect]:
        self._enrolling = False
        self._enrolled_ns = now.boottime_ns
        self.pulse.want(HeartbeatReason.STARTED)
        self.pulse.end_pause(now.boottime_ns)
        return self._pump(now)

    def on_runner(self, message: ToAgent, now: Moment) -> list[AgentEffect]:
        """What the runner says."""
        self._jobs.hold = self._hold()
        effects: list[AgentEffect]
        match message:
            case Started():
                effects = self._jobs.on_started(message)
            case Ended():
                before = self.books.ends()
                effects = self._jobs.on_ended(message.end, now)
                if self.books.ends() > before:
                    self.pulse.want(HeartbeatReason.JOB_ENDED)
            case Picture():
                effects = self._on_picture(message, now)
            case _:
                assert_never(message)
        return effects + self._pump(now)

    def on_trouble(self, kind: Trouble, words: str, now: Moment) -> list[AgentEffect]:
        """Something is wrong, or (with no words) right again. `RUNNER_AWAY` and `NO_RUNNER` end with the runner's picture."""
        if kind is Trouble.NO_RUNNER and words:
            # Nothing can run without a runner, so there is a picture that is whole: ours.
            self.pulse.open()
        before = self._trouble.get(kind, "")
        if kind is not Trouble.LOGS:
            self._trouble.pop(Trouble.RUNNER_AWAY if kind is Trouble.NO_RUNNER else Trouble.NO_RUNNER, None)
        if words:
            self._trouble[kind] = words[:_TROUBLE_CHARACTERS]
        else:
            self._trouble.pop(kind, None)
        if before == self._trouble.get(kind, ""):
            return self._pump(now)
        self.pulse.want(HeartbeatReason.PERIOD)
        self._jobs.hold = self._hold()
        note = LogLine(
            "warning" if words else "info", "trouble" if words else "trouble over", {"kind": kind, "why": words}
        )
        return [note, *self._jobs.start_waiting(), *self._pump(now)]

    def on_stop(self, mode: StopMode, now: Moment) -> list[AgentEffect]:
        """Asked to stop; a later wish counts only if it is more urgent."""
        if self._stop is not None and _SEVERITY[mode] <= _SEVERITY[self._stop]:
            return []
        self._stop = mode
        self._stop_seq = self.pulse.seq
        self._deadline_ns = None
        self.pulse.want(HeartbeatReason.STOPPING)
        self.pulse.end_pause(now.boottime_ns)
        timeout_ms: int | None = None
        if mode in (StopMode.INTERRUPT, StopMode.KILL):
            timeout_ms = self._identity.stop_timeout_ms if mode is StopMode.INTERRUPT else 0
            self._deadline_ns = now.boottime_ns + (timeout_ms + _LAST_ENDS_MS) * NS_PER_MS
        effects: list[AgentEffect] = [LogLine("info", "stopping", {"mode": mode.value, "jobs": len(self.books.by_job)})]
        self._jobs.hold = self._hold()
        effects += self._jobs.start_waiting()
        for allocation in list(self.books.by_job.values()):
            effects += self._close_to_stop(allocation, timeout_ms)
        return effects + self._pump(now)

    def check(self) -> None:
        """Raises AssertionError where an invariant does not hold."""
        self.books.check()
        assert self.pulse.applied <= self.pulse.seq
        held = {allocation.operation for allocation in self.books.allocations.values()}
        assert self.books.specs.keys() <= held, "specs of operations that are not here"
        for allocation in self.books.allocations.values():
            assert len(allocation.unstarted) <= LARGEST_ALLOCATION_JOBS, allocation.id

    def statistics(self) -> dict[str, int]:
        return {
            **self.books.statistics(),
            "seq": self.pulse.seq,
            "applied": self.pulse.applied,
            "lost_in_a_row": self.pulse.lost_in_a_row,
            "void": self.void,
            "term": self.term,
        }

    def _defect(self, orders: Orders) -> str:
        """Why these orders are void; empty: they are to be obeyed."""
        if orders.node != self._identity.node:
            return f"for {orders.node}"
        if orders.incarnation != self._identity.incarnation:
            return "for another life of this agent"
        if orders.seq != self.pulse.seq or not self.pulse.in_flight:
            return f"not the answer that is awaited, which is {self.pulse.seq if self.pulse.in_flight else 'none'}"
        if orders.term < self.term:
            return f"term {orders.term} is over, term {self.term} is known"
        return defect_of_figures(orders, self.books)

    def _enrol(self, now: Moment) -> list[AgentEffect]:
        if self._enrolling:
            return []
        self._enrolling = True
        pause_ms = 0
        if self._enrolled_ns is not None:
            pause_ms = max(0, _ENROL_AGAIN_MS - (now.boottime_ns - self._enrolled_ns) // NS_PER_MS)
        return [Enrol(pause_ms)]

    def _start(self, order: Start) -> list[AgentEffect]:
        fields: dict[str, str | int] = {"operation": order.operation, "allocation": order.allocation}
        if order.allocation in self.books.allocations:
            return [LogLine("info", "known allocation started again", fields)]
        if order.spec is not None and order.spec.operation == order.operation:
            self.books.specs.setdefault(order.operation, order.spec)
        slots = self.books.fresh(order.operation, order.slots)
        why = self._jobs.hold
        if not is_legal(order.operation):
            why = "its operation has no legal id"
        elif order.operation not in self.books.specs:
            why = "its operation is not known here and no spec came with it"
        elif not self.books.total.dominates(order.resources):
            why = "it is larger than this host"
        elif not slots:
            why = "all its jobs are here already"
        state = AllocationState.ENDED if why else AllocationState.WAITING
        self.books.add(Allocation(order.allocation, order.operation, order.resources, state, slots))
        if why:
            return [LogLine("info", "given back", {**fields, "why": why, "unstarted": len(slots)})]
        return [LogLine("debug", "allocation given", {**fields, "unstarted": len(slots)})]

    def _extend(self, order: Extend) -> list[AgentEffect]:
        allocation = self.books.allocations.get(order.allocation)
        if allocation is None:
            # It is not in the picture either, by which the allocator sees that these never arrived.
            return [LogLine("info", "unknown allocation extended", {"allocation": order.allocation})]
        self.books.extend(allocation, self.books.fresh(allocation.operation, order.slots))
        return []

    def _take_back(self, order: TakeBack) -> list[AgentEffect]:
        allocation = self.books.allocations.get(order.allocation)
        if allocation is None or allocation.state is AllocationState.ENDED:
            return []
        reason = f"{order.reason.value.replace('_', ' ')}: {order.detail}" if order.detail else order.reason.value
        return self._jobs.close(allocation, order.timeout_ms, reason)

    def _forget(self, order: Forget, keep: set[AllocationId]) -> list[AgentEffect]:
        """What was extended a moment ago is kept: it has slots to give back that no heartbeat has told of."""
        recorded = [key for key in order.ends if self.books.strike_end(key)]
        for allocation_id in order.allocations:
            if allocation_id not in keep:
                self.books.forget(allocation_id)
        self.books.drop_specs()
        return [Tell(Acknowledge(recorded))] if recorded else []

    def _on_picture(self, picture: Picture, now: Moment) -> list[AgentEffect]:
        self.pulse.open()
        self._isolation = picture.isolation
        self._trouble.pop(Trouble.RUNNER_AWAY, None)
        self._trouble.pop(Trouble.NO_RUNNER, None)
        self._jobs.hold = self._hold()
        effects = self._jobs.on_picture(picture, now)
        if picture.trouble:
            effects.append(LogLine("warning", "trouble of the runner", {"why": picture.trouble}))
        self.pulse.want(HeartbeatReason.JOB_ENDED if picture.ended else HeartbeatReason.PERIOD)
        if self._stop is not None:
            timeout_ms = self._identity.stop_timeout_ms if self._stop is StopMode.INTERRUPT else None
            for allocation in list(self.books.by_job.values()):
                effects += self._close_to_stop(allocation, timeout_ms)
        return effects

    def _close_to_stop(self, allocation: Allocation, timeout_ms: int | None) -> list[AgentEffect]:
        spec = self.books.specs.get(allocation.operation)
        if timeout_ms is not None and spec is not None:
            timeout_ms = min(timeout_ms, spec.interruption_timeout_ms)
        return self._jobs.close(allocation, timeout_ms, _STOP_REASON)

    def _hold(self) -> str:
        """Why no job starts; empty: jobs start."""
        return "the agent is stopping" if self._stop is not None else self._all_trouble()

    def _all_trouble(self) -> str:
        words = [*self._trouble.values()]
        if self.books.ends() >= MOST_UNRECORDED_ENDS:
            words.append(
                f"{self.books.ends()} ends of jobs are not recorded yet, at most {MOST_UNRECORDED_ENDS} may wait"
            )
        if self.books.picture_bytes() > _LARGEST_PICTURE_BYTES:
            words.append(f"{len(self.books.allocations)} allocations are as many as one heartbeat can tell of")
        return "; ".join(words)[:_TROUBLE_CHARACTERS]

    def _pump(self, now: Moment) -> list[AgentEffect]:
        """Whatever is due: the end of the agent, or a heartbeat."""
        if self._left:
            return []
        if self._may_leave(now):
            self._left = True
            with_runner = self._stop is not StopMode.LEAVE
            effects: list[AgentEffect] = [Tell(EndAll(0, _STOP_REASON))] if with_runner else []
            return [*effects, Leave(with_runner)]
        reason = self.pulse.take(now.boottime_ns)
        return [Beat(self._heartbeat(reason, now))] if reason is not None else []

    def _may_leave(self, now: Moment) -> bool:
        if self._stop is None:
            return False
        if self._stop is StopMode.KILL or (self._deadline_ns is not None and now.boottime_ns >= self._deadline_ns):
            return True
        told = self.pulse.settled > self._stop_seq
        if self._stop is StopMode.LEAVE:
            return told or not self.pulse.is_open
        if self.books.by_job or not self.pulse.is_open:
            return False
        if self._deadline_ns is None:
            self._deadline_ns = now.boottime_ns + (self._identity.stop_timeout_ms + _LAST_ENDS_MS) * NS_PER_MS
        return told and not self.books.ends()

    def _heartbeat(self, reason: HeartbeatReason, now: Moment) -> Heartbeat:
        state = NodeState.OPEN if self._stop is None else NodeState.DRAINING
        if self._stop is StopMode.INTERRUPT:
            state = NodeState.STOPPING
        heartbeat = Heartbeat(
            node=self._identity.node,
            tree=self._identity.tree,
            incarnation=self._identity.incarnation,
            seq=self.pulse.seq,
            applied=self.pulse.applied,
            term=self.term,
            reason=reason,
            total=self.books.total,
            allocations=self.books.report(now),
            ends_waiting=self.books.ends(),
            state=state,
            isolation=self._isolation,
            trouble=self._all_trouble(),
        )
        if not self.books.ends():
            return heartbeat
        ends = self.books.ends_within(LARGEST_MESSAGE_BYTES - len(_encoder.encode(heartbeat)) - 100)
        return msgspec.structs.replace(heartbeat, ends=ends, ends_waiting=self.books.ends() - len(ends))
