"""The named places at which a process is killed or frozen. A test sees that each is there."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

__all__ = ["KILL_POINTS", "KillPoint"]


class KillPoint(NamedTuple):
    """A call of a function, right before it or right after."""

    #: The process: a service, `agent` or `runner`.
    role: str
    name: str
    when: Literal["before", "after"]
    module: str
    function: str
    #: True for a place that is passed only while the process starts.
    at_start: bool = False
    #: An operation of so many jobs is needed to pass it.
    most_jobs: int = 8

    @property
    def key(self) -> str:
        """Its name as that of a file."""
        return f"{self.role}.{self.name.replace(' ', '-')}"


_ADMISSION: Final = "headrace_admission."
_RUNNER: Final = "headrace_agent.runner."
#: By process, in the order of an operation's life.
KILL_POINTS: Final = (
    KillPoint("admission", "decided, not appended", "after", _ADMISSION + "log.recorder", "Recorder._taken"),
    KillPoint("admission", "appended, not taken", "before", _ADMISSION + "log.recorder", "Recorder._durable"),
    KillPoint("admission", "appended, not told", "before", _ADMISSION + "log.recorder", "Recorder._send"),
    KillPoint("admission", "appended, not answered", "after", _ADMISSION + "service", "AdmissionService._on_durable"),
    KillPoint("admission", "start decided, not sent", "after", _ADMISSION + "service", "AdmissionService._on_start"),
    KillPoint(
        "admission", "ends recorded, not answered", "after", _ADMISSION + "service", "AdmissionService._on_report"
    ),
    KillPoint(
        "admission", "checkpoint cut, not saved", "before", _ADMISSION + "log.checkpoint", "CheckpointStore.save"
    ),
    KillPoint(
        "admission", "checkpoint saved, log whole", "after", _ADMISSION + "log.checkpoint", "CheckpointStore.save"
    ),
    KillPoint(
        "admission", "log claimed", "after", _ADMISSION + "log.checkpoint", "CheckpointStore.claim", at_start=True
    ),
    KillPoint(
        "allocator", "attached", "after", "headrace_allocator.links.ledger_link", "LedgerLink.attach", at_start=True
    ),
    KillPoint(
        "allocator",
        "block drawn, not given out",
        "after",
        "headrace_allocator.links.ledger_link",
        "LedgerLink.draw",
        most_jobs=300,
    ),
    KillPoint(
        "allocator",
        "heartbeat decided, not answered",
        "after",
        "headrace_allocator.service",
        "AllocatorService._on_heartbeat",
    ),
    KillPoint(
        "allocator", "ends taken, not reported", "after", "headrace_allocator.links.ledger_link", "LedgerLink.report"
    ),
    KillPoint(
        "allocator", "ends recorded, not noted", "before", "headrace_allocator.engine", "AllocatorEngine.on_recorded"
    ),
    KillPoint("allocator", "release told", "after", "headrace_allocator.links.ledger_link", "LedgerLink.release"),
    KillPoint("agent", "answer got, not obeyed", "after", "headrace_agent.service", "Agent.ask"),
    KillPoint("agent", "orders obeyed", "after", "headrace_agent.engine", "AgentEngine.on_orders"),
    KillPoint("agent", "end heard, not reported", "after", "headrace_agent.service", "Agent._on_runner"),
    KillPoint("agent", "enrolled", "after", "headrace_agent.service", "Agent.enrol_once", at_start=True),
    KillPoint("runner", "job written, not forked", "after", _RUNNER + "files.kept_jobs", "KeptJobs.write_job"),
    KillPoint("runner", "forked, not written", "before", _RUNNER + "files.kept_jobs", "KeptJobs.write_process"),
    KillPoint("runner", "forked and written", "after", _RUNNER + "files.kept_jobs", "KeptJobs.write_process"),
    KillPoint("runner", "ended, not written", "before", _RUNNER + "files.kept_jobs", "KeptJobs.write_end"),
    KillPoint("runner", "end written, not told", "after", _RUNNER + "files.kept_jobs", "KeptJobs.write_end"),
    KillPoint("runner", "end told, not forgotten", "before", _RUNNER + "files.kept_jobs", "KeptJobs.forget"),
    KillPoint(
        "fair_share",
        "tree decided, not written",
        "after",
        "headrace_fair_share.engine",
        "FairShareEngine.on_change_request",
    ),
    KillPoint(
        "fair_share",
        "tree written, not taken",
        "before",
        "headrace_fair_share.engine",
        "FairShareEngine.on_tree_written",
    ),
    KillPoint(
        "fair_share", "shares computed, not told", "before", "headrace_fair_share.service", "FairShareService._publish"
    ),
    KillPoint("integral", "volumes advanced, not saved", "before", "headrace_integral.store", "VolumeStore.save"),
    KillPoint("integral", "volumes saved, not told", "after", "headrace_integral.store", "VolumeStore.save"),
)
