"""Starts and ends of this node's jobs: which jobs start, which are interrupted, and what follows from an end.

Pure. A job is sent to the runner once. It is sent again only to the same runner process, and only if this process has not confirmed the
job. That is safe, because a runner process never starts a job twice. Any message to the runner may be lost; the runner's next full report
then shows which message was lost.

The runner keeps the next jobs of an allocation in a queue and starts them by itself. To close an allocation the agent recalls the queued
jobs first, because only slots that will certainly not start may be returned to the allocator.
"""

from __future__ import annotations

from typing import Final

import msgspec

from headrace.errors import BadInput
from headrace.ids import AllocationId, operation_id
from headrace.runtime.engine import NS_PER_MS, Moment
from headrace.wire.heartbeat import AllocationState, Extend, Forget, JobEnd, JobKey, Start, TakeBack
from headrace_agent.allocations.allocation import Allocation, AllocationEvent
from headrace_agent.allocations.node_allocations import NodeAllocations
from headrace_agent.effects import AgentEffect, Identity, LogRecord, Reconnect, SendToRunner, line_about, line_about_end
from headrace_agent.files.operation_files import FilesFailure, FilesFault, OperationFiles, operation_of
from headrace_agent.run_order import interrupt_order, run_order
from headrace_agent.runner.protocol import Acknowledge, Recall, Run, RunAhead, Started

#: Largest number of jobs of one allocation that are queued at the runner. The queue is refilled when at most half of this number is left.
MOST_AHEAD: Final = 8
_NO_COMMAND: Final = "the agent does not know the command of its operation, because the note of its job cannot be read"


class StartsAndEnds:
    """The jobs of one node. While `hold` contains a reason, no job starts, and every allocation that would start is returned to the
    allocator.
    """

    def __init__(self, identity: Identity, held: NodeAllocations, files: OperationFiles) -> None:
        self._identity = identity
        self._held = held
        self._files = files
        #: Process id of the runner that sent the newest full report.
        self.runner_pid = 0
        #: True if the runner that sent the newest full report accepts queued jobs (`RunAhead`).
        self.runs_ahead = False
        #: True if the runner that sent the newest full report makes the jobs' folders for progress files.
        self.makes_folders = False
        self.hold = ""

    # --- orders of the allocator ------------------------------------------------------------------------------------

    def start(self, order: Start, now: Moment) -> list[AgentEffect]:
        """Add an allocation that is to start. If it cannot start here, return it to the allocator at once, with the reason."""
        fields: dict[str, str | int] = {"operation": order.operation, "allocation": order.allocation}
        if order.allocation in self._held.by_id:
            return [LogRecord("info", "start of a known allocation ignored", fields)]
        if order.spec is not None and order.spec.operation == order.operation:
            self._held.specs.setdefault(order.operation, order.spec)
        slots = self._held.fresh(order.operation, order.slots)
        why = self._why_given_back(order, bool(slots))
        state = AllocationState.ENDED if why else AllocationState.WAITING
        allocation = Allocation(
            *(order.allocation, order.operation, order.resources, state, tuple(slots)),
            given_back_for=why,
            start=order.record,
        )
        if order.waiting_timeout_ms is not None:
            allocation.waits_until_ns = now.steady_ns + order.waiting_timeout_ms * NS_PER_MS
        self._held.add(allocation)
        if why:
            return [LogRecord("info", "given back", {**fields, "why": why, "unstarted": len(slots)})]
        given = LogRecord("debug", "allocation given", {**fields, "unstarted": len(slots)})
        return [given, *self._files.want(self._held.specs.get(order.operation))]

    def extend(self, order: Extend) -> list[AgentEffect]:
        """Add slots to an allocation.

        If the allocation is not known here, the order is ignored. The next heartbeat does not list the allocation, so the allocator sees
        that the slots did not arrive. If the allocation was adopted with an unreadable note, it closes: this agent does not know the
        command of its jobs.
        """
        allocation = self._held.by_id.get(order.allocation)
        if allocation is None:
            return [LogRecord("info", "extension of an unknown allocation ignored", {"allocation": order.allocation})]
        self._held.extend(allocation, self._held.fresh(allocation.operation, order.slots))
        if allocation.operation not in self._held.specs:
            # The whole allocation is returned, and its running job continues. If only the new slots were returned, the next answer would
            # bring them again.
            return [self._give_back(allocation, _NO_COMMAND)]
        return self._hand_ahead(allocation)

    def take_back(self, order: TakeBack) -> list[AgentEffect]:
        """Close an allocation that the allocator takes back."""
        allocation = self._held.by_id.get(order.allocation)
        if allocation is None or allocation.state is AllocationState.ENDED:
            return []
        allocation.preemption = order.preemption or allocation.preemption
        reason = order.reason.value.replace("_", " ") + (f": {order.detail}" if order.detail else "")
        return self.close(allocation, order.timeout_ms, reason)

    def forget(self, order: Forget, keep: set[AllocationId]) -> list[AgentEffect]:
        """Drop the ends that admission has recorded and the allocations that the allocator has forgotten.

        Allocations in `keep` stay: the same answer extended them, so they have slots to return that no heartbeat has reported
        yet.
        """
        recorded = [key for key in order.ends if self._held.ends.strike(key)]
        for allocation_id in order.allocations:
            if allocation_id not in keep:
                self._held.forget(allocation_id)
        if order.allocations:
            self._held.drop_specs()
        self._files.drop_failures(self._held.specs)
        return [SendToRunner(Acknowledge(recorded))] if recorded else []

    # --- reports of the runner --------------------------------------------------------------------------------------

    def on_started(self, started: Started) -> list[AgentEffect]:
        """Record that a job runs. If the agent does not know the job, it asks the runner for a full report."""
        allocation = self._held.by_job.get(started.job)
        if allocation is None or allocation.job is None:
            return [] if started.job in self._held.ends else [Reconnect()]
        allocation.job = msgspec.structs.replace(allocation.job, started=started)
        return [line_about("debug", "job started", allocation, pid=started.pid)]

    def on_ended(self, end: JobEnd, now: Moment, followed_by: JobKey | None = None) -> list[AgentEffect]:
        """Record the end of a job; an end that is known already is ignored.

        The next job of the allocation then starts, or has started already if the runner says so (`followed_by`).
        """
        if end.key in self._held.ends:
            return []
        allocation = self._held.by_job.get(end.key)
        if allocation is not None and end.start is None:
            # Take the record of the decision that started the allocation. The runner's report of the end lacks this record if the runner is
            # older than the agent, or if it did not see the end itself.
            end = msgspec.structs.replace(end, start=allocation.start)
        spec = self._held.specs.get(end.operation)
        self._held.ends.keep(end, spec.user if spec is not None else "")
        effects: list[AgentEffect] = [line_about_end(end)]
        if allocation is None:
            return effects
        self._held.job_over(allocation, now)
        if followed_by is not None:
            return effects + self._follow(allocation, followed_by)
        may_go_on = allocation.state is AllocationState.RUNNING and not allocation.closes_for and not self.hold
        allocation.ahead, allocation.closes_for = 0, ()
        if may_go_on and allocation.unstarted:
            self._held.move(allocation, AllocationEvent.NEXT)
            return effects + self._run_next(allocation)
        self._held.move(allocation, AllocationEvent.FINISH)
        effects.append(line_about("debug", "allocation ended", allocation, unstarted=len(allocation.unstarted)))
        return effects + self.start_waiting()

    def on_recalled(self, allocation_id: AllocationId) -> list[AgentEffect]:
        """Handle the runner's confirmation that no job of the allocation is queued. If the allocation was to close, it closes now."""
        allocation = self._held.by_id.get(allocation_id)
        return self.not_ahead(allocation) if allocation is not None else []

    def not_ahead(self, allocation: Allocation) -> list[AgentEffect]:
        """Record that no job of the allocation is queued at the runner. If a close of the allocation is pending, it happens now; if not,
        jobs are queued again.
        """
        reasons, allocation.ahead, allocation.closes_for = allocation.closes_for, 0, ()
        effects = [effect for timeout_ms, reason in reasons for effect in self.close(allocation, timeout_ms, reason)]
        return effects or self._hand_ahead(allocation)

    # --- starts and closes ------------------------------------------------------------------------------------------

    def start_waiting(self) -> list[AgentEffect]:
        """Start the waiting allocations in their order, as far as resources are free and the files of their operations are here.

        While `hold` names a reason, all waiting allocations are returned to the allocator instead.
        """
        effects: list[AgentEffect] = []
        for allocation in self._held.waiting():
            if self.hold:
                effects.append(self._give_back(allocation, self.hold))
            elif self._files.is_coming(self._held.specs.get(allocation.operation)):
                continue
            elif self._held.free().dominates(allocation.resources):
                why = self._why_no_gpus(allocation.resources.gpu)
                if why:
                    effects.append(self._give_back(allocation, why))
                    continue
                self._held.move(allocation, AllocationEvent.ROOM)
                effects += self._run_next(allocation)
            else:
                break
        return effects

    def on_files(self, folder: str, failure: FilesFailure | None) -> list[AgentEffect]:
        """Record that the files of an operation arrived or could not be fetched. Its waiting jobs then start, fail, or are returned."""
        self._files.fetched(folder, failure)
        operation = operation_of(folder)
        effects: list[AgentEffect] = []
        if failure is not None:
            effects.append(
                LogRecord(
                    "warning", "files of the operation not available", {"operation": operation, "why": failure.why}
                )
            )
        if failure is not None and failure.fault is FilesFault.PASSING:
            mine = [allocation for allocation in self._held.waiting() if allocation.operation == operation]
            effects += [self._give_back(allocation, failure.why) for allocation in mine]
        return effects + self.start_waiting()

    def give_back_overdue(self, now: Moment) -> list[AgentEffect]:
        """Return the allocations whose waiting time for free resources is over."""
        effects: list[AgentEffect] = [
            self._give_back(allocation, "its waiting time for free resources of this host is over")
            for allocation in self._held.waiting()
            if allocation.waits_until_ns is not None and allocation.waits_until_ns <= now.steady_ns
        ]
        # A smaller allocation that waited behind the returned allocations may fit now.
        return effects + self.start_waiting() if effects else []

    def close(self, allocation: Allocation, timeout_ms: int | None, reason: str) -> list[AgentEffect]:
        """Start no further job of the allocation, and interrupt its running job unless `timeout_ms` is None.

        If jobs of the allocation are queued at the runner, they are recalled first. The allocation closes when the runner confirms that
        none of its jobs is queued.
        """
        if allocation.ahead or allocation.closes_for:
            is_asked = bool(allocation.closes_for)
            if (timeout_ms, reason) not in allocation.closes_for:
                allocation.closes_for = (*allocation.closes_for, (timeout_ms, reason))
            return [] if is_asked else [SendToRunner(Recall(allocation.id))]
        self._held.move(allocation, AllocationEvent.CLOSE)
        if allocation.job is None or timeout_ms is None:
            return [line_about("debug", "closing", allocation, why=reason)]
        before = allocation.interrupt
        order = interrupt_order(allocation.job.key, allocation, timeout_ms, reason)
        if before is not None and before.timeout_ms <= timeout_ms:
            if before.note == order.note:
                # The runner knows this interruption already, or gets it again after its next full report, so no order is sent now.
                return []
            # The runner gets the new note with the present timeout and reason, because only the runner keeps the note if this agent process
            # ends.
            order = msgspec.structs.replace(before, note=order.note)
        allocation.interrupt = order
        return [line_about("debug", "interrupting", allocation, why=reason), SendToRunner(allocation.interrupt)]

    def run_order(self, allocation: Allocation, key: JobKey) -> Run:
        """Return the order by which the runner starts a job of the allocation."""
        spec = self._held.specs[allocation.operation]
        failure, files, makes_folders = self._files.failure_of(spec), self._files.folder_of(spec), self.makes_folders
        return run_order(self._identity, allocation, key, spec, files, failure, makes_folders=makes_folders)

    def _give_back(self, allocation: Allocation, why: str) -> LogRecord:
        self._held.move(allocation, AllocationEvent.CLOSE)
        allocation.given_back_for = why
        return line_about("info", "given back", allocation, why=why)

    def _run_next(self, allocation: Allocation) -> list[AgentEffect]:
        key = self._held.hand_out(allocation)
        order = self.run_order(allocation, key)
        if order.not_started_for:
            # The other jobs of the allocation would fail in the same way, so the allocation closes.
            self._held.move(allocation, AllocationEvent.CLOSE)
        return [line_about("debug", "starting job", allocation), SendToRunner(order), *self._hand_ahead(allocation)]

    def _follow(self, allocation: Allocation, key: JobKey) -> list[AgentEffect]:
        """Make a queued job that the runner has started by itself the running job of its allocation.

        If the allocation has no slot for the job, or the job's end is known already, end the allocation and ask the runner for a full
        report.
        """
        places = [place for place, slot in enumerate(allocation.unstarted) if allocation.key_of(slot) == key]
        if not places or key in self._held.ends:
            self._held.strike(
                allocation, [one for one in map(allocation.key_of, allocation.unstarted) if one in self._held.ends]
            )
            allocation.ahead, allocation.closes_for = 0, ()
            self._held.move(allocation, AllocationEvent.FINISH)
            return [Reconnect()]
        self._held.hand_out(allocation, places[0])
        self._held.move(allocation, AllocationEvent.NEXT)
        allocation.ahead = max(0, allocation.ahead - 1)
        return [line_about("debug", "next job", allocation), *self._hand_ahead(allocation)]

    def _hand_ahead(self, allocation: Allocation) -> list[AgentEffect]:
        """If only few jobs of an allocation are queued at the runner, queue its next jobs there.

        The runner starts a queued job without waiting for the agent.
        """
        may = self.runs_ahead and allocation.state is AllocationState.RUNNING and not allocation.closes_for
        if not may or self.hold or allocation.ahead > MOST_AHEAD // 2:
            return []
        orders = [
            self.run_order(allocation, allocation.key_of(slot))
            for slot in allocation.unstarted[allocation.ahead : MOST_AHEAD]
        ]
        allocation.ahead += len(orders)
        return [SendToRunner(RunAhead(order)) for order in orders]

    def _why_no_gpus(self, wanted: int) -> str:
        """Return why the node cannot give an allocation its number of GPU devices, or an empty string if it can."""
        free = list(self._held.gpu_holders().values()).count(AllocationId("")) if wanted else 0
        return f"it needs {wanted} GPU devices, and {free} are free on this host" if wanted > free else ""

    def _why_given_back(self, order: Start, has_slots: bool) -> str:
        """Return the reason to return a new allocation at once, or an empty string if the agent accepts it."""
        if not _is_legal(order.operation):
            return "the id of its operation is not valid"
        if order.operation not in self._held.specs:
            return "its operation is not known here, and the order has no spec"
        if not self._held.total.dominates(order.resources):
            return "it needs more resources than this host has"
        return self.hold if has_slots else "all its jobs are on this host already"


def _is_legal(operation: str) -> bool:
    """Return True if the runner accepts the id of an operation.

    The runner makes ids parts of paths, and refuses orders with an id that is not legal.
    """
    try:
        operation_id(operation)
    except BadInput:
        return False
    return True
