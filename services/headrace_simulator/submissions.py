"""The jobs of a workload as requests to start operations, and the nodes that they run on. Pure."""

from __future__ import annotations

import heapq
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Final

import msgspec

from headrace.errors import BadInput
from headrace.ids import NodeName, OperationId, PoolName, TreeName, user_name_from_login
from headrace.resources import Resources
from headrace.wire.heartbeat import JobResult
from headrace.wire.operation_spec import OperationSpec
from headrace.wire.operations import StartOperation
from headrace.wire.replay import ReplayNode, ToldEntry
from headrace.wire.simulation import NodesOf, PoolOf, SimulationTask
from headrace_simulator.outages import Outage, outages_of
from headrace_simulator.recording import Action, JobRun
from headrace_simulator.workloads.workload import Workload, WorkloadJob

#: Memory of a core of a node whose memory is not known.
_BYTES_PER_CORE: Final = 4 * 2**30
#: Properties of jobs that name their pools, unless the task says another one: the first that the workload has.
_POOL_BY: Final = ("account", "queue", "group", "user")
#: Pool of the jobs for which the workload names none.
_NO_POOL: Final = PoolName("default")
_FOREIGN: Final = re.compile(r"[^\w.-]+", re.ASCII)
_LONGEST_LIMIT_MS: Final = 10 * 365 * 86_400_000
#: Longest time between the end of a job and the next submission of its user for which the user is taken to have waited for that end.
_LONGEST_PAUSE_MS: Final = 20 * 60_000
_NOBODY: Final = "nobody"


class Submission(msgspec.Struct, frozen=True, gc=False):
    """One job of the workload, with what the trace did not say filled in."""

    name: str
    pool: PoolName
    user: str
    at_ms: int
    runs_ms: int
    count: int
    size: Resources
    is_gang: bool
    limit_ms: int
    failed: bool
    #: Number of the submission of the same user whose end this one follows after `pause_ms`; -1: it does not wait for another one.
    after: int = -1
    pause_ms: int = 0

    @property
    def operation_length_ms(self) -> int:
        """The length of its run in milliseconds, at most its time limit."""
        return min(self.runs_ms, self.limit_ms) if self.limit_ms else self.runs_ms


class Plan(msgspec.Struct):
    """The submissions to simulate, and the nodes that they run on."""

    nodes: list[ReplayNode]
    submissions: list[Submission]
    notes: list[str]
    left_out: Counter[str]


class Submissions:
    """The submissions of a workload, in the order of their times. It is the source of a `World`."""

    def __init__(self, plan: Plan, tree: TreeName, task: SimulationTask, pool: PoolName | None) -> None:
        """`pool` is the pool of all operations; None: each submission says its own."""
        self._all, self._nodes, self._tree, self._task, self._pool = (
            list(plan.submissions),
            plan.nodes,
            tree,
            task,
            pool,
        )
        self._following: defaultdict[int, list[int]] = defaultdict(list)
        for number, each in enumerate(self._all):
            if each.after >= 0:
                self._following[each.after].append(number)
        self.past: Sequence[ToldEntry] = ()
        self.runs: Sequence[JobRun] = ()
        self.keeps_finished = 1_000
        self.specs: dict[OperationId, OperationSpec] = {}
        self.users: dict[OperationId, str] = {}
        #: Number of submissions that were yielded.
        self.done = 0

    @property
    def left(self) -> int:
        """The number of submissions that were not yielded yet."""
        return len(self._all) - self.done

    def requests(self) -> Iterator[Action]:
        """Yield a request for each submission that does not follow another one, and remember its spec."""
        for number, each in enumerate(self._all):
            if each.after < 0:
                yield self._request(number, each)

    def following(self, operation: OperationId, now_ms: int) -> Iterator[Action]:
        """Yield the requests that follow the end of an operation."""
        for number in self._following.pop(number_of(operation), ()):
            self._all[number] = each = msgspec.structs.replace(
                self._all[number], at_ms=now_ms + self._all[number].pause_ms
            )
            yield self._request(number, each)

    def outages(self) -> Iterator[Outage]:
        """Yield the failures of nodes in the order of their times; none unless the task wants failures."""
        task = self._task
        if not task.failures_ms:
            return iter(())
        names = [node.node for node in self._nodes]
        return outages_of(names, self._all[0].at_ms, task.failures_ms, task.repair_ms, task.seed)

    def _request(self, number: int, one: Submission) -> Action:
        operation = operation_of(number)
        self.done += 1
        spec = OperationSpec(
            self._pool or one.pool,
            ["-"],
            one.count,
            one.size,
            max_failed_job_count=1,
            tree=self._tree,
            is_gang=one.is_gang,
            time_limit_ms=one.limit_ms or None,
        )
        self.specs[operation], self.users[operation] = spec, one.user
        return Action(one.at_ms, one.user, StartOperation(operation, spec))

    def of(self, operation: OperationId) -> Submission:
        """Return the submission of an operation."""
        return self._all[number_of(operation)]

    def length_of(self, operation: OperationId, index: int, run: int) -> tuple[int, JobResult]:
        """Return the length in milliseconds and the result of each run of the operation's jobs. A run ends at its time limit."""
        one = self.of(operation)
        if one.operation_length_ms < one.runs_ms:
            return one.limit_ms, JobResult.TIMED_OUT
        return one.runs_ms, JobResult.FAILED if one.failed else JobResult.COMPLETED

    def kept_fraction(self, operation: OperationId) -> float:
        """Return the fraction of the work of a preempted run that need not be repeated."""
        return self._task.kept_fraction

    def forget(self, operation: OperationId) -> None:
        """Forget the spec and the user of an operation."""
        self.specs.pop(operation, None)
        self.users.pop(operation, None)


def operation_of(number: int) -> OperationId:
    """Return the id of the operation of the submission with this number."""
    return OperationId(f"job-{number}")


def number_of(operation: OperationId) -> int:
    """Return the number of the submission of an operation."""
    return int(operation[4:])


def planned(workload: Workload, task: SimulationTask) -> Plan:
    """Return the submissions and the nodes of a workload. Raises `BadInput` if there are no nodes or no jobs."""
    sizes = task.nodes or [NodesOf(each.count, each.size, each.tags) for each in workload.nodes]
    if not sizes:
        raise BadInput.because(
            "--nodes", f"the workload ({workload.format}) has no nodes. Name them, such as --nodes 32:cpu=16,memory=64G"
        )
    plan = Plan([], [], [*workload.notes], Counter(workload.left_out))
    if not task.nodes:
        plan.notes.append("the nodes are those of the workload")
    if any(not each.size.memory for each in sizes):
        plan.notes.append("nodes whose memory is not known have 4 GiB a core")
        sizes = [msgspec.structs.replace(each, size=_with_memory(each.size, _BYTES_PER_CORE)) for each in sizes]
    for each in sizes:
        for _ in range(each.count):
            plan.nodes.append(ReplayNode(NodeName(f"node-{len(plan.nodes)}"), each.size, each.tags))
    key = task.pool_by or next((name for name in _POOL_BY if any(getattr(job, name) for job in workload.jobs)), "")
    if key and not task.rules:
        plan.notes.append(f"the {key} of a job names its pool")
    per_core = min(each.size.memory * 100 // max(each.size.cpu, 1) for each in sizes)
    lacking = sum(not job.size.memory for job in workload.jobs)
    if lacking:
        plan.notes.append(
            f"{lacking} jobs without a known memory have {per_core / 2**30:.3g} GiB a core, as the nodes do"
        )
    limited = sum(job.limit_ms > 0 for job in workload.jobs)
    if limited < len(workload.jobs):
        plan.notes.append(f"{len(workload.jobs) - limited} jobs have no time limit")
    ends_ms: list[int] = []
    for job in sorted(workload.jobs, key=lambda each: each.submitted_ms):
        size = job.size if job.size.memory else _with_memory(job.size, per_core)
        fitting = _fitted(job, size, sizes)
        if fitting is None:
            plan.left_out["larger than the cluster"] += 1
            continue
        count, size = fitting
        limit_ms = min(job.limit_ms, _LONGEST_LIMIT_MS)
        pool, user = _pool_of(job, task.rules, key), _user_of(job.user)
        is_gang = job.together and count > 1
        one = Submission(
            job.name, pool, user, job.submitted_ms, job.runs_ms, count, size, is_gang, limit_ms, job.failed
        )
        plan.submissions.append(one)
        ends_ms.append(job.submitted_ms + max(0, job.waited_ms) + job.runs_ms)
    if task.feedback:
        _follow(plan, ends_ms)
    if not plan.submissions:
        raise BadInput.because("workload", "no job of the workload can be simulated: " + _reasons(workload, plan))
    return plan


def _follow(plan: Plan, ends_ms: Sequence[int]) -> None:
    """Make each submission that came soon after the end of its user's job before it follow that end.

    `ends_ms` are the ends that the workload recorded. Source: E. Shmueli, D. Feitelson, On simulation and design of parallel-systems
    schedulers: are we doing the right thing?, 2009.
    """
    running: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
    ended: dict[str, tuple[int, int]] = {}
    followed = 0
    for number, one in enumerate(plan.submissions):
        of_user = running[one.user]
        while of_user and of_user[0][0] <= one.at_ms:
            ended[one.user] = heapq.heappop(of_user)
        heapq.heappush(of_user, (ends_ms[number], number))
        end_ms, before = ended.get(one.user, (0, -1))
        if before >= 0 and one.at_ms - end_ms <= _LONGEST_PAUSE_MS:
            plan.submissions[number] = msgspec.structs.replace(one, after=before, pause_ms=one.at_ms - end_ms)
            followed += 1
    plan.notes.append(f"{followed} jobs follow the end of an earlier job of their user")


def _with_memory(size: Resources, per_core: int) -> Resources:
    return msgspec.structs.replace(size, memory=size.cpu * per_core // 100)


def _fitted(job: WorkloadJob, size: Resources, nodes: Sequence[NodesOf]) -> tuple[int, Resources] | None:
    """Return a number of jobs and the size of each, as wide as nodes allow. None if the nodes cannot run them together."""
    fits = [(each.count, _places(each.size, size)) for each in nodes]
    widest = max(places for _, places in fits)
    if not widest or (job.together and job.count > sum(count * places for count, places in fits)):
        return None
    if not job.together or job.count == 1:
        return job.count, size
    part = next(part for part in range(min(widest, job.count), 0, -1) if job.count % part == 0)
    count = job.count // part
    if count > sum(number * (places // part) for number, places in fits):
        return job.count, size
    return count, msgspec.structs.replace(size * part, user_slots=1)


def _places(node: Resources, size: Resources) -> int:
    return min(
        (have // need for have, need in zip(node.as_tuple(), size.as_tuple(), strict=True) if need),
        default=node.user_slots,
    )


def _pool_of(job: WorkloadJob, rules: Sequence[PoolOf], key: str) -> PoolName:
    for rule in rules:
        if all(not getattr(rule, name) or fnmatchcase(getattr(job, name), getattr(rule, name)) for name in _POOL_BY):
            return rule.pool
    name = _FOREIGN.sub("-", getattr(job, key)).strip("-.")[:100] if key else ""
    return PoolName(name) or _NO_POOL


def _user_of(name: str) -> str:
    try:
        return user_name_from_login(name)
    except BadInput:
        return _NOBODY


def _reasons(workload: Workload, plan: Plan) -> str:
    reasons = [f"{count} {reason}" for reason, count in plan.left_out.items()]
    if workload.damaged:
        line, why = workload.damaged[0]
        reasons.append(f"{workload.damaged_count} lines cannot be read, the first is line {line}: {why}")
    return ", ".join(reasons) or "it has none"
