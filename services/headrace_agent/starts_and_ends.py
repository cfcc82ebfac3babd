"""The jobs of a node between its books and its runner: what starts, what is ended, what a picture of the runner means.

Pure. A job is handed to the runner once; it is told again only to the very process that has not confirmed it, which by contract
starts nothing twice. Every message to the runner may be missed: what then differs shows in the runner's next picture.
"""

from __future__ import annotations

import msgspec

from headrace.ids import AllocationId
from headrace.resources import Resources
from headrace.wire.heartbeat import AllocationState, JobEnd, JobKey, JobResult, JobSpec
from headrace_agent.effects import AgentEffect, Identity, LogLine, Reconnect, Tell
from headrace_agent.host.environment import job_environment
from headrace_agent.node_allocations import Allocation, AllocationEvent, Job, Moment, NodeAllocations
from headrace_agent.runner.protocol import Interrupt, KeptJob, Picture, Run, Started

__all__ = ["AdoptionNote", "Jobs"]


class AdoptionNote(msgspec.Struct, frozen=True):
    """What the agent gives the runner along with a job, so that a later life of the agent can adopt it."""

    resources: Resources
    spec: JobSpec


#: The runner reads no larger figures.
_LARGEST_LOG_CAP = 2**60

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(AdoptionNote)


class Jobs:
    """`hold` says why nothing starts at the moment; what would start is given back."""

    def __init__(self, identity: Identity, books: NodeAllocations) -> None:
        self._identity = identity
        self._books = books
        self._runner_pid = 0
        self.hold = ""

    def start_waiting(self) -> list[AgentEffect]:
        """Starts waiting allocations in their order as far as there is room; gives all back while there is a reason not to start."""
        effects: list[AgentEffect] = []
        for allocation in self._books.waiting():
            if self.hold:
                self._books.move(allocation, AllocationEvent.CLOSE)
                effects.append(_note("info", "given back", allocation, why=self.hold))
            elif self._books.free().dominates(allocation.resources):
                self._books.move(allocation, AllocationEvent.ROOM)
                effects += self._run_next(allocation)
            else:
                break
        return effects

    def close(self, allocation: Allocation, timeout_ms: int | None, reason: str) -> list[AgentEffect]:
        """No next job; the one there is interrupted, unless `timeout_ms` is None."""
        self._books.move(allocation, AllocationEvent.CLOSE)
        if allocation.job is None or timeout_ms is None:
            return [_note("debug", "closing", allocation, why=reason)]
        before = allocation.interrupt
        if before is not None and before.timeout_ms <= timeout_ms:
            timeout_ms, reason = before.timeout_ms, before.reason
        allocation.interrupt = Interrupt(allocation.job.key, timeout_ms, reason)
        return [_note("debug", "interrupting", allocation, why=reason), Tell(allocation.interrupt)]

    def on_started(self, started: Started) -> list[AgentEffect]:
        allocation = self._books.by_job.get(started.job)
        if allocation is None or allocation.job is None:
            known = self._books.has_end(started.job)
            return [] if known else [Reconnect()]
        allocation.job.started = started
        return [_note("debug", "job started", allocation, pid=started.pid)]

    def on_ended(self, end: JobEnd, now: Moment) -> list[AgentEffect]:
        """An end, perhaps told before. The next job of its allocation starts at once."""
        if self._books.has_end(end.key):
            return []
        self._books.keep_end(end)
        effects: list[AgentEffect] = [_note_end(end)]
        allocation = self._books.by_job.get(end.key)
        if allocation is None:
            return effects
        self._books.job_over(allocation, now)
        if allocation.state is AllocationState.RUNNING and allocation.unstarted and not self.hold:
            self._books.move(allocation, AllocationEvent.NEXT)
            return effects + self._run_next(allocation)
        self._books.move(allocation, AllocationEvent.FINISH)
        effects.append(_note("debug", "allocation ended", allocation, unstarted=len(allocation.unstarted)))
        return effects + self.start_waiting()

    def on_picture(self, picture: Picture, now: Moment) -> list[AgentEffect]:
        """Brings books and runner together: what it has is believed, what it has not is told again or lost."""
        told = {kept.run.job for kept in picture.running} | {end.key for end in picture.ended}
        missing = [allocation for key, allocation in self._books.by_job.items() if key not in told]
        same_runner, self._runner_pid = picture.pid == self._runner_pid, picture.pid
        effects: list[AgentEffect] = []
        for kept in picture.running:
            effects += self._keep(kept)
        for end in picture.ended:
            effects += self.on_ended(end, now)
        for allocation in missing:
            effects += self._missing(allocation, same_runner, now)
        return effects + self.start_waiting()

    def _run_next(self, allocation: Allocation) -> list[AgentEffect]:
        key = self._books.hand_out(allocation, self._runner_pid)
        return [_note("debug", "starting job", allocation), Tell(self._run(allocation, key))]

    def _run(self, allocation: Allocation, key: JobKey) -> Run:
        spec = self._books.specs[allocation.operation]
        return Run(
            job=key,
            allocation=allocation.id,
            argv=spec.argv,
            environment=job_environment(self._identity.environment, spec, key, allocation.id, self._identity.node),
            working_directory=spec.working_directory,
            cpu=allocation.resources.cpu,
            memory_bytes=allocation.resources.memory,
            log_cap_bytes=min(spec.log_cap_bytes, _LARGEST_LOG_CAP),
            note=_encoder.encode(AdoptionNote(allocation.resources, spec)),
        )

    def _keep(self, kept: KeptJob) -> list[AgentEffect]:
        allocation = self._books.by_job.get(kept.run.job)
        if allocation is not None and allocation.job is not None:
            allocation.job.started = kept.started
            allocation.job.runner_pid = self._runner_pid
            return [Tell(allocation.interrupt)] if allocation.interrupt is not None else []
        if self._books.has_end(kept.run.job) or AllocationId(kept.run.allocation) in self._books.allocations:
            return [Tell(Interrupt(kept.run.job, 0, "its allocation is over"))]
        return self._adopt(kept)

    def _adopt(self, kept: KeptJob) -> list[AgentEffect]:
        """A job of a former life of the agent. What else its allocation might have run is not known any more."""
        key = kept.run.job
        try:
            note = _decoder.decode(kept.run.note)
            resources = note.resources
            if note.spec.operation == key.operation:
                self._books.specs.setdefault(key.operation, note.spec)
        except (msgspec.DecodeError, UnicodeDecodeError):
            resources = Resources(user_slots=1, cpu=kept.run.cpu, memory=kept.run.memory_bytes)
        allocation = Allocation(
            id=AllocationId(kept.run.allocation),
            operation=key.operation,
            resources=resources,
            state=AllocationState.RUNNING,
            unstarted=[],
            job=Job(key, self._runner_pid, kept.started),
        )
        self._books.add(allocation)
        return [_note("info", "adopted", allocation, pid=kept.started.pid)]

    def _missing(self, allocation: Allocation, same_runner: bool, now: Moment) -> list[AgentEffect]:
        job = allocation.job
        assert job is not None, allocation.id
        if same_runner and job.started is None:
            again: list[AgentEffect] = [Tell(self._run(allocation, job.key))]
            return again + ([Tell(allocation.interrupt)] if allocation.interrupt is not None else [])
        end = JobEnd(
            operation=job.key.operation,
            index=job.key.index,
            attempt=job.key.attempt,
            allocation=allocation.id,
            result=JobResult.LOST,
            reason="the runner of this host does not know it any more",
            started_at_ms=job.started.started_at_ms if job.started is not None else now.wall_ms,
            ended_at_ms=now.wall_ms,
        )
        return self.on_ended(end, now)


def _note(level: str, event: str, allocation: Allocation, **more: str | int) -> LogLine:
    fields: dict[str, str | int] = {"operation": allocation.operation, "allocation": allocation.id}
    if allocation.job is not None:
        fields["index"] = allocation.job.key.index
        fields["attempt"] = allocation.job.key.attempt
    return LogLine("info" if level == "info" else "debug", event, {**fields, **more})


def _note_end(end: JobEnd) -> LogLine:
    fields: dict[str, str | int] = {
        "operation": end.operation,
        "allocation": end.allocation,
        "index": end.index,
        "attempt": end.attempt,
        "result": end.result.value,
        "reason": end.reason,
    }
    if end.exit_code is not None:
        fields["exit_code"] = end.exit_code
    return LogLine("debug", "job ended", fields)
