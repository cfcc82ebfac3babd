"""The shell of integral: it applies one advance at a time, and confirms the advance when it is saved.

A standby receives no messages: all state is in the saved record, which a new leader reads after it has claimed the record's key.
"""

from __future__ import annotations

import anyio
import msgspec

from headrace.bus import BusError
from headrace.ids import TreeName, tree_name
from headrace.obs.logging import logger
from headrace.runtime.endpoints import Caller, CallerKind
from headrace.runtime.engine import Figure, counter
from headrace.runtime.fenced_writes import KeyFenced
from headrace.runtime.role import Deposed, Role, role_of
from headrace.runtime.service import Runtime
from headrace.runtime.shell import Shell
from headrace.wire import subjects
from headrace.wire.integral import Advance, GetVolumes
from headrace.wire.refusals import NotReady
from headrace.wire.version import Term
from headrace_integral.engine import IntegralEngine, Save
from headrace_integral.settings import IntegralSettings
from headrace_integral.store import VolumeStore, term_of_volumes


async def serve(runtime: Runtime[IntegralSettings]) -> None:
    """Run the service until it is asked to stop."""
    tree = tree_name(runtime.settings.tree)

    async def with_role(role: Role) -> None:
        store = VolumeStore(await runtime.bus.key_value(subjects.VOLUMES_BUCKET), tree, role.term)
        await IntegralService(runtime, tree, role, store).run()

    async def recorded() -> Term:
        return await term_of_volumes(await runtime.bus.key_value(subjects.VOLUMES_BUCKET), tree)

    await runtime.lead(role_of("integral", tree), with_role, recorded=recorded)


class IntegralService:
    """The integral service of one tree, while it leads in one term."""

    def __init__(self, runtime: Runtime[IntegralSettings], tree: TreeName, role: Role, store: VolumeStore) -> None:
        self._runtime = runtime
        self._tree = tree
        self._role = role
        self._store = store
        self._turn = anyio.Lock()
        self.engine = IntegralEngine(tree, role.term)
        self._shell: Shell[Save] = Shell(
            "integral", self.engine, runtime.clock, runtime.endpoints, figures=self.figures
        )
        self._not_saved = 0

    async def run(self) -> None:
        """Restore the volumes, then answer until the process is asked to stop."""
        record = await self._store.claim()
        self._shell.perform(self.engine.on_restored(record, self._shell.now()))
        self._runtime.terms.see(role_of("fair_share", self._tree), self.engine.term)
        endpoints, tree = self._runtime.endpoints, self._tree
        advances = await endpoints.serve(
            subjects.integral_advance(tree),
            Advance,
            CallerKind.SERVICE,
            self._on_advance,
            concurrency=1,
            pending=self._runtime.settings.waiting_advances,
        )
        volumes = await endpoints.serve(subjects.integral_volumes(tree), GetVolumes, CallerKind.SERVICE, self._on_get)
        self._runtime.tasks.start_soon(self._shell.watch, self._runtime, self._role)
        logger().info("integral serves", tree=tree, term=self._role.term, version=str(self.engine.record.version))
        await self._runtime.stopping.wait()
        await advances.close()
        await volumes.close()

    def figures(self) -> list[Figure]:
        """Return the metric that counts failures to save."""
        return [counter("volumes_not_saved", "advances", self._not_saved, "Advances that could not be saved.")]

    async def _on_advance(self, request: Advance, _caller: Caller) -> msgspec.Struct:
        async with self._turn:
            if request.version.term > self.engine.term and not await self._is_taken(request.version.term):
                return NotReady(f"term {request.version.term} of fair_share is not recorded as taken")
            outcome = self.engine.on_advance(request, self._shell.now())
            if outcome.answer is not None:
                logger().debug("advance answered", version=str(request.version), answer=type(outcome.answer).__name__)
                return outcome.answer
            (save,) = outcome.effects
            return await self._save(save, request)

    async def _is_taken(self, term: Term) -> bool:
        return await self._runtime.terms.believes(self._runtime.bus, role_of("fair_share", self._tree), term)

    async def _save(self, save: Save, request: Advance) -> msgspec.Struct:
        try:
            await self._store.save(save.record)
        except KeyFenced as error:
            raise Deposed(str(error)) from None
        except BusError as error:
            self._not_saved += 1
            logger().warning("volumes not saved", tree=self._tree, version=str(request.version), error=str(error))
            return NotReady(f"the volumes cannot be saved: {error}")
        logger().debug("advance applied", tree=self._tree, version=str(request.version), dt_us=request.dt_us)
        return self._shell.perform(self.engine.on_saved(save.record, self._shell.now()))

    async def _on_get(self, request: GetVolumes, _caller: Caller) -> msgspec.Struct:
        return self._shell.perform(self.engine.on_get(request, self._shell.now()))
