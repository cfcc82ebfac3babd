"""What must hold at every step, and what must have come true when all faults are over.

Judged by the truth on the hosts, by the log, and by the engines' own checks.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from headrace.ids import OperationId
from headrace.resources import ZERO, Resources
from headrace.runtime.shell import Shell
from headrace.wire import subjects
from headrace.wire.consumption import Level, unpack
from headrace.wire.heartbeat import JobResult
from headrace.wire.operations import FINAL_STATES, OperationState
from headrace_allocator.engine import AllocatorEngine
from tests.simulation.recorded import Violation

if TYPE_CHECKING:
    from tests.simulation.world import World

__all__ = ["Invariants"]

#: Who was succeeded and can hear of it ends within this: a request to the bucket of leases may have to time out first.
_GONE_WITHIN_S: Final = 8.0
#: As what the end of a job counts that understands its signal, by exit status.
_TOLD_BY_EXIT: Final[dict[int | None, JobResult]] = {0: JobResult.COMPLETED, 75: JobResult.ABORTED}


class Invariants:
    """Looks at one world."""

    def __init__(self, world: World) -> None:
        self._world = world
        #: By process that was succeeded and serves all the same: since when.
        self._succeeded: dict[str, float] = {}
        #: By host: the highest term that an agent of it obeyed.
        self._obeyed: dict[str, int] = {}

    def check(self) -> None:
        """Raises `Violation`, and whatever a callback raised that nobody awaits."""
        world = self._world
        world.recorded.follow()
        if world.loop.unheard:
            raise world.loop.unheard[0]
        if world.truth.violations:
            raise Violation(world.truth.violations[0])
        for host in world.hosts.values():
            if len(host.living) > host.cores:
                raise Violation(f"host {host.name} of {host.cores} cores runs {len(host.living)} jobs of one core")
        for process, shell in self._shells():
            broken = shell._engine.check()
            if broken:
                raise Violation(f"{process}: {broken[0]}")
            if isinstance(shell._engine, AllocatorEngine) and shell._engine.foreign_claims:
                raise Violation(f"{process}: takes an honest node for one that speaks of others' jobs")
        self._check_terms()
        self._check_usage()

    def _shells(self) -> list[tuple[str, Shell[Any]]]:
        """Those of processes that live and run."""
        loop = self._world.loop
        return [
            (process, shell)
            for process, shell in self._world.shells.items()
            if not loop.is_killed(process) and not loop.is_frozen(process)
        ]

    def _check_terms(self) -> None:
        """No agent obeys a lower term than before; who was succeeded is soon gone."""
        for host in self._world.hosts.values():
            if host.agent is None:
                continue
            # A new life has obeyed nobody yet, and remembers none: all the same it must not obey who was succeeded.
            obeyed, term = self._obeyed.get(host.name, 0), host.agent.engine.term
            if 0 < term < obeyed:
                raise Violation(f"agent {host.name} obeys term {term} after term {obeyed}")
            self._obeyed[host.name] = max(obeyed, term)
        leading: dict[str, list[tuple[int, str]]] = defaultdict(list)
        for process, shell in self._shells():
            if shell._role is not None and self._hears(process):
                leading[shell._role.name].append((shell._role.term, process))
        succeeded = {process for several in leading.values() for _, process in sorted(several)[:-1]}
        now_s = self._world.loop.time()
        self._succeeded = {process: self._succeeded.get(process, now_s) for process in sorted(succeeded)}
        for process, since_s in self._succeeded.items():
            if now_s - since_s > _GONE_WITHIN_S:
                raise Violation(f"{process} was succeeded {now_s - since_s:.1f} s ago and still serves")

    def _hears(self, process: str) -> bool:
        """True if nothing keeps a process from reading its lease."""
        server = self._world.server
        return (
            server.has_leader
            and server.faults.drop == 0.0
            and process not in server.deaf
            and not any(name == process for name, _ in server.cut)
            and any(client.process == process for client in server.clients)
        )

    def _check_usage(self) -> None:
        """What an allocator tells of an operation's usage is the sum of its allocations."""
        for process, shell in self._shells():
            if not process.startswith("allocator"):
                continue
            service: Any = shell._perform.__self__  # type: ignore[union-attr]
            facts, telling = service.engine.facts, service._usage
            if telling._changed.is_set() or telling._publishing.locked() or facts.touched or facts.gone:
                continue
            held: dict[OperationId, list[Resources]] = defaultdict(list)
            for node in facts.nodes.values():
                for allocation in (*node.allocations.values(), *node.holds.values()):
                    held[allocation.operation].append(allocation.usage)
            for name in facts.operations:
                told = telling._publisher.items.get(name)
                usage = told.usage + told.precommit if told is not None else ZERO
                if usage != Resources.sum(held[name]):
                    raise Violation(f"{process} tells usage {usage} of {name}, and its allocations hold {held[name]}")

    # --- when all is over -----------------------------------------------------------------------------------------

    def is_all_over(self) -> bool:
        """True once every operation that anybody started has ended."""
        self._world.recorded.follow()
        return all(each.state in FINAL_STATES for each in self._world.recorded.operations.values())

    def defects_of_end(self) -> list[str]:
        """Words on what has not come true though all faults are over, or is left over."""
        world = self._world
        defects = [defect for name in world.accepted for defect in self._defects_of_operation(name)]
        for host in world.hosts.values():
            if host.living:
                defects.append(f"jobs still run after everything ended: {sorted(host.living)[:3]}")
            if host.is_on and host.kept:
                defects.append(f"{host.name} still keeps ends: {sorted(host.kept)[:3]}")
        for process, shell in self._shells():
            if process.startswith("allocator"):
                facts = shell._perform.__self__.engine.facts  # type: ignore[union-attr]
                held = [
                    one.id
                    for node in facts.nodes.values()
                    for one in (*node.allocations.values(), *node.holds.values())
                ]
                if held:
                    defects.append(f"{process} still books {held[:3]}")
        return [*defects, *self._deaf_readers(), *self._miscounted_runs()]

    def _miscounted_runs(self) -> Iterator[str]:
        """Words on runs whose end the log has, if consumption has more or fewer at any level."""
        recorded = sum(len(each.ends) for each in self._world.recorded.operations.values())
        counted = dict.fromkeys(Level, 0)
        for key, entry in self._world.server.store.bucket(subjects.CONSUMPTION_BUCKET, 1).entries().items():
            level = key.partition(".")[0]
            if level in list(Level):
                counted[Level(level)] += sum(row.sums.runs for row in unpack(entry.value).rows)
        if set(counted.values()) != {recorded}:
            yield f"{recorded} runs ended, and consumption counts {counted}"

    def _deaf_readers(self) -> Iterator[str]:
        """Words on readers of snapshots that do not follow the present publisher."""
        leading = {shell._role.name: (process, shell) for process, shell in self._shells() if shell._role is not None}
        pairs = [("allocator", "fair_share", "_shares"), ("fair_share", "allocator", "_usage")]
        of_trees = [
            (f"{one}.{tree}", f"{other}.{tree}", name) for tree in self._world.trees for one, other, name in pairs
        ]
        for reader, publisher, name in of_trees:
            if reader in leading and publisher in leading:
                process, shell = leading[reader]
                read = getattr(shell._perform.__self__, name).version.term  # type: ignore[union-attr]
                told = leading[publisher][1]._role.term  # type: ignore[union-attr]
                if read != told:
                    yield f"{process} reads snapshots of term {read}, and those of term {told} are published"

    def _defects_of_operation(self, name: OperationId) -> Iterator[str]:
        world, spec = self._world, self._world.accepted[name]
        view = world.ended.get(name)
        if view is None:
            yield f"{name} has not ended"
            return
        runs = [each for each in world.truth.processes if each.key.operation == name]
        done = {index for (operation, index) in world.truth.done if operation == name}
        if view.state is OperationState.COMPLETED and name not in world.stopped:
            if len(done) != spec.job_count:
                yield f"{name} completed, and {len(done)} of {spec.job_count} jobs really did"
            if view.completed_jobs != spec.job_count:
                yield f"{name} completed with {view.completed_jobs} of {spec.job_count} jobs"
        for each in runs if spec.interruptible else ():
            end, told = world.recorded.end_of(each.key), _TOLD_BY_EXIT.get(each.exit_code)
            if end is not None and told is not None and end not in (told, JobResult.LOST):
                yield f"{each.key} ended with {each.exit_code} and counts as {end}"
        if view.state is OperationState.FAILED and not any(each.exit_code for each in runs):
            yield f"{name} failed, and none of its processes did"
        if view.state is OperationState.ABORTED and name not in world.stopped:
            yield f"{name} is aborted, and nobody asked for that"
