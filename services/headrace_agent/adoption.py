"""Adoption: bring the node's allocations in line with a full report (`FullReport`) of the runner.

Pure. The agent believes what the runner reports. A job of the agent that is missing in the report is either sent to the runner again
or counted as lost. For a job in the report that an earlier agent process started, a new allocation is made.
"""

from __future__ import annotations

import msgspec

from headrace.ids import AllocationId
from headrace.resources import Resources
from headrace.runtime.engine import Moment
from headrace.wire.heartbeat import AllocationState, JobEnd, JobResult
from headrace.wire.preemption import read_record
from headrace_agent.allocations.allocation import Allocation, Job
from headrace_agent.allocations.node_allocations import NodeAllocations
from headrace_agent.effects import AgentEffect, SendToRunner, line_about
from headrace_agent.run_order import note_in
from headrace_agent.runner.protocol import FullReport, Interrupt, KeptJob
from headrace_agent.starts_and_ends import StartsAndEnds


class Adoption:
    """Reconciles the allocations of a node with the jobs of its runner."""

    def __init__(self, held: NodeAllocations, jobs: StartsAndEnds) -> None:
        self._held = held
        self._jobs = jobs

    def on_picture(self, picture: FullReport, now: Moment) -> list[AgentEffect]:
        """Process a full report of the runner, then start waiting allocations as far as there are free resources."""
        same_runner, self._jobs.runner_pid = picture.pid == self._jobs.runner_pid, picture.pid
        self._jobs.makes_folders = picture.makes_folders
        # The runner dropped its queued jobs when this agent said `Hello`. No job may be queued there again before the whole report is
        # processed.
        self._jobs.runs_ahead = False
        effects = self._catch_up(picture, now)
        told = {kept.run.job for kept in picture.running} | {end.key for end in picture.ended}
        missing = [allocation for key, allocation in self._held.by_job.items() if key not in told]
        for kept in picture.running:
            effects += self._keep(kept)
        for end in picture.ended:
            effects += self._jobs.on_ended(end, now)
        for allocation in missing:
            effects += self._tell_again_or_lose(allocation, same_runner, now)
        self._jobs.runs_ahead = picture.runs_ahead
        for allocation in list(self._held.by_job.values()):
            effects += self._jobs.not_ahead(allocation)
        return effects + self._jobs.start_waiting()

    def lose_all(self, reason: str, now: Moment) -> list[AgentEffect]:
        """Count all jobs as lost, because the runner does not report whether they run or have ended."""
        return [
            effect for allocation in list(self._held.by_job.values()) for effect in self._lose(allocation, reason, now)
        ]

    def _catch_up(self, picture: FullReport, now: Moment) -> list[AgentEffect]:
        """Record the queued jobs that the runner started by itself while no agent was connected to it."""
        ended = {end.key: end for end in picture.ended}
        effects: list[AgentEffect] = []
        for allocation in self._held.by_job.values():
            allocation.ahead = 0
            self._held.strike(allocation, ended)
        for kept in picture.running:
            known = self._held.by_id.get(AllocationId(kept.run.allocation))
            before = known.job if known is not None else None
            if known is not None and before is not None and before.key in ended and known.has(kept.run.job):
                effects += self._jobs.on_ended(ended[before.key], now, kept.run.job)
        return effects

    def _keep(self, kept: KeptJob) -> list[AgentEffect]:
        allocation = self._held.by_job.get(kept.run.job)
        if allocation is not None and allocation.job is not None:
            allocation.job = msgspec.structs.replace(allocation.job, started=kept.started)
            return [SendToRunner(allocation.interrupt)] if allocation.interrupt is not None else []
        if kept.run.job in self._held.ends or AllocationId(kept.run.allocation) in self._held.by_id:
            return [SendToRunner(Interrupt(kept.run.job, 0, "its allocation has ended"))]
        return self._adopt(kept)

    def _adopt(self, kept: KeptJob) -> list[AgentEffect]:
        """Make an allocation for a job that an earlier agent process started. If the job was interrupted, the allocation is closing.

        Only this job is known; the unstarted slots that the allocation had in the earlier process are not.
        """
        key = kept.run.job
        note = note_in(kept.run)
        if note is None:
            resources = Resources(user_slots=1, cpu=kept.run.cpu, memory=kept.run.memory_bytes)
        else:
            resources = note.resources
            if note.spec.operation == key.operation:
                self._held.specs.setdefault(key.operation, note.spec)
        allocation = Allocation(
            id=AllocationId(kept.run.allocation),
            operation=key.operation,
            resources=resources,
            state=AllocationState.RUNNING if kept.interrupted is None else AllocationState.CLOSING,
            unstarted=(),
            job=Job(key, kept.started),
            interrupt=kept.interrupted,
            start=kept.run.start,
            gpus=note.gpus if note is not None else (),
            preemption=read_record(kept.interrupted.note) if kept.interrupted is not None else None,
        )
        self._held.add(allocation)
        return [line_about("info", "adopted", allocation, pid=kept.started.pid)]

    def _tell_again_or_lose(self, allocation: Allocation, same_runner: bool, now: Moment) -> list[AgentEffect]:
        """Send a job whose start the runner has not confirmed to the same runner process again; count any other job as lost.

        A runner process never starts the same job twice, so it is safe to send the job again.
        """
        job = allocation.job
        assert job is not None, allocation.id
        if same_runner and job.started is None:
            again: list[AgentEffect] = [SendToRunner(self._jobs.run_order(allocation, job.key))]
            return again + ([SendToRunner(allocation.interrupt)] if allocation.interrupt is not None else [])
        return self._lose(allocation, "the runner of this host does not know the job any more", now)

    def _lose(self, allocation: Allocation, reason: str, now: Moment) -> list[AgentEffect]:
        job = allocation.job
        assert job is not None, allocation.id
        end = JobEnd(
            operation=job.key.operation,
            index=job.key.index,
            attempt=job.key.attempt,
            allocation=allocation.id,
            result=JobResult.LOST,
            reason=reason,
            started_at_ms=job.started.started_at_ms if job.started is not None else now.wall_ms,
            ended_at_ms=now.wall_ms,
        )
        return self._jobs.on_ended(end, now)
